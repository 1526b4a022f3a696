"""The streams that are measured: rows without a pause, keys drawn for them, work that waits."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from balancedstream.engine.session.settings import SHUFFLE_PARTITIONS


def read_rows(spark: SparkSession, rows_per_batch: int, input_partitions: int = 2) -> DataFrame:
    """Rows with a `value` that counts from 0, the same number in each batch, without a pause."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows_per_batch)
        .option("numPartitions", input_partitions)
        .load()
    )


def draw_uniform(seed: int) -> Column:
    """A number in [0, 1) that is a function of `value` and the seed alone."""
    return F.pmod(F.xxhash64("value", F.lit(seed)), F.lit(2**31)) / F.lit(2**31)


def draw_rank(drawn: Column, s: float, ranks: int) -> Column:
    """The inverse of the cumulative Zipf distribution: rank r, from 0, has weight (r + 1) ** -s.

    Drawn by Spark alone: a Python function would need a Python worker of its own on every executor,
    which starts in the middle of what is measured.

    Args:
        drawn: uniform in [0, 1).
        s: the exponent; 0 for equal weights.
        ranks: how many there are.
    """
    weights = [rank**-s for rank in range(1, ranks + 1)]
    total = sum(weights)
    bounds = [below / total for below in accumulate(weights)][:-1]
    # A string, because Spark takes seconds to analyze that many literals. It becomes an array once
    # a batch.
    table = F.split(F.lit(",".join(map(repr, bounds))), ",").cast("array<double>")
    halves = [2**power for power in reversed(range((ranks - 1).bit_length()))]

    def step(at: Column, half: Column) -> Column:
        return F.when(F.get(table, at + half - 1) <= drawn, at + half).otherwise(at)

    return F.aggregate(F.array(*map(F.lit, halves)), F.lit(0), step)


def wait_per_row(rows: DataFrame, partitions: int, wait_ms: int) -> DataFrame:
    """Sends rows to the task that holds their `key`'s state, and has it wait for each row.

    The wait stands for a call to an outside service. It is `Thread.sleep` in the task itself: it
    occupies the executor and no core, so that more executors than cores make sense.
    """
    return wait_in_place(send_to_state(rows, partitions), wait_ms)


def send_to_state(rows: DataFrame, partitions: int) -> DataFrame:
    """Sends rows to the task that holds their `key`'s state, before anything is done to them."""
    # With another number of state partitions, Spark would shuffle the rows again on their way.
    rows.sparkSession.conf.set(SHUFFLE_PARTITIONS, partitions)
    return rows.repartition(partitions, "key")


def wait_in_place(rows: DataFrame, wait_ms: int) -> DataFrame:
    """Has the task that has a row wait for it; every row stays."""
    waited = F.java_method(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(wait_ms).cast("bigint"))
    # Of a method that returns nothing, Spark 4.3 gives the word null, and not a null.
    return rows.where(F.coalesce(waited, F.lit("null")) == F.lit("null"))


def count_keys(rows: DataFrame) -> DataFrame:
    """A running count per key: one long of state for each."""
    return rows.groupBy("key").agg(F.count("*").alias("rows"))


def start_query(states: DataFrame, name: str, checkpoint: Path | str) -> StreamingQuery:
    """Starts a query that discards its output; a checkpoint that is no path is a URI."""
    return (
        states.writeStream.queryName(name)
        .outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
