"""Executors load state ahead of moves, against real Spark."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from prepared import MAX_BATCHES, Batches, Place, Start, find_files, move, others
from processes import find_executor_pids
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from stateful_queries import KINDS, Stream, aggregate, keyed

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.jvm.listener import find_coordinator

pytestmark = [pytest.mark.integration, pytest.mark.turn]

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def session_window(stream: Stream) -> DataFrame:
    rows = keyed(stream(200)).withWatermark("timestamp", "1 second")
    return rows.groupBy(F.session_window("timestamp", "2 seconds"), "k").count()


TRIGGER_S = 10
ANSWER_S = 4
"""By then the targets have told Spark that they hold the state, and no batch is planned yet."""

ALL_KINDS = [*KINDS, pytest.param(session_window, "append", 1, id="session window")]


@pytest.mark.parametrize(("build", "mode", "operators"), ALL_KINDS)
def test_every_partition_moves_when_its_target_has_its_state_and_reads_only_what_changed_since(
    build: Callable[[Stream], DataFrame],
    mode: str,
    operators: int,
    stream: Stream,
    start: Start,
    batches: Batches,
    engine: SparkEngine,
    tmp_path: Path,
) -> None:
    query = start(build(stream), "ahead", mode)
    batches("ahead")
    seen = batches("ahead")
    places = {(t.operator, t.partition): t.executor for t in seen.tasks}
    targets = others(engine, seen)
    assert len({operator for operator, _ in targets}) == operators
    first_version = seen.sample.batch + 1
    for operator in range(operators):
        engine.place("ahead", operator, {p: e for (o, p), e in places.items() if o == operator})
        wanted = {p: e for (o, p), e in targets.items() if o == operator}
        engine.prepare("ahead", operator, wanted, from_batch=1000)
    ran: dict[Place, str] = {}
    while ran != places or {r.state for r in seen.preparations} != {"loaded"}:
        seen = batches("ahead")
        ran = {(t.operator, t.partition): t.executor for t in seen.tasks}
    for operator in range(operators):
        for file in find_files(tmp_path / "ahead" / "state" / str(operator), first_version):
            file.unlink()
    move(engine, "ahead", targets)
    due: set[Place] = set()
    arrived: set[Place] = set()
    answered: set[Place] = set()
    for _ in range(MAX_BATCHES):
        seen = batches("ahead")
        ran = {(t.operator, t.partition): t.executor for t in seen.tasks}
        arrived |= {place for place, executor in ran.items() if executor == targets[place]}
        assert arrived <= due, "no partition runs where its state is not"
        for report in seen.preparations:
            assert report.failure == ""
            place = report.operator, report.partition
            assert report.executor == targets[place]
            if report.state == "due":
                due.add(place)
            if report.hand_over_s is not None:
                answered.add(place)
        if answered == arrived == targets.keys():
            break
    assert answered == arrived == targets.keys()
    assert query.exception() is None
    for operator in {operator for operator, _ in targets}:
        engine.prepare("ahead", operator, {})
    for _ in range(2):
        seen = batches("ahead")
    assert seen.preparations == ()
    ran = {(t.operator, t.partition): t.executor for t in seen.tasks}
    assert ran == targets, "they stay where they are"


def test_a_withdrawn_move_leaves_its_partition_where_it_is(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine
) -> None:
    start(aggregate(stream), "withdrawn-ahead", "update")
    batches("withdrawn-ahead")
    seen = batches("withdrawn-ahead")
    before = {(t.operator, t.partition): t.executor for t in seen.tasks}
    targets = others(engine, seen)
    engine.prepare("withdrawn-ahead", 0, {p: e for (_, p), e in targets.items()}, from_batch=1000)
    while not all(r.state == "loaded" for r in seen.preparations) or not seen.preparations:
        seen = batches("withdrawn-ahead")
        assert {(t.operator, t.partition): t.executor for t in seen.tasks} == before
    engine.prepare("withdrawn-ahead", 0, {})
    for _ in range(3):
        seen = batches("withdrawn-ahead")
        assert {(t.operator, t.partition): t.executor for t in seen.tasks} == before


def test_a_withdrawn_move_that_was_due_gives_its_partition_back(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine
) -> None:
    start(aggregate(stream), "given-back", "update", trigger=f"{TRIGGER_S} seconds")
    batches("given-back")
    seen = batches("given-back")
    before = {t.partition: t.executor for t in seen.tasks}
    targets = {p: e for (_, p), e in others(engine, seen).items()}
    engine.prepare("given-back", 0, targets)
    engine.place("given-back", 0, targets)
    while not any(report.state == "due" for report in seen.preparations):
        seen = batches("given-back")
        assert {t.partition: t.executor for t in seen.tasks} == before
    time.sleep(ANSWER_S)
    engine.prepare("given-back", 0, {})
    engine.place("given-back", 0, before)
    seen = batches("given-back")
    assert {t.partition: t.executor for t in seen.tasks} == before


def test_a_query_goes_on_when_a_target_is_killed_while_it_loads(
    stream: Stream,
    start: Start,
    batches: Batches,
    engine: SparkEngine,
    spark: SparkSession,
) -> None:
    query = start(aggregate(stream), "killed-ahead", "update")
    batches("killed-ahead")
    seen = batches("killed-ahead")
    records = sum(task.records for task in seen.tasks)
    targets = others(engine, seen)
    victim = targets[0, 0]
    move(engine, "killed-ahead", targets)
    os.kill(find_executor_pids(spark.sparkContext.applicationId)[victim], signal.SIGKILL)
    deadline_s = time.monotonic() + PATIENCE_S
    while victim in engine.executors():
        assert time.monotonic() < deadline_s
        engine.wait(1.0)
    failures: dict[int, str] = {}
    for _ in range(MAX_BATCHES):
        seen = batches("killed-ahead")
        failures |= {r.partition: r.failure for r in seen.preparations if r.executor == victim}
        if failures and all(failures.values()):
            break
    assert set(failures.values()) == {f"executor {victim} is gone"}
    assert query.isActive
    assert sum(task.records for task in seen.tasks) == records
    while len(engine.executors()) < 3:
        assert time.monotonic() < deadline_s
        engine.wait(1.0)


def test_a_load_that_never_answers_is_given_up_and_its_move_made(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine
) -> None:
    query = start(aggregate(stream), "unanswered", "update", slow=True)
    batches("unanswered")
    targets = {p: e for (_, p), e in others(engine, batches("unanswered")).items()}
    late: set[int] = set()
    for _ in range(MAX_BATCHES):
        engine.prepare("unanswered", 0, targets, from_batch=1000)
        late = make_late(engine, str(query.runId))
        if late:
            break
        # All had answered already.
        engine.prepare("unanswered", 0, {})
        batches("unanswered")
    assert late
    given_up: set[int] = set()
    for _ in range(MAX_BATCHES):
        seen = batches("unanswered")
        given_up = {r.partition for r in seen.preparations if r.failure == "no answer in 600 s"}
        if given_up == late:
            break
    assert given_up == late, seen.preparations
    engine.place("unanswered", 0, targets)
    for _ in range(MAX_BATCHES):
        ran = {t.partition: t.executor for t in batches("unanswered").tasks}
        if all(ran[partition] == targets[partition] for partition in late):
            break
    assert {p: ran[p] for p in late} == {p: targets[p] for p in late}


def make_late(engine: SparkEngine, run_id: str) -> set[int]:
    """Loads that have not answered look as if they had not for an hour, and never will.

    Returns:
        Their partitions.
    """
    long_ago_ms = int(time.time() - 3600) * 1000

    def read(holder: Any, name: str) -> Any:
        field = holder.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field, field.get(holder)

    _, preparing = read(engine._listener, "preparing")
    _, last_ends_ms = read(preparing, "loadEndMs")
    _, runs = read(preparing, "runs")
    _, preparations = read(runs.get(run_id), "preparations")
    late = set()
    for preparation in preparations.values():
        order, sent = read(preparation, "order")
        _, executor = read(preparation, "executor")
        # One that has ended nothing yet rehearses a load first, and its end renews the time.
        if not sent or executor not in last_ends_ms:
            continue
        order.setLong(preparation, -1)  # the answer to its number is none any more
        if read(preparation, "state")[1] == "loading":
            last_ends_ms.put(executor, long_ago_ms)
            read(preparation, "sinceMs")[0].setLong(preparation, long_ago_ms)
            late.add(read(preparation, "partition")[1])
    return late


def test_a_load_that_fails_is_told_with_its_cause_and_the_query_goes_on(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine, tmp_path: Path
) -> None:
    query = start(aggregate(stream), "unreadable", "update")
    batches("unreadable")
    seen = batches("unreadable")
    before = {t.partition: t.executor for t in seen.tasks}
    targets = {p: e for (_, p), e in others(engine, seen).items()}
    # Their owners do not need these any more.
    for file in find_files(tmp_path / "unreadable" / "state" / "0", seen.sample.batch + 1):
        file.unlink()
    engine.prepare("unreadable", 0, targets, from_batch=1000)
    for _ in range(MAX_BATCHES):
        seen = batches("unreadable")
        assert {t.partition: t.executor for t in seen.tasks} == before
        if {report.state for report in seen.preparations} == {"failed"}:
            break
    assert {report.state for report in seen.preparations} == {"failed"}
    assert all(report.failure for report in seen.preparations)
    assert query.exception() is None


def test_no_move_pays_for_the_first_load_of_its_target(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine
) -> None:
    start(aggregate(stream), "rehearsed", "update")
    batches("rehearsed")
    seen = batches("rehearsed")
    targets = others(engine, seen)
    engine.prepare("rehearsed", 0, {p: e for (_, p), e in targets.items()}, from_batch=1000)
    while {report.state for report in seen.preparations} != {"loaded"}:
        seen = batches("rehearsed")
    assert {report.executor for report in seen.preparations} == set(targets.values())
    assert not any(report.first for report in seen.preparations)


def sleep(seconds: float, value: int) -> int:
    time.sleep(seconds)
    return value


def test_a_placement_waits_for_the_end_of_the_batch_that_runs(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine, spark: SparkSession
) -> None:
    # Without types of its own: Spark would take them for those of a pandas function.
    nap = F.udf(lambda value: sleep(0.05, value), "long")
    slow = stream(120).withColumn("value", nap("value"))
    start(aggregate(lambda _: slow), "slow", "update")
    batches("slow")
    seen = batches("slow")
    targets = {p: e for (_, p), e in others(engine, seen).items()}
    tracker = spark.sparkContext.statusTracker()
    deadline_s = time.monotonic() + PATIENCE_S
    while not tracker.getActiveStageIds():
        assert time.monotonic() < deadline_s
    time.sleep(0.5)  # Spark's listeners hear of it a little later
    engine.place("slow", 0, targets)
    assert tracker.getActiveStageIds(), "the batch still runs"
    run = engine._find("slow")
    assert run is not None
    owners = {t.executor for t in seen.tasks if t.partition == 0}
    assert {_find_location(spark, run.state_roots[0], run.run_id)} == owners
    batches("slow")
    seen = batches("slow")
    assert {t.partition: t.executor for t in seen.tasks} == targets


def _find_location(spark: SparkSession, root: str, run_id: str) -> str:
    """The executor on which Spark believes the first partition's state to be."""
    jvm = spark._jvm
    assert jvm is not None
    state = jvm.org.apache.spark.sql.execution.streaming.state
    store = state.StateStoreId(root, 0, 0, "default")
    provider = state.StateStoreProviderId(store, jvm.java.util.UUID.fromString(run_id))
    found: str = find_coordinator(spark).getLocation(provider).toString()
    return found.rstrip(")").rpartition("_")[2]
