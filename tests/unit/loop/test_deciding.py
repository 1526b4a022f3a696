"""What was measured becomes decisions, told as names of keys may be told."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from scripted import RecordingSpectator

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.keys.text import name_key
from balancedstream.core.policy import Policy, parse
from balancedstream.core.samples import BatchSample, KeySample, TaskSample
from balancedstream.core.wire.plan import Plan
from balancedstream.engine.events import BatchFinished, StatefulOperator
from balancedstream.loop.deciding import Decider
from balancedstream.loop.ports import FinishedBatch
from balancedstream.loop.progress import RealizerState
from balancedstream.loop.query_keys import KeyState
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo

OPERATOR = StatefulOperator((0,), "TransformWithState", 3)
EXECUTORS = {"a": 1, "b": 1}
PLACEMENT = ("a", "b", "b")
DE, FR = '"de"', '"fr"'


class Keys:
    """Hot keys of one query."""

    def __init__(self, busy_s: dict[str, float]) -> None:
        self.busy_s = busy_s
        self.given_up: set[str] = set()
        self.batch = 0

    def state(self) -> KeyState:
        samples = tuple(KeySample("q", 0, k, 0, self.batch, s) for k, s in self.busy_s.items())
        return KeyState((), frozenset(), {"q": samples}, {"q": self.given_up}, {})


class Scene:
    """A decider whose plans are only written down."""

    def __init__(self, keys: Keys, policy: Policy | None = None) -> None:
        self.keys = keys
        self.requested: int | None = None
        self.moving: dict[tuple[str, int], dict[int, str]] = {}
        self.undecided: frozenset[tuple[str, int]] = frozenset()
        self.plans: list[Plan] = []
        self.decided = 0
        self.history = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11"))
        self.view = RecordingSpectator()
        realizer: Any = SimpleNamespace(
            state=lambda: RealizerState(
                0, self.requested, RestoreCost(), self.moving, keys.state(), self.undecided
            ),
            apply=lambda plan, why: self.plans.append(plan),
            expect=self.expect,
        )
        journal = Journal(self.history, self.view, Exporter(hot_keys="hashed"), lambda: 7.0)
        self.decider = Decider(realizer, policy or Policy(), journal)

    def expect(self, growth: Mapping[str, float]) -> None:
        self.decided += 1

    def run_batch(self, *busy_s: float, at_s: float = 50.0, query: str = "q") -> None:
        batch = self.keys.batch
        tasks = tuple(
            TaskSample(query, 0, p, batch, PLACEMENT[p], s, 10, 0, at_s)
            for p, s in enumerate(busy_s)
        )
        sample = BatchSample(query, batch, at_s, 5.0, 40)
        record: Any = None
        event = BatchFinished(query, sample, tasks, (OPERATOR,), 0)
        self.decider.finish_batch(FinishedBatch(event, record, EXECUTORS, at_s))
        self.keys.batch += 1


def test_a_key_that_was_given_up_is_not_decided_on_again_whatever_was_measured_before() -> None:
    scene = Scene(Keys({DE: 4.0, FR: 3.0}))
    for _ in range(3):
        scene.run_batch(7.0, 0.5, 0.5)
    assert {placed.key for plan in scene.plans for placed in plan.key_placements} == {FR}
    scene.plans.clear()
    scene.keys.given_up = {DE, FR}
    scene.run_batch(7.0, 0.5, 0.5)
    assert [placed for plan in scene.plans for placed in plan.key_placements] == []


def test_a_key_that_no_assignment_can_split_is_told_of_as_metrics_may_name_it() -> None:
    scene = Scene(Keys({DE: 6.5}))
    for _ in range(2):
        scene.run_batch(7.0, 0.5, 0.5)
    reasons = [decision.reason for decision in scene.history.decisions]
    assert any(f"key {name_key(DE, 'hashed')} alone carries" in reason for reason in reasons)
    assert not any(DE in reason for reason in reasons)


def test_batches_of_many_queries_cost_as_many_decisions_as_those_of_one() -> None:
    def count(queries: int) -> tuple[int, set[str]]:
        scene = Scene(Keys({}), parse({"balance": {"mode": "off"}}))
        for second in range(1, 21):
            for number in range(queries):
                at_s = second + number / queries
                scene.run_batch(1.0, 1.0, 1.0, at_s=at_s, query=f"q{number}")
        reported = {d.query for d in scene.history.decisions if d.query}
        return scene.decided, reported

    assert count(1) == (20, {"q0"})
    # Those whose batch ended in between are reported with the next one.
    decisions, reported = count(10)
    assert decisions <= 23
    assert reported == {f"q{number}" for number in range(10)}


def test_a_batch_that_ends_just_after_a_decision_is_decided_on_soon() -> None:
    scene = Scene(Keys({}), parse({"balance": {"mode": "off"}}))
    for minute in (1, 2):
        scene.run_batch(1.0, 1.0, 1.0, at_s=60.0 * minute, query="p")
        scene.run_batch(4.0, 4.0, 4.0, at_s=60.0 * minute + 0.4, query="q")

    def look(at_s: float) -> tuple[int, str]:
        scene.decider.look_for_plans(EXECUTORS, at_s)
        return scene.decided, scene.history.decisions[-1].query

    assert look(120.8) == (2, "p"), "it is too soon"
    assert look(121.0) == (3, "q")
    assert look(125.0) == (3, "q"), "nothing is new"


def test_executors_get_their_share_in_mid_batch_once_the_last_one_is_there() -> None:
    scene = Scene(Keys({}))
    for _ in range(3):
        scene.run_batch(1.0, 1.0, 1.0)
    scene.plans.clear()
    scene.requested = 4
    scene.decider.note_executors({"a": 1, "b": 1, "c": 1}, 51.0)
    assert scene.plans == [], "one is missing"
    scene.requested = None
    scene.decider.note_executors({"a": 1, "b": 1, "c": 1, "d": 1}, 52.0)
    (plan,) = scene.plans
    placed = {plan.executors[index] for index in plan.placement[("q", 0)]}
    assert len(placed) == 3, "two partitions that shared an executor do no more"


def test_one_that_joins_after_others_gets_of_what_they_have_not_got_yet() -> None:
    scene = Scene(Keys({}))
    for _ in range(3):
        scene.run_batch(1.0, 1.0, 1.0)
    scene.plans.clear()
    scene.moving = {("q", 0): {1: "c"}}
    scene.decider.note_executors({"a": 1, "b": 1, "c": 1, "d": 1}, 51.0)
    assert scene.plans == [], "a move that is due cannot be taken back"
    scene.undecided = frozenset({("q", 0)})
    scene.decider.note_executors({"a": 1, "c": 1, "d": 1}, 52.0)
    (plan,) = scene.plans
    assert {"c", "d"} <= {plan.executors[index] for index in plan.placement[("q", 0)]}


def test_executors_that_join_before_anything_was_measured_get_no_plan() -> None:
    scene = Scene(Keys({}))
    scene.decider.note_executors(EXECUTORS, 1.0)
    assert scene.plans == []


def test_nothing_moves_while_a_period_is_excluded_and_the_journal_says_until_when() -> None:
    # A batch ends 50 s after the epoch began.
    schedule = {"excluded": [{"cron": "0 0 * * *", "duration_s": 600, "time_zone": "Asia/Tokyo"}]}
    scene = Scene(Keys({DE: 4.0}), parse({"schedule": schedule}))
    for _ in range(3):
        scene.run_batch(7.0, 0.5, 0.5)
    assert scene.plans, "at nine o'clock in Tokyo"
    schedule["excluded"][0]["cron"] = "0 9 * * *"
    scene = Scene(Keys({DE: 4.0}), parse({"schedule": schedule}))
    for _ in range(3):
        scene.run_batch(7.0, 0.5, 0.5)
    assert scene.plans == []
    (decision, *_) = scene.history.decisions
    assert decision.reason.startswith("no change: excluded until 09:10 Asia/Tokyo (")


def test_after_the_clock_was_set_back_decisions_go_by_what_is_measured_since() -> None:
    scene = Scene(Keys({}))
    for number in range(6):
        scene.run_batch(4.0, 2.0, 2.0, at_s=5000.0 + 10.0 * number)
    assert scene.plans == []
    for number in range(4):
        scene.run_batch(0.1, 4.0, 4.0, at_s=1400.0 + 10.0 * number)
    assert scene.plans


def test_a_clock_that_is_set_back_while_queries_are_idle_is_noticed_too() -> None:
    scene = Scene(Keys({}))
    scene.run_batch(2.0, 2.0, 2.0, at_s=1000.0)
    scene.decider.note_idle("q", EXECUTORS, 5000.0)
    scene.run_batch(2.0, 2.0, 2.0, at_s=1400.0)
    assert any("was set back" in note for note in scene.view.notes)
