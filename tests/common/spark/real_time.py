"""Queries in Spark's Real-Time Mode, over rows in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

BATCH = "5 seconds"
"""The shortest that Spark takes."""


@dataclass(frozen=True)
class RealTimeStream:
    """A query that counts numbers, and its source."""

    query: StreamingQuery
    source: Any
    jvm: Any

    def add_rows(self, count: int) -> None:
        """Gives it the numbers from 0, which its running batch reads."""
        # Py4J would make an `Integer` of a `Long`.
        numbers = self.jvm.java.util.stream.LongStream.range(0, count).boxed().toList()
        self.source.addData(self.jvm.scala.jdk.javaapi.CollectionConverters.asScala(numbers))

    def count_batches(self) -> int:
        """How many have ended."""
        progress = self.query.lastProgress
        return progress["batchId"] + 1 if progress else 0


def start_real_time(
    spark: SparkSession, name: str, checkpoint: Path, partitions: int
) -> RealTimeStream:
    """Starts one in a session of its own; it takes `1 + partitions` slots for all of a batch."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    jvm: Any = session._jvm
    streams = jvm.org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
    source = streams.apply(session._jsparkSession, 1, jvm.org.apache.spark.sql.Encoders.LONG())
    counts = DataFrame(source.toDF(), session).groupBy("value").count()
    query = (
        counts.writeStream.format("console")
        .option("numRows", 0)
        .queryName(name)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(realTime=BATCH)
        .start()
    )
    return RealTimeStream(query, source, jvm)
