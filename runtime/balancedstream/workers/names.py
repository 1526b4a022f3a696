"""Names that the driver and the tasks of a streaming query share: Spark's and our own."""

from __future__ import annotations

import re
from pathlib import Path

BATCH_PROPERTY = "streaming.sql.batchId"
"""Local property that Spark's StreamExecution sets for the tasks of a micro-batch: its number."""

QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Local property of StreamExecution for the id of the query."""

CHECKPOINT_LOCATION = "spark.sql.streaming.checkpointLocation"
"""Setting of the session: the folder in which each query's checkpoint is."""

CHECKPOINT_PROPERTY = "balancedstream.checkpoint"
"""Our local property for the location of the query's checkpoint; `engine.checkpoints` sets it."""

QUERY_NAME_PROPERTY = "balancedstream.query"
"""The same for the query's name, or its id if it has none."""

RUN_PROPERTY = "balancedstream.run"
"""The same for the id of this start of the query: Spark's job group may belong to the user."""

MAILBOX_OPTION = "balancedstream.mailbox"
"""Option of a balanced stream's control source: the mailbox, a folder on the driver's machine."""

LOCATION_FILE = "location"
"""File in the mailbox, written when the query starts: the location of its checkpoint."""

_PATH = re.compile(r"((?P<scheme>[a-zA-Z][-+.a-zA-Z0-9]*):)?(//[^/]*)?(?P<path>/.*)")


def find_folder(name: str) -> Path | None:
    """The local folder behind a path as Hadoop writes it; nothing in it is escaped.

    Returns:
        None if it is on storage that is no mounted file system.

    >>> find_folder("file:///checkpoints/a%20b").as_posix()
    '/checkpoints/a%20b'
    >>> find_folder("s3a://bucket/checkpoints")
    """
    found = _PATH.fullmatch(name)
    return Path(found["path"]) if found and found["scheme"] in (None, "file") else None
