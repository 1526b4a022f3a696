"""Plans come true on an engine that only takes down what it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pytest
from scripted import RecordingSpectator, ScriptedEngine

from balancedstream.core.samples import BatchSample, TaskSample
from balancedstream.core.wire.plan import Answer, Plan
from balancedstream.engine.events import BatchFinished, Preparation, StatefulOperator
from balancedstream.errors import PlanConflictError, StalePlanError
from balancedstream.loop.migrations import SETTLE_BATCHES
from balancedstream.loop.realizing import IDLE_REPORTS, UNSEEN_BATCHES, Realizer, Why
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Metrics

KEY = ("q", 0)
KEY_BATCHES = 3
OPERATOR = StatefulOperator((0,), "StateStoreSave", 4)
SPREAD = {0: "a", 1: "a", 2: "b", 3: "b"}
LONG_S, SHORT_S = 3600.0, 0.001
"""Budgets that have room for all moves, and for one move of a target."""
WHY = Why({KEY: "a is hot"}, "capacity", "all are hot")


class Scene:
    """A realizer with everything around it, after batch 0 of one query."""

    def __init__(self, *executors: str) -> None:
        self.engine = ScriptedEngine([], dict.fromkeys(executors, 1))
        self.history = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11"))
        self.view = RecordingSpectator()
        journal = Journal(self.history, self.view, Metrics(), lambda: 50.0)
        self.realizer = Realizer(self.engine, journal)
        self.finish(0, SPREAD)

    def finish(
        self,
        number: int,
        placement: Mapping[int, str],
        state_bytes: int = 1000,
        preparations: tuple[Preparation, ...] = (),
        work_s: float = 1.0,
        trigger_s: float | None = None,
    ) -> None:
        """A batch of 5 s ran with this placement."""
        tasks = tuple(
            TaskSample("q", 0, partition, number, executor, work_s, 10, state_bytes, 50.0)
            for partition, executor in placement.items()
        )
        sample = BatchSample("q", number, 50.0, 5.0, 40, trigger_s=trigger_s)
        event = BatchFinished("q", sample, tasks, (OPERATOR,), 0)
        self.realizer.finish_batch(replace(event, preparations=preparations))

    def apply(self, plan: Plan) -> None:
        self.realizer.apply(plan, WHY)

    def dropped(self) -> list[tuple[int, str | None]]:
        return [(m.partition, m.dropped_reason) for m in self.history.moves if m.dropped_s]


def make_plan(
    epoch: int,
    placement: tuple[int, ...],
    executors: tuple[str, ...] = ("a", "b"),
    budget_s: float = LONG_S,
    effective_batch: int | None = None,
) -> Plan:
    return Plan(
        epoch, executors, {KEY: placement}, budget_s=budget_s, effective_batch=effective_batch
    )


def test_only_partitions_that_run_elsewhere_are_moved() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (0, 1, 1, -1)))
    assert scene.engine.placed == [{1: "b"}]
    assert [(m.partition, m.source, m.target, m.reason) for m in scene.history.moves] == [
        (1, "a", "b", "a is hot")
    ]


def test_a_plan_that_says_what_is_changes_nothing() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (0, 0, 1, 1)))
    assert scene.engine.placed == []
    assert scene.realizer.answer().epoch == 1


def test_steps_follow_each_other_as_their_tasks_arrive() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (1, 1, 1, 1), budget_s=SHORT_S))
    scene.finish(1, {**SPREAD, 0: "b"})
    scene.finish(2, dict.fromkeys(range(4), "b"))
    assert scene.engine.placed == [{0: "b"}, {1: "b"}, {}]
    assert scene.realizer.state().moving == {}


def test_no_executor_leaves_before_it_is_known_what_runs_on_it() -> None:
    scene = Scene("a", "b")
    unseen = BatchFinished("r", BatchSample("r", 8, 50.0, 5.0, 40), (), (), 0, has_state=True)
    scene.realizer.finish_batch(unseen)
    scene.apply(make_plan(1, (0, 0, 0, 0), ("a",)))
    scene.finish(1, dict.fromkeys(range(4), "a"))
    scene.realizer.retire_drained()
    assert scene.engine.removed == [], "a query with state may have some on it"
    task = TaskSample("r", 0, 0, 9, "b", 1.0, 10, 1000, 50.0)
    scene.realizer.finish_batch(replace(unseen, tasks=(task,)))
    scene.realizer.retire_drained()
    assert scene.engine.removed == [], "it has"
    assert scene.engine.placed[-1] == {0: "a"}
    scene.realizer.finish_batch(replace(unseen, tasks=(replace(task, batch=10, executor="a"),)))
    scene.realizer.retire_drained()
    assert scene.engine.removed == ["b"]


def test_a_query_that_waits_for_data_keeps_no_executor_before_its_tasks_were_seen_either() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (0, 0, 0, 0), ("a",)))
    scene.finish(1, dict.fromkeys(range(4), "a"))
    unseen = BatchFinished("r", BatchSample("r", 8, 50.0, 5.0, 40), (), (), 0, has_state=True)
    scene.realizer.finish_batch(unseen)
    for _ in range(IDLE_REPORTS):
        scene.realizer.retire_drained()
        assert scene.engine.removed == []
        scene.realizer.note_idle("r")
    scene.realizer.retire_drained()
    assert scene.engine.removed == ["b"]


def test_a_query_whose_tasks_can_never_be_measured_keeps_no_executor() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (0, 0, 0, 0), ("a",)))
    scene.finish(1, dict.fromkeys(range(4), "a"))
    unseen = BatchFinished("r", BatchSample("r", 8, 50.0, 5.0, 40), (), (), 0, has_state=True)
    for _ in range(UNSEEN_BATCHES):
        assert scene.engine.removed == []
        scene.realizer.finish_batch(unseen)
        scene.realizer.retire_drained()
    assert scene.engine.removed == ["b"]


def test_partitions_of_a_lost_executor_are_taken_over_at_once() -> None:
    scene = Scene("a", "b", "c")
    del scene.engine.cores["a"]
    scene.realizer.lose_executor("a")
    (placed,) = scene.engine.placed
    assert set(placed) == {0, 1}
    assert "c" in placed.values(), "the one that has nothing yet"
    assert {m.reason for m in scene.history.moves} == {"executor a is gone"}
    scene.finish(1, {**SPREAD, **placed})
    assert scene.realizer.state().moving == {}


def test_moves_under_way_go_on_when_another_executor_is_lost() -> None:
    scene = Scene("a", "b", "c")
    scene.apply(make_plan(1, (0, 2, 1, 2), executors=("a", "b", "c"), budget_s=SHORT_S))
    del scene.engine.cores["b"]
    scene.realizer.lose_executor("b")
    first, placed = scene.engine.placed
    assert first == {1: "c"}
    assert placed[1] == "c", "what was asserted stays"
    assert placed[2] in {"a", "c"}
    assert placed[3] == "c", "which was to come in a later step"
    ran = {**SPREAD, 1: "c", 2: placed[2], 3: "c"}
    scene.finish(1, ran)
    scene.finish(2, ran)
    assert scene.realizer.state().moving == {}
    assert scene.dropped() == []


def test_a_partition_is_taken_over_by_another_if_the_target_of_its_move_is_lost_too() -> None:
    scene = Scene("a", "b", "c")
    scene.apply(make_plan(1, (2, 2, 1, 1), executors=("a", "b", "c")))
    del scene.engine.cores["a"], scene.engine.cores["c"]
    scene.realizer.lose_executor("a")
    assert scene.engine.placed[-1] == {0: "b", 1: "b"}
    assert scene.dropped() == [(0, "executor a is gone"), (1, "executor a is gone")]


def test_a_plan_that_only_places_starts_and_removes_no_executor_whatever_it_names() -> None:
    scene = Scene("a", "b", "c")
    for epoch, executors in ((1, ("a", "b")), (2, ("a", "b", "+1", "+2"))):
        scene.apply(replace(make_plan(epoch, (1, 0, 1, 1), executors=executors), sizes=False))
    scene.finish(1, {**SPREAD, 0: "b"})
    scene.realizer.retire_drained()
    assert scene.realizer.answer() == Answer(2)
    assert scene.engine.placed[0] == {0: "b"}
    assert scene.engine.cores.keys() == {"a", "b", "c"}
    assert not scene.history.scales


def test_a_repeated_plan_is_one_plan() -> None:
    scene = Scene("a", "b")
    plan = make_plan(1, (1, 0, 1, 1))
    scene.apply(plan)
    scene.apply(plan)
    assert len(scene.engine.placed) == 1


@pytest.mark.parametrize(
    ("second", "error"),
    [
        pytest.param(make_plan(4, (1, 1, 1, 1)), StalePlanError, id="older"),
        pytest.param(make_plan(5, (1, 1, 1, 1)), PlanConflictError, id="of the same epoch"),
    ],
)
def test_a_plan_is_refused_that_is(second: Plan, error: type[Exception]) -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(5, (1, 0, 1, 1)))
    with pytest.raises(error):
        scene.apply(second)
    assert scene.engine.placed == [{0: "b"}]
    assert scene.realizer.answer().epoch == 5
    assert scene.realizer.answer().refused.startswith(f"plan.epoch: {second.epoch}")


def test_a_prepared_plan_is_handed_to_the_engine_for_its_batch() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (1, 0, 1, 1), effective_batch=4))
    assert scene.engine.from_batches == [4]
    scene.finish(1, SPREAD)
    scene.finish(3, SPREAD)
    scene.finish(4, {**SPREAD, 0: "b"})
    assert [m.settled_s for m in scene.history.moves] == [50.0]


def test_partitions_wait_for_the_keys_of_their_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("a", "b")
    monkeypatch.setattr(scene.realizer._reassigner, "coming_batches", lambda query: KEY_BATCHES)
    scene.apply(make_plan(1, (0, 1, 1, 1)))
    assert (scene.engine.placed, scene.engine.from_batches) == ([{1: "b"}], [KEY_BATCHES])
    for number in range(1, KEY_BATCHES + SETTLE_BATCHES - 1):
        scene.finish(number, SPREAD)
    assert scene.dropped() == []
    scene.finish(KEY_BATCHES + SETTLE_BATCHES - 1, SPREAD)
    assert [partition for partition, _ in scene.dropped()] == [1]


def test_waiting_for_its_batch_does_not_count_as_being_late() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (1, 0, 1, 1), effective_batch=20))
    for number in range(1, 20):
        scene.finish(number, SPREAD)
    assert scene.dropped() == []


def test_a_prepared_plan_is_withdrawn_by_the_next_one() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (1, 0, 1, 1), effective_batch=4))
    scene.apply(make_plan(2, (0, 0, 1, 1)))
    assert scene.engine.placed == [{0: "b"}, {}]
    assert scene.dropped() == [(0, "withdrawn by plan 2")]


def test_a_plan_for_a_batch_that_is_over_takes_effect_next() -> None:
    scene = Scene("a", "b")
    scene.finish(6, SPREAD)
    scene.apply(make_plan(1, (1, 0, 1, 1), effective_batch=5))
    assert scene.engine.from_batches == [None]


def test_a_newer_plan_keeps_the_moves_under_way_that_it_still_wants() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (1, 0, 1, 1)))
    scene.apply(make_plan(2, (1, 1, 1, 1)))
    assert scene.engine.placed[-1] == {0: "b", 1: "b"}
    assert scene.history.totals.moves == 2
    assert scene.dropped() == []


def test_delayed_repeated_and_reordered_plans_end_in_the_same_placement() -> None:
    one, two, three = (
        make_plan(n, p) for n, p in [(1, (1, 1, 1, 1)), (2, (1, 0, 0, 1)), (3, (0, 1, 0, 1))]
    )
    last = []
    for order in ([one, two, three], [one, three, two, one], [three, two], [two, three, three]):
        scene = Scene("a", "b")
        for plan in order:
            with suppress(StalePlanError):
                scene.apply(plan)
        last.append(scene.engine.placed[-1])
    assert last == [{1: "b", 2: "a"}] * 4


def test_executors_that_the_plan_has_too_many_of_are_asked_for() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (0, 0, 1, 1), ("a", "b", "+1")))
    assert scene.engine.counts == [3]
    assert scene.realizer.state().requested == 3
    scene.engine.cores["c"] = 1
    assert scene.realizer.state().requested is None
    assert scene.history.totals.scale_actions == 1


def test_an_executor_that_joins_takes_what_the_plan_has_for_one_to_start() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (0, 2, 3, 1), ("a", "b", "+1", "+2")))
    assert scene.engine.placed == [], "they stay where they are as long as nobody has joined"
    for executor, placed in (("c", {1: "c"}), ("d", {1: "c", 2: "d"}), ("e", {1: "c", 2: "d"})):
        scene.engine.cores[executor] = 1
        scene.realizer.add_executor(executor)
        assert scene.engine.placed[-1] == placed
    assert [(m.partition, m.target, m.dropped_s) for m in scene.history.moves] == [
        (1, "c", None),
        (2, "d", None),
    ]


def test_one_that_joined_before_the_plan_came_has_its_place_at_once() -> None:
    scene = Scene("a", "b")
    scene.engine.cores["c"] = 1
    scene.apply(make_plan(1, (0, 2, 1, 1), ("a", "b", "+1")))
    assert scene.engine.placed == [{1: "c"}]


def test_a_move_goes_on_under_a_plan_that_has_no_place_for_its_partition() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (1, 0, 0, 1)))
    scene.apply(make_plan(2, (-1, 1, 0, 1)))
    assert scene.engine.placed[-1] == {0: "b", 1: "b", 2: "a"}
    assert scene.dropped() == []


def test_an_executor_that_the_plan_leaves_out_goes_once_nothing_runs_there() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (0, 0, 0, 0), ("a",)))
    assert scene.engine.draining == {"b"}
    scene.realizer.retire_drained()
    assert scene.engine.removed == []
    scene.finish(1, dict.fromkeys(range(4), "a"))
    scene.realizer.retire_drained()
    assert scene.engine.removed == ["b"]


def test_an_executor_need_not_wait_for_a_batch_that_does_not_come() -> None:
    scene = Scene("a", "b")
    for _ in range(IDLE_REPORTS - 1):
        scene.realizer.note_idle("q")
    scene.apply(make_plan(1, (0, 0, 0, 0), ("a",)))
    scene.realizer.retire_drained()
    assert scene.engine.removed == [], "data may come any moment"
    scene.realizer.note_idle("q")
    scene.realizer.retire_drained()
    assert scene.engine.removed == ["b"]
    del scene.engine.cores["b"]
    scene.realizer.lose_executor("b")
    assert scene.engine.placed[-1] == {2: "a", 3: "a"}, "where the next batch loads them"


def test_a_batch_ends_the_time_without_data() -> None:
    scene = Scene("a", "b")
    for _ in range(IDLE_REPORTS):
        scene.realizer.note_idle("q")
    scene.finish(1, SPREAD)
    scene.apply(make_plan(1, (0, 0, 0, 0), ("a",)))
    scene.realizer.retire_drained()
    assert scene.engine.removed == []


def test_an_executor_that_replaced_a_lost_one_takes_over_where_a_plan_missed_it() -> None:
    scene = Scene("a", "b")
    del scene.engine.cores["b"]
    scene.engine.cores["c"] = 1
    scene.apply(make_plan(1, (0, 0, 1, 1), ("a", "b")))
    assert scene.engine.draining == set()
    assert scene.engine.placed == [{2: "c", 3: "c"}], "nothing can be placed on one that is gone"


def test_partitions_that_a_plan_does_not_name_leave_an_executor_that_it_leaves_out() -> None:
    scene = Scene("a", "b", "c")
    scene.apply(make_plan(1, (-1, -1, 0, -1), ("a", "c")))
    assert scene.engine.draining == {"b"}
    assert scene.engine.placed == [{2: "a", 3: "c"}], "the other one goes where there is room"
    assert [m.reason for m in scene.history.moves] == [
        "a is hot",
        "executor b takes no more work",
    ]
    scene.finish(1, {0: "a", 1: "a", 2: "a", 3: "c"})
    scene.realizer.retire_drained()
    assert scene.engine.removed == ["b"]


def test_they_leave_step_by_step_also_under_a_newer_plan_that_does_not_name_them() -> None:
    scene = Scene("a", "b", "c")
    scene.apply(make_plan(1, (0, 0), ("a", "c"), budget_s=SHORT_S))
    assert scene.engine.placed == [{2: "c"}]
    scene.apply(make_plan(2, (1, 0), ("a", "c"), budget_s=SHORT_S))
    assert scene.dropped() == []
    assert scene.realizer.state().moving == {KEY: {0: "c", 2: "c", 3: "c"}}
    placement = dict(SPREAD)
    for number in range(1, 4):
        scene.realizer.retire_drained()
        assert scene.engine.removed == []
        placement |= scene.engine.placed[-1]
        scene.finish(number, placement)
    scene.realizer.retire_drained()
    assert scene.engine.removed == ["b"]
    assert placement == {0: "c", 1: "a", 2: "c", 3: "c"}


def test_a_move_from_an_executor_that_leaves_is_begun_anew_when_it_is_given_up() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (0, 0), ("a",)))
    for number in range(1, SETTLE_BATCHES + 1):
        scene.finish(number, SPREAD)
    assert [partition for partition, _ in scene.dropped()] == [2, 3]
    assert scene.realizer.state().moving == {KEY: {2: "a", 3: "a"}}
    assert scene.engine.placed[-1] == {2: "a", 3: "a"}


def test_a_query_that_starts_on_an_executor_that_leaves_is_led_away() -> None:
    scene = Scene("a", "b")
    scene.realizer.end_query("q")
    scene.apply(make_plan(1, (0, 0, 0, 0), ("a",)))
    scene.finish(0, SPREAD)
    assert scene.engine.placed == [{2: "a", 3: "a"}]


def test_a_partition_of_a_lost_executor_goes_on_to_its_target_under_a_plan_that_missed_it() -> None:
    scene = Scene("a", "b", "c")
    del scene.engine.cores["b"]
    scene.realizer.lose_executor("b")
    taken_over = scene.realizer.state().moving
    scene.apply(make_plan(1, (0, 2, 1), ("a", "b", "c")))
    assert scene.dropped() == []
    assert scene.realizer.state().moving == {KEY: {1: "c", **taken_over[KEY]}}


def test_partitions_without_a_place_are_spread_evenly_and_all_their_executors_retire() -> None:
    executors = tuple(f"e{n:02}" for n in range(100))
    victims, staying = set(executors[:30]), executors[30:]
    scene = Scene(*executors)
    placement = {p: executors[p % 100] for p in range(6400)}
    scene.finish(1, placement)
    shown = {p: e if e in staying else staying[p % 70] for p, e in placement.items() if p % 3 == 0}
    indices = tuple(staying.index(shown[p]) if p in shown else -1 for p in placement)
    scene.apply(make_plan(1, indices, staying, budget_s=1.0))
    number, placed = 1, dict(placement)
    while scene.realizer.state().moving:
        number += 1
        placed |= scene.engine.placed[-1]
        scene.finish(number, placed)
        scene.realizer.retire_drained()
    assert set(scene.engine.removed) == victims
    for partition, executor in placement.items():
        if partition in shown:
            assert placed[partition] == shown[partition]
        elif executor in staying:
            assert placed[partition] == executor
    held = Counter(placed.values())
    assert max(held.values()) <= 6400 / 70 + 1


def test_a_request_is_taken_back_when_fewer_will_do() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (0, 0, 1, 1), ("a", "b", "+1", "+2")))
    scene.apply(make_plan(2, (0, 0, 1, 1), ("a", "b")))
    assert scene.engine.counts == [4, 2]
    assert scene.realizer.state().requested is None
    assert scene.engine.draining == set()


def test_an_executor_that_was_lost_is_still_asked_for() -> None:
    scene = Scene("a", "b")
    scene.apply(make_plan(1, (0, 0, 1, 1), ("a", "b", "+1")))
    scene.engine.cores["c"] = 1
    del scene.engine.cores["b"]
    assert scene.realizer.state().requested == 3
    scene.apply(make_plan(2, (0, 0, 1, 1), ("a", "c", "+1")))
    assert scene.history.totals.scale_actions == 1, "a replacement is no scaling"


def test_moves_that_shorten_the_next_batch_do_not_wait_for_their_state() -> None:
    scene = Scene("a", "b")
    scene.engine.preparing = scene.engine.between_batches = True
    scene.finish(1, dict.fromkeys(range(4), "a"), work_s=5.0)
    scene.apply(make_plan(1, (0, 0, 1, 1), budget_s=1.0))
    assert scene.engine.prepared[-1] == {}
    assert scene.engine.placed[-1] == {2: "b", 3: "b"}
    assert not any(move.preparing for move in scene.history.moves)
    scene.finish(2, SPREAD)
    assert scene.realizer.state().moving == {}


def test_neither_do_they_where_nothing_is_prepared_whatever_the_budget() -> None:
    scene = Scene("a", "b", "c")
    scene.finish(1, dict.fromkeys(range(4), "a"))
    scene.finish(2, dict.fromkeys(range(4), "a"), work_s=20.0)
    scene.apply(make_plan(1, (0, 1, 1, 2), ("a", "b", "c"), budget_s=SHORT_S))
    assert scene.engine.placed[-1] == {1: "b", 2: "b", 3: "c"}
    short = Scene("a", "b", "c")
    short.finish(1, dict.fromkeys(range(4), "a"))
    short.apply(make_plan(1, (0, 1, 1, 2), ("a", "b", "c"), budget_s=SHORT_S))
    assert len(short.engine.placed[-1]) == 2, "one move a target"
    before = Scene("a", "b", "c")
    before.finish(1, dict.fromkeys(range(4), "a"))
    before.realizer.expect({"q": 20.0})
    before.apply(make_plan(1, (0, 1, 1, 2), ("a", "b", "c"), budget_s=SHORT_S))
    assert before.engine.placed[-1] == {1: "b", 2: "b", 3: "c"}, "a long batch comes"


def test_in_a_batch_that_ends_before_its_trigger_moves_take_the_time_that_is_left() -> None:
    moved = []
    for trigger_s in (None, 5.0, 15.0):
        scene = Scene("a", "b")
        scene.finish(1, dict.fromkeys(range(4), "a"), state_bytes=30_000_000, trigger_s=trigger_s)
        scene.apply(make_plan(1, (1, 1, 1, 0), budget_s=SHORT_S))
        moved.append(len(scene.engine.placed[-1]))
    assert moved == [1, 1, 3]


@pytest.mark.parametrize(
    ("state_bytes", "between_batches"),
    [
        pytest.param(200_000_000, True, id="much state"),
        pytest.param(1000, False, id="in the middle of a batch"),
        pytest.param(1000, True, id="a first task takes longer than the whole batch"),
    ],
)
def test_other_moves_are_prepared(state_bytes: int, between_batches: bool) -> None:
    scene = Scene("a", "b")
    scene.engine.preparing, scene.engine.between_batches = True, between_batches
    scene.finish(1, dict.fromkeys(range(4), "a"), state_bytes)
    scene.apply(make_plan(1, (0, 0, 0, 1), budget_s=1.0))
    assert scene.engine.prepared[-1] == {3: "b"}


def test_an_executor_without_tasks_begins_with_one_a_core_and_gets_the_rest_meanwhile() -> None:
    scene = Scene("a", "b", "c")
    scene.engine.preparing = True
    scene.engine.cores["c"] = 2
    scene.apply(make_plan(1, (2, 2, 2, 2), executors=("a", "b", "c"), budget_s=1.0))
    first = scene.engine.prepared[-1]
    assert len(first) == 2
    due = tuple(Preparation(0, partition, "c", "due", load_s=0.1) for partition in first)
    scene.finish(1, SPREAD, preparations=due)
    assert scene.engine.prepared[-1] == dict.fromkeys(range(4), "c")


def test_an_executor_that_waits_for_the_others_loads_meanwhile() -> None:
    scene = Scene("a", "b")
    scene.engine.preparing = True
    scene.finish(1, dict.fromkeys(range(9), "a") | {9: "b"}, state_bytes=60_000_000)
    scene.apply(make_plan(1, (1,) * 10, budget_s=1.0))
    assert len(scene.engine.prepared[-1]) == 6, "of 1.3 seconds each, in the 8 that it has"


def test_steps_follow_what_loads_take() -> None:
    scene = Scene("a", "b")
    scene.engine.preparing = True
    level = dict.fromkeys(range(4), "a") | dict.fromkeys(range(4, 8), "b")
    scene.finish(1, level, state_bytes=60_000_000)
    scene.apply(make_plan(1, (1,) * 8, budget_s=1.0))
    assert scene.engine.prepared[-1] == {0: "b"}, "a load is taken for one of more than a second"
    preparations = (Preparation(0, 0, "b", "due", load_s=0.01),)
    for number in range(2, 9):
        scene.finish(number, level, 60_000, preparations)
    assert len(scene.engine.prepared[-1]) > 2, "it takes less"


def test_a_batch_that_ends_before_the_state_is_there_is_the_last_one_that_waits_for_it() -> None:
    scene = Scene("a", "b")
    scene.engine.preparing = True
    scene.finish(1, dict.fromkeys(range(4), "a"))
    scene.apply(make_plan(1, (0, 0, 1, 1), budget_s=1.0))
    assert scene.engine.prepared[-1] == {2: "b"}
    scene.engine.between_batches = True
    scene.finish(2, dict.fromkeys(range(4), "a"), work_s=5.0)
    assert (scene.engine.prepared[-1], scene.engine.placed[-1]) == ({}, {2: "b", 3: "b"})
    assert not any(move.preparing for move in scene.history.moves)
    scene.finish(3, SPREAD)
    assert scene.realizer.state().moving == {}
    assert scene.dropped() == []


def test_a_batch_is_shared_with_executors_that_are_asked_for_until_they_are_there() -> None:
    scene = Scene("a", "b")
    assert not scene.realizer.should_share()
    scene.apply(make_plan(1, (0, 0, 1, 1), executors=("a", "b", "c", "d")))
    assert scene.realizer.should_share()
    scene.engine.cores |= {"c": 1, "d": 1}
    assert not scene.realizer.should_share()


def test_a_batch_is_not_shared_where_the_state_takes_longer_to_load_than_the_batch() -> None:
    scene = Scene("a", "b")
    scene.finish(1, SPREAD, state_bytes=10**9)
    scene.apply(make_plan(1, (0, 0, 1, 1), executors=("a", "b", "c", "d")))
    assert not scene.realizer.should_share()
