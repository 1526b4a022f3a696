"""Moves are prepared on an engine that only takes down what it is told: preparing, due, settled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from scripted import RecordingSpectator, ScriptedEngine

from balancedstream.core.balance.hotspots import Move
from balancedstream.core.samples import TaskSample
from balancedstream.engine.events import Preparation, PreparationState
from balancedstream.loop.migrations import (
    ANSWER_BATCHES,
    SETTLE_BATCHES,
    Migrations,
    make_one_step,
)
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import PreparationOutcome, RunInfo
from balancedstream.record.spectators import Metrics

KEY = ("q", 0)
STATE_BYTES = 1000


class CountingMetrics(Metrics):
    """Keeps how preparations ended."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[PreparationOutcome, int, float]] = []

    def on_preparation(self, outcome: PreparationOutcome, state_bytes: int, spent_s: float) -> None:
        self.outcomes.append((outcome, state_bytes, spent_s))


class Scene:
    """Partitions 0 to 3 on executor a, after batch 0, and moves of them to b."""

    def __init__(self, *steps: tuple[int, ...], target: str = "b") -> None:
        self.engine = ScriptedEngine([], {"a": 1, "b": 1, "c": 1})
        self.engine.preparing = True
        self.history = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11"))
        self.view = RecordingSpectator()
        self.metrics = CountingMetrics()
        self.journal = Journal(self.history, self.view, self.metrics, lambda: 50.0)
        self.migrations = Migrations(self.engine, self.journal)
        self.placement = dict.fromkeys(range(4), "a")
        self.batch = 0
        self.loads: list[tuple[int, float]] = []
        self.begin(*steps, target=target)

    def begin(self, *steps: tuple[int, ...], target: str = "b") -> None:
        moves = [Move(p, "a", target) for step in steps for p in step]
        for move in moves:
            self.journal.add_move(KEY, move, "a is hot", self.batch)

        def split(left: Sequence[Move]) -> Iterator[tuple[Move, ...]]:
            of_step = (tuple(m for m in left if m.partition in step) for step in steps)
            return (step for step in of_step if step)

        self.migrations.begin(KEY, moves, split, self.batch)

    def finish(self, moved: Mapping[int, str], *reports: Preparation) -> None:
        """The next batch ran with these partitions elsewhere than before."""
        self.batch += 1
        self.placement |= moved
        tasks = {
            p: TaskSample("q", 0, p, self.batch, executor, 1.0, 10, STATE_BYTES, 50.0)
            for p, executor in self.placement.items()
        }
        self.loads += self.migrations.finish_batch(KEY, self.batch, tasks, reports)

    def outcomes(self) -> list[PreparationOutcome]:
        return [outcome for outcome, _, _ in self.metrics.outcomes]

    def dropped(self) -> list[str | None]:
        return [move.dropped_reason for move in self.history.moves if move.dropped_s]


def report(
    partition: int,
    state: PreparationState,
    *,
    executor: str = "b",
    hand_over_s: float | None = None,
    failure: str = "",
) -> Preparation:
    load_s = None if state in {"loading", "impossible"} else 2.0
    return Preparation(0, partition, executor, state, load_s, hand_over_s, failure)


def test_a_move_is_prepared_before_it_is_due_and_settles_with_what_was_loaded() -> None:
    scene = Scene((0,))
    assert scene.engine.prepared == [{0: "b"}]
    assert scene.engine.placed == [{0: "b"}], "which the engine holds back"
    assert scene.history.moves[0].preparing
    scene.finish({}, report(0, "loading"))
    scene.finish({}, report(0, "due"))
    move = scene.history.moves[0]
    assert (move.preparing, move.prepared_s) == (False, 2.0)
    scene.finish({0: "b"}, report(0, "due", hand_over_s=0.5))
    assert scene.history.moves[0].settled_s == 50.0
    assert scene.metrics.outcomes == [("used", STATE_BYTES, 2.5)]
    assert scene.loads == [(STATE_BYTES, 2.0)], "what a restore costs is learnt once"
    assert scene.migrations.under_way() == {}
    assert (scene.engine.prepared[-1], scene.engine.placed[-1]) == ({}, {})


def test_the_first_load_of_an_executor_teaches_nothing_because_it_loads_classes() -> None:
    scene = Scene((0, 1))
    scene.finish({}, replace(report(0, "loaded"), first=True), report(1, "loaded"))
    assert scene.loads == [(STATE_BYTES, 2.0)]


def test_an_answer_that_comes_after_the_move_has_settled_is_waited_for() -> None:
    scene = Scene((0,))
    scene.finish({}, report(0, "due"))
    scene.finish({0: "b"}, report(0, "due"))
    assert scene.migrations.under_way() == {}
    assert scene.engine.prepared[-1] == {0: "b"}, "the engine would forget it"
    assert scene.outcomes() == []
    scene.finish({}, report(0, "due", hand_over_s=0.1))
    assert scene.outcomes() == ["used"]
    assert scene.engine.prepared[-1] == {}


def test_an_answer_that_never_comes_counts_as_a_failure() -> None:
    scene = Scene((0,))
    scene.finish({}, report(0, "due"))
    for _ in range(ANSWER_BATCHES + 1):
        scene.finish({0: "b"}, report(0, "due"))
    assert scene.outcomes() == ["failed"]
    assert scene.engine.prepared[-1] == {}


def test_a_long_load_does_not_count_as_being_late() -> None:
    scene = Scene((0,))
    for _ in range(3 * SETTLE_BATCHES):
        scene.finish({}, report(0, "loading"))
    assert scene.dropped() == []
    assert scene.migrations.under_way() == {KEY: {0: "b"}}


def test_a_target_that_has_the_state_and_hears_no_more_is_not_waited_for() -> None:
    scene = Scene((0,))
    for _ in range(SETTLE_BATCHES + 1):
        scene.finish({}, report(0, "loaded"))
    assert scene.outcomes() == ["failed"]
    assert (scene.engine.prepared[-1], scene.engine.placed[-1]) == ({}, {0: "b"})


def test_a_target_that_reads_what_changed_while_it_loaded_is_not_late() -> None:
    scene = Scene((0,))
    scene.finish({}, report(0, "loaded"))
    for _ in range(SETTLE_BATCHES):
        scene.finish({}, replace(report(0, "loading"), load_s=2.0))
    scene.finish({}, report(0, "loaded"))
    assert scene.outcomes() == []
    assert scene.loads == [(STATE_BYTES, 2.0)], "what a restore costs is learnt once"
    assert scene.migrations.under_way() == {KEY: {0: "b"}}


def test_a_load_that_fails_leaves_the_move_to_its_task_and_is_counted_and_told() -> None:
    scene = Scene((0,))
    scene.finish({}, report(0, "failed", failure="disk full"))
    assert scene.engine.prepared[-1] == {}
    assert scene.engine.placed[-1] == {0: "b"}
    assert scene.outcomes() == ["failed"]
    assert "(disk full)" in scene.view.notes[0]
    scene.finish({0: "b"})
    assert scene.history.moves[0].settled_s == 50.0
    assert scene.history.moves[0].prepared_s is None
    assert scene.outcomes() == ["failed"]


def test_a_target_that_fails_to_bring_the_state_up_to_date_is_counted() -> None:
    scene = Scene((0,))
    scene.finish({}, report(0, "due"))
    scene.finish({0: "b"}, report(0, "due", failure="lost"))
    assert scene.history.moves[0].settled_s == 50.0
    assert scene.outcomes() == ["failed"]


def test_where_nothing_can_be_prepared_it_is_said_once_and_moves_are_made_as_before() -> None:
    scene = Scene((0, 1))
    why = "its checkpoint has format 1"
    scene.finish({}, *(report(p, "impossible", failure=why) for p in (0, 1)))
    assert [why in note for note in scene.view.notes] == [True]
    assert scene.outcomes() == []
    assert not scene.migrations.prepares(KEY)
    scene.finish({0: "b", 1: "b"})
    assert scene.migrations.under_way() == {}
    scene.begin((2,))
    assert scene.engine.prepared[-1] == {}
    assert scene.engine.placed[-1] == {2: "b"}


def test_a_target_that_dies_ends_the_move() -> None:
    scene = Scene((0,))
    scene.finish({}, report(0, "loading"))
    del scene.engine.cores["b"]
    scene.finish({}, report(0, "failed", failure="executor b is gone"))
    assert scene.dropped() == ["executor b is gone or leaving"]
    assert scene.outcomes() == ["failed"]
    assert scene.migrations.under_way() == {}
    assert (scene.engine.prepared[-1], scene.engine.placed[-1]) == ({}, {})


def test_the_two_moves_of_an_exchange_wait_for_each_other() -> None:
    scene = Scene()
    moves = [Move(0, "a", "b"), Move(1, "c", "b"), Move(2, "b", "a")]
    scene.migrations.begin(KEY, moves, make_one_step, scene.batch)
    assert scene.engine.partners[-1] == {0: 2, 2: 0}
    scene.finish({}, replace(report(0, "failed"), failure="lost"), report(2, "loading"))
    assert scene.engine.partners[-1] == {}, "there is nothing to wait for"


def test_a_withdrawn_move_is_not_prepared_any_more() -> None:
    scene = Scene((0, 1))
    scene.finish({}, report(0, "due"), report(1, "loading"))
    scene.begin((1,))
    assert scene.engine.prepared[-1] == {1: "b"}
    assert scene.engine.placed[-1] == {1: "b"}
    assert scene.outcomes() == ["wasted"]


def test_a_preparation_goes_on_under_a_plan_that_still_wants_it_also_in_a_later_step() -> None:
    scene = Scene((0,))
    scene.finish({}, report(0, "due"))
    scene.begin((2,), (0,))
    assert scene.engine.prepared[-1] == {0: "b", 2: "b"}
    assert scene.outcomes() == []
    scene.finish({0: "b"}, report(0, "due", hand_over_s=0.1), report(2, "loading"))
    assert scene.outcomes() == ["used"]


def test_a_move_whose_load_failed_is_not_prepared_again_by_the_next_plan() -> None:
    scene = Scene((0,))
    scene.finish({}, report(0, "failed", failure="disk full"))
    scene.begin((0, 1))
    assert scene.engine.prepared[-1] == {1: "b"}
    assert scene.engine.placed[-1] == {0: "b", 1: "b"}
    scene.finish({0: "b"}, report(1, "loading"))
    assert scene.migrations.under_way() == {KEY: {1: "b"}}


def test_another_target_is_prepared_anew() -> None:
    scene = Scene((0,))
    scene.finish({}, report(0, "loaded"))
    scene.begin((0,), target="c")
    assert scene.engine.prepared[-1] == {0: "c"}
    assert scene.outcomes() == ["wasted"]
    scene.finish({}, report(0, "due", executor="b"))
    assert scene.history.moves[-1].preparing, "b's word is none of c's"


def test_the_next_step_loads_as_soon_as_the_one_before_has_what_it_needs() -> None:
    scene = Scene((0,), (1,))
    scene.finish({}, report(0, "loading"))
    assert scene.engine.prepared[-1] == {0: "b"}
    scene.finish({}, report(0, "due"))
    assert scene.engine.prepared[-1] == {0: "b", 1: "b"}
    assert scene.engine.placed[-1] == {0: "b", 1: "b"}


def test_a_due_move_whose_task_does_not_come_is_given_up() -> None:
    scene = Scene((0,))
    for _ in range(SETTLE_BATCHES + 1):
        scene.finish({}, report(0, "due"))
    (reason,) = scene.dropped()
    assert reason is not None
    assert "still runs elsewhere" in reason
    assert scene.outcomes() == ["wasted"]


@pytest.mark.parametrize("state", ["loading", "due"])
def test_a_partition_whose_owner_is_lost_does_not_wait_for_state(state: PreparationState) -> None:
    scene = Scene((0,), (1,))
    scene.finish({}, report(0, state))
    scene.migrations.adopt(KEY, {0, 1}, [Move(2, "a", "c")], scene.batch)
    assert scene.engine.prepared[-1] == ({0: "b"} if state == "due" else {})
    assert scene.engine.placed[-1] == {0: "b", 1: "b", 2: "c"}


def test_what_is_loading_now_is_listed_until_it_is_due() -> None:
    scene = Scene((0, 1))
    assert [move.partition for _, move in scene.migrations.list_loading()] == [0, 1]
    scene.finish({}, report(0, "due"), report(1, "loading"))
    assert scene.migrations.list_loading() == [(KEY, Move(1, "a", "b"))]


def test_a_step_for_which_there_is_no_room_yet_begins_later() -> None:
    scene = Scene()
    full = True

    def split(left: Sequence[Move]) -> Iterator[tuple[Move, ...]]:
        yield () if full else tuple(left)

    move = Move(0, "a", "b")
    scene.journal.add_move(KEY, move, "a is hot", scene.batch)
    scene.migrations.begin(KEY, [move], split, scene.batch)
    scene.finish({})
    assert scene.migrations.list_loading() == []
    full = False
    scene.finish({})
    assert scene.migrations.list_loading() == [(KEY, move)]


def test_a_query_that_ends_ends_its_preparations() -> None:
    scene = Scene((0,), (1,))
    scene.finish({}, report(0, "loading"))
    scene.migrations.end_query("q")
    assert scene.dropped() == ["the query ended"] * 2
    assert scene.outcomes() == ["wasted"]
