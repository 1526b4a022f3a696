"""What the engine sees of all tasks of a batch, of the driver, and of what waits, in real Spark."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from patience import PATIENCE_S
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from spark_versions import needs_spark

from balancedstream import attach
from balancedstream.core.samples import StageSample
from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished, QueryIdle

pytestmark = [pytest.mark.integration, pytest.mark.turn]

cloudpickle.register_pickle_by_value(sys.modules[__name__])

Start = Callable[..., StreamingQuery]
Stream = Callable[[int], DataFrame]
Batches = Callable[[str], BatchFinished]

ROW_S = 0.002


def wait_per_row(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        time.sleep(ROW_S * len(frame))
        yield frame


@pytest.fixture
def start_every(engine: SparkEngine, tmp_path: Path) -> Iterator[Start]:
    """Starts a query that throws its output away, with a trigger; stops it when the test ends."""
    queries: list[StreamingQuery] = []

    def begin(frame: DataFrame, name: str, **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.queryName(name).format("noop").outputMode("update")
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        query = (writer.trigger(**trigger) if trigger else writer).start()
        queries.append(query)
        return query

    yield begin
    for query in queries:
        query.stop()
    while engine.wait(0.5):
        pass


def by_kind(batch: BatchFinished) -> dict[str, StageSample]:
    return {stage.kind: stage for stage in batch.stages}


def sum_busy_s(stage: StageSample) -> float:
    return sum(stage.executor_busy_s.values())


def test_a_query_without_state_shows_its_map_stage_and_nothing_else(
    stream: Stream, start_every: Start, batches: Batches
) -> None:
    mapped = stream(200).mapInPandas(wait_per_row, "timestamp timestamp, value long")
    start_every(mapped, "mapped")
    batches("mapped")
    batch = batches("mapped")
    assert (batch.operators, batch.tasks) == ((), ())
    (stage,) = batch.stages
    assert (stage.kind, stage.tasks) == ("source", 2)
    # Each row waits, so the work is at least that long, on two of the three executors.
    assert sum_busy_s(stage) >= 200 * ROW_S
    assert 1 <= len(stage.executor_busy_s) <= 2
    assert stage.longest_s <= batch.sample.duration_s


def test_a_stateful_query_shows_what_reads_what_keeps_state_and_what_follows(
    stream: Stream, start_every: Start, batches: Batches
) -> None:
    counted = stream(200).withColumn("k", F.col("value") % 40).groupBy("k").count()
    start_every(counted.repartition(3).filter("count > 0"), "counted")
    batches("counted")
    batch = batches("counted")
    stages = by_kind(batch)
    assert {kind: stage.tasks for kind, stage in stages.items()} == {
        "source": 2,
        "stateful": 6,
        "sink": 3,
    }
    stateful_s = sum(task.busy_s - task.restore_s for task in batch.tasks)
    assert sum_busy_s(stages["stateful"]) == pytest.approx(stateful_s, abs=0.001)


def test_what_no_task_runs_in_and_what_the_stages_take_add_up_to_the_batch(
    stream: Stream, start_every: Start, batches: Batches
) -> None:
    mapped = stream(300).mapInPandas(wait_per_row, "timestamp timestamp, value long")
    start_every(mapped, "parts")
    batches("parts")
    batch = batches("parts").sample
    # The one stage waits for half of the rows at least: two tasks on two executors.
    assert 0 < batch.driver_s <= batch.duration_s - 150 * ROW_S
    assert batch.planning_s > 0
    assert batch.commits_s > 0


def test_a_job_of_the_users_own_in_each_batch_counts_as_the_queries_work(
    stream: Stream, start: Start, batches: Batches
) -> None:
    mapped = stream(200).mapInPandas(wait_per_row, "timestamp timestamp, value long")
    start(mapped, "own-jobs", "append", in_own_jobs=True)
    batches("own-jobs")
    assert sum_busy_s(by_kind(batches("own-jobs"))["source"]) >= 200 * ROW_S


def in_threads(rows: DataFrame, number: int) -> None:
    """Several sinks, each written by a thread that has none of Spark's properties of the batch."""
    with ThreadPoolExecutor(2) as pool:
        sinks = (
            rows.collect,
            lambda: rows.where("k % 2 = 0").write.format("noop").mode("append").save(),
        )
        done = [pool.submit(sink) for sink in sinks]
    assert all(each.exception() is None for each in done)


def in_threads_from_memory(rows: DataFrame, number: int) -> None:
    """The same as guides advise it: the state is computed once, by the first thread."""
    rows.persist()
    in_threads(rows, number)
    rows.unpersist()


def in_a_named_thread(rows: DataFrame, number: int) -> None:
    """Its jobs have a name and a group of the user's."""

    def write() -> None:
        rows.sparkSession.sparkContext.setJobGroup("mine", "my own job")
        rows.collect()

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()


@pytest.mark.parametrize("write", [in_threads, in_threads_from_memory, in_a_named_thread])
def test_jobs_that_a_batch_starts_from_threads_of_its_own_are_the_batchs(
    write: Callable[[DataFrame, int], None],
    stream: Stream,
    batches: Batches,
    engine: SparkEngine,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    counted = stream(200).withColumn("k", F.col("value") % 40).groupBy("k").count()
    writer = counted.writeStream.queryName(write.__name__).outputMode("update")
    query = writer.foreachBatch(write).start(checkpointLocation=str(tmp_path))
    try:
        batches(write.__name__)
        spark.range(1000).groupBy("id").count().collect()  # a job of nobody's batch
        batch = batches(write.__name__)
        assert {(t.operator, t.partition) for t in batch.tasks} == {(0, p) for p in range(6)}
        assert sum(t.records for t in batch.tasks) >= 40
        assert {"source", "stateful"} <= by_kind(batch).keys()
        targets = sorted(engine.executors())
        wanted = {p: targets[p % 2] for p in range(6)}
        engine.place(write.__name__, 0, wanted)
        batches(write.__name__)
        batch = batches(write.__name__)
        assert {t.partition: t.executor for t in batch.tasks} == wanted
    finally:
        query.stop()
        while engine.wait(0.5):
            pass


def test_the_trigger_interval_is_known_and_a_query_without_one_has_none(
    stream: Stream, start_every: Start, batches: Batches
) -> None:
    start_every(stream(5), "paced", processingTime="2 seconds")
    assert batches("paced").sample.trigger_s == 2.0
    start_every(stream(5), "unpaced")
    assert batches("unpaced").sample.trigger_s is None


def test_files_that_wait_are_a_backlog_of_the_rows_that_such_files_had(
    spark: SparkSession, start_every: Start, batches: Batches, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for file in range(6):
        (source / f"{file}.json").write_text('{"id": 1}\n' * 10)
    files = (
        spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source))
    ).mapInPandas(wait_per_row, "id long")
    start_every(files, "files", processingTime="2 seconds")
    seen = [batches("files").sample for _ in range(4)]
    assert [batch.input_rows for batch in seen] == [10] * 4
    assert [batch.backlog_rows for batch in seen] == [50, 40, 30, 20]


def test_a_folder_that_has_had_no_file_is_no_backlog(
    spark: SparkSession, stream: Stream, start_every: Start, batches: Batches, tmp_path: Path
) -> None:
    folder = tmp_path / "none"
    folder.mkdir()
    files = spark.readStream.schema("timestamp timestamp, value long").json(str(folder))
    start_every(stream(5).unionByName(files), "beside")
    assert batches("beside").sample.backlog_rows == 0


def test_a_query_that_waits_for_data_says_so(
    spark: SparkSession, engine: SparkEngine, start_every: Start, batches: Batches, tmp_path: Path
) -> None:
    source = tmp_path / "once"
    spark.range(5).write.json(str(source))
    start_every(spark.readStream.schema("id long").json(str(source)), "waiting")
    batches("waiting")
    deadline_s = time.monotonic() + PATIENCE_S
    event = None
    while event != QueryIdle("waiting") and time.monotonic() < deadline_s:
        event = engine.wait(1.0)
    assert event == QueryIdle("waiting")


STRANGE_BATCHES = 20


@needs_spark((4, 2))
def test_a_source_with_offsets_of_its_own_is_balanced_all_along_and_has_no_backlog(
    spark: SparkSession, tmp_path: Path
) -> None:
    from strange_source import StrangeSource  # noqa: PLC0415 - not every Spark has what it needs

    spark.dataSource.register(StrangeSource)
    counted = spark.readStream.format("strange").load().groupBy("key").count()
    writer = counted.writeStream.queryName("strange").outputMode("update").format("noop")
    attachment = attach(spark)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while attachment.history.totals.batches < STRANGE_BATCHES:
            assert time.monotonic() < deadline_s
            assert query.exception() is None
            time.sleep(0.2)
        assert attachment.is_balancing
    finally:
        query.stop()
        attachment.detach()
    seen = attachment.history.batches
    assert [batch.batch for batch in seen] == list(range(len(seen)))
    assert all(batch.loads and batch.backlog_rows is None for batch in seen)
    assert {decision.query for decision in attachment.history.decisions} >= {"strange"}
