"""The least stream with state: counts of a steady source, without Kafka."""

from __future__ import annotations

import argparse
import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812


def main() -> None:
    """Runs until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows-per-second", type=int, default=20)
    parser.add_argument("--keys", type=int, default=40)
    parser.add_argument("--trigger", default="1 second", help="interval of micro-batches")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("rate").getOrCreate()
    parent, _, name = os.environ["CHECKPOINT_DIR"].rstrip("/").rpartition("/")

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(f"{parent}/sink-{name}/batch={batch_id}")

    query = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", arguments.rows_per_second)
        .load()
        .groupBy((F.col("value") % arguments.keys).alias("key"))
        .count()
        .writeStream.queryName("rate")
        .outputMode("update")
        .foreachBatch(write)
        .trigger(processingTime=arguments.trigger)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
