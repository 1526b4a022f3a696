"""The engine against real Spark: what it sees, and what it moves."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from joining import await_executors, list_executors
from patience import PATIENCE_S
from processes import find_executor_pids
from py4j.java_gateway import get_field
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout
from spark_versions import needs_spark
from stateful_queries import KINDS, Stream, aggregate, count_with_state, fused

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import (
    BatchFinished,
    ExecutorRemoved,
    TaskFailed,
)

pytestmark = pytest.mark.integration

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Start = Callable[..., StreamingQuery]
Batches = Callable[[str], BatchFinished]


@pytest.fixture
def patient_tasks(engine: SparkEngine) -> Iterator[None]:
    """Tasks wait for their executor as long as the loop lets them where batches are long.

    On a busy machine a batch takes longer than the wait with which the session begins.
    """
    engine.set_locality_wait_s(60.0)
    yield
    engine.set_locality_wait_s(10.0)


@pytest.mark.usefixtures("patient_tasks")
@pytest.mark.parametrize(("build", "mode", "operators"), KINDS)
def test_every_partition_runs_where_it_was_placed_from_the_very_next_batch(
    build: Callable[[Stream], DataFrame],
    mode: str,
    operators: int,
    stream: Stream,
    start: Start,
    batches: Batches,
    engine: SparkEngine,
    spark: SparkSession,
) -> None:
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
    start(build(stream), "kind", mode)
    batches("kind")
    seen = batches("kind")
    assert len(seen.operators) == operators
    assert {o.partitions for o in seen.operators} == {partitions}
    assert len(seen.tasks) == operators * partitions

    targets = sorted(engine.executors())
    for operator in seen.operators:
        engine.place("kind", operator.id, {p: targets[p % 2] for p in range(partitions)})
    batches("kind")  # may have been under way when the placement was asked for
    moved = batches("kind")
    assert {(t.operator, t.partition): t.executor for t in moved.tasks} == {
        (o.id, p): targets[p % 2] for o in seen.operators for p in range(partitions)
    }


@needs_spark((4, 1))  # before, Spark unites no partitions
def test_operators_in_the_same_tasks_count_as_one(
    stream: Stream, start: Start, batches: Batches
) -> None:
    start(fused(stream), "fused", "append")
    batches("fused")
    seen = batches("fused")
    assert [o.ids for o in seen.operators] == [(0, 1)]
    assert len(seen.tasks) == 6


def test_a_placement_prepared_for_a_batch_is_in_force_exactly_from_there(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine
) -> None:
    start(aggregate(stream), "prepared", "update", in_own_jobs=True)
    batches("prepared")
    first, second, *_ = sorted(engine.executors())
    engine.place("prepared", 0, dict.fromkeys(range(6), first))
    seen = batches("prepared")
    while {t.executor for t in seen.tasks} != {first}:
        seen = batches("prepared")
    due = seen.sample.batch + 4
    engine.place("prepared", 0, dict.fromkeys(range(6), second), from_batch=due)
    ran_on = {}
    while seen.sample.batch < due + 1:
        seen = batches("prepared")
        ran_on[seen.sample.batch] = {t.executor for t in seen.tasks}
    assert ran_on == {n: {first if n < due else second} for n in ran_on}


def test_a_placement_is_withdrawn_before_its_batch(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine
) -> None:
    start(aggregate(stream), "withdrawn", "update")
    batches("withdrawn")
    seen = batches("withdrawn")
    before = {t.partition: t.executor for t in seen.tasks}
    other = {p: next(e for e in engine.executors() if e != x) for p, x in before.items()}
    engine.place("withdrawn", 0, other, from_batch=seen.sample.batch + 3)
    engine.place("withdrawn", 0, {})
    for _ in range(5):
        seen = batches("withdrawn")
    assert {t.partition: t.executor for t in seen.tasks} == before


def test_records_of_the_partitions_sum_to_the_batch_and_a_planted_hot_one_ranks_first(
    stream: Stream, start: Start, batches: Batches
) -> None:
    skewed = stream(400).withColumn(
        "k", F.when(F.col("value") % 2 == 0, F.lit(7)).otherwise(F.col("value") % 50)
    )
    query = skewed.groupBy("k").applyInPandasWithState(
        count_with_state, "k long, n long", "n long", "update", GroupStateTimeout.NoTimeout
    )
    start(query, "measured", "update")
    batches("measured")
    seen = batches("measured")
    assert seen.sample.input_rows > 0
    total = sum(t.records for t in seen.tasks)
    assert total == pytest.approx(seen.sample.input_rows, rel=0.01)
    # Spark's own hash says where the planted key lives.
    hot = stream(1).sparkSession.range(1).select(F.expr("pmod(hash(7), 6)")).first()
    assert hot is not None
    assert max(seen.tasks, key=lambda t: t.records).partition == hot[0]


def test_two_queries_are_placed_independently(
    stream: Stream, start: Start, engine: SparkEngine
) -> None:
    start(aggregate(stream), "left", "update")
    start(aggregate(stream), "right", "update")
    seen: dict[str, BatchFinished] = {}
    counts = {"left": 0, "right": 0}
    first, second, *_ = sorted(engine.executors())
    placed = False
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        event = engine.wait(1.0)
        if not isinstance(event, BatchFinished):
            continue
        seen[event.query] = event
        counts[event.query] += 1
        if not placed and min(counts.values()) >= 1:
            engine.place("left", 0, dict.fromkeys(range(6), first))
            engine.place("right", 0, dict.fromkeys(range(6), second))
            placed = True
            counts = {"left": 0, "right": 0}
        elif placed and min(counts.values()) >= 3:
            break
    assert {t.executor for t in seen["left"].tasks} == {first}
    assert {t.executor for t in seen["right"].tasks} == {second}


def test_a_drained_executor_leaves_without_a_failed_task_and_only_those_lost_are_replaced(
    stream: Stream, start: Start, engine: SparkEngine, spark: SparkSession
) -> None:
    query = start(aggregate(stream), "drained", "update")
    events: list[Any] = []

    def collect_until(done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline_s, events[-5:]
            event = engine.wait(1.0)
            if event is not None:
                events.append(event)

    def ran_on() -> set[str]:
        last = next((e for e in reversed(events) if isinstance(e, BatchFinished)), None)
        return {t.executor for t in last.tasks} if last else set()

    collect_until(lambda: bool(ran_on()))
    victim, *rest = sorted(engine.executors())
    engine.drain(victim)
    assert victim not in engine.executors()
    engine.place("drained", 0, {p: rest[p % 2] for p in range(6)})
    collect_until(lambda: victim not in ran_on())
    engine.remove_executor(victim)
    collect_until(lambda: any(isinstance(e, ExecutorRemoved) for e in events))
    assert not [e for e in events if isinstance(e, TaskFailed)]
    assert query.isActive
    os.kill(find_executor_pids(spark.sparkContext.applicationId)[rest[0]], signal.SIGKILL)
    collect_until(lambda: rest[0] not in engine.executors())
    losses = {e.executor: e.loss for e in events if isinstance(e, ExecutorRemoved)}
    assert losses.keys() == {victim, rest[0]}
    assert losses[victim] is None, "it was to go"
    # Spark may hear that the connection is gone before it hears of the exit code.
    assert losses[rest[0]] in {"exit", "silence"}
    collect_until(lambda: len(engine.executors()) == 2)
    engine.set_executor_count(3)
    collect_until(lambda: len(engine.executors()) == 3)


HOLDS_BACK = """
import java.util.concurrent.CountDownLatch;

public class HoldsBack extends org.apache.spark.scheduler.SparkListener {
  public final CountDownLatch letGo = new CountDownLatch(1);

  private void hold() {
    try {
      letGo.await();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  public void onExecutorRemoved(org.apache.spark.scheduler.SparkListenerExecutorRemoved e) {
    hold();
  }
}
"""
"""A listener that holds back the events of its queue from the end of an executor on."""


def test_an_executor_is_known_that_joined_before_spark_could_list_it(
    engine: SparkEngine, spark: SparkSession
) -> None:
    context: Any = spark.sparkContext._jsc.sc()
    compiler = engine._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(context.getClass().getClassLoader())
    compiler.cook(HOLDS_BACK)
    (constructor,) = compiler.getClassLoader().loadClass("HoldsBack").getDeclaredConstructors()
    gateway = spark.sparkContext._gateway
    holds_back = constructor.newInstance(gateway.new_array(gateway.jvm.java.lang.Object, 0))
    let_go = get_field(holds_back, "letGo")
    before = list_executors(context)
    context.listenerBus().addToStatusQueue(holds_back)
    try:
        assert context.killAndReplaceExecutor(min(before))
        while not (joined := list_executors(context) - before):
            time.sleep(0.1)
        letting_go = threading.Timer(1.0, let_go.countDown)
        letting_go.start()
        attached = SparkEngine(spark)
        while attached.wait(0.1):
            pass
        assert joined <= attached.executors().keys()
    finally:
        let_go.countDown()
        context.listenerBus().removeListener(holds_back)
        attached.close()
        await_executors(engine, 3)


def wait_where(path: Path, wait_s: float, value: int) -> int:
    """Waits as long as there is a file; returns the value."""
    if path.exists():
        time.sleep(wait_s)
    return value


def test_executors_that_join_take_tasks_of_the_batch_that_runs_where_the_wait_is_short(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"

    linger = F.udf(lambda count: wait_where(slow, 0.8, count), "long")
    start(aggregate(stream).withColumn("count", linger("count")), "joined", "update")
    survivor, *others = sorted(engine.executors())
    engine.set_locality_wait_s(60.0)
    try:
        seen = batches("joined")
        engine.place("joined", 0, dict.fromkeys(range(6), survivor))
        while {t.executor for t in seen.tasks} != {survivor}:
            seen = batches("joined")
        for other in others:
            engine.remove_executor(other)
        while len(engine.executors()) > 1:
            batches("joined")
        slow.touch()
        batches("joined")  # it began before
        engine.set_locality_wait_s(1.0)
        engine.set_executor_count(3)
        assert len({t.executor for t in batches("joined").tasks}) > 1
    finally:
        slow.unlink(missing_ok=True)
        engine.set_locality_wait_s(10.0)
        # Also after a failure before, which would else never be told.
        engine.set_executor_count(3)
        deadline_s = time.monotonic() + PATIENCE_S
        while len(engine.executors()) < 3:
            assert time.monotonic() < deadline_s
            batches("joined")


def test_executors_asked_for_while_another_is_about_to_leave_come_all_the_same(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    linger = F.udf(lambda count: wait_where(slow, 0.5, count), "long")
    start(aggregate(stream).withColumn("count", linger("count")), "leaving", "update")
    batches("leaving")
    slow.touch()
    deadline_s = time.monotonic() + PATIENCE_S
    while engine.is_between_batches("leaving"):
        assert time.monotonic() < deadline_s
    leaving = min(engine.executors())
    engine.remove_executor(leaving)
    engine.set_executor_count(3)
    slow.unlink()
    while leaving in engine._cores or len(engine.executors()) < 3:
        assert time.monotonic() < deadline_s
        batches("leaving")


def linger(frames: Iterator[Any]) -> Iterator[Any]:
    """A task that takes a while."""
    time.sleep(1.0)
    yield from frames


def find_tasks(spark: SparkSession) -> list[tuple[int, int]]:
    """How many tasks each running stage has, and how many of them run."""
    tracker = spark.sparkContext.statusTracker()
    stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
    return [(stage.numTasks, stage.numActiveTasks) for stage in stages if stage is not None]


@pytest.mark.parametrize("is_warming", [False, True])
def test_only_tasks_with_state_wait_long_for_an_executor_that_is_busy(
    is_warming: bool, engine: SparkEngine, spark: SparkSession
) -> None:
    busy, *_ = sorted(engine.executors())
    session, rows = spark._jsparkSession, engine.capabilities.rows
    done: set[str] = set()

    def run(name: str, query: str | None, tasks: int) -> threading.Thread:
        pinned = DataFrame(rows.generate(session, busy, tasks), spark)

        def count() -> None:
            spark.sparkContext.setLocalProperty("sql.streaming.queryId", query)
            pinned.mapInPandas(linger, "k long").collect()
            done.add(name)

        thread = threading.Thread(target=count, daemon=True)
        thread.start()
        return thread

    def await_that(holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline_s
            time.sleep(0.05)

    engine.set_locality_wait_s(10 * PATIENCE_S)
    if is_warming:
        engine.capabilities.waiting.setReadersWait(int(10_000 * PATIENCE_S))
        engine.capabilities.waiting.setWarming(True)
    try:
        others = run("others", None, 60)
        await_that(lambda: find_tasks(spark) == [(60, 1)])
        reader = run("reader", "a query", 2)
        await_that(lambda: "reader" in done)
        assert "others" not in done, "they wait for their executor"
        engine.set_locality_wait_s(0.0, at_once=True)
        await_that(lambda: "others" in done)
    finally:
        engine.capabilities.waiting.setWarming(False)
        engine.give_locality_wait_back()
        engine.set_locality_wait_s(10.0)
    for each in (others, reader):
        each.join(PATIENCE_S)


def test_tasks_do_not_wait_for_a_killed_executor_once_the_wait_is_short(
    engine: SparkEngine, spark: SparkSession
) -> None:
    victim, *others = sorted(engine.executors())
    session, rows = spark._jsparkSession, engine.capabilities.rows
    # Without a shuffle, no output of the victim is missed, whose stage would begin anew.
    pinned = [DataFrame(rows.generate(session, e, 2), spark) for e in (victim, *others)]
    job = reduce(DataFrame.union, pinned).mapInPandas(linger, "k long")
    counted: list[int] = []
    running = threading.Thread(target=lambda: counted.append(len(job.collect())), daemon=True)

    def wait_for(tasks: tuple[int, int]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while find_tasks(spark) != [tasks]:
            assert running.is_alive(), "they ran elsewhere"
            assert time.monotonic() < deadline_s

    engine.set_locality_wait_s(10 * PATIENCE_S)
    try:
        # None is replaced: Spark looks at waits anew when one joins.
        nothing = engine._jvm.scala.Predef.Map().empty()
        spark.sparkContext._jsc.sc().requestTotalExecutors(2, 0, nothing)
        running.start()
        wait_for((6, 3))
        os.kill(find_executor_pids(spark.sparkContext.applicationId)[victim], signal.SIGKILL)
        wait_for((6, 0))
        engine.set_locality_wait_s(0.5, at_once=True)
        running.join(PATIENCE_S)
        assert counted == [3 * 2 * 2001]
    finally:
        engine.set_locality_wait_s(10.0)
        engine.set_executor_count(3)
        await_executors(engine, 3)


@pytest.mark.parametrize(
    "blow",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        # It keeps its connections and answers nothing: only its silence tells.
        pytest.param(signal.SIGSTOP, id="hung"),
    ],
)
def test_the_stream_goes_on_without_an_executor_that_was(
    blow: signal.Signals,
    stream: Stream,
    start: Start,
    batches: Batches,
    engine: SparkEngine,
    spark: SparkSession,
) -> None:
    name = f"struck-{blow.name}"
    query = start(aggregate(stream), name, "update")
    first = batches(name)
    pids = find_executor_pids(spark.sparkContext.applicationId)
    victim = sorted(engine.executors())[0]
    os.kill(pids[victim], blow)
    struck_s = time.monotonic()
    deadline_s = struck_s + 120
    try:
        while victim in engine.executors() or len(engine.executors()) < 3:
            assert time.monotonic() < deadline_s
            engine.wait(1.0)
    finally:
        # Spark's own attempt to end a process that hangs would leave it behind.
        with suppress(ProcessLookupError):
            os.kill(pids[victim], signal.SIGKILL)
    print(f"{blow.name}: executor replaced after {time.monotonic() - struck_s:.1f} s")
    last = batches(name)
    while victim in {t.executor for t in last.tasks}:
        assert time.monotonic() < deadline_s
        last = batches(name)
    assert query.isActive
    assert last.sample.input_rows == first.sample.input_rows
    assert sum(t.records for t in last.tasks) == sum(t.records for t in first.tasks)
