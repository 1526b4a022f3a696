"""Writes the event logs of this folder anew, in about three minutes.

A small stream begins on one executor and gets a second one, to which Spark moves no state. What the
reader does not look at is left out of its log, so that the files are small; the rest is as Spark
wrote it. Then codecs that `spark.eventLog.compression.codec` can name compress it, in Spark's own
streams.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

HERE = Path(__file__).parent
CODECS = {
    "zstd": "ZStdCompressionCodec",
    "lz4": "LZ4CompressionCodec",
    "snappy": "SnappyCompressionCodec",
}
NEWEST = "4.3"
"""With another Spark, only one codec is written, to a file that names the version."""

ROWS, BATCHES, PARTITIONS, WAIT_MS = 120, 8, 6, 15
SECOND_AFTER = 2
"""The second executor is asked for after this batch; it has so many batches then."""

FLUSH_EVERY = 20

SETTINGS = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "true",
    "spark.executor.memory": "600m",
    "spark.locality.wait": "60s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state"
    ".RocksDBStateStoreProvider",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

EVENTS_LEFT_OUT = ("BlockManagerAdded", "ResourceProfileAdded", "DriverAccumUpdates")
METRICS = (
    "number of state store instances",
    "memory used by state",
    "RocksDB: size of all SST files",
    "RocksDB: load - time taken to load the store",
    "records read",
    "duration",
)
FIELDS_LEFT_OUT = (
    "JVM Information",
    "System Properties",
    "Hadoop Properties",
    "Metrics Properties",
    "Classpath Entries",
    "physicalPlanDescription",
    "details",
    "Details",
    "modifiedConfigs",
    "Task Executor Metrics",
    "Log Urls",
    "Storage Level",
    "Callsite",
    "Scope",
    "snapshotCustomMetricNames",
)
PROPERTIES = (
    "spark.app.name",
    "spark.master",
    "spark.dynamicAllocation.enabled",
    "spark.jobGroup.id",
    "sql.streaming.queryId",
    "streaming.sql.batchId",
)
TASK_METRICS = ("Executor Deserialize Time", "Executor Run Time", "Executor CPU Time")


def main() -> None:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        (folder / "logs").mkdir()
        spark = open_session(folder)
        run_stream(spark, folder)
        spark.stop()
        (log,) = (folder / "logs").glob("eventlog_v2_*/events_1_*")
        lines = [trim(json.loads(line), folder) for line in log.read_text().splitlines()]
    # Spark's own streams compress, so a session is needed once more.
    builder = SparkSession.builder.master("local[1]").config("spark.eventLog.enabled", "false")
    spark = builder.getOrCreate()
    version = ".".join(spark.version.split(".")[:2])
    for codec in CODECS if version == NEWEST else ("zstd",):
        name = "grown" if version == NEWEST else f"grown-{version}"
        compress(
            spark.sparkContext, CODECS[codec], HERE / f"{name}.{codec}", [x for x in lines if x]
        )
    spark.stop()


def open_session(folder: Path) -> SparkSession:
    builder: Any = SparkSession.builder.master("local-cluster[2,1,1024]").appName("grown job")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.eventLog.dir", (folder / "logs").as_uri())
    spark: SparkSession = builder.config("spark.local.dir", str(folder)).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def run_stream(spark: SparkSession, folder: Path) -> None:
    """Keys 0 to 40; a task waits for each of its rows."""
    context: Any = spark.sparkContext
    executors: Any = context._jsc.sc()
    nothing = context._jvm.scala.Predef.Map().empty()
    await_executors(executors, 2)
    executors.requestTotalExecutors(1, 0, nothing)
    executors.killExecutor("1")
    await_executors(executors, 1)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    placed = rows.select((F.col("value") % 41).alias("key")).repartition(PARTITIONS, "key")
    waited = F.java_method(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(WAIT_MS).cast("bigint"))
    query = (
        placed.where(F.coalesce(waited, F.lit("null")) == F.lit("null"))
        .groupBy("key")
        .count()
        .writeStream.queryName("clicks")
        .outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    await_batch(query, SECOND_AFTER)
    executors.requestTotalExecutors(2, 0, nothing)
    await_executors(executors, 2)
    await_batch(query, query.lastProgress["batchId"] + BATCHES)
    query.stop()


def await_executors(executors: Any, count: int) -> None:
    while executors.getExecutorIds().size() != count:
        time.sleep(0.5)


def await_batch(query: StreamingQuery, batch: int) -> None:
    while query.lastProgress is None or query.lastProgress["batchId"] < batch:
        error = query.exception()
        if error is not None:
            sys.exit(str(error))
        time.sleep(0.5)


def trim(event: dict[str, Any], folder: Path) -> str:
    """An event as a line, without what is not read; empty if nothing of it is."""
    if event["Event"].endswith(EVENTS_LEFT_OUT):
        return ""
    text = json.dumps(shorten(event), separators=(",", ":"))
    return text.replace(str(folder), "/tmp/job")  # noqa: S108 - only a name


def shorten(value: Any) -> Any:
    if isinstance(value, list):
        return [shorten(each) for each in value if is_read(each)]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, each in value.items():
        if name in FIELDS_LEFT_OUT:
            continue
        if name in {"Properties", "Spark Properties"}:
            kept[name] = {n: v for n, v in each.items() if n in PROPERTIES}
        elif name == "Task Metrics":
            kept[name] = {n: v for n, v in each.items() if n in TASK_METRICS}
        elif name == "customMetrics":
            kept[name] = dict(sorted(each.items())[-2:])
        else:
            kept[name] = shorten(each)
    return kept


def is_read(value: Any) -> bool:
    """Whether a metric of a plan, or of a task, is one that is read; True for all else."""
    if not isinstance(value, dict) or not {"metricType", "Metadata"} & value.keys():
        return True
    return value.get("name", value.get("Name")) in METRICS


def compress(context: Any, codec: str, file: Path, lines: list[str]) -> None:
    """As `EventLogFileWriter` does: a stream that is flushed again and again."""
    jvm = context._jvm
    stream = getattr(jvm.org.apache.spark.io, codec)(context._conf._jconf)
    out = stream.compressedContinuousOutputStream(jvm.java.io.FileOutputStream(str(file)))
    for first in range(0, len(lines), FLUSH_EVERY):
        out.write(bytearray("".join(f"{x}\n" for x in lines[first : first + FLUSH_EVERY]), "utf-8"))
        out.flush()
    out.close()


if __name__ == "__main__":
    main()
