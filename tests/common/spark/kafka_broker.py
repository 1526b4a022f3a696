"""A Kafka broker on this machine, and Spark's connector for it, from Maven Central's jars."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from broker_process import run_broker_process
from jars import fetch_jars
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark_versions import SPARK

HERE = Path(__file__).parent

CONNECTORS = {
    (3, 5): ("2.12", "3.5.7", "3.5.7", "3.4.1"),
    (4, 0): ("2.13", "4.0.1", "4.0.0", "3.9.1"),
    (4, 1): ("2.13", "4.1.2", "4.0.0", "3.9.1"),
}
"""By version of Spark: those of Scala, of the connector, of its tokens, and of Kafka's client."""

NEWEST = "2.13", "4.2.0", "4.0.0", "3.9.1"


def find_connector() -> list[Path]:
    """The jars of the connector for this Spark."""
    scala, connector, tokens, client = CONNECTORS.get(SPARK, NEWEST)
    versions = {"scala": scala, "connector": connector, "tokens": tokens, "client": client}
    return sorted(fetch_jars(HERE / "connector" / "pom.xml", versions).glob("*.jar"))


def add_connector(spark: SparkSession) -> None:
    """Brings the connector to an application that runs."""
    for jar in find_connector():
        spark.sql(f"ADD JAR '{jar}'")


@dataclass(frozen=True)
class Broker:
    """A broker that runs.

    Attributes:
        spark: an application with the connector.
        address: for `kafka.bootstrap.servers`.
        process: its own.
    """

    spark: SparkSession
    address: str
    process: subprocess.Popen[bytes]

    def write(self, topic: str, numbers: range) -> None:
        """Writes numbers to a topic, which has three partitions."""
        rows = self.spark.range(numbers.start, numbers.stop, 1, 2).select(
            (F.col("id") % 7).cast("string").alias("key"), F.col("id").cast("string").alias("value")
        )
        options = {"kafka.bootstrap.servers": self.address, "topic": topic}
        rows.write.format("kafka").options(**options).save()

    def read(self, topic: str, **options: str) -> DataFrame:
        """A stream of the values of a topic, from its beginning on."""
        reader = self.spark.readStream.format("kafka").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", self.address)
        reader = reader.option("startingOffsets", "earliest").options(**options)
        return reader.load().selectExpr("cast(value as string) value", "timestamp")

    def count(self, *topics: str, modulo: int) -> Counter[int]:
        """How often each remainder of the numbers is in topics; a producer may write one twice."""
        options = {"kafka.bootstrap.servers": self.address, "subscribe": ",".join(topics)}
        value = F.col("value").cast("string").cast("long") % modulo
        rows = self.spark.read.format("kafka").options(**options).load().groupBy(value.alias("k"))
        return Counter({row.k: row["count"] for row in rows.count().collect()})

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It answers nobody meanwhile."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def run_broker(spark: SparkSession, folder: Path) -> Iterator[Broker]:
    """A broker that makes topics as they are written to."""
    if not os.environ.get("CI") and shutil.which("mvn") is None:
        pytest.skip("Kafka's jars come from Maven")
    with run_broker_process(folder) as (address, process):
        add_connector(spark)
        yield Broker(spark, address, process)
