"""Counts by a Python function that keeps what it is given: executors run out of memory."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession

MIB = 2**20
kept: list[bytearray] = []


def keep(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Takes 200 MiB more in each task, and touches them."""
    for frame in frames:
        kept.append(bytearray(b"x" * 200 * MIB))
        yield frame


def main() -> None:
    """Runs until it is stopped."""
    spark = SparkSession.builder.appName("hungry").getOrCreate()
    (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 10)
        .load()
        .mapInPandas(keep, "timestamp timestamp, value long")
        .writeStream.queryName("hungry")
        .format("noop")
        .trigger(processingTime="5 seconds")
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
