"""A query in Real-Time Mode, and one beside it whose partitions move, on two executors.

real_time_app.py FOLDER prints, as JSON, what became of both; then of a query in Real-Time Mode that
needs more slots than there are, and of one under continuous processing.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from joining import await_executors
from patience import PATIENCE_S
from prepared import move, others
from processes import SETTINGS
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from real_time import RealTimeStream, start_real_time

from balancedstream.engine.causes import name_cause
from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished, Event, QueryEnded
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.session import remove_work_folder, tuned_sessions

CORES, PARTITIONS, KEYS, ROWS = 4, 3, 40, 120
EDGES = 4
"""Batches in Real-Time Mode that end while partitions move."""


class Application:
    """The application, and the events that came."""

    def __init__(self, spark: SparkSession) -> None:
        self.engine = SparkEngine(spark)
        self.events: list[Event] = []
        await_executors(self.engine, 2)

    def follow(self, is_over: Callable[[], bool]) -> None:
        """Reads events, and makes moves after each second batch, until it is over."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_over() and time.monotonic() < deadline_s:
            event = self.engine.wait(0.5)
            if event is None:
                continue
            self.events.append(event)
            if isinstance(event, BatchFinished) and event.query == "beside" and event.tasks:
                under_way = {p.state for p in event.preparations} & {"loading", "loaded"}
                if event.sample.batch % 2 == 0 and not under_way:
                    move(self.engine, "beside", others(self.engine, event))

    def list_batches(self, query: str) -> list[BatchFinished]:
        return [e for e in self.events if isinstance(e, BatchFinished) and e.query == query]

    def list_ended(self, query: str) -> list[str]:
        """The errors with which a query ended."""
        ended = [e for e in self.events if isinstance(e, QueryEnded) and e.query == query]
        return [e.error for e in ended if e.error]


def start_beside(spark: SparkSession, folder: Path) -> Any:
    """Counts rows by key in micro-batches, and writes each batch's counts as files."""
    spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .load()
    )
    counts = rows.groupBy((F.col("value") % KEYS).alias("key")).count()
    return (
        counts.writeStream.foreachBatch(
            lambda frame, batch: frame.write.mode("overwrite").parquet(str(folder / f"{batch:09}"))
        )
        .queryName("beside")
        .outputMode("complete")
        .option("checkpointLocation", str(folder.with_name("beside-checkpoint")))
        .trigger(processingTime="1 second")
        .start()
    )


def feed(stream: RealTimeStream, added: Counter[str]) -> None:
    stream.add_rows(20)
    added["rows"] += 20


def main(folder: Path) -> None:
    said: dict[str, Any] = {}
    with tuned_sessions(LocalExecutors(2, 2), lambda session: None, lambda text: None):
        spark = (
            SparkSession.builder.appName("real-time")
            .config(map=dict(SETTINGS))
            .config("spark.executor.cores", str(CORES))
            .getOrCreate()
        )
    spark.sparkContext.setLogLevel("OFF")
    application = Application(spark)
    engine = application.engine
    live = start_real_time(spark, "live", folder / "live", 2)
    beside = start_beside(spark, folder / "beside")
    added: Counter[str] = Counter()

    def has_crossed_edges() -> bool:
        feed(live, added)
        reports = [p for b in application.list_batches("beside") for p in b.preparations]
        failed = live.query.exception() or beside.exception()
        moved = any(report.hand_over_s is not None for report in reports)
        return bool(failed) or (live.count_batches() > EDGES and moved)

    application.follow(has_crossed_edges)
    (holder,) = engine.list_holders()
    said["holder"] = [holder.query, holder.trigger, holder.slots, sum(holder.held.values())]
    said["failures"] = [str(q.exception()) for q in (live.query, beside) if q.exception()]
    said["edges"] = live.count_batches()
    said["triggers"] = sorted({b.trigger for b in application.list_batches("live")})
    batches = application.list_batches("beside")
    said["batches"] = len(batches)
    said["tasks"] = sorted({len(b.tasks) for b in batches})
    said["moved"] = sum(b.moved_partitions for b in batches)
    said["prepared"] = sorted({p.state for b in batches for p in b.preparations})
    said["reasons"] = sorted({p.failure for b in batches for p in b.preparations})
    beside.stop()
    last = max(path for path in (folder / "beside").iterdir() if (path / "_SUCCESS").exists())
    rows = spark.read.parquet(str(last)).collect()
    total = ROWS * (int(last.name) + 1)
    said["counts"] = sorted({row["count"] for row in rows})
    said["expected"] = sorted({*Counter(n % KEYS for n in range(total)).values()})

    big = start_real_time(spark, "big", folder / "big", 2 * CORES)
    application.follow(
        lambda: any(isinstance(e, QueryEnded) and e.query == "big" for e in application.events)
    )
    said["too big"] = [name_cause(error) for error in application.list_ended("big")]
    said["still"] = live.query.isActive
    live.query.stop()
    big.query.stop()

    flow = (
        spark.readStream.format("rate")
        .option("numPartitions", 2)
        .load()
        .writeStream.format("noop")
        .queryName("flow")
        .option("checkpointLocation", str(folder / "flow"))
        .trigger(continuous="1 second")
        .start()
    )
    application.follow(lambda: any(h.slots for h in engine.list_holders() if h.query == "flow"))
    said["flow"] = [[h.query, h.trigger, h.slots] for h in engine.list_holders()]
    flow.stop()
    engine.close()
    application_id = spark.sparkContext.applicationId
    spark.stop()
    remove_work_folder(application_id)
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
