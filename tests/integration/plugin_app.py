"""An application that knows nothing of balancing: a count on which some partitions wait longer.

plugin_app.py FOLDER runs until FOLDER has a file `stop`, and then leaves `result.json` there. The
partitions that wait are those of the executor that ran partition 0 first, so that it is hot.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

KEYS = 40
ROWS = 200
WAIT_S = 0.03


def work(partition: int, folder: str) -> int:
    """Waits where partition 0 was first; in `local-cluster` an executor has a folder of its own."""
    first = [Path(folder, f"first-{p}") for p in (partition, 0)]
    try:
        with first[0].open("x") as file:
            file.write(Path.cwd().name)
    except FileExistsError:
        if first[1].exists() and first[0].read_text() == first[1].read_text():
            time.sleep(WAIT_S)
    return partition


def list_listeners(spark: SparkSession) -> int:
    """The listeners that are ours."""
    listeners = spark.sparkContext._jsc.sc().listenerBus().listeners()
    names = [listener.getClass().getName() for listener in listeners]
    return names.count("io.balancedstream.BatchListener")


def look(spark: SparkSession) -> tuple[int, bool]:
    """What balancing leaves in an application: listeners, and whether tasks wait as Spark says."""
    changed = spark.sparkContext._jsc.sc().conf().contains("spark.locality.wait.process")
    return list_listeners(spark), not changed


def main(folder: Path) -> None:
    """Runs the query in a session of its own, as an application with several does."""
    spark = SparkSession.builder.getOrCreate().newSession()
    spark.conf.set("spark.sql.shuffle.partitions", "6")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    counts = rows.groupBy((F.col("value") % KEYS).alias("k")).count()
    place = F.udf(partial(work, folder=str(folder)), "int")
    worked = counts.withColumn("partition", place(F.spark_partition_id()))
    wrong: list[Any] = []
    batches: list[int] = []

    def check(frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        batches.append(batch)
        wrong.extend(row for row in rows if row["count"] != ROWS // KEYS * (batch + 1))
        if len(rows) != KEYS:
            wrong.append(f"batch {batch} has {len(rows)} keys")

    query = (
        worked.writeStream.queryName("counts")
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(check)
        .start()
    )
    while not (folder / "stop").exists():
        if query.awaitTermination(1):
            raise SystemExit(1)
    seen: dict[str, tuple[int, ...]] = {"agent": look(spark)}
    if "attach" in sys.argv:
        seen |= attach_itself(spark)
    query.stop()
    done = {"batches": batches, "wrong": [str(row) for row in wrong], "seen": seen}
    (folder / "result.json").write_text(json.dumps(done))
    if "unstopped" not in sys.argv:
        spark.stop()


def attach_itself(spark: SparkSession) -> dict[str, tuple[int, ...]]:
    """As users do who want more than the plugin gives; the plugin then stands down."""
    from balancedstream import attach  # noqa: PLC0415
    from balancedstream.engine.driver import stand_plugin_down  # noqa: PLC0415

    stand_plugin_down(spark, "a test says so")
    down = look(spark)
    attachment = attach(spark)
    attached = list_listeners(spark)
    attachment.detach()
    return {"down": down, "attached": (attached,), "detached": look(spark)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
