"""What a target reads once it has loaded a partition, against real Spark on slow storage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from prepared import MAX_BATCHES, Batches, Place, Start, find_files, move, others
from pyspark.sql import SparkSession
from stateful_queries import Stream, aggregate

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished

pytestmark = [pytest.mark.integration, pytest.mark.turn]

TRIGGER = "1 second"
"""Faster batches would write changes faster than this storage is read: no load would catch up."""


@pytest.fixture(autouse=True)
def patient_tasks(engine: SparkEngine) -> Iterator[None]:
    """Tasks that wait for their executor however long another one there waits for its state."""
    engine.set_locality_wait_s(PATIENCE_S)
    yield
    engine.set_locality_wait_s(10.0)


@pytest.fixture
def no_snapshots(spark: SparkSession) -> Iterator[None]:
    """Queries that start now keep all state as changes, so that a whole load needs every file."""
    setting = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
    spark.conf.set(setting, "1000")
    yield
    spark.conf.unset(setting)


def load_ahead(engine: SparkEngine, batches: Batches, query: str, state: Path) -> dict[Place, str]:
    """Other executors load all partitions, which move later; files of before are not there then."""
    batches(query)
    seen = batches(query)
    targets = others(engine, seen)
    first_version = seen.sample.batch + 1
    engine.prepare(query, 0, {p: e for (_, p), e in targets.items()}, from_batch=1000)
    while {report.state for report in seen.preparations} != {"loaded"}:
        seen = batches(query)
    for file in find_files(state, first_version):
        file.unlink()
    return targets


def follow_hand_overs(
    batches: Batches, query: str, targets: dict[Place, str]
) -> list[BatchFinished]:
    """The batches until all executors have taken over the state, which run the partitions then."""
    followed: list[BatchFinished] = []
    answered: set[int] = set()
    while len(answered) < len(targets) and len(followed) < MAX_BATCHES:
        followed.append(batches(query))
        for report in followed[-1].preparations:
            assert report.failure == ""
            if report.hand_over_s is not None:
                answered.add(report.partition)
    assert answered == {p for _, p in targets}
    seen = batches(query)
    assert {(t.operator, t.partition): t.executor for t in seen.tasks} == targets
    return followed


@pytest.mark.usefixtures("no_snapshots")
def test_a_hand_over_that_its_task_waits_for_fetches_nothing_again(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine, tmp_path: Path
) -> None:
    # The next batch's tasks begin while what changed is read, and wait.
    query = start(aggregate(stream), "late-hand-over", "update", slow=True, trigger=TRIGGER)
    state = tmp_path / "late-hand-over" / "state" / "0"
    targets = load_ahead(engine, batches, "late-hand-over", state)
    move(engine, "late-hand-over", targets)
    follow_hand_overs(batches, "late-hand-over", targets)
    assert query.exception() is None


@pytest.mark.usefixtures("no_snapshots")
def test_what_changed_while_a_target_waited_is_read_before_the_hand_over(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine, tmp_path: Path
) -> None:
    query = start(aggregate(stream), "long-held", "update", slow=True, trigger=TRIGGER)
    targets = load_ahead(engine, batches, "long-held", tmp_path / "long-held" / "state" / "0")
    for _ in range(6):
        seen = batches("long-held")
    load_s = {report.partition: report.load_s for report in seen.preparations}
    move(engine, "long-held", targets)
    followed = follow_hand_overs(batches, "long-held", targets)
    reports = [report for seen in followed for report in seen.preparations]
    for report in reports:
        assert report.load_s == load_s[report.partition], "what a whole load takes"
    # A batch may outlast what an executor reads of one partition, but hardly what all read.
    assert "loading" in {report.state for report in reports}
    assert query.exception() is None


def test_the_two_partitions_of_an_exchange_move_in_the_same_batch(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine
) -> None:
    start(aggregate(stream), "exchange", "update", slow=True, trigger=TRIGGER)
    batches("exchange")
    seen = batches("exchange")
    places = {t.partition: t.executor for t in seen.tasks}
    last = max(places)
    here = places[last]
    there, third = sorted(set(places.values()) - {here})
    back = min(p for p, executor in places.items() if executor == there)
    # An executor loads one after the other, so the last one's state comes much later.
    targets = {
        p: there for p, executor in places.items() if executor in {third, here} and p != last
    }
    targets |= {last: there, back: here}
    engine.prepare("exchange", 0, targets, partners={last: back, back: last})
    engine.place("exchange", 0, targets)
    moved_in: dict[int, int] = {}
    for _ in range(MAX_BATCHES):
        seen = batches("exchange")
        for task in seen.tasks:
            if task.executor == targets.get(task.partition):
                moved_in.setdefault(task.partition, task.batch)
        if moved_in.keys() == targets.keys():
            break
    assert moved_in.keys() == targets.keys()
    assert moved_in[back] == moved_in[last]
    assert min(moved_in.values()) < moved_in[last]
