"""Which file manager a checkpoint gets: the one that renames, on POSIX storage only.

On local storage a rename replaces a file that exists. On HDFS it returns false instead, which Spark
accepts (`FileSystemBasedCheckpointFileManager.renameTempFile`), so the state file of a second
attempt would be dropped; on an object store it is a copy, which others can see incomplete. The
setting holds for a session, and each query has its own checkpoint.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from pyspark.sql.streaming import DataStreamWriter

from balancedstream.workers.names import CHECKPOINT_LOCATION

log = logging.getLogger(__name__)

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def is_posix(location: str, default_fs: str) -> bool:
    """Whether a path is on storage that is mounted.

    Args:
        location: a path as Hadoop reads it, with or without a scheme.
        default_fs: Hadoop's `fs.defaultFS`, which counts for paths without one.

    >>> is_posix("/checkpoints/a", "file:///"), is_posix("/checkpoints/a", "hdfs://nn")
    (True, False)
    >>> is_posix("file:/checkpoints/a", "hdfs://nn"), is_posix("s3a://bucket/a", "file:///")
    (True, False)
    """
    scheme = _SCHEME.match(location) or _SCHEME.match(default_fs)
    return scheme is None or scheme[1].lower() == "file"


@contextmanager
def renaming_on_posix_only(renaming: str) -> Iterator[None]:
    """While open, no query on other storage starts with the file manager that renames.

    Args:
        renaming: its class, as `FILE_MANAGER` names it.

    The first such query takes the setting out of its session for good: a query that starts at the
    same time must not bring it back. What starts later commits more slowly, and right.
    """
    usual = {name: getattr(DataStreamWriter, name) for name in ("start", "toTable")}
    for name, start in usual.items():
        setattr(DataStreamWriter, name, _guard(start, renaming))
    try:
        yield
    finally:
        for name, start in usual.items():
            setattr(DataStreamWriter, name, start)


def _guard(start: Callable[..., Any], renaming: str) -> Callable[..., Any]:
    @wraps(start)
    def guarded(writer: DataStreamWriter, *args: Any, **options: Any) -> Any:
        conf = writer._spark.conf
        if conf.get(FILE_MANAGER, None) == renaming:
            given = _read_options(writer) | {name.lower(): value for name, value in options.items()}
            checkpoint = given.get("checkpointlocation") or conf.get(CHECKPOINT_LOCATION, "")
            # Spark keeps a log beside the files of a file sink, too.
            output = args[0] if args else given.get("path")
            hadoop = writer._spark.sparkContext._jsc.hadoopConfiguration()
            default_fs = hadoop.get("fs.defaultFS", "file:///")
            elsewhere = [p for p in (checkpoint, output or "") if not is_posix(p, default_fs)]
            if elsewhere:
                log.info("%s is not mounted: Spark's own file manager is used", elsewhere[0])
                conf.unset(FILE_MANAGER)
        return start(writer, *args, **options)

    return guarded


def _read_options(writer: DataStreamWriter) -> dict[str, str]:
    """The locations that were set on a writer, by lower-case name; Spark has no method for it."""
    field = writer._jwrite.getClass().getDeclaredField("extraOptions")
    field.setAccessible(True)
    found = field.get(writer._jwrite)
    names = ("checkpointlocation", "path")
    return {name: found.get(name).get() for name in names if found.contains(name)}
