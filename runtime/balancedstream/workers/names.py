"""What Spark calls things that the tasks of a streaming query look for, and what we add to them."""

from __future__ import annotations

import re
from pathlib import Path

BATCH_PROPERTY = "streaming.sql.batchId"
"""Local property that Spark's StreamExecution gives to the tasks of a micro-batch: its number."""

CHECKPOINT_PROPERTY = "balancedstream.checkpoint"
"""The same for where the query's checkpoint is; `engine.checkpoints` sets it."""

QUERY_PROPERTY = "balancedstream.query"
"""And for the query's name."""

RUN_PROPERTY = "balancedstream.run"
"""And for what tells this start of the query from others: Spark's job group may be the user's."""

MAILBOX_OPTION = "balancedstream.mailbox"
"""Option of a balanced stream's control source: a folder on the driver's machine."""

LOCATION_FILE = "location"
"""Written there when the query starts: where its checkpoint is."""

_PATH = re.compile(r"((?P<scheme>[a-zA-Z][-+.a-zA-Z0-9]*):)?(//[^/]*)?(?P<path>/.*)")


def find_folder(name: str) -> Path | None:
    """The folder that Hadoop's name of a path stands for; nothing in it is escaped.

    Returns:
        None where it is on storage that is no file system of the machine.

    >>> find_folder("file:///checkpoints/a%20b").as_posix()
    '/checkpoints/a%20b'
    >>> find_folder("s3a://bucket/checkpoints")
    """
    found = _PATH.fullmatch(name)
    return Path(found["path"]) if found and found["scheme"] in (None, "file") else None
