"""What happens is written down, shown and served, each time in all three places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from scripted import RecordingSpectator

from balancedstream.core.balance.hotspots import Move
from balancedstream.core.balance.imbalance import ImbalanceMeasurement
from balancedstream.core.keys.text import KeyNaming, name_key
from balancedstream.core.samples import (
    BatchSample,
    KeySample,
    ShuffleRecord,
    StageSample,
    TaskSample,
)
from balancedstream.engine.events import BatchFinished
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import BatchRecord, DecisionRecord, OperatorBatchLoad, RunInfo
from balancedstream.record.spectators import Metrics

KEY = ("q", 0)
NOW_S = 1_700_000_000.0
TASK = TaskSample("q", 0, 3, 5, "b", 1.5, 10, 100, 9.0, 0.25)
LOAD = OperatorBatchLoad(0, "save", (1.0, 2.0), ("a", "b"), 1.33, 1.1)
BATCH = BatchRecord("q", 5, 9.0, 1000, 20, None, 2, (LOAD,))
MOVE = Move(3, "a", "b")


class Served(Metrics):
    """Keeps what was served, by its name."""

    def __init__(self, key_naming: KeyNaming) -> None:
        self.key_naming = key_naming
        self.seen: list[tuple[object, ...]] = []

    def on_batch(
        self,
        sample: BatchSample,
        tasks: Sequence[TaskSample],
        executors: Mapping[str, int],
        stages: Sequence[StageSample] = (),
    ) -> None:
        self.seen.append(("batch", sample.batch, len(tasks), dict(executors)))

    def on_imbalance(self, query: str, operator: int, imbalance: float, bound: float) -> None:
        self.seen.append(("imbalance", query, operator, imbalance, bound))

    def on_decision(self, query: str, operator: int, kind: str) -> None:
        self.seen.append(("decision", query, operator, kind))

    def on_move(self) -> None:
        self.seen.append(("move",))

    def on_move_settled(self) -> None:
        self.seen.append(("move settled",))

    def on_hot_keys(self, query: str, operator: int, keys: tuple[KeySample, ...]) -> None:
        self.seen.append(("hot keys", query, operator, *(sample.key for sample in keys)))

    def on_key_moves(self, count: int) -> None:
        self.seen.append(("key moves", count))

    def on_key_move_settled(self) -> None:
        self.seen.append(("key move settled",))

    def on_scale(self, before: int, after: int, wanted: int) -> None:
        self.seen.append(("scale", before, after, wanted))

    def on_shuffle(self, record: ShuffleRecord) -> None:
        self.seen.append(("shuffle", record.batch))

    def on_query_ended(self, query: str) -> None:
        self.seen.append(("ended", query))


class Scene:
    """A journal with all that it speaks to."""

    def __init__(self, key_naming: KeyNaming = "plain") -> None:
        self.history = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11"))
        self.view = RecordingSpectator()
        self.served = Served(key_naming)
        self.journal = Journal(self.history, self.view, self.served, lambda: NOW_S)

    @property
    def seen(self) -> list[tuple[object, ...]]:
        return self.served.seen


def test_a_batch_is_written_down_and_served_with_its_executors() -> None:
    scene = Scene()
    event = BatchFinished("q", BatchSample("q", 5, 9.0, 1.0, 20), (TASK,), (), 0)
    scene.journal.add_batch(event, BATCH, {"a": 1, "b": 2})
    assert scene.history.batches == (BATCH,)
    assert scene.seen == [("batch", 5, 1, {"a": 1, "b": 2})]


def test_a_move_is_shown_when_it_is_decided_and_when_it_has_settled() -> None:
    scene = Scene()
    scene.journal.add_move(KEY, MOVE, "hot", after_batch=4)
    scene.journal.settle_move(KEY, TASK)
    decided, settled = scene.view.moves
    assert (decided.source, decided.target, decided.decided_s) == ("a", "b", NOW_S)
    assert settled == replace(decided, settled_s=NOW_S, restore_s=0.25)
    assert scene.history.moves == (settled,)
    assert scene.seen == [("move",), ("move settled",)]


def test_a_move_that_is_given_up_is_shown_with_its_reason() -> None:
    scene = Scene()
    scene.journal.add_move(KEY, MOVE, "hot", after_batch=4)
    scene.journal.drop_move(KEY, 3, "executor b left")
    assert scene.view.moves[-1].dropped_reason == "executor b left"
    # What is not under way is not given up a second time.
    scene.journal.drop_move(KEY, 3, "again")
    assert len(scene.view.moves) == 2


def test_a_decision_is_written_down_with_what_was_measured() -> None:
    scene = Scene()
    measured = ImbalanceMeasurement(1.8, 1.1)
    scene.journal.add_balance(KEY, "move", "1 move: imbalance 1.80", measured, 1)
    (record,) = scene.history.decisions
    assert record == DecisionRecord(
        NOW_S, "q", 0, "move", "1 move: imbalance 1.80", 1.8, measured.bound, 1
    )
    assert scene.seen == [("imbalance", "q", 0, 1.8, measured.bound), ("decision", "q", 0, "move")]


def test_a_change_of_the_number_of_executors_is_written_down_and_served() -> None:
    scene = Scene()
    scene.journal.add_scale(2, 1, 4, "capacity", "busy for 90%")
    (record,) = scene.history.scales
    assert (record.executors_before, record.executors_after) == (2, 4)
    assert (record.at_s, record.reason) == (NOW_S, "busy for 90%")
    assert scene.seen == [("scale", 2, 1, 4)]


def test_keys_that_never_move_are_written_down_and_not_served() -> None:
    scene = Scene()
    samples = tuple(KeySample("q", 0, key, 1, 5, 2.0) for key in ('"de"', '"fr"'))
    scene.journal.add_hot_keys("q", 0, samples, {'"de"'})
    assert scene.history.key_samples == samples
    assert scene.seen == [("hot keys", "q", 0, '"fr"')]


@pytest.mark.parametrize("key_naming", ["plain", "hashed", "off"])
def test_a_key_that_moves_has_the_name_that_metrics_may_show(key_naming: KeyNaming) -> None:
    scene = Scene(key_naming)
    scene.journal.begin_key_moves(KEY, {'"de"': (1, 4)}, "hot", after_batch=5)
    scene.journal.settle_key_move("q", '"de"', 7)
    name = '"de"' if key_naming == "plain" else name_key('"de"', "hashed")
    (record,) = scene.history.key_moves
    assert (record.key, record.source, record.target) == (name, 1, 4)
    assert (record.settled_s, record.settled_batch) == (NOW_S, 7)
    assert all(str(name) in note for note in scene.view.notes)
    assert key_naming == "plain" or not any('"de"' in note for note in scene.view.notes)
    assert scene.seen == [("key moves", 1), ("key move settled",)]


def test_keys_that_stay_are_written_down_with_the_reason() -> None:
    scene = Scene()
    scene.journal.begin_key_moves(KEY, {'"de"': (1, 4), '"fr"': (2, 4)}, "hot", after_batch=5)
    scene.journal.drop_key_moves("q", ['"de"'], "not handed over")
    dropped, under_way = scene.history.key_moves
    assert (dropped.dropped_s, dropped.under_way()) == (NOW_S, False)
    assert under_way.under_way()


@pytest.mark.parametrize(
    ("by_estimates", "trusted", "way"),
    [(False, True, "estimated costs"), (True, False, "round robin"), (True, True, None)],
)
def test_a_shuffle_is_noted_when_its_way_changes(
    by_estimates: bool, trusted: bool, way: str | None
) -> None:
    scene = Scene()
    record = ShuffleRecord(
        NOW_S, "echo-by-kind", 3, 10, by_estimates, (1.0,), (1.0,), 0.1, 0.2, trusted, "why"
    )
    scene.journal.add_shuffle(record)
    assert scene.history.shuffles == (record,)
    assert scene.seen == [("shuffle", 3)]
    assert [f"echo-by-kind: {way} from batch 4 on: why"] * bool(way) == scene.view.notes


def test_the_end_and_the_restart_of_a_query_are_told() -> None:
    scene = Scene()
    scene.journal.end_query("q")
    scene.journal.add_restart("q", "started again by the job")
    assert scene.seen == [("ended", "q")]
    assert scene.history.totals.restarts == 1
