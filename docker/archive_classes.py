"""Writes an archive of Spark's classes, with which its JVMs start in about half of the time.

A new executor spends most of its first seconds on finding, reading and checking some 10,000 classes
in 280 jars. Java can map them from a file instead (application class-data sharing): this runs a
small stream, with state and a Python function, in one JVM, which writes the classes that it used
when it ends.

    python docker/archive_classes.py spark.jsa

The archive holds for this Java and for these jars in this order; for any other, Java leaves it
aside. `spark.jsa.classpath` has that order, because Java finds a folder's jars in any.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

BATCHES = 3
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main(archive: Path) -> None:
    """Runs the stream in a JVM that writes the archive when it ends, and writes down its jars."""
    option = f"-XX:ArchiveClassesAtExit={archive} -Xlog:disable -Xlog:all=error:stderr"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-java-options {shlex.quote(option)} pyspark-shell"
    with tempfile.TemporaryDirectory() as folder:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
            .getOrCreate()
        )
        run_stream(spark, folder)
        java: Any = spark._jvm
        classpath = java.java.lang.System.getProperty("java.class.path").split(":")
        gateway: Any = SparkContext._gateway
        spark.stop()
        gateway.shutdown()
        # At the end of its standard input the JVM ends, and writes.
        gateway.proc.stdin.close()
        gateway.proc.wait()
    jars = Path(pyspark.__file__).parent / "jars"
    order = [entry for entry in classpath if Path(entry).parent == jars]
    archive.with_name(f"{archive.name}.classpath").write_text(":".join(order))


def run_stream(spark: SparkSession, folder: str) -> None:
    """Runs a few batches with a Python function, a shuffle, state and a checkpoint."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counts = rows.mapInArrow(pass_on, rows.schema).groupBy(F.col("value") % 2).count()
    query = (
        counts.writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", folder)
        .start()
    )
    while not query.lastProgress or query.lastProgress["batchId"] < BATCHES:
        error = query.exception()
        if error is not None:
            raise error
        time.sleep(0.1)
    query.stop()


def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
    """Starts a Python worker, to which rows go by Arrow."""
    yield from batches


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
