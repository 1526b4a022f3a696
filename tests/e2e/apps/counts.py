"""Counts and sums a Kafka topic by key, and waits a while for each row.

The waiting stands for a call to a slow service: it makes tasks long where two cores could not
carry the load of several executors that compute. It happens in the stateful operator, so that the
time of a state partition's task is proportional to the rows of its keys. With `--check-ms` a
stateless step before it waits as well, for some keys up to eight times as long as for others, and
its rows are spread by what they cost. With `--map-ms` a stateless step waits where the topic is
read, and with `--stateless` there is no other: each row is written as a count of one.

The rows of each batch replace what an earlier attempt at it wrote: `<sink>/batch=<id>`.
"""

from __future__ import annotations

import argparse
import os
import time
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from balancedstream import balanced, shuffle

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState

OUTPUT = "key string, rows long, total long, last_event_time_ms long"
STATE = "rows long, total long, last_event_time_ms long"


def main() -> None:
    """Runs until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker")
    parser.add_argument("topic")
    parser.add_argument("--name", default="counts", help="of the query")
    parser.add_argument("--max-offsets-per-trigger", type=int, default=100_000)
    parser.add_argument("--trigger", default="1 second", help="interval of micro-batches")
    parser.add_argument("--balanced", action="store_true", help="keys can be reassigned")
    parser.add_argument("--wait-ms", type=float, default=0.0, help="for each row")
    parser.add_argument("--map-ms", type=float, default=0.0, help="for each row that is read")
    parser.add_argument("--stateless", action="store_true", help="write rows, count nothing")
    # A test recomputes every batch: the offset log must keep them all.
    parser.add_argument("--retain", type=int, default=1_000_000, help="batches to go back to")
    parser.add_argument("--check-ms", type=float, default=0.0, help="for a row of a cheap key")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName(arguments.name).getOrCreate()
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", str(arguments.retain))
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.broker)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.max_offsets_per_trigger)
        .load()
        .select(
            F.col("key").cast("string").alias("key"),
            F.from_json(F.col("value").cast("string"), "value long, event_time_ms long").alias("v"),
        )
        .select("key", "v.value", "v.event_time_ms")
    )
    if arguments.map_ms:
        rows = rows.mapInPandas(wait_for_each(arguments.map_ms / 1000), rows.schema)
    if arguments.check_ms:
        check = check_slowly(arguments.check_ms / 1000)
        rows = shuffle(rows, cost_key="key", partitions=4).mapInPandas(check, rows.schema)
    if arguments.stateless:
        output = rows.selectExpr(
            "key", "1L AS rows", "value AS total", "event_time_ms AS last_event_time_ms"
        )
    else:
        grouped = balanced(rows, "key") if arguments.balanced else rows.groupBy("key")
        output = grouped.applyInPandasWithState(
            count_slowly(arguments.wait_ms / 1000), OUTPUT, STATE, "update", "NoTimeout"
        )
    query = (
        output.writeStream.queryName(arguments.name)
        .outputMode("update")
        .foreachBatch(write_to(sink_of(os.environ["CHECKPOINT_DIR"])))
        .trigger(processingTime=arguments.trigger)
        .start()
    )
    query.awaitTermination()


def wait_for_each(wait_s: float) -> Any:
    """The step where the topic is read: all rows as they are, each after a wait."""

    def wait(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            time.sleep(wait_s * len(frame))
            yield frame

    return wait


def check_slowly(wait_s: float) -> Any:
    """The stateless function: all rows as they are.

    Args:
        wait_s: for each row of a cheap key.
    """

    def check(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            time.sleep(sum(wait_s * (1 + zlib.crc32(key.encode()) % 8) for key in frame["key"]))
            yield frame

    return check


def count_slowly(wait_s: float) -> Any:
    """The stateful function: a key's count, sum and greatest event time so far.

    Args:
        wait_s: for each row.
    """

    def count(
        key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        rows, total, last_ms = state.get if state.exists else (0, 0, 0)
        new_rows = 0
        for part in parts:
            new_rows += len(part)
            total += int(part["value"].sum())
            last_ms = max(last_ms, int(part["event_time_ms"].max()))
        time.sleep(wait_s * new_rows)
        rows += new_rows
        state.update((rows, total, last_ms))
        yield pd.DataFrame(
            {
                "key": [key[0]],
                "rows": [rows],
                "total": [total],
                "last_event_time_ms": [last_ms],
            }
        )

    return count


def sink_of(checkpoint: str) -> str:
    """`sink-NAME` beside the checkpoint's folder `NAME`."""
    parent, _, name = checkpoint.rstrip("/").rpartition("/")
    return f"{parent}/sink-{name}"


def write_to(sink: str) -> Any:
    """The function for `foreachBatch`."""

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(f"{sink}/batch={batch_id}")

    return write


if __name__ == "__main__":
    main()
