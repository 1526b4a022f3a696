"""Which file manager a checkpoint gets: the one that renames, on POSIX storage only.

On local storage a rename replaces a file that exists. On HDFS it returns false instead, which Spark
accepts (`FileSystemBasedCheckpointFileManager.renameTempFile`), so the state file of a second
attempt would be dropped; on an object store it is a copy, which others can see incomplete. The
setting holds for a session, and each query has its own checkpoint.
"""

from __future__ import annotations

import logging
import re
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyspark.sql import SparkSession

from balancedstream.engine.starts import Places, around_starts

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


def renaming_on_posix_only(renaming: str) -> AbstractContextManager[None]:
    """While open, no query on other storage starts with the file manager that renames.

    Args:
        renaming: its class, as `FILE_MANAGER` names it.

    The first such query takes the setting out of its session for good: a query that starts at the
    same time must not bring it back. What starts later commits more slowly, and right.
    """

    def fit(spark: SparkSession, places: Places) -> AbstractContextManager[None]:
        if spark.conf.get(FILE_MANAGER, None) == renaming:
            hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
            default_fs = hadoop.get("fs.defaultFS", "file:///")
            for place in (places.checkpoint, places.output):
                if not is_posix(place, default_fs):
                    log.info("%s is not mounted: Spark's own file manager is used", place)
                    spark.conf.unset(FILE_MANAGER)
                    break
        return nullcontext()

    return around_starts(fit)
