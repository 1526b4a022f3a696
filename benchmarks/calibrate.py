"""Calibrates the model of `simulation` by a real run, and says how far it is from that run.

A stream whose rows wait in its source and in its state runs on executors of this machine: with few
rows a batch and with many, by which the times are fitted; then with a number between them, by which
the model is judged. At last an executor is added, and state partitions move to it. Waiting occupies
executors and no core, so the figures of tasks do not depend on the number of cores; those of the
driver do.

`simulation/calibration.json` has the result. Run it again after a change of Spark or of the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from harness.benchmark import (
    Benchmark,
    describe_code,
    describe_machine,
    make_folder,
    prepare,
    run,
)
from harness.measuring import MeasuringEngine, await_that, watching
from harness.rows import (
    count_keys,
    draw_rank,
    draw_uniform,
    read_rows,
    start_query,
    wait_in_place,
    wait_per_row,
)
from harness.sessions import open_session
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from simulation.calibration import fit_job, predict_s
from simulation.model import CALIBRATION, Costs, Job

from balancedstream.core.samples import TaskSample
from balancedstream.engine.events import BatchFinished
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.settings import SHUFFLE_PARTITIONS

EXECUTORS = LocalExecutors(2, 3)
SHAPE = Job(splits=4, partitions=24)
KEYS = 2_000
ZIPF = 0.6
SOURCE_WAIT_MS = 1
STATEFUL_WAIT_MS = 2

LOCALITY_WAIT_S = 60.0
"""So that tasks run where their state is, as under the controller."""

MOVED = 6
"""Partitions that move to the new executor."""


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        fitted_rows: rows of a batch, by which the times are fitted.
        judged_rows: the same, by which the model is judged.
        warm_up_batches: left out at the beginning of each query.
        batches: measured of each query.
    """

    fitted_rows: tuple[int, ...] = (400, 3200)
    judged_rows: int = 1600
    warm_up_batches: int = 4
    batches: int = 15


SMOKE = Size(fitted_rows=(200, 800), judged_rows=400, warm_up_batches=2, batches=3)


class Calibration:
    """A session in which one query after the other is measured."""

    def __init__(self, benchmark: Benchmark, spark: SparkSession, size: Size) -> None:
        self._benchmark = benchmark
        self._spark = spark
        self._size = size
        self._engine = MeasuringEngine(spark)

    def calibrate(self) -> dict[str, Any]:
        """The costs, and of each batch that is judged its real and its modelled time."""
        size = self._size
        with watching(self._engine):
            self._engine.set_locality_wait_s(LOCALITY_WAIT_S)
            fitted = [batch for rows in size.fitted_rows for batch in self._run_steady(rows)]
            judged = self._run_steady(size.judged_rows)
            executors = self._engine.executors()
            job = fit_job(fitted, SHAPE)
            restore_s = self._measure_restores(job)
        pairs = [(b.sample.duration_s, predict_s(b, job, executors)) for b in judged]
        costs = Costs(job.task_s, job.driver_s, restore_s, job.noise)
        return {
            "costs": {name: float(f"{value:.3g}") for name, value in asdict(costs).items()},
            "median_error": round(median(abs(model / real - 1) for real, model in pairs), 3),
            "judged": [{"real_s": round(r, 3), "model_s": round(m, 3)} for r, m in pairs],
        }

    def _run_steady(self, rows: int) -> list[BatchFinished]:
        """The batches of a query in which nothing moves, without its first ones."""
        size = self._size
        with self._query(rows) as query:
            count = size.warm_up_batches + size.batches
            found = self._engine.await_batches(query, count)[size.warm_up_batches : count]
        self._benchmark.tell(f"{rows} rows a batch: measured")
        return [batch for batch in found if not batch.moved_partitions and batch.stages]

    def _measure_restores(self, job: Job) -> float:
        """Seconds that the first task of a moved partition takes more than it should.

        Spark's own metric of the restore is cleared for aggregations.
        """
        engine = self._engine
        with self._query(self._size.judged_rows) as query:
            engine.await_batches(query, self._size.warm_up_batches)
            before = engine.executors()
            engine.set_executor_count(len(before) + 1)
            await_that(lambda: len(engine.executors()) > len(before), query)
            (new,) = engine.executors().keys() - before.keys()
            engine.place(query.name, 0, dict.fromkeys(range(MOVED), new))

            def tasks_there() -> list[TaskSample]:
                batches = engine.batches(query.name)
                return [task for b in batches for task in b.tasks if task.executor == new]

            await_that(lambda: len(tasks_there()) >= MOVED, query)
            first = tasks_there()[:MOVED]
        return median(t.busy_s - job.task_s - t.records * job.state_row_s for t in first)

    @contextmanager
    def _query(self, rows: int) -> Iterator[StreamingQuery]:
        self._engine.forget_events()
        folder = make_folder(self._benchmark.work, f"calibrate-{rows}")
        mapped = wait_in_place(read_rows(self._spark, rows, SHAPE.splits), SOURCE_WAIT_MS)
        keyed = mapped.withColumn("key", draw_rank(draw_uniform(1), ZIPF, KEYS))
        counts = count_keys(wait_per_row(keyed, SHAPE.partitions, STATEFUL_WAIT_MS))
        query = start_query(counts, folder.name.replace("-", "_"), folder)
        try:
            yield query
        finally:
            query.stop()


def main() -> None:
    with prepare("calibrate", __doc__ or "") as benchmark:
        settings = {SHUFFLE_PARTITIONS: str(SHAPE.partitions)}
        with open_session(benchmark, EXECUTORS, settings) as spark:
            machine = describe_machine(spark)
            found = Calibration(benchmark, spark, SMOKE if benchmark.smoke else Size()).calibrate()
        found |= {"machine": machine, "code": describe_code()}
        benchmark.tell(
            "real and modelled seconds: "
            + ", ".join(f"{b['real_s']:.2f} and {b['model_s']:.2f}" for b in found["judged"])
        )
        benchmark.tell(f"median error of a batch: {found['median_error']:.1%}")
        file = benchmark.work / CALIBRATION.name if benchmark.smoke else CALIBRATION
        file.write_text(json.dumps(found, indent=2) + "\n")
        benchmark.tell(json.dumps(found["costs"]))


if __name__ == "__main__":
    run(main)
