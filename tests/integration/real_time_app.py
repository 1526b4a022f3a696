"""A query in Real-Time Mode, and one beside it whose partitions move, on three executors.

real_time_app.py FOLDER prints, as JSON, what became of both while partitions moved, and while
executors were to go; then of a query in Real-Time Mode that needs more slots than there are, and of
one under continuous processing.
"""

from __future__ import annotations

import json
import sys
import time
from bisect import bisect
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from joining import await_executors, list_executors
from patience import PATIENCE_S
from prepared import Place, move
from processes import SETTINGS
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from real_time import RealTimeStream, start_real_time

from balancedstream.engine.causes import name_cause
from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished, Event, QueryEnded
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.session import remove_work_folder, tuned_sessions

EXECUTORS, CORES = 3, 3
PARTITIONS, KEYS, ROWS = 3, 40, 120
EDGES = 2
"""Batches in Real-Time Mode that end while something happens."""


class Application:
    """The application with both queries, and the events that came."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.engine = SparkEngine(spark)
        self.events: list[Event] = []
        self.targets: dict[Place, str] = {}
        self.arrived = 0
        await_executors(self.engine, EXECUTORS)
        self.live: RealTimeStream = start_real_time(spark, "live", folder / "live", 2)
        self.beside = self._start_beside()

    def _start_beside(self) -> StreamingQuery:
        """Counts rows by key in micro-batches, and writes each batch's counts as files."""
        self.spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
        rows = (
            self.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", ROWS)
            .option("numPartitions", 2)
            .load()
        )

        def write(frame: Any, batch: int) -> None:
            frame.write.mode("overwrite").parquet(str(self.folder / "beside" / f"{batch:09}"))

        return (
            rows.groupBy((F.col("value") % KEYS).alias("key"))
            .count()
            .writeStream.foreachBatch(write)
            .queryName("beside")
            .outputMode("complete")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(processingTime="1 second")
            .start()
        )

    def follow(self, is_over: Callable[[], bool]) -> None:
        """Reads events, and moves partitions to and fro, until it is over or a query failed."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_over() and not self.list_failures():
            assert time.monotonic() < deadline_s
            if self.live.query.isActive:
                self.live.add_rows(20)
            event = self.engine.wait(0.5)
            if event is None:
                continue
            self.events.append(event)
            if isinstance(event, BatchFinished) and event.query == "beside" and event.tasks:
                self._move_on(event)

    def _move_on(self, event: BatchFinished) -> None:
        """Moves all partitions to the next executor, if all are where they were to go."""
        live = sorted(self.engine.executors())
        places: dict[Place, str] = {(t.operator, t.partition): t.executor for t in event.tasks}
        if places != self.targets and self.targets and {*self.targets.values()} <= {*live}:
            return
        self.arrived += places == self.targets
        self.targets = {
            place: live[bisect(live, executor) % len(live)] for place, executor in places.items()
        }
        move(self.engine, "beside", self.targets)

    def cross_edges(self) -> Callable[[], bool]:
        """Whether so many batches in Real-Time Mode have begun and ended since this call."""
        first = self.live.count_batches()
        return lambda: self.live.count_batches() > first + EDGES

    def list_failures(self) -> list[str]:
        return [str(q.exception()) for q in (self.live.query, self.beside) if q.exception()]

    def list_batches(self, query: str) -> list[BatchFinished]:
        return [e for e in self.events if isinstance(e, BatchFinished) and e.query == query]

    def list_errors(self, query: str) -> list[str]:
        """With which a query ended."""
        ended = [e for e in self.events if isinstance(e, QueryEnded) and e.query == query]
        return [name_cause(e.error) for e in ended if e.error]

    def count_executors(self) -> int:
        return len(list_executors(self.engine._context))


def move_beside(application: Application) -> dict[str, Any]:
    has_crossed = application.cross_edges()
    application.follow(lambda: has_crossed() and application.arrived > 1)
    (holder,) = application.engine.list_holders()
    batches = application.list_batches("beside")
    return {
        "holder": [holder.query, holder.trigger, holder.slots, sum(holder.held.values())],
        "triggers": sorted({b.trigger for b in application.list_batches("live")}),
        "prepared": sorted({p.state for b in batches for p in b.preparations}),
        "reasons": sorted({p.failure for b in batches for p in b.preparations}),
    }


def remove_executors(application: Application) -> dict[str, Any]:
    """Removes one, which leaves enough slots, and then one more, which would not."""
    engine = application.engine
    counts = []
    for _ in range(2):
        first = sorted(engine.executors())[0]
        engine.remove_executor(first)
        has_crossed = application.cross_edges()
        application.follow(has_crossed)
        counts.append(application.count_executors())
    return {"executors": counts}


def end_beside(application: Application) -> dict[str, Any]:
    application.beside.stop()
    written = application.folder / "beside"
    last = max(path for path in written.iterdir() if (path / "_SUCCESS").exists())
    # A job of Spark's could take the slots of the query in Real-Time Mode.
    rows = parquet.read_table(last).to_pylist()
    counts = {row["key"]: row["count"] for row in rows}
    return {
        "failures": application.list_failures(),
        "is_equal": counts == Counter(n % KEYS for n in range(ROWS * (int(last.name) + 1))),
        "tasks": sorted({len(b.tasks) for b in application.list_batches("beside")}),
        "batches": len(application.list_batches("beside")),
    }


def ask_for_too_much(application: Application) -> dict[str, Any]:
    big = start_real_time(application.spark, "big", application.folder / "big", 2 * CORES)
    application.follow(lambda: bool(application.list_errors("big")))
    big.query.stop()
    still = application.live.query.isActive
    application.live.query.stop()
    return {"errors": application.list_errors("big"), "live runs on": still}


def process_continuously(application: Application) -> dict[str, Any]:
    engine = application.engine
    rows = application.spark.readStream.format("rate").option("numPartitions", 2).load()
    flow = (
        rows.writeStream.format("noop")
        .queryName("flow")
        .option("checkpointLocation", str(application.folder / "flow"))
        .trigger(continuous="1 second")
        .start()
    )
    application.follow(lambda: any(h.slots for h in engine.list_holders() if h.query == "flow"))
    (holder,) = engine.list_holders()
    flow.stop()
    return {"holder": [holder.query, holder.trigger, holder.slots]}


def main(folder: Path) -> None:
    with tuned_sessions(
        LocalExecutors(EXECUTORS, EXECUTORS), lambda session: None, lambda text: None
    ):
        spark = (
            SparkSession.builder.appName("real-time")
            .config(map=dict(SETTINGS))
            .config("spark.executor.cores", str(CORES))
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("OFF")
        application = Application(spark, folder)
        said = {
            step.__name__: step(application)
            for step in (
                move_beside,
                remove_executors,
                end_beside,
                ask_for_too_much,
                process_continuously,
            )
        }
        application.engine.close()
        application_id = spark.sparkContext.applicationId
        spark.stop()
    remove_work_folder(application_id)
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
