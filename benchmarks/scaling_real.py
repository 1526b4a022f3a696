"""What autoscaling is worth on real executors: ours beside fixed sizes and dynamic allocation.

One trace runs under each way to choose the number of executors, all ways of a repetition one after
the other: a step up, a ramp down, a spike of other keys. Its rows arrive in files by the trace,
whatever the stream does. The executors are processes of this machine, started as
`balancedstream run --local 1:4` starts them; rows wait, which occupies an executor and no core.

The trace, of 27 minutes, is sped up ten times, and so is every time of our policy: windows, delays,
holds. What cannot be sped up weighs more than usual, on ways that add executors. A trigger interval
is 5 s, half of the usual one, so fewer batches have to do for a decision. An executor takes seconds
to start, and again to load and compile what its first tasks need; several that start at once share
the cores for it. Spark's dynamic allocation keeps its defaults. Its times are measured against
batches, not against the trace: here as usual it adds while tasks wait within a batch, and 60 s
without a task, after which an executor leaves, are many trigger intervals.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from harness.benchmark import Benchmark, make_folder, prepare, run
from harness.counting import Sample, count_executors, counting, list_changes, sum_executor_s
from harness.measuring import MeasuringEngine, await_that, balancing, watching
from harness.producing import FileProducer
from harness.results import Case
from harness.rows import count_keys, wait_per_row
from harness.sessions import close_session, create_session, open_session
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery
from simulation.figures import compute_figures
from simulation.model import Job
from simulation.scalers import count_for
from simulation.spark import BatchRun
from simulation.traces import Phase, Trace, make_phases
from tables.scaling_real import WAYS

from balancedstream.core.policy import Policy, ScalingPolicy, parse, to_mapping
from balancedstream.core.scaling.executors import HOLD_S
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.session import describe_cluster
from balancedstream.engine.session.settings import SHUFFLE_PARTITIONS, tune

REPETITIONS = 3
LEAST, MOST = 1, 4
"""Executors that any way may use; the trace begins with what one carries."""

SPEED = 10.0
TRIGGER_S = 5.0
OBJECTIVE_S = 2.5 * TRIGGER_S
"""As in the simulation: a row waits for one trigger interval, and its batch takes another."""

WAIT_MS = 10
JOB = Job(
    splits=4,
    partitions=16,
    map_row_s=0.0,
    state_row_s=WAIT_MS / 1000,
    trigger_s=TRIGGER_S,
    task_s=0.12,
    driver_s=0.3,
)
"""By which the fixed sizes are chosen, the same ones after a new calibration; the keys' weights are
its, too."""

LOW, HIGH = 10.0, 180.0
"""Rows per second that one executor carries, and that four of them do."""

PHASES: tuple[Phase, ...] = (
    (250.0, LOW, LOW),
    (450.0, HIGH, HIGH),
    (150.0, HIGH, LOW),
    (350.0, LOW, LOW),
    (100.0, HIGH, HIGH),
    (300.0, LOW, LOW),
)
SHIFT_S = 1200.0
"""The rows of the spike are of other keys."""

SMOKE_PHASES: tuple[Phase, ...] = ((50.0, LOW, LOW), (150.0, HIGH, HIGH))
SMOKE_WAYS = ("ours", "dynamic allocation")

SETTINGS = {
    SHUFFLE_PARTITIONS: str(JOB.partitions),
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Of all ways. Executors share few cores, which the better compiler of a new one would fill."""

LEAD_BATCHES = 2
LEAD_ROWS = 50
"""Rows of each batch before the trace: the first ones of a session are slow, whatever it does."""

DYNAMIC_ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": str(LEAST),
    "spark.dynamicAllocation.minExecutors": str(LEAST),
    "spark.dynamicAllocation.maxExecutors": str(MOST),
    # Spark's page on job scheduling asks for it in a standalone cluster, which a local one is.
    "spark.executor.cores": "1",
}
"""All else is Spark's default: a second of waiting tasks adds, and 60 s without a task remove."""


def main() -> None:
    with prepare("scaling_real", __doc__ or "") as benchmark:
        repetitions = 1 if benchmark.smoke else REPETITIONS
        ways = SMOKE_WAYS if benchmark.smoke else WAYS
        phases = SMOKE_PHASES if benchmark.smoke else PHASES
        trace = make_trace(phases)
        settings = {
            **{name: getattr(JOB, name) for name in ("partitions", "keys", "zipf", "trigger_s")},
            "wait_ms": WAIT_MS,
            "executors": [LEAST, MOST],
            "phases": phases,
            "shift_s": SHIFT_S,
            "speed": SPEED,
            "objective_s": OBJECTIVE_S,
            "spark": SETTINGS,
        }
        cases: list[Case] = [
            {"way": way, "repetition": repetition}
            for repetition in range(1, repetitions + 1)
            for way in rotate(ways, repetition)
        ]
        for case in benchmark.find_missing(cases):
            way = str(case["way"])
            with open_way(benchmark, way, trace) as spark:
                real = RealRun(benchmark, spark, trace, seed=int(case["repetition"]))
                benchmark.record(spark, case, settings, real.measure(way))


def rotate(ways: tuple[str, ...], repetition: int) -> tuple[str, ...]:
    """The ways in the order of a repetition: each begins with another one.

    >>> rotate(("a", "b", "c"), 2)
    ('b', 'c', 'a')
    """
    first = (repetition - 1) % len(ways)
    return ways[first:] + ways[:first]


def make_trace(phases: tuple[Phase, ...]) -> Trace:
    """The trace in real time."""
    return make_phases("step, ramp and spike", phases, (SHIFT_S,)).speed_up(SPEED)


def choose_executors(way: str, trace: Trace) -> LocalExecutors:
    """The executors of a way: how many at the start, and at most."""
    if way == "fixed at the peak":
        least = most = min(MOST, count_for(JOB, trace.peak))
    elif way == "fixed at the mean":
        least = most = count_for(JOB, trace.mean_rate(0.0, trace.length_s))
    else:
        least, most = LEAST, MOST
    return LocalExecutors(least, most)


def make_policy() -> Policy:
    """Our defaults, on the clock of the trace; a restore of state takes what it takes."""
    scaling = ScalingPolicy(min_executors=LEAST, max_executors=MOST)
    sections = to_mapping(Policy(scaling=scaling))
    sections["scaling"] = {
        knob: value / SPEED if knob.endswith("_s") and isinstance(value, float) else value
        for knob, value in sections["scaling"].items()
    }
    return parse(sections)


@contextmanager
def open_way(benchmark: Benchmark, way: str, trace: Trace) -> Iterator[SparkSession]:
    """A session with the executors of a way."""
    executors = choose_executors(way, trace)
    if way != "dynamic allocation":
        with open_session(benchmark, executors, SETTINGS) as spark:
            yield spark
        return
    # The settings of a balanced job, but that it leaves the number of executors to Spark.
    tuned, _ = tune(SETTINGS, executors.most)
    cluster = describe_cluster(SETTINGS, executors)
    spark = create_session(benchmark, tuned | cluster | SETTINGS | DYNAMIC_ALLOCATION)
    try:
        yield spark
    finally:
        close_session(spark)


@dataclass(frozen=True)
class Observed:
    """What was seen of a run; times are seconds since the trace began.

    Attributes:
        batches: those that read rows of the trace.
        samples: executors over time.
        counts: rows of each key, as the query wrote them last.
    """

    batches: Sequence[BatchRun]
    samples: Sequence[Sample]
    counts: Mapping[str, int]


class RealRun:
    """One way on the trace, in a session of its own."""

    def __init__(self, benchmark: Benchmark, spark: SparkSession, trace: Trace, seed: int) -> None:
        self._spark = spark
        self._trace = trace
        self._checkpoint = make_folder(benchmark.work, "checkpoint")
        self._input = make_folder(benchmark.work, "input")
        self._producer = FileProducer(self._input, make_drawer(trace, seed))
        self._engine = MeasuringEngine(spark)
        self._begin_s = 0.0

    def measure(self, way: str) -> dict[str, Any]:
        """The figures of the run, with its batches and the changes of its executors."""
        if way == "ours":
            with balancing(self._engine, make_policy()) as history:
                observed = self._run()
            changes = [
                (s.at_s - self._begin_s, s.executors_before, s.executors_after)
                for s in history.scales
            ]
        else:
            with watching(self._engine):
                observed = self._run()
            changes = list_changes(observed.samples)
        figures = compute_figures(
            self._trace,
            observed.batches,
            changes,
            executor_s=sum_executor_s(observed.samples, self._trace.length_s),
            left_rows=0.0,
            objective_s=OBJECTIVE_S,
            stabilization_s=HOLD_S / SPEED,
        )
        expected, found = self._producer.counts, observed.counts
        wrong = [key for key in {*expected, *found} if expected.get(key) != found.get(key)]
        return figures.to_json() | {
            "wrong_keys": len(wrong),
            "keys": len(expected),
            "changes": [[round(at_s, 1), before, after] for at_s, before, after in changes],
            "samples": [[0.0, observed.samples[0][1]]]
            + [[round(at_s, 1), after] for at_s, _, after in list_changes(observed.samples)],
            "batches": [
                [round(b.start_s, 2), round(b.end_s, 2), int(b.last_row - b.first_row)]
                for b in observed.batches
            ],
        }

    def _run(self) -> Observed:
        trace, producer = self._trace, self._producer
        await_that(lambda: bool(self._engine.executors()))
        query = self._start()
        try:
            for _ in range(LEAD_BATCHES):
                producer.write(LEAD_ROWS, 0.0)
                self._await_all(query)
            application_id = self._spark.sparkContext.applicationId
            with counting(lambda: count_executors(application_id)) as samples:
                self._begin_s = samples[0][0]
                with producer.produce(trace.count_until, self._begin_s, trace.length_s) as thread:
                    await_that(lambda: not thread.is_alive(), query)
            self._await_all(query)
            counts = self._read_counts(query.name)
        finally:
            query.stop()
        since = [(at_s - self._begin_s, count) for at_s, count in samples]
        return Observed(self._list_batches(query.name), since, counts)

    def _start(self) -> StreamingQuery:
        lines = self._spark.readStream.text(str(self._input))
        rows = lines.select(F.col("value").alias("key"))
        counts = count_keys(wait_per_row(rows, JOB.partitions, WAIT_MS))
        return (
            counts.writeStream.queryName("counts")
            .outputMode("update")
            .format("memory")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=f"{TRIGGER_S:.0f} seconds")
            .start()
        )

    def _await_all(self, query: StreamingQuery) -> None:
        """Waits until all rows that were written have been read."""

        def count_read() -> int:
            return sum(batch.sample.input_rows for batch in self._engine.batches(query.name))

        await_that(lambda: count_read() >= self._producer.rows, query)

    def _read_counts(self, table: str) -> dict[str, int]:
        """The last count that the query wrote of each key: counts only grow."""
        last = self._spark.table(table).groupBy("key").agg(F.max("rows"))
        return {str(key): int(rows) for key, rows in last.collect()}

    def _list_batches(self, query: str) -> list[BatchRun]:
        """The batches of the trace; its first row is row 0."""
        found, read = [], -LEAD_BATCHES * LEAD_ROWS
        for event in self._engine.batches(query):
            sample = event.sample
            first, read = read, read + sample.input_rows
            if first >= 0 and sample.input_rows:
                end_s = sample.finished_s - self._begin_s
                found.append(BatchRun(end_s - sample.duration_s, end_s, first, read))
        return found


def make_drawer(trace: Trace, seed: int) -> Callable[[float], str]:
    """Draws keys by Zipf's law, other ones after each shift; the same for the same seed."""
    chance = random.Random(seed)
    bounds = list(accumulate(rank**-JOB.zipf for rank in range(1, JOB.keys + 1)))

    def draw(arrived_s: float) -> str:
        hot_set = sum(arrived_s >= shift_s for shift_s in trace.shifts_s)
        return f"{hot_set}-{bisect_left(bounds, chance.random() * bounds[-1])}"

    return draw


if __name__ == "__main__":
    run(main)
