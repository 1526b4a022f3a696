"""Gives the tasks and sources of streaming queries the location of their checkpoint."""

from __future__ import annotations

import weakref
from typing import Any

from pyspark.sql import SparkSession

from balancedstream.engine.jvm.listener import compile_class
from balancedstream.workers.names import (
    CHECKPOINT_PROPERTY,
    LOCATION_FILE,
    MAILBOX_OPTION,
    QUERY_NAME_PROPERTY,
    RUN_PROPERTY,
)

_published: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def publish_checkpoints(spark: SparkSession) -> None:
    """Sets our local properties for every task of the queries that this session starts from now on.

    Every source with a mailbox finds the location of the checkpoint in it.

    Raises:
        py4j.protocol.Py4JError: this version of Spark has no such class or method.
    """
    if spark in _published:
        return
    session: Any = spark._jsparkSession
    properties = CHECKPOINT_PROPERTY, QUERY_NAME_PROPERTY, RUN_PROPERTY
    files = MAILBOX_OPTION, LOCATION_FILE
    listener = compile_class(spark, "CheckpointNamer", session, *properties, *files)
    session.streams().addListener(listener)
    _published.add(spark)
