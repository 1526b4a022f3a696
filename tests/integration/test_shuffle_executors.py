"""Executors are lost or become slow: every row comes out once, and the others share the work."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import processes
import pyarrow as pa
import pytest
from patience import PATIENCE_S
from processes import find_own_executor
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from shuffled_jobs import EXPENSIVE_S, ROWS, await_that, echo_arrow, texts

import balancedstream
from balancedstream.core.samples import ShuffleRecord
from balancedstream.workers.names import BATCH_PROPERTY

pytestmark = [pytest.mark.integration, pytest.mark.turn]

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(processes)

MAP_TASKS = 6
CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
"""Either of the two has Spark compute checksums."""


def runs_batch(batch: int | None) -> bool:
    """Whether this task is of that micro-batch; None for any."""
    return batch is None or TaskContext.get().getLocalProperty(BATCH_PROPERTY) == str(batch)


def note_map_tasks(
    folder: Path, batch: int | None = None
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """An input that writes down which of its tasks ran, and on which executor.

    Each attempt gives its rows in an order of its own, as rows from a shuffle come.

    Args:
        folder: where it is written down.
        batch: the only micro-batch of which it is; None for any.
    """

    def echo(frames: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        executor = find_own_executor()
        attempt = context.taskAttemptId()
        if runs_batch(batch):
            (folder / f"{context.partitionId()}-{attempt}-{executor}").touch()
        for frame in frames:
            yield frame.sample(frac=1, random_state=attempt)

    return echo


def kill_own_executor(
    folder: Path, batch: int | None = None
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Once Spark has seen partition 0 end, partition 1 kills the executor that it runs on.

    Args:
        folder: where all that happens is shuffle_records.
        batch: the only micro-batch in which it does so; None for any.
    """
    worked, ended, killed = (folder / name for name in ("worked", "ended", "killed"))

    def echo(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId()
        yield from echo_arrow(batches)
        if not runs_batch(batch):
            return
        (folder / f"{partition}-{context.taskAttemptId()}").touch()
        if partition == 0:
            worked.touch()
        elif not killed.exists():
            await_that(ended.exists)
            if partition == 1:
                executor = find_own_executor()
                killed.write_text(str(executor))
                os.kill(executor, signal.SIGKILL)
            await_that(killed.exists)

    return echo


def tell_when_a_partition_has_ended(spark: SparkSession, folder: Path) -> None:
    """All others wait, so it is partition 0."""
    tracker = spark.sparkContext.statusTracker()

    def count_ended() -> int:
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return sum(stage.numCompletedTasks for stage in stages if stage)

    await_that((folder / "worked").exists)
    await_that(lambda: count_ended() == 1)
    (folder / "ended").touch()


class Loss:
    """An executor that is killed between map and reduce, and what came of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.maps, self.reduces = folder / "maps", folder / "reduces"
        self._spark = spark
        for each in (self.maps, self.reduces):
            each.mkdir()

    def run(self, work: Callable[[], list[Row]]) -> list[int]:
        """Run what has the executor killed; gives the numbers of the rows that came out."""
        with ThreadPoolExecutor(1) as watcher:
            watched = watcher.submit(tell_when_a_partition_has_ended, self._spark, self.reduces)
            rows = work()
            watched.result()
        victim = (self.reduces / "killed").read_text()
        ran_on_victim = [f.name for f in self.maps.iterdir() if f.name.endswith(f"-{victim}")]
        assert ran_on_victim
        assert len(list(self.maps.iterdir())) > MAP_TASKS
        assert len(list(self.reduces.glob("0-*"))) == 1, "partition 0 has seen the first attempts"
        assert len(list(self.reduces.glob("1-*"))) > 1
        return sorted(row.id for row in rows)


@pytest.fixture
def loss(spark: SparkSession, tmp_path: Path) -> Iterator[Loss]:
    # Spark's own guard would fail the job where a second attempt routes otherwise; rows shall tell.
    for checksum in CHECKSUMS:
        spark.conf.set(checksum, "false")
    yield Loss(spark, tmp_path)
    for checksum in CHECKSUMS:
        spark.conf.unset(checksum)


def test_no_row_is_lost_or_doubled_when_map_output_is_lost_after_a_partition_has_ended(
    spark: SparkSession, shuffle_records: list[ShuffleRecord], tmp_path: Path, loss: Loss
) -> None:
    df = (
        texts(spark)
        .repartition(MAP_TASKS)
        .mapInPandas(note_map_tasks(loss.maps), "id long, kind string")
    )
    echo, costs = kill_own_executor(loss.reduces), str(tmp_path / "costs")

    def run() -> list[Row]:
        shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=6, folder=costs)
        rows: list[Row] = shuffled.mapInArrow(echo, df.schema).collect()
        return rows

    (loss.reduces / "killed").touch()
    run()
    run()
    for file in [*loss.maps.iterdir(), *loss.reduces.iterdir()]:
        file.unlink()
    assert loss.run(run) == list(range(ROWS))
    assert shuffle_records[-1].by_estimates


def test_no_row_of_a_stream_is_lost_or_doubled_when_map_output_is_lost(
    stream: Callable[[int], DataFrame],
    shuffle_records: list[ShuffleRecord],
    tmp_path: Path,
    loss: Loss,
) -> None:
    kind = F.when(F.col("value") % 10 == 0, "long").otherwise("short").alias("kind")
    rows = stream(ROWS).select(F.col("value").alias("id"), kind)
    note = note_map_tasks(loss.maps, batch=2)
    noted = rows.repartition(MAP_TASKS).mapInPandas(note, rows.schema)
    shuffled = balancedstream.shuffle(
        noted, cost_key="kind", partitions=6, folder=str(tmp_path / "costs")
    )
    echoed = shuffled.mapInArrow(kill_own_executor(loss.reduces, batch=2), rows.schema)
    seen: dict[int, list[Row]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        seen[number] = batch.collect()

    def run() -> list[Row]:
        query = (
            echoed.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        deadline_s = time.monotonic() + PATIENCE_S
        while 3 not in seen and query.isActive and time.monotonic() < deadline_s:
            time.sleep(0.1)
        query.stop()
        assert query.exception() is None
        return [row for number in range(4) for row in seen[number]]

    assert loss.run(run) == list(range(4 * ROWS))
    by_estimates = {batch.batch: batch.by_estimates for batch in shuffle_records}
    assert by_estimates[2], "the batch in which the executor was killed"


def route_by_place(ids: pa.Array) -> pa.Array:
    return pa.array(range(len(ids)), pa.int32())


def test_rows_are_lost_or_doubled_where_they_are_routed_by_their_place_in_a_map_task(
    spark: SparkSession, loss: Loss
) -> None:
    df = texts(spark).repartition(MAP_TASKS)
    noted = df.mapInPandas(note_map_tasks(loss.maps), "id long, kind string")
    route = F.arrow_udf(route_by_place, "int").asNondeterministic()
    routed = noted.withColumn("route", route("id") % 6).repartitionById(6, "route").drop("route")
    echoed = routed.mapInArrow(kill_own_executor(loss.reduces), df.schema)
    assert loss.run(echoed.collect) != list(range(ROWS)), "the tests above would not notice"


def follow(slow: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Rows with their executor and work; the executor that the file names is six times slower."""

    def work(frames: Iterator[Any]) -> Iterator[Any]:
        executor = find_own_executor()
        is_slow = slow.exists() and slow.read_text() == str(executor)
        for frame in frames:
            work = frame["kind"].map({"long": 10, "short": 1})
            time.sleep(EXPENSIVE_S / 4 * work.sum() * (6 if is_slow else 1))
            yield frame[["id"]].assign(executor=executor, work=work)

    return work


def spread_over_many(df: DataFrame, folder: Path) -> balancedstream.Shuffle:
    return balancedstream.shuffle(df, cost_key="kind", partitions=12, folder=str(folder / "costs"))


def find_work(df: DataFrame, folder: Path) -> Counter[int]:
    """How much work each executor does; the one that the folder's file `slow` names is slow."""
    function = follow(folder / "slow")
    work: Counter[int] = Counter()
    shuffled = spread_over_many(df, folder)
    rows = shuffled.mapInPandas(function, "id long, executor long, work long").collect()
    assert sorted(row.id for row in rows) == list(range(ROWS))
    for row in rows:
        work[row.executor] += row.work
    return work


def test_an_executor_that_has_become_slow_gets_less_work_where_partitions_are_many(
    spark: SparkSession, shuffle_records: list[ShuffleRecord], tmp_path: Path
) -> None:
    df = texts(spark)
    find_work(df, tmp_path)
    find_work(df, tmp_path)
    equal = find_work(df, tmp_path)
    assert len(equal) == 3
    victim = next(iter(equal))
    (tmp_path / "slow").write_text(str(victim))
    # A third before; a thirteenth would be just, and a partition is a twelfth.
    assert find_work(df, tmp_path)[victim] < equal.total() / 4
    assert [batch.by_estimates for batch in shuffle_records] == [False, False, True, True]


def list_executors(spark: SparkSession) -> set[str]:
    """Spark's ids of those that are there."""
    alive = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    return {alive.apply(each).id() for each in range(alive.size())} - {"driver"}


def test_after_an_executor_was_lost_those_that_are_there_share_the_work_evenly(
    spark: SparkSession, shuffle_records: list[ShuffleRecord], tmp_path: Path, loss: Loss
) -> None:
    df = texts(spark)
    find_work(df, tmp_path)
    find_work(df, tmp_path)
    repartitioned = df.repartition(MAP_TASKS)
    noted = repartitioned.mapInPandas(note_map_tasks(loss.maps), "id long, kind string")
    echo = kill_own_executor(loss.reduces)
    killing = spread_over_many(noted, tmp_path).mapInArrow(echo, df.schema)
    assert loss.run(killing.collect) == list(range(ROWS))
    victim = int((loss.reduces / "killed").read_text())
    work: Counter[int] = Counter()

    def has_shared_evenly() -> bool:
        """Whether all that are there work, none comes or goes, and nobody has little to do.

        Spark may start an executor in place of the one that was killed, and what it runs first
        takes it long; so does what a busy machine has no time for.
        """
        there = list_executors(spark)
        if len(find_work(df, tmp_path)) != len(there):
            return False
        work.clear()
        for _ in range(3):
            work.update(find_work(df, tmp_path))
        # An even share is twelve of 36 partitions, or 18 where there are two executors.
        is_even = min(work.values()) > work.total() / len(work) / 2
        return is_even and list_executors(spark) == there

    await_that(has_shared_evenly)
    assert victim not in work
    assert len(work) >= 2
    assert shuffle_records[-1].by_estimates
