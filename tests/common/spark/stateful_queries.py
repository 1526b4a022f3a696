"""A streaming query of each stateful kind, for tests that run real Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from spark_versions import needs_spark

try:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
except ModuleNotFoundError:  # Spark 3.5
    StatefulProcessor = object

# The executors cannot import modules of tests: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Stream = Callable[[int], DataFrame]


class CountRows(StatefulProcessor):  # type: ignore[misc]
    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("n", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timers: Any) -> Iterator[Row]:
        before = self.count.get()[0] if self.count.exists() else 0
        total = before + sum(1 for _ in rows)
        self.count.update((total,))
        yield Row(k=key[0], n=total)

    def close(self) -> None:
        pass


class CountPandas(CountRows):
    def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
        before = self.count.get()[0] if self.count.exists() else 0
        total = before + sum(len(frame) for frame in rows)
        self.count.update((total,))
        yield pd.DataFrame({"k": [key[0]], "n": [total]})


def count_with_state(key: Any, frames: Iterator[Any], state: GroupState) -> Iterator[Any]:
    total = sum(len(frame) for frame in frames) + (state.get[0] if state.exists else 0)
    state.update((total,))
    yield pd.DataFrame({"k": [key[0]], "n": [total]})


def keyed(frame: DataFrame) -> DataFrame:
    return frame.withColumn("k", F.col("value") % 40)


def aggregate(stream: Stream) -> DataFrame:
    return keyed(stream(200)).groupBy("k").count()


def deduplicate(stream: Stream) -> DataFrame:
    return keyed(stream(200)).dropDuplicates(["value"])


def join(stream: Stream) -> DataFrame:
    left = keyed(stream(50)).withWatermark("timestamp", "1 minute")
    right = keyed(stream(50)).withWatermark("timestamp", "1 minute")
    return left.alias("l").join(right.alias("r"), F.expr("l.value = r.value"))


def transform_rows(stream: Stream) -> DataFrame:
    return (
        keyed(stream(200))
        .groupBy("k")
        .transformWithState(CountRows(), "k long, n long", "update", "none")
    )


def transform_pandas(stream: Stream) -> DataFrame:
    return (
        keyed(stream(200))
        .groupBy("k")
        .transformWithStateInPandas(CountPandas(), "k long, n long", "update", "none")
    )


def apply_in_pandas(stream: Stream) -> DataFrame:
    return (
        keyed(stream(200))
        .groupBy("k")
        .applyInPandasWithState(
            count_with_state, "k long, n long", "n long", "update", GroupStateTimeout.NoTimeout
        )
    )


def chain(stream: Stream) -> DataFrame:
    per_second = keyed(stream(200)).withWatermark("timestamp", "1 second")
    counted = per_second.groupBy(F.window("timestamp", "1 second"), "k").count()
    return counted.groupBy(F.window("window", "3 seconds")).count()


def union(stream: Stream) -> DataFrame:
    first = keyed(stream(100)).dropDuplicates(["k"])
    return first.union(keyed(stream(100)).dropDuplicates(["value"]))


def fused(stream: Stream) -> DataFrame:
    # Both sides are partitioned alike, so that Spark unites them partition by partition.
    first = keyed(stream(100)).dropDuplicates(["value"])
    return first.union(keyed(stream(100)).dropDuplicates(["value"]))


KINDS = [
    pytest.param(aggregate, "update", 1, id="aggregation"),
    pytest.param(deduplicate, "append", 1, id="dropDuplicates"),
    pytest.param(join, "append", 1, id="stream-stream join"),
    pytest.param(transform_rows, "update", 1, id="transformWithState", marks=needs_spark((4, 1))),
    pytest.param(
        transform_pandas, "update", 1, id="transformWithStateInPandas", marks=needs_spark((4, 0))
    ),
    pytest.param(apply_in_pandas, "update", 1, id="applyInPandasWithState"),
    pytest.param(chain, "append", 2, id="two operators in a row"),
    pytest.param(union, "append", 2, id="two operators side by side"),
]
