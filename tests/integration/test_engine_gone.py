"""An executor that is gone is no place for a task, whatever it told of itself while it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark import SparkContext
from pyspark.sql import SparkSession

from balancedstream.engine.gone import GoneExecutors

pytestmark = pytest.mark.integration


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def come_back(gone: GoneExecutors, context: Any, jvm: Any, executor: str) -> None:
    """What an executor's last heartbeat does after the driver has removed it."""
    blocks = gone._read_field("SparkEnv", "blockManager", context.env())
    master = gone._read_field("storage.BlockManager", "master", blocks)
    endpoint = gone._read_field("storage.BlockManager", "storageEndpoint", blocks)
    nothing = jvm.scala.Option.empty()
    itself = jvm.org.apache.spark.storage.BlockManagerId.apply(executor, "localhost", 1, nothing)
    folders: Any = SparkContext._gateway.new_array(jvm.java.lang.String, 0)
    master.registerBlockManager(itself, folders, 1000, 0, endpoint, False)


def test_the_driver_forgets_an_executor_that_came_back_after_it_had_gone(
    spark: SparkSession,
) -> None:
    context, jvm = spark.sparkContext._jsc.sc(), spark._jvm
    gone = GoneExecutors(spark)

    def count() -> int:
        """The driver and its executors."""
        found: int = context.getExecutorMemoryStatus().size()
        return found

    wait_until(lambda: count() > context.getExecutorIds().size() > 0)
    assert gone.forget() == []
    there = count()
    come_back(gone, context, jvm, "777")
    assert count() == there + 1
    assert gone.forget() == ["777"]
    wait_until(lambda: count() == there)
    assert gone.forget() == []
