"""Runs a Python function that takes more memory than an executor's container may."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession

TAKEN_BYTES = 2 * 2**30


def take(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Lets the rows through once it has written to all that memory."""
    for frame in frames:
        taken = b"x" * TAKEN_BYTES
        yield frame[: len(taken)]


def main() -> None:
    """Runs until it is stopped."""
    spark = SparkSession.builder.appName("hungry").getOrCreate()
    query = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 10)
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
