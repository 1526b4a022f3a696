"""Rows of which one in ten is expensive, and functions that take as long as their rows say."""

from __future__ import annotations

import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from patience import PATIENCE_S
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 400
EXPENSIVE_S = 0.004


def texts(spark: SparkSession) -> DataFrame:
    """One row of ten is expensive."""
    return spark.range(ROWS).select(
        "id", F.when(F.col("id") % 10 == 0, "long").otherwise("short").alias("kind")
    )


def take_time(kind: str | None, rows: int = 1) -> None:
    if kind == "long":
        time.sleep(EXPENSIVE_S * rows)


def echo_pandas(frames: Iterator[Any]) -> Iterator[Any]:
    for frame in frames:
        take_time(frame["kind"].iloc[0], len(frame))
        yield frame


def echo_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        take_time(batch.column("kind")[0].as_py(), batch.num_rows)
        yield batch


def echo_row(row: Row) -> Row:
    take_time(row["kind"])
    return row


def collected(df: DataFrame) -> Counter[str]:
    return Counter(map(repr, df.collect()))


POINT, OTHER_POINT = (struct.pack("<bidd", 1, 1, 1.0, y) for y in (2.0, 3.0))


def await_that(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
