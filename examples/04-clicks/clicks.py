"""Clicks per user, from a steady source of clicks in which few users click most.

An ordinary PySpark script: nothing in it knows of BalancedStream. Each click costs a little time,
as a call to another service would, so the executor with the busiest users is the slowest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState

CLICKS_PER_SECOND = 60
SECONDS_PER_CLICK = 0.008
USERS = 200


def count(
    user: tuple[int], clicks: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Adds a user's clicks to those before."""
    new = sum(len(part) for part in clicks)
    time.sleep(SECONDS_PER_CLICK * new)
    total = (state.get[0] if state.exists else 0) + new
    state.update((total,))
    yield pd.DataFrame({"user": [user[0]], "clicks": [total]})


def main() -> None:
    """Runs until it is stopped."""
    spark = SparkSession.builder.appName("clicks").getOrCreate()
    # A power of a uniform number: the first users get by far the most.
    uniform = F.pmod(F.xxhash64("value"), F.lit(1_000_000)) / 1_000_000
    clicks = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", CLICKS_PER_SECOND)
        .load()
        .select((F.pow(uniform, 4) * USERS).cast("long").alias("user"))
    )
    counted = clicks.groupBy("user").applyInPandasWithState(
        count, "user long, clicks long", "clicks long", "update", "NoTimeout"
    )
    output = f"{os.environ['CHECKPOINT_DIR']}/output"
    query = (
        counted.writeStream.queryName("clicks")
        .outputMode("update")
        .foreachBatch(
            lambda rows, batch: rows.write.mode("overwrite").parquet(f"{output}/batch={batch}")
        )
        .trigger(processingTime="3 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
