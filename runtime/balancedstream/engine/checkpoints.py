"""Tells tasks and sources of streaming queries where their query's checkpoint is."""

from __future__ import annotations

import weakref
from typing import Any

from pyspark.sql import SparkSession

from balancedstream.engine.listener import compile_class
from balancedstream.workers.names import (
    CHECKPOINT_PROPERTY,
    LOCATION_FILE,
    MAILBOX_OPTION,
    QUERY_NAME_PROPERTY,
    RUN_PROPERTY,
)

_told: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def publish_checkpoints(spark: SparkSession) -> None:
    """From now on, every task of a query that this session starts has these properties.

    And every source with a mailbox finds the location in it.

    Raises:
        py4j.protocol.Py4JError: this Spark lacks a class or a method that is needed.
    """
    if spark in _told:
        return
    session: Any = spark._jsparkSession
    properties = CHECKPOINT_PROPERTY, QUERY_NAME_PROPERTY, RUN_PROPERTY
    files = MAILBOX_OPTION, LOCATION_FILE
    listener = compile_class(spark, "CheckpointNamer", session, *properties, *files)
    session.streams().addListener(listener)
    _told.add(spark)
