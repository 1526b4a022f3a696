"""Moving a quarter of the state and back: what each strategy costs the stream.

Each run is a query that is started from a copy of a checkpoint, which is built once. Two of its
four executors exchange partitions, a quarter of all, then take them back; the other two look on.
The exchange is the benchmark's own; its moves are made by the product's code. Executors have half a
core each, by a quota of the operating system, so that those that look on lose nothing to those that
load. A query makes no snapshots of its state, which would make one batch in ten much longer.

The state is 1 GiB in 32 partitions, on the disk of this machine and on storage that is slowed to
20 ms an open and 50 MB/s an executor; on that also 2 GiB in 8 partitions.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.benchmark import Benchmark, MeasurementError, alternate, prepare, remove_folder, run
from harness.holding import Most, holding
from harness.measuring import PATIENCE_S, await_that, check_alive, open_history, open_journal
from harness.quotas import QUICK_JVM, limiting_executors
from harness.results import Case
from harness.rows import read_rows, start_query, wait_per_row
from harness.sessions import open_session
from harness.storage import SCHEME, build_slow_storage
from harness.strategies import steps
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from balancedstream.core.balance.hotspots import Move
from balancedstream.core.balance.migration import steps_ahead, steps_within
from balancedstream.core.balance.restoring import RestoreCost, learn_restore, learn_restore_cost
from balancedstream.core.policy import MigrationPolicy
from balancedstream.core.samples import TaskSample
from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.settings import SHUFFLE_PARTITIONS
from balancedstream.loop.controller import MAX_LOCALITY_WAIT_S
from balancedstream.loop.migrations import Migrations

EXECUTORS = 4
CORES = 0.5
"""That an executor may use."""

PREPARED = "prepared"
"""With the state loaded ahead, in steps within the budget, as the product does it by default. The
others restore it in the batch."""

DISK, SLOW = "disk", "slow"

REPEATED = ("all-at-once", "budgeted", PREPARED)
ONCE = ("fluid", "optimized")
EXCHANGING = (0, 1)
"""Which executors exchange partitions."""

BUILDING_BATCHES = 16
OPERATOR = 0
"""The only one of the query."""

NO_SNAPSHOTS = {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "1000"}


@dataclass(frozen=True)
class Workload:
    """The state, and what goes on meanwhile.

    Attributes:
        partitions: state partitions.
        keys: keys with state.
        value_bytes: random characters that are kept for each key.
        rows_per_batch: keys that each batch touches, always the same ones.
        wait_ms: how long the stateful task waits for each row.
        warm_up_batches: batches that are not measured; the first one restores all state.
        steady_batches: batches before the exchange.
        pause_batches: batches between the exchange and its undoing.
    """

    partitions: int = 32
    keys: int = 2**18
    value_bytes: int = 4096
    rows_per_batch: int = 1000
    wait_ms: int = 4
    warm_up_batches: int = 8
    steady_batches: int = 6
    pause_batches: int = 3


FEW_LARGE = Workload(partitions=8, keys=2**19)
"""Partitions of 256 MiB: what a batch waits for if a single one is loaded in it."""


def main() -> None:
    with prepare("migration", __doc__ or "") as benchmark:
        # All sessions are in one JVM, which takes its class path from the first.
        slow_storage = build_slow_storage(benchmark.work)
        if benchmark.smoke:
            small = Workload(keys=2**13, steady_batches=2)
            measure_workload(benchmark, small, (SLOW,), slow_storage)
            return
        measure_workload(benchmark, Workload(), (DISK, SLOW), slow_storage)
        measure_workload(benchmark, FEW_LARGE, (SLOW,), slow_storage)


def measure_workload(
    benchmark: Benchmark, workload: Workload, storages: Sequence[str], settings: Mapping[str, str]
) -> None:
    """Measures all cases of one workload that have no result yet."""
    cases = [
        case
        for n in benchmark.repetitions
        for storage in storages
        for case in list_cases(storage, workload, n, REPEATED)
    ]
    if DISK in storages:
        cases += list_cases(DISK, workload, 1, ONCE)
    missing = benchmark.find_missing(cases)
    if not missing:
        return
    built = build_state(benchmark, workload, settings)
    wanted = {
        SHUFFLE_PARTITIONS: str(workload.partitions),
        **NO_SNAPSHOTS,
        **QUICK_JVM,
        **settings,
    }
    with (
        open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS), wanted) as spark,
        limiting_executors(spark.sparkContext.applicationId, CORES),
        holding(spark.sparkContext.applicationId, benchmark.work / "spark") as most,
    ):
        engine = SparkEngine(spark)
        # As the product does: no task leaves a busy executor, and takes its state along.
        engine.set_locality_wait_s(MAX_LOCALITY_WAIT_S)
        application = Application(engine, most)
        # The first query of a session is slow, whatever it does.
        with running(spark, application, built, {"strategy": "warm-up"}, workload):
            pass
        for case in missing:
            with running(spark, application, built, case, workload) as runner:
                measured = runner.measure_strategy(str(case["strategy"]), workload)
            benchmark.record(spark, case, {**asdict(workload), "cores": CORES}, measured)


def list_cases(
    storage: str, workload: Workload, repetition: int, strategies: Sequence[str]
) -> list[Case]:
    """The cases of a repetition in its order."""
    shared: Case = {"storage": storage, "partitions": workload.partitions, "repetition": repetition}
    return [{**shared, "strategy": strategy} for strategy in alternate(repetition, *strategies)]


def copy_checkpoint(source: Path, target: Path) -> Path:
    """A copy of hard links: Spark adds files to a checkpoint and deletes them, and changes none."""
    remove_folder(target)
    shutil.copytree(source, target, copy_function=os.link)
    return target


@contextmanager
def running(
    spark: SparkSession,
    application: Application,
    built: Path,
    case: Case,
    workload: Workload,
) -> Iterator[ExchangeRunner]:
    """A query that runs from a copy of a checkpoint, after its warm-up."""
    checkpoint = copy_checkpoint(built, built.with_name("copy"))
    rows = build_rows(spark, workload, workload.rows_per_batch)
    name = "-".join(str(value) for value in case.values())
    waiting = wait_per_row(rows, workload.partitions, workload.wait_ms)
    place = f"{SCHEME}:{checkpoint}" if case.get("storage") == SLOW else str(checkpoint)
    query = start_query(keep_payloads(waiting), name, place)
    try:
        runner = ExchangeRunner(application, query)
        for _ in range(workload.warm_up_batches):
            runner.await_batch()
        yield runner
    finally:
        query.stop()
        remove_folder(checkpoint)


@dataclass(frozen=True)
class Application:
    """A running one.

    Attributes:
        engine: moves its partitions.
        most: what its executors hold.
    """

    engine: SparkEngine
    most: Most


class ExchangeRunner:
    """A running query whose executors exchange partitions."""

    def __init__(self, application: Application, query: StreamingQuery) -> None:
        self._engine = application.engine
        self._most = application.most
        self._query = query
        self._name = query.name
        self._restore_cost = RestoreCost()
        self._load_cost = RestoreCost()
        self._last: BatchFinished | None = None

    def await_batch(self) -> BatchFinished:
        """The next batch that finishes.

        Raises:
            MeasurementError: the query failed, or the batch takes too long.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            event = self._engine.wait(0.5)
            if isinstance(event, BatchFinished) and event.query == self._name:
                before = {task.partition: task for task in self._tasks()}
                self._restore_cost = learn_restore_cost(self._restore_cost, event.tasks, before)
                self._last = event
                return event
            check_alive(self._query)
        message = f"no batch finished within {PATIENCE_S:.0f} s"
        raise MeasurementError(message)

    def measure_strategy(self, strategy: str, workload: Workload) -> dict[str, Any]:
        """Moves a quarter of the partitions away and back, with steady batches around it."""
        away = self._plan_exchange(workload.partitions // 4)
        back = [Move(move.partition, move.target, move.source) for move in away]
        moved = {move.partition for move in away}
        self._most.take()
        steady = [describe(self.await_batch(), moved) for _ in range(workload.steady_batches)]
        measured: dict[str, Any] = {"state_bytes": self._sum_state(), "held": self._most.take()}
        measured["away"] = self._migrate(away, strategy)
        steady += [describe(self.await_batch(), moved) for _ in range(workload.pause_batches)]
        self._most.take()
        measured["back"] = self._migrate(back, strategy)
        steady += [describe(self.await_batch(), moved) for _ in range(workload.pause_batches)]
        return measured | {"steady": by_figure(steady)}

    def _plan_exchange(self, count: int) -> list[Move]:
        """Half of `count` partitions in each direction, by turns."""
        held: dict[str, list[int]] = {executor: [] for executor in self._engine.executors()}
        for task in self._tasks():
            held[task.executor].append(task.partition)
        one, other = (sorted(held, key=int)[place] for place in EXCHANGING)
        pairs = zip(held[one][: count // 2], held[other][: count // 2], strict=False)
        moves = [(Move(a, one, other), Move(b, other, one)) for a, b in pairs]
        return [move for pair in moves for move in pair]

    def _migrate(self, moves: Sequence[Move], strategy: str) -> dict[str, Any]:
        """Makes the moves; gives what each batch was like meanwhile.

        Raises:
            MeasurementError: a partition did not get where it should.
        """
        engine = self._engine if strategy == PREPARED else Unprepared(self._engine)
        migrations = Migrations(engine, open_journal(open_history()))
        operator = (self._name, OPERATOR)
        moved = {move.partition for move in moves}
        began_s = self._finished_s()
        batches: list[dict[str, float]] = []
        begun: list[int] = []

        def split(left: Sequence[Move]) -> Iterator[tuple[Move, ...]]:
            step = next(self._split(left, strategy, migrations.list_begun(operator)))
            begun.append(len(step))
            yield step

        migrations.begin(operator, moves, split, self._last_batch())
        while migrations.under_way():
            event = self.await_batch()
            batches.append(describe(event, moved))
            tasks = {task.partition: task for task in event.tasks}
            loads = migrations.finish_batch(operator, event.sample.batch, tasks, event.preparations)
            for state_bytes, load_s in loads:
                self._load_cost = learn_restore(self._load_cost, state_bytes, load_s)
        ran_on = {task.partition: task.executor for task in self._tasks()}
        if not {move.partition: move.target for move in moves}.items() <= ran_on.items():
            message = f"{strategy}: a partition was not moved within {len(batches)} batches"
            raise MeasurementError(message)
        return {
            "steps": begun,
            "total_s": round(self._finished_s() - began_s, 3),
            "held": self._most.take(),
            **by_figure(batches),
        }

    def _split(
        self, moves: Sequence[Move], strategy: str, begun: Collection[str]
    ) -> Iterator[tuple[Move, ...]]:
        policy = MigrationPolicy()
        tasks = {task.partition: task for task in self._tasks()}
        cost = self._load_cost if strategy == PREPARED else self._restore_cost

        def restore_s(move: Move) -> float:
            return cost.estimate_s(tasks[move.partition].state_bytes)

        if strategy == PREPARED:
            return steps_ahead(
                moves,
                policy.budget_s,
                restore_s,
                state_bytes=lambda move: tasks[move.partition].state_bytes,
                loading_bytes={},
                busy_s={partition: task.work_s for partition, task in tasks.items()},
                placement={partition: task.executor for partition, task in tasks.items()},
                executors=self._engine.executors(),
                begun=begun,
            )
        if strategy == "budgeted":
            return steps_within(moves, policy.budget_s, restore_s)
        return steps(moves, strategy)

    def _tasks(self) -> tuple[TaskSample, ...]:
        return self._last.tasks if self._last else ()

    def _last_batch(self) -> int:
        return self._last.sample.batch if self._last else -1

    def _finished_s(self) -> float:
        return self._last.sample.finished_s if self._last else 0.0

    def _sum_state(self) -> int:
        return sum(task.state_bytes for task in self._tasks())


class Unprepared:
    """An engine as for a Spark that cannot load state ahead."""

    def __init__(self, engine: SparkEngine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def can_prepare(self) -> bool:
        """Whether state can be loaded ahead of a move."""
        return False


def describe(event: BatchFinished, exchanged: Collection[int]) -> dict[str, float]:
    """The figures of one batch.

    Returns:
        `batch_s`: how long it took. `moved`: partitions that ran elsewhere than before.
        `restore_s`: restoring of state on the executor that took longest. `slowest_s`: the slowest
        task, of the partitions that are no part of the exchange.
    """
    restore_s: dict[str, float] = defaultdict(float)
    for task in event.tasks:
        restore_s[task.executor] += task.restore_s
    others = (task.busy_s for task in event.tasks if task.partition not in exchanged)
    return {
        "batch_s": event.sample.duration_s,
        "moved": event.moved_partitions,
        "restore_s": round(max(restore_s.values()), 3),
        "slowest_s": max(others),
    }


def by_figure(batches: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """One list a figure instead of one mapping a batch."""
    return {figure: [batch[figure] for batch in batches] for figure in batches[0]}


def build_state(benchmark: Benchmark, workload: Workload, settings: Mapping[str, str]) -> Path:
    """A checkpoint with the state, every partition of it in a snapshot; built where there is none.

    Spark's maintenance, here every two seconds, writes the snapshots that a job of some age has.
    """
    built = benchmark.work / f"state-{workload.partitions}x{workload.keys}x{workload.value_bytes}"
    if built.exists():
        return built
    benchmark.tell(f"building {workload.keys * workload.value_bytes / 2**30:.2f} GiB of state")
    unfinished = benchmark.work / "unfinished"
    remove_folder(unfinished)
    wanted = {
        SHUFFLE_PARTITIONS: str(workload.partitions),
        "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
        **settings,
    }
    with open_session(benchmark, LocalExecutors(2, 2), wanted) as spark:
        rows = build_rows(spark, workload, workload.keys // BUILDING_BATCHES)
        kept = keep_payloads(rows.repartition(workload.partitions, "key"))
        query = start_query(kept, "build", unfinished)
        try:
            await_that(
                lambda: find_oldest_snapshot(unfinished, workload) >= BUILDING_BATCHES, query
            )
        finally:
            query.stop()
    unfinished.rename(built)
    return built


def find_oldest_snapshot(checkpoint: Path, workload: Workload) -> int:
    """The version of state that every partition has a snapshot of, or a later one; 0 for none."""
    newest = []
    for partition in range(workload.partitions):
        files = (checkpoint / "state" / "0" / str(partition)).glob("*.zip")
        newest.append(max((int(file.name.partition("_")[0]) for file in files), default=0))
    return min(newest)


def build_rows(spark: SparkSession, workload: Workload, rows_per_batch: int) -> DataFrame:
    """Rows that first bring each key its payload, and then touch the same few keys in each batch.

    The payload is of random letters and digits: what compresses well would be no state to move.
    """
    value = F.col("value")
    is_new = value < workload.keys
    touched = F.pmod(value, F.lit(workload.rows_per_batch)) * (
        workload.keys // workload.rows_per_batch
    )
    key = F.when(is_new, value).otherwise(touched).alias("key")
    payload = F.when(is_new, F.randstr(F.lit(workload.value_bytes), F.lit(0))).otherwise(F.lit(""))
    return read_rows(spark, rows_per_batch).select(key, payload.alias("payload"))


def keep_payloads(rows: DataFrame) -> DataFrame:
    """The greatest payload of each key, which is its first: the others are empty."""
    return rows.groupBy("key").agg(F.max("payload").alias("payload"))


if __name__ == "__main__":
    run(main)
