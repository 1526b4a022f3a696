"""Gives each query that starts the settings of a balanced query, and its session none of them.

They are settings of a session, and a session has more than this query: queries that the user
wants in another kind of store, readers of old checkpoints, batch jobs. What the user has set by the
time that a query starts always counts, and what goes with ours only then goes with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from balancedstream.engine.session.filemanagers import FILE_MANAGER, is_posix
from balancedstream.engine.session.formats import find_format
from balancedstream.engine.session.settings import (
    CHANGELOG,
    CHECKPOINT_FORMAT,
    PROVIDER,
    QUERY_SETTINGS,
    ROCKSDB,
)
from balancedstream.engine.session.starts import Places, around_starts, around_state_reads

TURN_S = 30.0
"""A session has one value at a time, so queries start, and states are read, one after the other;
but a listener may do either while a query that starts waits for it."""

log = logging.getLogger(__name__)


def fit(
    settings: Mapping[str, str],
    own: Mapping[str, str],
    *,
    on_posix: bool,
    found_format: str | None = None,
) -> dict[str, str]:
    """The settings with which a query starts, beside those that its session keeps.

    Args:
        settings: of balanced queries.
        own: what the session has of these, by the user's hand.
        on_posix: whether all files of the query are on storage that is mounted.
        found_format: of the query's checkpoint, if Spark must be told that it stays; else None.

    >>> hdfs = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    >>> fit({PROVIDER: ROCKSDB, CHECKPOINT_FORMAT: "2"}, {PROVIDER: hdfs}, on_posix=True)
    {}
    """
    fitted = {key: value for key, value in settings.items() if key not in own}
    if own.get(PROVIDER, settings.get(PROVIDER)) != ROCKSDB:
        # Both belong to the RocksDB provider; other providers refuse to start with them.
        fitted.pop(CHANGELOG, None)
        fitted.pop(CHECKPOINT_FORMAT, None)
    if not on_posix:
        fitted.pop(FILE_MANAGER, None)
    if found_format is not None:
        fitted[CHECKPOINT_FORMAT] = found_format
    return fitted


@contextmanager
def fitting(settings: Mapping[str, str], *, keeps_formats: bool) -> Iterator[None]:
    """While open, every query of this process starts with settings that fit it.

    The state of a checkpoint is read in the format that it has, because the user did not choose it.

    Args:
        settings: of balanced queries, of those in `QUERY_SETTINGS`.
        keeps_formats: whether this Spark goes on in the format of a checkpoint by itself.
    """
    lock = threading.RLock()

    @contextmanager
    def taking_turn() -> Iterator[None]:
        has_turn = lock.acquire(timeout=TURN_S)
        try:
            yield
        finally:
            if has_turn:
                lock.release()

    @contextmanager
    def around(spark: SparkSession, places: Places) -> Iterator[None]:
        with taking_turn(), _having(spark, _fit_to(spark, settings, places, keeps_formats)):
            yield

    @contextmanager
    def around_read(spark: SparkSession, places: Places) -> Iterator[None]:
        is_own = spark.conf.get(CHECKPOINT_FORMAT, None) is not None
        found = None if is_own else find_format(spark, places.checkpoint)
        with taking_turn(), _having(spark, {} if found is None else {CHECKPOINT_FORMAT: found}):
            yield

    with around_starts(around), around_state_reads(around_read):
        yield


def _fit_to(
    spark: SparkSession, settings: Mapping[str, str], places: Places, keeps_formats: bool
) -> dict[str, str]:
    own = {k: v for k in QUERY_SETTINGS if (v := spark.conf.get(k, None)) is not None}
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    default_fs = hadoop.get("fs.defaultFS", "file:///")
    on_posix = all(is_posix(each, default_fs) for each in (places.checkpoint, places.output))
    found = None if keeps_formats else find_format(spark, places.checkpoint)
    if found is not None:
        log.info("%s has format %s and keeps it", places.checkpoint, found)
    return fit(settings, own, on_posix=on_posix, found_format=found)


@contextmanager
def _having(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Meanwhile a session has these settings; Spark copies them for a query that starts."""
    before = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)
