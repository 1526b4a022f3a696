"""What the benchmarks share: a session, work that waits, measured batches, files of results.

Every benchmark appends one JSON line a run to `results/<name>.jsonl`. A run whose line is there is
not made again, so a benchmark can be interrupted and started anew; remove lines to have them
measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from balancedstream.core.hotspots import ImbalanceMeasurement, measure_imbalance
from balancedstream.core.policy import Policy
from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished, Event
from balancedstream.engine.java import check_java
from balancedstream.engine.session import LocalExecutors, remove_work_folder, tuned_sessions
from balancedstream.loop.controller import Controller
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    MoveRecord,
    RunInfo,
    ScaleRecord,
)
from balancedstream.record.spectators import Metrics, Spectator

REPOSITORY = Path(__file__).parents[1]
MEASURED_CODE = ("runtime", "operator", "benchmarks", ":!benchmarks/results")

REPETITIONS = 5
DEFAULT_POLICY = Policy()
VANILLA_LOCALITY_WAIT_S = 3.0
"""Spark's default of `spark.locality.wait`."""

POLL_S = 0.2
PATIENCE_S = 300.0
"""A query that does not finish the batches asked for in this time has failed."""

Case = Mapping[str, str | int | float]
LoadT = TypeVar("LoadT")


class MeasurementError(Exception):
    """A run did not get as far as it had to; nothing was written for it."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark being run.

    Attributes:
        name: of the benchmark and of its file of results.
        work: folder for checkpoints and Spark's own files.
        results: the file with one JSON line a run.
        smoke: only show that it works, with one short run.
        code: the commit that was measured: the one at the start, whatever is committed meanwhile.
    """

    name: str
    work: Path
    results: Path
    smoke: bool
    code: Mapping[str, Any]

    @property
    def repetitions(self) -> range:
        """The numbers of the repetitions, from 1."""
        return range(1, 2 if self.smoke else REPETITIONS + 1)

    def find_missing(self, cases: Sequence[Case]) -> list[Case]:
        """Those cases that have no result yet, in their order."""
        done = [result["case"] for result in read_results(self.results)]
        return [case for case in cases if case not in done]

    def record(
        self, spark: SparkSession | None, case: Case, settings: Mapping[str, Any], measured: Any
    ) -> None:
        """Appends the result of one run, with what it was measured on."""
        line = {
            "benchmark": self.name,
            "case": case,
            "code": self.code,
            "machine": describe_machine(spark),
            "settings": settings,
            "measured": measured,
        }
        self.results.parent.mkdir(parents=True, exist_ok=True)
        with self.results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.tell(" ".join(f"{name}={value}" for name, value in case.items()))

    def tell(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self.name}: {text}", flush=True)


@contextmanager
def prepare(name: str, description: str) -> Iterator[Benchmark]:
    """Reads the command line and gives the benchmark a work folder.

    Smoke runs keep their results in the work folder: they are no measurements.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="for checkpoints (default: a temporary folder)"
    )
    parser.add_argument("--smoke", action="store_true", help="one short run, to see that it works")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        folder = work if options.smoke else REPOSITORY / "benchmarks"
        results = folder / "results" / f"{name}.jsonl"
        yield Benchmark(name, work, results, options.smoke, describe_code())


def read_results(file: Path) -> list[dict[str, Any]]:
    """The results in a file, oldest first; none where there is no file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]


def describe_code() -> dict[str, Any]:
    """The commit that was measured, and whether the measured code differs from it."""
    commit = _ask_git("rev-parse", "--short=12", "HEAD")
    changes = _ask_git("status", "--porcelain", "--", *MEASURED_CODE)
    return {"commit": commit or "none", "dirty": changes != ""}


def _ask_git(*arguments: str) -> str | None:
    """What git answers, or None where it refuses or there is none."""
    try:
        command = ["git", "-C", str(REPOSITORY), *arguments]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()


def describe_machine(spark: SparkSession | None) -> dict[str, Any]:
    """What the figures depend on, and nothing that names the machine.

    Args:
        spark: of the job; None where it ran in pods, or there was none.
    """
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "spark": pyspark.__version__,
        "python": platform.python_version(),
    }
    if spark:
        jvm: Any = spark._jvm
        machine |= {"java": jvm.System.getProperty("java.version"), "spark": spark.version}
    return machine


@contextmanager
def open_session(
    benchmark: Benchmark, executors: LocalExecutors, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session with the settings of a balanced job, as `balancedstream run` makes it."""
    with tuned_sessions(executors, lambda session: None, benchmark.tell):
        spark = create_session(benchmark, settings or {})
    try:
        yield spark
    finally:
        close_session(spark)


def create_session(benchmark: Benchmark, settings: Mapping[str, str]) -> SparkSession:
    """A session that is quiet and keeps its files in the work folder."""
    # Spark's Python workers are to be this very interpreter.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    check_java()
    builder: Any = SparkSession.builder
    quiet = {
        "spark.app.name": benchmark.name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(benchmark.work / "spark"),
    }
    for key, value in (quiet | dict(settings)).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    # A query that is stopped in the middle of a batch says so as an error.
    spark.sparkContext.setLogLevel("OFF")
    return spark


def close_session(spark: SparkSession) -> None:
    """Stops Spark and removes what its executors left behind."""
    application_id = spark.sparkContext.applicationId
    spark.stop()
    remove_work_folder(application_id)


class MeasuringEngine(SparkEngine):
    """An engine that remembers the events that somebody took from it."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self._taken: list[Event] = []

    def wait(self, timeout_s: float) -> Event | None:
        event = super().wait(timeout_s)
        if event is not None:
            self._taken.append(event)
        return event

    def events(self) -> list[Event]:
        return list(self._taken)

    def batches(self, query: str) -> list[BatchFinished]:
        """The finished batches of a query, oldest first."""
        return [e for e in self.events() if isinstance(e, BatchFinished) and e.query == query]

    def forget_events(self) -> None:
        self._taken.clear()

    def await_batches(self, query: StreamingQuery, count: int) -> list[BatchFinished]:
        """Waits until a query finished `count` batches; somebody else takes the events.

        Raises:
            MeasurementError: the query failed, or takes too long.
        """
        name = query.name
        await_that(lambda: len(self.batches(name)) >= count, query)
        return self.batches(name)


def await_that(holds: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    """Waits until something holds, as long as the query that is to bring it about runs.

    Raises:
        MeasurementError: the query failed, or it takes too long.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        if query:
            check_alive(query)
        if time.monotonic() > deadline_s:
            message = f"what was waited for did not happen within {PATIENCE_S:.0f} s"
            raise MeasurementError(message)
        time.sleep(POLL_S)


def check_alive(query: StreamingQuery) -> None:
    """Raises MeasurementError if the query failed."""
    error = query.exception()
    if error is not None:
        message = f"the query failed: {error}"
        raise MeasurementError(message)


def await_progress(query: StreamingQuery, skip: int, count: int) -> list[dict[str, Any]]:
    """Leaves out the next `skip` batches and gives Spark's own report of the `count` after them.

    Raises:
        MeasurementError: the query failed, or it takes too long.
    """

    def last_batch() -> int:
        progress = query.lastProgress
        return -1 if progress is None else int(progress["batchId"])

    first = last_batch() + 1 + skip
    await_that(lambda: last_batch() >= first + count - 1, query)
    return [p for p in query.recentProgress if first <= p["batchId"] < first + count]


@contextmanager
def watching(engine: MeasuringEngine) -> Iterator[None]:
    """Vanilla Spark: events are taken and nothing is done; Spark's own locality wait."""
    engine.set_locality_wait_s(VANILLA_LOCALITY_WAIT_S)
    stopping = threading.Event()

    def take_events() -> None:
        while engine.wait(0.5) is not None or not stopping.is_set():
            pass

    reader = threading.Thread(target=take_events, daemon=True)
    reader.start()
    try:
        yield
    finally:
        stopping.set()
        reader.join()


@contextmanager
def balancing(engine: MeasuringEngine, policy: Policy = DEFAULT_POLICY) -> Iterator[History]:
    """The job is balanced; gives the history of what was done."""
    info = RunInfo("benchmark", time.time(), 0, "", "")
    history = History(info)
    controller = Controller(engine, policy, Journal(history, SilentView(), Metrics(), time.time))
    controller.start()
    try:
        yield history
    finally:
        controller.stop()


class SilentView(Spectator):
    """Shows nothing."""

    def on_batch(self, record: BatchRecord) -> None: ...

    def on_decision(self, record: DecisionRecord) -> None: ...

    def on_move(self, record: MoveRecord) -> None: ...

    def on_scale(self, record: ScaleRecord) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


def read_rows(spark: SparkSession, rows_per_batch: int, input_partitions: int = 2) -> DataFrame:
    """Rows with a `value` that counts from 0, the same number in each batch, without a pause."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows_per_batch)
        .option("numPartitions", input_partitions)
        .load()
    )


def draw_uniform(seed: int) -> Column:
    """A number in [0, 1) that is a function of `value` and the seed alone."""
    return F.pmod(F.xxhash64("value", F.lit(seed)), F.lit(2**31)) / F.lit(2**31)


def draw_rank(drawn: Column, s: float, ranks: int) -> Column:
    """The inverse of the cumulative Zipf distribution: rank r, from 0, has weight (r + 1) ** -s.

    Drawn by Spark alone: a Python function would need a Python worker of its own on every executor,
    which starts in the middle of what is measured.

    Args:
        drawn: uniform in [0, 1).
        s: the exponent; 0 for equal weights.
        ranks: how many there are.
    """
    weights = [rank**-s for rank in range(1, ranks + 1)]
    total = sum(weights)
    bounds = [below / total for below in accumulate(weights)][:-1]
    # A text, for as many literals take Spark seconds to analyze. It is made an array once a batch.
    table = F.split(F.lit(",".join(map(repr, bounds))), ",").cast("array<double>")
    halves = [2**power for power in reversed(range((ranks - 1).bit_length()))]

    def step(at: Column, half: Column) -> Column:
        return F.when(F.get(table, at + half - 1) <= drawn, at + half).otherwise(at)

    return F.aggregate(F.array(*map(F.lit, halves)), F.lit(0), step)


def wait_per_row(rows: DataFrame, partitions: int, wait_ms: int) -> DataFrame:
    """Sends rows to the task that holds their `key`'s state, and has it wait for each row.

    The wait stands for a call to an outside service. It is `Thread.sleep` in the task itself: it
    occupies the executor and no core, so that more executors than cores make sense.
    """
    waited = F.java_method(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(wait_ms).cast("bigint"))
    return rows.repartition(partitions, "key").where(waited.isNull())


def use_own_workers(spark: SparkSession, arm: str) -> None:
    """Gives the queries made from now on Python workers that no other arm has.

    Spark keeps workers by their environment, and a balanced query has its workers collect garbage
    faster for as long as they live. Spark's own query must not gain by it.
    """
    spark.sparkContext.environment["BENCHMARK_ARM"] = arm


def start_query(states: DataFrame, name: str, checkpoint: Path) -> StreamingQuery:
    """Starts a query whose answer nobody reads."""
    return (
        states.writeStream.queryName(name)
        .outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def count_keys(rows: DataFrame) -> DataFrame:
    """A running count per key: one long of state for each."""
    return rows.groupBy("key").agg(F.count("*").alias("rows"))


def measure_balance(event: BatchFinished, executors: Mapping[str, int]) -> ImbalanceMeasurement:
    """Imbalance of a batch and its bound, loading of state excluded, as the controller sees it."""
    busy_s = {task.partition: task.work_s for task in event.tasks}
    placement = {task.partition: task.executor for task in event.tasks}
    return measure_imbalance(busy_s, placement, executors)


def alternate(repetition: int, *arms: str) -> tuple[str, ...]:
    """The arms in the order of this repetition: every other one the other way round."""
    return arms if repetition % 2 else arms[::-1]


def make_folder(work: Path, name: str) -> Path:
    """A new one: executors may write to a query's folder yet when the query is over."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work))


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


class Bench(Generic[LoadT]):
    """A session in which one query after the other is measured.

    Each benchmark derives its own, which says what the queries of its arms do.
    """

    def __init__(self, work: Path, spark: SparkSession, load: LoadT) -> None:
        self._work = work
        self._spark = spark
        self._load = load
        self._engine = MeasuringEngine(spark)

    def warm_up(self, states: DataFrame, batches: int) -> None:
        """The first query of a session is slow, whatever it does."""
        with watching(self._engine):
            self.run_query(states, "warm-up", batches)

    def run_in_turns(
        self,
        repetition: int,
        arms: Sequence[str],
        run_arm: Callable[[str], dict[str, Any]],
        policy: Policy = DEFAULT_POLICY,
    ) -> tuple[dict[str, dict[str, Any]], dict[str, History]]:
        """Runs the arms, `vanilla` with Spark alone and the others balanced.

        Returns:
            What `run_arm` measured in each arm, in the order in which they ran, and what was
            decided in each balanced one.
        """
        measured: dict[str, dict[str, Any]] = {}
        histories: dict[str, History] = {}
        for arm in alternate(repetition, *arms):
            if arm == "vanilla":
                with watching(self._engine):
                    measured[arm] = run_arm(arm)
            else:
                with balancing(self._engine, policy) as histories[arm]:
                    measured[arm] = run_arm(arm)
        return measured, histories

    def run_query(self, states: DataFrame, name: str, batches: int) -> list[BatchFinished]:
        """Runs a query from its beginning and gives its first batches.

        Raises:
            MeasurementError: the query failed, or takes too long.
        """
        query = self.start(states, name)
        try:
            return self._engine.await_batches(query, batches)[:batches]
        finally:
            query.stop()

    def start(self, states: DataFrame, name: str) -> StreamingQuery:
        """Starts a query from its beginning, and forgets the events of those before it."""
        self._engine.forget_events()
        return start_query(states, name, make_folder(self._work, name))


def run(main: Callable[[], None]) -> None:
    """Runs a benchmark; one that could not be measured ends with a sentence and status 1."""
    try:
        main()
    except MeasurementError as error:
        sys.exit(str(error))
