"""Which file manager a checkpoint gets: the one that renames, on POSIX storage only.

On local storage a rename replaces a file that exists. On HDFS it returns false instead, which Spark
accepts (`FileSystemBasedCheckpointFileManager.renameTempFile`), so the state file of a second
attempt would be dropped; on an object store it is a copy, which others can see incomplete.
"""

from __future__ import annotations

import re

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
