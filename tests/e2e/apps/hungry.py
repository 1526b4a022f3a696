"""Runs a Python function that takes more memory than an executor's container may.

Four tasks at a time take some each, so that the JVM is the largest process. The kernel kills that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession

TASKS = 4
TAKEN_BYTES = 80 * 2**20
HELD_S = 10.0


def take(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Lets the rows through after it has had the memory for some time."""
    for frame in frames:
        taken = b"x" * TAKEN_BYTES
        time.sleep(HELD_S)
        yield frame[: len(taken)]


def main() -> None:
    """Runs until it is stopped."""
    spark = SparkSession.builder.appName("hungry").getOrCreate()
    query = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 10 * TASKS)
        .option("numPartitions", TASKS)
        .load()
        .mapInPandas(take, "timestamp timestamp, value long")
        .writeStream.queryName("hungry")
        .format("noop")
        .trigger(processingTime="5 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
