"""What waits to be read, and what is left of the engine in Spark when balancing ended."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import get_field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished, QueryIdle, QueryStarted
from balancedstream.engine.jvm import listener
from balancedstream.engine.jvm.listener import compile_class

pytestmark = pytest.mark.integration

LOCALITY_WAIT = "spark.locality.wait.process"


def read_all(queue: Any) -> list[Any]:
    events = []
    while (event := queue.next(0)) is not None:
        events.append(json.loads(event) if event.startswith("{") else event)
    return events


def test_the_oldest_batches_give_way_and_their_number_is_told_once(spark: SparkSession) -> None:
    queue = compile_class(spark, "EventQueue", 100)
    queue.addChange("executor")
    for number in range(10):
        queue.addMeasurement(f"batch {number} ".ljust(40))
    queue.addChange("query")
    dropped, executor, *batches, query = read_all(queue)
    assert dropped == {"event": "events_dropped", "count": 8}
    assert (executor, query) == ("executor", "query")
    assert [batch.strip() for batch in batches] == ["batch 8", "batch 9"]
    queue.addMeasurement("too long for the queue alone".ljust(200))
    assert len(read_all(queue)) == 1


def test_a_queue_that_nobody_reads_any_more_takes_nothing_in(spark: SparkSession) -> None:
    queue = compile_class(spark, "EventQueue", 100)
    queue.addChange("executor")
    queue.close()
    queue.addMeasurement("batch")
    assert read_all(queue) == []


@pytest.mark.usefixtures("engine")
def test_the_records_of_a_task_are_those_of_its_exchanges(spark: SparkSession) -> None:
    # A heartbeat sets the task's own number to zero for a moment, the one that `TaskMetrics` has.
    jvm = spark._jvm
    left = build_node(jvm, "Exchange", {"data size": 20, "records read": 21})
    right = build_node(jvm, "Exchange", {"records read": 31})
    join = build_node(jvm, "SymmetricHashJoin", {STORES: 10, "records read": 11}, [left, right])
    operators = compile_class(spark, "StatefulOperators")
    operators.addExecution(1, None, join)

    both = build_task(jvm, {10: MANY, 11: MANY, 20: MANY, 21: MANY + 70, 31: MANY + 7})
    (state,) = operators.readTask(both)
    assert get_field(state, "records") == 2 * MANY + 77
    (state,) = operators.readTask(build_task(jvm, {10: MANY}))
    assert [get_field(state, name) for name in ("stores", "records")] == [MANY, 0]
    assert list(operators.readTask(build_task(jvm, {21: MANY}))) == []
    operators.removeExecution(1)
    assert list(operators.readTask(both)) == []


MANY = 1 << 32
"""py4j passes as a long, as the updates of accumulators are, only what no int can hold."""

STORES = "number of state store instances"


def build_node(jvm: Any, name: str, metrics: dict[str, int], children: Sequence[Any] = ()) -> Any:
    """A node of a plan, as Spark reports it; `metrics` gives the ids of their accumulators."""
    of_operator = "checkpoint = /c, runId = 0a1b2c3d-0000-4000-8000-000000000001, opId = 0"
    text = f"state info [ {of_operator}, ver = 1, numPartitions = 6]" if STORES in metrics else ""
    sql = jvm.org.apache.spark.sql.execution
    infos = [sql.metric.SQLMetricInfo(metric, id_, "sum") for metric, id_ in metrics.items()]
    utils = jvm.PythonUtils
    return sql.SparkPlanInfo(
        name, text, utils.toSeq(list(children)), utils.toScalaMap({}), utils.toSeq(infos)
    )


def build_task(jvm: Any, updates: dict[int, int]) -> Any:
    """A task that ended, with what it added to accumulators."""
    scheduler = jvm.org.apache.spark.scheduler
    task = scheduler.TaskInfo(0, 0, 0, 0, 0, "1", "localhost", scheduler.TaskLocality.ANY(), False)
    nothing = jvm.scala.Option.empty()
    task.setAccumulables(
        jvm.PythonUtils.toSeq(
            [
                scheduler.AccumulableInfo(
                    id_, nothing, jvm.scala.Some(update), nothing, False, False, nothing
                )
                for id_, update in updates.items()
            ]
        )
    )
    return task


def count(stream: Callable[[int], DataFrame]) -> DataFrame:
    return stream(100).groupBy((F.col("value") % 40).alias("k")).count()


@pytest.mark.parametrize("key", ["spark.locality.wait", LOCALITY_WAIT])
def test_a_locality_wait_of_the_user_is_left_alone(
    key: str, engine: SparkEngine, spark: SparkSession
) -> None:
    conf = spark.sparkContext._jsc.sc().conf()
    engine.give_locality_wait_back()
    conf.set(key, "0s")
    try:
        own = SparkEngine(spark)
        own.set_locality_wait_s(17.0)
        assert own.own_wait.startswith(f"{key}=0s is yours and stays")
        assert {k for k in (LOCALITY_WAIT, "spark.locality.wait") if conf.contains(k)} == {key}
        assert conf.get(key) == "0s"
        own.close()
        assert conf.get(key) == "0s"
    finally:
        conf.remove(key)
        engine.set_locality_wait_s(10.0)


def test_of_a_closed_engine_nothing_is_left_in_spark(
    stream: Callable[[int], DataFrame],
    start: Callable[..., StreamingQuery],
    batches: Callable[[str], BatchFinished],
    spark: SparkSession,
) -> None:
    conf = spark.sparkContext._jsc.sc().conf()
    wait_before = conf.get(LOCALITY_WAIT)
    own = SparkEngine(spark)
    start(count(stream), "closed", "update")
    seen = batches("closed")
    while (event := own.wait(60.0)) and not isinstance(event, BatchFinished):
        continue
    ran_on = {t.partition: t.executor for t in seen.tasks}
    other = {p: next(e for e in own.executors() if e != x) for p, x in ran_on.items()}
    own.set_locality_wait_s(17.0)
    # Due only after the engine is gone, so never.
    own.place("closed", 0, other, from_batch=seen.sample.batch + 3)
    own.close()
    assert conf.get(LOCALITY_WAIT) == wait_before
    for _ in range(5):
        seen = batches("closed")
    assert {t.partition: t.executor for t in seen.tasks} == ran_on
    assert own.wait(0.5) is None


@pytest.mark.usefixtures("engine")
def test_the_engine_shares_no_queue_with_other_listeners(spark: SparkSession) -> None:
    assert spark.sparkContext._jsc.sc().listenerBus().activeQueues().contains(listener.QUEUE)


def test_a_placement_for_a_query_that_ended_meanwhile_is_forgotten(
    stream: Callable[[int], DataFrame],
    start: Callable[..., StreamingQuery],
    batches: Callable[[str], BatchFinished],
    engine: SparkEngine,
) -> None:
    query = start(count(stream), "over", "update")
    seen = batches("over")
    query.stop()
    query.awaitTermination()
    # The engine has not read yet that the query ended.
    engine._jvm.java.lang.Thread.sleep(1000)
    engine.place("over", 0, {t.partition: t.executor for t in seen.tasks})
    assert str(query.runId) not in find_wishes(engine)


def find_wishes(engine: SparkEngine) -> list[str]:
    """The runs with a placement in the driver's JVM."""
    return list(read_field(read_field(engine._listener, "placements"), "wishes").keySet())


def read_field(holder: Any, name: str) -> Any:
    """A private field of an object in the driver's JVM."""
    field = holder.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(holder)


def test_events_that_cannot_be_read_are_said_once_for_each_query_and_left_out(
    engine: SparkEngine, caplog: pytest.LogCaptureFixture
) -> None:
    queue = read_field(engine._listener, "events")
    queue.addChange(
        '{"event":"query_started","run":"r","id":"i","name":"odd","trigger":"micro-batch"}'
    )
    assert engine.wait(5.0) == QueryStarted("odd")
    batch = {"event": "batch_finished", "run": "r", "knows_all_executors": True}
    for progress in ({}, {"id": "i", "name": "odd", "batchId": "x"}, {"id": "i", "name": "odd"}):
        queue.addMeasurement(json.dumps(batch | {"progress": progress}))
    queue.addMeasurement('{"event":"query_idle","run":"r"}')
    assert engine.wait(5.0) == QueryIdle("odd")
    (record,) = caplog.records
    assert record.getMessage().startswith("odd: batch_finished cannot be read, and is left out")


def test_partitions_that_share_a_task_are_not_taken_for_others(
    stream: Callable[[int], DataFrame],
    start: Callable[..., StreamingQuery],
    batches: Callable[[str], BatchFinished],
) -> None:
    start(count(stream).coalesce(2), "coalesced", "update")
    for _ in range(2):
        seen = batches("coalesced")
    assert seen.tasks == ()
    assert seen.merged == ("StateStoreSave",)
    (stage,) = [stage for stage in seen.stages if stage.kind == "stateful"]
    assert stage.tasks == 2


def test_a_job_that_runs_some_partitions_names_them_as_spark_does(
    stream: Callable[[int], DataFrame],
    batches: Callable[[str], BatchFinished],
    tmp_path: Path,
) -> None:
    query = (
        count(stream)
        .writeStream.queryName("some")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "some"))
        # Spark runs the first partition, then the next four, then the last one: a job for each.
        .foreachBatch(lambda rows, number: rows.head(40))
        .start()
    )
    try:
        assert {t.partition for t in batches("some").tasks} == {*range(6)}
    finally:
        query.stop()


def test_a_checkpoint_may_have_any_name(
    stream: Callable[[int], DataFrame],
    batches: Callable[[str], BatchFinished],
    engine: SparkEngine,
    tmp_path: Path,
) -> None:
    odd = tmp_path / "a, b], numPartitions = 9 [c"
    query = (
        count(stream)
        .writeStream.queryName("odd")
        .outputMode("update")
        .option("checkpointLocation", str(odd))
        .format("noop")
        .start()
    )
    try:
        batches("odd")
        seen = batches("odd")
        assert len(seen.tasks) == 6
        target = sorted(engine.executors())[0]
        engine.place("odd", 0, dict.fromkeys(range(6), target))
        batches("odd")
        assert {t.executor for t in batches("odd").tasks} == {target}
    finally:
        query.stop()


def test_an_executor_is_known_as_spark_lists_it_also_if_its_events_were_dropped(
    stream: Callable[[int], DataFrame],
    start: Callable[..., StreamingQuery],
    batches: Callable[[str], BatchFinished],
    engine: SparkEngine,
) -> None:
    start(count(stream), "dropped", "update")
    batches("dropped")
    live = sorted(engine.executors())
    # As if the event of its end, and that of another one's beginning, had been dropped.
    engine._listener.addExecutor("99", "nowhere", 1)
    field = engine._listener.getClass().getDeclaredField("hosts")
    field.setAccessible(True)
    field.get(engine._listener).remove(live[0])
    engine._cores.pop(live[0], None)
    for _ in range(5):
        batches("dropped")
    assert sorted(engine.executors()) == live


def test_a_class_that_two_threads_ask_for_at_once_is_compiled_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_compiled", weakref.WeakKeyDictionary())
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: compile_class(spark, "ScalaCollections"), range(2))
    assert one.getClass().equals(other.getClass())
