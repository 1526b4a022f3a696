"""The cost-aware shuffle on real Spark: the same rows come out as went in, whatever happens."""

from __future__ import annotations

import datetime
import gc
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import processes
import pyarrow as pa
import pytest
from patience import PATIENCE_S
from processes import SETTINGS, find_own_executor, write_submit_arguments
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import Geography, Geometry

import balancedstream
from balancedstream.core.costs import LearntCosts
from balancedstream.core.observations import ShuffleRecord
from balancedstream.errors import InvalidInputError
from balancedstream.shuffling.collecting import watch
from balancedstream.shuffling.folders import CostFolder
from balancedstream.shuffling.marking import mark_rows
from balancedstream.shuffling.shuffles import HIDDEN, ROUTE
from balancedstream.workers.names import BATCH_PROPERTY

pytestmark = pytest.mark.integration

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(processes)

ROWS = 400
DEAR_S = 0.004
MAP_TASKS = 6
CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
"""Either of the two has Spark compute checksums."""


@pytest.fixture
def told() -> Iterator[list[ShuffleRecord]]:
    """The batches that were shuffled."""
    batches: list[ShuffleRecord] = []
    stop = watch(batches.append)
    yield batches
    stop()


def texts(spark: SparkSession) -> DataFrame:
    """One row of ten is dear."""
    return spark.range(ROWS).select(
        "id", F.when(F.col("id") % 10 == 0, "long").otherwise("short").alias("kind")
    )


def take_time(kind: str | None, rows: int = 1) -> None:
    if kind == "long":
        time.sleep(DEAR_S * rows)


def echo_pandas(frames: Iterator[Any]) -> Iterator[Any]:
    for frame in frames:
        take_time(frame["kind"].iloc[0], len(frame))
        yield frame


def echo_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        take_time(batch.column("kind")[0].as_py(), batch.num_rows)
        yield batch


def echo_row(row: Row) -> Row:
    take_time(row["kind"])
    return row


def collected(df: DataFrame) -> Counter[str]:
    return Counter(map(repr, df.collect()))


def test_rows_of_every_type_come_out_as_they_went_in(spark: SparkSession) -> None:
    moment = datetime.datetime(2026, 3, 1, 12, 30)  # noqa: DTZ001 - as Spark gives it
    df = spark.createDataFrame(
        [
            (n, kind, {"a": n}, [n, None], (n, "x"), moment, b"\x00", 0.5, None)
            for n in range(30)
            for kind in ("long", "short", None)
        ],
        "id long, kind string, m map<string, long>, a array<long>, s struct<n: long, t: string>, "
        "at timestamp, b binary, d double, nothing string",
    )
    expected = collected(df)
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=4)
    assert collected(shuffled.mapInPandas(echo_pandas, df.schema)) == expected
    assert collected(shuffled.mapInArrow(echo_arrow, df.schema)) == expected
    assert collected(shuffled.map(echo_row, df.schema)) == expected


POINT, OTHER_POINT = (struct.pack("<bidd", 1, 1, 1.0, y) for y in (2.0, 3.0))
LOOK_ALIKES: dict[str, list[Any]] = {
    "s string": ["x", ""],
    "t string": ["x"],
    "c string collate UTF8_LCASE": ["a", "A"],
    "d double": [0.0, -0.0, float("nan")],
    "f float": [0.0, -0.0],
    "b binary": [b"", b"x"],
    "a array<int>": [[], [None], [1], [1, None], [None, 1]],
    "l array<array<string>>": [[], [[]], [["x"], []], [[], ["x"]], [None, ["x"]]],
    "m map<string, int>": [{}, {"k": None}, {"k": 1}],
    "r struct<x: int, map: string>": [(None, None), (1, None), (None, "1")],
    "n array<struct<x: string, y: string>>": [[None], [("x", None)], [(None, "x")]],
    "q struct<`a.b`: string, `A.B`: string>": [(None, "x"), ("x", None)],
    "p map<struct<x: int>, array<int>>": [{(1,): [None]}, {(1,): []}],
    "g geometry(any)": [Geometry(POINT, 0), Geometry(POINT, 4326), Geometry(OTHER_POINT, 0)],
    "h geography(any)": [Geography(POINT, 4326), Geography(OTHER_POINT, 4326)],
}


def test_rows_that_differ_at_all_are_told_apart(spark: SparkSession) -> None:
    # Each row has one value, the others are null.
    columns = list(LOOK_ALIKES)
    rows: list[list[Any]] = [[None] * len(columns)]
    for at, column in enumerate(columns):
        for value in LOOK_ALIKES[column]:
            rows.append([None] * len(columns))
            rows[-1][at] = value
    df = spark.createDataFrame(rows, ", ".join(columns))
    marks = mark_rows([(df[field.name], field.dataType) for field in df.schema])
    for mark in marks:
        assert len({row[0] for row in df.select(mark).collect()}) == len(rows)


def test_variants_that_differ_are_told_apart(spark: SparkSession) -> None:
    texts = [None, "null", "1", "{}", '{"a": null}', '{"a": 1}', "[]", '"2020-01-01"', "1.5"]
    df = spark.createDataFrame([(text,) for text in texts], "text string")
    parsed = df.select(F.parse_json("text").alias("v"))
    typed = spark.range(1).selectExpr("inline(array(struct(date'2020-01-01' :: variant AS v)))")
    variants = parsed.union(typed)
    for mark in mark_rows([(variants["v"], variants.schema["v"].dataType)]):
        assert len({row[0] for row in variants.select(mark).collect()}) == len(texts) + 1


def test_each_partition_is_one_task_and_an_empty_one_is_no_trouble(spark: SparkSession) -> None:
    df = texts(spark).where("id < 2")
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=5)
    out = shuffled.mapInPandas(echo_pandas, df.schema).withColumn("p", F.spark_partition_id())
    assert sorted(row.id for row in out.collect()) == [0, 1]
    assert out.rdd.getNumPartitions() == 5


def test_costs_are_learnt_from_two_batches_and_the_third_is_level(
    spark: SparkSession, told: list[ShuffleRecord], tmp_path: Path
) -> None:
    df = texts(spark)
    for _ in range(3):
        # Null for what is dear; and Spark numbers the lambda's variable anew each time.
        short = F.get(F.filter(F.array("kind"), lambda kind: kind == "short"), F.lit(0))
        shuffled = balancedstream.shuffle(df, cost_key=short, partitions=3, folder=str(tmp_path))
        assert collected(shuffled.mapInArrow(echo_arrow, df.schema)) == collected(df)
    assert [batch.by_estimates for batch in told] == [False, False, True]
    assert "off by" in told[1].reason
    last = told[-1]
    # All rows are estimated, by costs that were really measured.
    assert sum(last.estimated_s) > ROWS / 10 * DEAR_S
    assert max(last.estimated_s) < 1.1 * sum(last.estimated_s) / 3


def test_partitions_that_one_task_runs_after_a_coalesce_are_all_learnt_from(
    spark: SparkSession, told: list[ShuffleRecord], tmp_path: Path
) -> None:
    df = texts(spark)
    for _ in range(3):
        shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=8, folder=str(tmp_path))
        assert collected(shuffled.mapInArrow(echo_arrow, df.schema).coalesce(1)) == collected(df)
    assert [(batch.batch, batch.by_estimates) for batch in told] == [
        (0, False),
        (1, False),
        (2, True),
    ]
    assert [len(batch.real_s) for batch in told] == [8] * 3
    newest = CostFolder(tmp_path / "echo_arrow-by-kind").newest()
    assert newest
    assert newest.batch == 2
    # Those of all partitions; the first row of a Python worker is not learnt from.
    assert min(batch.records for batch in told) > ROWS * 7 / 8


class Carried:
    """Travels with the function that names it: each task has a class of its own."""


def carry(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        Carried()
        yield batch


def look_around(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How much a worker has frozen, and of how many tasks it still has something."""
    for _ in batches:
        frozen = gc.get_freeze_count()
        gc.unfreeze()
        kept = sum(type(o) is type and o.__name__ == Carried.__name__ for o in gc.get_objects())
        yield pa.RecordBatch.from_pydict({"frozen": [frozen], "kept": [kept]})


def test_workers_freeze_what_they_have_loaded_and_nothing_of_their_tasks(
    spark: SparkSession,
) -> None:
    df = texts(spark)
    for _ in range(8):
        shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=2)
        shuffled.mapInArrow(carry, df.schema).collect()
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=1)
    seen = shuffled.mapInArrow(look_around, "frozen long, kept long").collect()
    assert max(row.frozen for row in seen) > 10_000
    assert max(row.kept for row in seen) == 1


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


def await_that(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def kill_own_executor(
    folder: Path, batch: int | None = None
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Once Spark has seen partition 0 end, partition 1 kills the executor that it runs on.

    Args:
        folder: where all that happens is told.
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
    spark: SparkSession, told: list[ShuffleRecord], tmp_path: Path, loss: Loss
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
    assert told[-1].by_estimates


def test_no_row_of_a_stream_is_lost_or_doubled_when_map_output_is_lost(
    stream: Callable[[int], DataFrame], told: list[ShuffleRecord], tmp_path: Path, loss: Loss
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
    by_estimates = {batch.batch: batch.by_estimates for batch in told}
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
            time.sleep(DEAR_S / 4 * work.sum() * (6 if is_slow else 1))
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
    spark: SparkSession, told: list[ShuffleRecord], tmp_path: Path
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
    assert [batch.by_estimates for batch in told] == [False, False, True, True]


def list_executors(spark: SparkSession) -> set[str]:
    """Spark's ids of those that are there."""
    alive = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    return {alive.apply(each).id() for each in range(alive.size())} - {"driver"}


def test_after_an_executor_was_lost_those_that_are_there_share_the_work_evenly(
    spark: SparkSession, told: list[ShuffleRecord], tmp_path: Path, loss: Loss
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
    assert told[-1].by_estimates


def fail_once(folder: Path) -> Callable[[Row], Row]:
    """Each task's first attempt fails in the middle."""

    def echo(row: Row) -> Row:
        take_time(row["kind"])
        context = TaskContext.get()
        if context.attemptNumber() == 0 and row["id"] % 50 == 7:
            (folder / f"failed-{context.partitionId()}").touch()
            message = "the first attempt fails"
            raise RuntimeError(message)
        return row

    return echo


def test_a_task_that_is_tried_again_gives_its_rows_once_and_teaches_once(
    spark: SparkSession, told: list[ShuffleRecord], tmp_path: Path
) -> None:
    df = texts(spark)
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=3)
    assert collected(shuffled.map(fail_once(tmp_path), df.schema)) == collected(df)
    assert list(tmp_path.iterdir())
    # A Python worker's first row is not learnt from.
    assert ROWS - 6 <= told[-1].records <= ROWS


def fail_always(frames: Iterator[Any]) -> Iterator[Any]:
    for frame in frames:
        if 13 in frame["id"].to_numpy():
            message = "this text cannot be read: 13"
            raise ValueError(message)
        yield frame


def test_the_functions_own_error_is_shown_and_nothing_is_learnt_from_the_batch(
    spark: SparkSession, told: list[ShuffleRecord], tmp_path: Path
) -> None:
    df = texts(spark)
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=3, folder=str(tmp_path))
    with pytest.raises(Exception, match="ValueError: this text cannot be read: 13"):
        shuffled.mapInPandas(fail_always, df.schema).collect()
    assert not told
    assert CostFolder(tmp_path / "fail_always-by-kind").newest() is None


def find_long(row: Row) -> Row:
    return next(row for _ in range(1) if row["kind"] == "long")


def test_a_stopiteration_that_escapes_the_function_is_an_error_and_no_end_of_the_rows(
    spark: SparkSession,
) -> None:
    df = texts(spark)
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=3)
    with pytest.raises(Exception, match="StopIteration"):
        shuffled.map(find_long, df.schema).collect()


def echo_after(seconds: float, row: Row) -> Row:
    time.sleep(seconds)
    return row


def test_a_partial_function_has_the_name_of_the_function(
    spark: SparkSession, told: list[ShuffleRecord]
) -> None:
    df = texts(spark)
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=3)
    shuffled.map(partial(partial(echo_after), 0.0), df.schema).collect()
    assert told[-1].shuffle == "echo_after-by-kind"


def test_costs_that_change_are_learnt_anew_and_rows_go_round_robin_meanwhile(
    spark: SparkSession, told: list[ShuffleRecord], tmp_path: Path
) -> None:
    df, changed = texts(spark), tmp_path / "changed"

    def work(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            is_dear = (frame["kind"].iloc[0] == "long") != changed.exists()
            time.sleep(DEAR_S * len(frame) if is_dear else 0)
            yield frame

    def run() -> None:
        shuffled = balancedstream.shuffle(
            df, cost_key="kind", partitions=3, folder=str(tmp_path / "costs")
        )
        rows = shuffled.mapInPandas(work, df.schema).collect()
        assert sorted(row.id for row in rows) == list(range(ROWS))

    for _ in range(3):
        run()
    changed.touch()
    for _ in range(3):
        run()
    assert [batch.by_estimates for batch in told] == [False, False, True, True, False, True]
    assert "all is learnt anew" in told[3].reason


def test_a_function_that_reads_all_its_input_first_cannot_be_measured_and_is_told_so(
    spark: SparkSession, told: list[ShuffleRecord], tmp_path: Path
) -> None:
    df = texts(spark)

    def gather(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in list(frames):
            take_time(frame["kind"].iloc[0], len(frame))
            yield frame

    expected = collected(df)
    for _ in range(3):
        shuffled = balancedstream.shuffle(
            df, cost_key="kind", partitions=3, folder=str(tmp_path / "costs")
        )
        assert collected(shuffled.mapInPandas(gather, df.schema)) == expected
    assert [batch.by_estimates for batch in told] == [False] * 3
    assert "after it had read all its input" in told[-1].reason


def read_back(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.value for row in spark.read.parquet(str(folder)).collect())


def test_a_stream_is_learnt_from_batch_to_batch_and_a_failed_batch_is_routed_as_before(
    spark: SparkSession,
    stream: Callable[[int], DataFrame],
    told: list[ShuffleRecord],
    tmp_path: Path,
) -> None:
    output, checkpoint, broken = (tmp_path / name for name in ("output", "checkpoint", "broken"))
    kinds = stream(ROWS).withColumn(
        "kind", F.when(F.col("value") % 10 == 0, "long").otherwise("short")
    )

    def classify(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            take_time(frame["kind"].iloc[0], len(frame))
            # Batch 2 fails until somebody repairs what is broken.
            if (frame["value"] >= 2 * ROWS).any() and broken.exists():
                raise OSError(os.fspath(broken))
            yield frame[["value"]].assign(partition=TaskContext.get().partitionId())

    def start() -> StreamingQuery:
        shuffled = balancedstream.shuffle(
            kinds, cost_key="kind", partitions=3, folder=f"file://{tmp_path / 'costs'}"
        )
        return (
            shuffled.mapInPandas(classify, "value long, partition int")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint))
            .start(str(output))
        )

    def find_pin() -> Path:
        (pin,) = (tmp_path / "costs").glob("*/*/pinned-2")
        return pin

    broken.touch()
    query = start()
    with pytest.raises(Exception, match="broken"):
        query.awaitTermination(PATIENCE_S)
    assert [batch.batch for batch in told] == [0, 1]
    assert read_back(spark, output) == list(range(2 * ROWS))
    routed_by = find_pin().read_bytes()

    broken.unlink()
    query = start()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(told) < 4 and time.monotonic() < deadline_s:
        time.sleep(0.1)
    query.stop()
    assert find_pin().read_bytes() == routed_by
    assert [batch.by_estimates for batch in told[:4]] == [False, False, True, True]
    values = read_back(spark, output)
    assert len(values) >= 3 * ROWS
    assert values == list(range(len(values)))


def test_the_other_two_methods_run_on_streams_and_in_one_query(
    spark: SparkSession,
    stream: Callable[[int], DataFrame],
    told: list[ShuffleRecord],
    tmp_path: Path,
) -> None:
    rows = stream(40).select("value", F.lit("short").alias("kind"))
    spread = partial(
        balancedstream.shuffle, cost_key="value", partitions=2, folder=str(tmp_path / "costs")
    )
    echoed = spread(spread(rows).mapInArrow(echo_arrow, rows.schema)).map(echo_row, rows.schema)
    query = (
        echoed.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "output"))
    )
    await_that(lambda: len(told) >= 4)
    query.stop()
    names = ["echo_arrow-by-value", "echo_row-by-value"]
    assert [(batch.shuffle, batch.batch) for batch in told[:4]] == [
        (name, batch) for batch in range(2) for name in names
    ]
    values = read_back(spark, tmp_path / "output")
    assert len(values) >= 40
    assert values == list(range(len(values)))


APP = textwrap.dedent(
    """
    import os, sys, time
    from pyspark.sql import SparkSession, functions as F
    import balancedstream

    folder, crash_in = sys.argv[1], int(sys.argv[2])

    def echo(frames):
        for frame in frames:
            time.sleep(0.005 * len(frame) * (frame["kind"][0] == 0))
            yield frame

    def write(batch, number):
        batch.write.mode("overwrite").parquet(f"{folder}/output/{number}")
        if number == crash_in:
            os._exit(1)  # written, and not committed

    spark = SparkSession.builder.getOrCreate()
    rows = spark.readStream.schema("value long").option("maxFilesPerTrigger", 1)
    rows = rows.parquet(f"{folder}/input").withColumn("kind", F.col("value") % 7)
    shuffled = balancedstream.shuffle(rows, cost_key="kind", partitions=3)
    echoed = shuffled.mapInPandas(echo, "value long, kind long")
    placed = echoed.withColumn("partition", F.spark_partition_id())
    query = placed.writeStream.trigger(availableNow=True).queryName("echo").foreachBatch(write)
    query.start().awaitTermination()
    """
)


def test_a_batch_that_is_run_again_after_a_restart_sends_each_row_where_it_went_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(3):
        rows = spark.range(number * 100, number * 100 + 100, 1, 1).withColumnRenamed("id", "value")
        rows.write.mode("append").parquet(str(tmp_path / "input"))
    settings = SETTINGS | {
        "spark.master": "local[2]",
        "spark.sql.streaming.checkpointLocation": f"file://{tmp_path}/checkpoints",
    }

    def run(crash_in: int) -> int:
        return subprocess.run(
            [sys.executable, "-c", APP, str(tmp_path), str(crash_in)],
            env=os.environ
            | {
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_SUBMIT_ARGS": write_submit_arguments(settings),
            },
            check=False,
            timeout=PATIENCE_S,
        ).returncode

    def read(number: int) -> list[Row]:
        return sorted(spark.read.parquet(str(tmp_path / "output" / str(number))).collect())

    assert run(crash_in=2) == 1
    crashed = read(2)
    (pin,) = (tmp_path / "checkpoints" / "_shuffle").glob("*/*/pinned-2")
    assert LearntCosts.from_bytes(pin.read_bytes()).trusted
    assert run(crash_in=-1) == 0
    assert read(2) == crashed
    written = [row.value for number in range(3) for row in read(number)]
    assert sorted(written) == list(range(300))


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("cost_key", {"cost_key": "length"}),
        ("partitions", {"partitions": 0}),
        ("partitions", {"partitions": 2.5}),
        ("epsilon", {"epsilon": 0.0}),
        ("epsilon", {"epsilon": 1.0}),
        ("epsilon", {"epsilon": "0.1"}),
        ("delta", {"delta": 1.5}),
        ("delta", {"delta": None}),
        ("folder", {"folder": "s3a://bucket/costs"}),
    ],
)
def test_bad_input_is_refused_at_once_by_its_field(
    spark: SparkSession, field: str, arguments: dict[str, Any]
) -> None:
    fine: dict[str, Any] = {"cost_key": "kind", "partitions": 2}
    with pytest.raises(InvalidInputError, match=f"^{field}: "):
        balancedstream.shuffle(texts(spark), **(fine | arguments))


def test_columns_that_spark_cannot_tell_apart_are_refused(spark: SparkSession) -> None:
    twice = texts(spark).select("id", "kind", F.lit(1).alias("Kind"))
    with pytest.raises(InvalidInputError, match=r"^df: .*'kind', or more than one"):
        balancedstream.shuffle(twice, cost_key="id", partitions=2)


@pytest.mark.parametrize("name", [*HIDDEN, ROUTE, ROUTE.upper()])
def test_a_column_that_the_shuffle_adds_itself_is_refused_where_it_is_there_already(
    spark: SparkSession, name: str
) -> None:
    rows = texts(spark).withColumnRenamed("id", name)
    with pytest.raises(InvalidInputError, match=rf"^df: .*{name}"):
        balancedstream.shuffle(rows, cost_key="kind", partitions=2)


def test_a_cost_key_that_is_no_column_is_refused_by_its_field(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match=r"^cost_key: must be .*not None"):
        balancedstream.shuffle(texts(spark), cost_key=None, partitions=2)


def test_a_cost_key_that_spark_cannot_hash_is_refused_by_its_field(spark: SparkSession) -> None:
    point = F.st_geomfromwkb(F.unhex(F.lit(POINT.hex())))
    for cost_key in (point, F.array(F.struct(point))):
        with pytest.raises(InvalidInputError, match=r"^cost_key: .*geometry"):
            balancedstream.shuffle(texts(spark), cost_key=cost_key, partitions=2)


def test_an_expression_of_a_column_that_is_absent_is_refused_by_its_field(
    spark: SparkSession,
) -> None:
    with pytest.raises(InvalidInputError, match=r"^cost_key: .*length"):
        balancedstream.shuffle(texts(spark), cost_key=F.col("length") + 1, partitions=2)


def test_a_stream_without_a_shared_folder_is_refused_with_what_to_do(
    stream: Callable[[int], DataFrame],
) -> None:
    with pytest.raises(InvalidInputError, match=r"^folder: .*checkpointLocation"):
        balancedstream.shuffle(stream(10), cost_key="value", partitions=2)
