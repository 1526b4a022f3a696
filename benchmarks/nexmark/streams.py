"""NEXMark's tables as Spark's streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from nexmark.events import CLOSES_AT, COLUMNS, NUMBERS, TIMES

Read = Callable[[str], DataFrame]
"""Gives the stream of a table, with `date_time` watermarked."""

WATERMARK_DELAY = "5 seconds"


def read_files(spark: SparkSession, folder: Path, table: str, **options: int) -> DataFrame:
    """The stream of a table whose files are in `folder/table`; the options are those of Spark.

    Closing rows move the watermark and are in no answer: a filter by the watermark's own column is
    one that Spark leaves behind it.
    """
    stream = spark.readStream.schema(describe_schema(table)).options(**options)
    rows = stream.json(str(folder / table)).withWatermark("date_time", WATERMARK_DELAY)
    return rows.where(F.col("date_time") < F.lit(CLOSES_AT))


def describe_schema(table: str) -> str:
    """The columns of a table with their types, which Spark and DuckDB call alike."""
    types = {
        **dict.fromkeys(NUMBERS, "BIGINT"),
        **dict.fromkeys(TIMES, "TIMESTAMP"),
    }
    return ", ".join(f"{name} {types.get(name, 'STRING')}" for name in COLUMNS[table])
