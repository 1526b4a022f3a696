"""More executors under load, and back: what it does to a stream.

Executors have part of a core each, by a quota of the operating system: on two cores, those that
start then take little from those that run and from the driver, as on a cluster. Both arms run the
same uniform load and are given two more executors after the same number of batches. Then the
balanced arm, and only that, is brought back to those it had: two are drained of their state
partitions and retired while the stream runs on. The executors are asked for by the benchmark, not
by the scaling policy, so that both arms get them alike.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
from harness.benchmark import Benchmark, alternate, make_folder, prepare, run
from harness.measuring import MeasuringEngine, await_that, balancing, watching
from harness.quotas import QUICK_JVM, limiting_executors
from harness.results import Case
from harness.rows import count_keys, draw_uniform, read_rows, start_query, wait_per_row
from harness.sessions import open_session, use_own_workers
from pyspark import SparkStageInfo
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from balancedstream.engine.events import (
    BatchFinished,
    Event,
    ExecutorAdded,
    ExecutorRemoved,
    TaskFailed,
)
from balancedstream.engine.session.local import LocalExecutors

ADDED = 2
"""Executors that join."""

KEEP_STAGES = {"spark.ui.retainedStages": "100000"}
"""Spark is asked at the end of a run which of its stages were computed again."""


@dataclass(frozen=True)
class Workload:
    """What both arms get.

    Attributes:
        before: executors that there are before two more join.
        cores: that an executor may use.
        query: `count` for an aggregation, `pandas` for `transformWithStateInPandas`.
        partitions: state partitions.
        keys: distinct keys, all of the same weight.
        rows_per_batch: rows in every batch; one executor waits that many milliseconds for them.
        wait_ms: how long the stateful task waits for each row.
        warm_up_batches: batches that are not measured.
        steady_batches: batches before, and, balanced, after.
        watched_batches: batches that run once all executors are there.
    """

    before: int = 1
    cores: float = 0.4
    query: str = "count"
    partitions: int = 12
    keys: int = 1200
    rows_per_batch: int = 2000
    wait_ms: int = 1
    warm_up_batches: int = 4
    steady_batches: int = 4
    watched_batches: int = 8


USUAL = (
    Workload(),
    Workload(before=2, cores=0.3, partitions=16, keys=1600, rows_per_batch=4000),
    Workload(query="pandas", partitions=6, keys=30, rows_per_batch=1000),
)

LONG_BATCHES = Workload(rows_per_batch=5000, watched_batches=6)
"""Batches that outlast Spark's locality wait of 3 s: then even Spark alone uses idle executors."""


class Counter(StatefulProcessor):  # type: ignore[misc]
    """Counts the rows of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the count."""
        self._count = handle.getValueState("count", "rows long")

    def handleInputRows(  # noqa: N802
        self,
        key: tuple[Any, ...],
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Adds rows, and gives the count so far."""
        count = int(self._count.get()[0]) if self._count.exists() else 0
        count += sum(len(frame) for frame in rows)
        self._count.update((count,))
        yield pd.DataFrame({"key": [key[0]], "rows": [count]})

    def close(self) -> None:
        """Nothing is held."""


def main() -> None:
    with prepare("scale", __doc__ or "") as benchmark:
        if benchmark.smoke:
            runs = [(replace(w, steady_batches=2, watched_batches=4), 1) for w in USUAL]
        else:
            runs = [(w, n) for n in benchmark.repetitions for w in USUAL] + [(LONG_BATCHES, 1)]
        missing = benchmark.find_missing([describe(*of) for of in runs])
        for before in sorted({workload.before for workload in USUAL}):
            measure_from(
                before,
                benchmark,
                [r for r in runs if r[0].before == before and describe(*r) in missing],
            )


def describe(workload: Workload, repetition: int) -> Case:
    """The case of a run."""
    return {
        "executors": f"{workload.before} → {workload.before + ADDED}",
        "query": workload.query,
        "rows": workload.rows_per_batch,
        "repetition": repetition,
    }


def measure_from(before: int, benchmark: Benchmark, runs: Sequence[tuple[Workload, int]]) -> None:
    """Makes the runs that begin with so many executors, in a session of their own."""
    if not runs:
        return
    executors = LocalExecutors(before, before + ADDED)
    with (
        open_session(benchmark, executors, KEEP_STAGES | QUICK_JVM) as spark,
        limiting_executors(spark.sparkContext.applicationId, runs[0][0].cores),
    ):
        engine = MeasuringEngine(spark)
        for workload, repetition in runs:
            runner = ArmRunner(benchmark.work, spark, engine, workload)
            order = alternate(repetition, "vanilla", "balanced")
            arms = {arm: runner.measure(arm) for arm in order}
            case = describe(workload, repetition)
            benchmark.record(spark, case, asdict(workload), {"order": order, **arms})


class ArmRunner:
    """A session in which a query is given executors and loses them again."""

    def __init__(
        self, work: Path, spark: SparkSession, engine: MeasuringEngine, workload: Workload
    ) -> None:
        self._work = work
        self._spark = spark
        self._engine = engine
        self._workload = workload
        self._next_stage = 0

    def measure(self, arm: str) -> dict[str, Any]:
        """Runs a query through its phases; the marks say after how many batches each began."""
        self._list_new_stages()
        self._engine.forget_events()
        attach = watching if arm == "vanilla" else balancing
        with attach(self._engine):
            await_that(lambda: len(self._engine.executors()) == self._workload.before)
            survivors = set(self._engine.executors())
            query = self._start(arm)
            try:
                marks = self._grow(query)
                if arm == "balanced":
                    marks |= self._shrink(query, survivors)
                events = self._engine.events()
                stages = self._list_new_stages()
            finally:
                query.stop()
            self._retire(set(self._engine.executors()) - survivors)
        return {
            **marks,
            **list_batches(events, survivors),
            "failed_tasks": sum(isinstance(event, TaskFailed) for event in events),
            "repeated_stages": sum(stage.currentAttemptId > 0 for stage in stages),
        }

    def _start(self, arm: str) -> StreamingQuery:
        workload = self._workload
        key = F.floor(draw_uniform(0) * workload.keys).alias("key")
        rows = read_rows(self._spark, workload.rows_per_batch).select(key)
        waiting = wait_per_row(rows, workload.partitions, workload.wait_ms)
        use_own_workers(self._spark, arm)
        counts = COUNTERS[workload.query](waiting)
        return start_query(counts, arm, make_folder(self._work, arm))

    def _grow(self, query: StreamingQuery) -> dict[str, Any]:
        workload = self._workload
        asked = workload.warm_up_batches + workload.steady_batches
        self._engine.await_batches(query, asked)
        executors = workload.before + ADDED
        asked_s = time.monotonic()
        self._engine.set_executor_count(executors)
        await_that(lambda: len(self._engine.executors()) == executors, query)
        joining_s = time.monotonic() - asked_s
        joined = len(self._engine.batches(query.name))
        self._engine.await_batches(query, joined + workload.watched_batches)
        return {"asked": asked, "joined": joined, "joining_s": round(joining_s, 2)}

    def _shrink(self, query: StreamingQuery, survivors: set[str]) -> dict[str, int]:
        """Takes all state partitions off the later executors, then retires those."""
        name = query.name
        leaving = set(self._engine.executors()) - survivors
        draining = len(self._engine.batches(name))
        for executor in leaving:
            self._engine.drain(executor)

        def is_drained() -> bool:
            newest = self._engine.batches(name)[-1]
            return leaving.isdisjoint(task.executor for task in newest.tasks)

        await_that(is_drained, query)
        self._retire(leaving)
        retired = len(self._engine.batches(name))
        self._engine.await_batches(query, retired + self._workload.steady_batches)
        return {"draining": draining, "retired": retired}

    def _retire(self, leaving: set[str]) -> None:
        for executor in leaving:
            self._engine.remove_executor(executor)

        def are_gone() -> bool:
            events = self._engine.events()
            return leaving <= {e.executor for e in events if isinstance(e, ExecutorRemoved)}

        await_that(are_gone)

    def _list_new_stages(self) -> list[SparkStageInfo]:
        """The stages that began since this was last asked; Spark numbers them without gaps."""
        tracker = self._spark.sparkContext.statusTracker()
        stages = []
        while (stage := tracker.getStageInfo(self._next_stage)) is not None:
            stages.append(stage)
            self._next_stage += 1
        return stages


def count_in_pandas(rows: DataFrame) -> DataFrame:
    """A running count per key, by Python."""
    counts: DataFrame = rows.groupBy("key").transformWithStateInPandas(
        Counter(), "key long, rows long", "Update", "None"
    )
    return counts


COUNTERS = {"count": count_keys, "pandas": count_in_pandas}


def list_batches(events: Sequence[Event], executors: set[str]) -> dict[str, Any]:
    """Per batch: its time, the executors there were, and the least busy one's part of the mean.

    Args:
        events: of one query.
        executors: those there were before.
    """
    present = set(executors)
    batch_s, count, least_share = [], [], []
    for event in events:
        match event:
            case ExecutorAdded(executor=executor):
                present.add(executor)
            case ExecutorRemoved(executor=executor):
                present.discard(executor)
            case BatchFinished():
                busy_s = dict.fromkeys(present, 0.0)
                for task in event.tasks:
                    busy_s[task.executor] = busy_s.get(task.executor, 0.0) + task.busy_s
                batch_s.append(event.sample.duration_s)
                count.append(len(present))
                least_share.append(round(min(busy_s.values()) / fmean(busy_s.values()), 3))
    return {"batch_s": batch_s, "executors": count, "least_share": least_share}


if __name__ == "__main__":
    run(main)
