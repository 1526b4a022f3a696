"""What was measured becomes decisions, told as names of keys may be told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scripted import SilentView

from balancedstream.core.handoffs import LoadCost
from balancedstream.core.keys import name_key
from balancedstream.core.observations import BatchSample, KeySample, TaskSample
from balancedstream.core.plan import Plan
from balancedstream.core.policy import Policy
from balancedstream.deciding import Decider
from balancedstream.engine.events import BatchFinished, StatefulOperator
from balancedstream.exporter import Exporter
from balancedstream.history import History, RunInfo
from balancedstream.journal import Journal

OPERATOR = StatefulOperator((0,), "TransformWithState", 3)
EXECUTORS = {"a": 1, "b": 1}
PLACEMENT = ("a", "b", "b")
DE, FR = '"de"', '"fr"'


class Keys:
    """Hot keys as a rekeyer tells of them."""

    def __init__(self, busy_s: dict[str, float]) -> None:
        self.busy_s = busy_s
        self.given_up: set[str] = set()
        self.batch = 0
        self.routes = ()

    def samples(self, query: str) -> tuple[KeySample, ...]:
        return tuple(KeySample(query, 0, k, 0, self.batch, s) for k, s in self.busy_s.items())

    def stuck(self, query: str) -> set[str]:
        return self.given_up

    def settling(self) -> set[str]:
        return set()

    def last_arrival(self, query: str) -> int:
        return -1


class Scene:
    """A decider whose plans are only written down."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.plans: list[Plan] = []
        self.history = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11"))
        view: Any = SilentView()
        realizer: Any = SimpleNamespace(
            keys=keys,
            load_cost=LoadCost(),
            requested=None,
            epoch=0,
            wanted=dict,
            apply=lambda plan, why: self.plans.append(plan),
        )
        journal = Journal(self.history, view, Exporter(hot_keys="hashed"), lambda: 7.0)
        self.decider = Decider(realizer, Policy(), journal)

    def run_batch(self, *busy_s: float) -> None:
        batch = self.keys.batch
        tasks = tuple(
            TaskSample("q", 0, p, batch, PLACEMENT[p], s, 10, 0, 50.0) for p, s in enumerate(busy_s)
        )
        sample = BatchSample("q", batch, 50.0, 5.0, 40)
        record: Any = None
        event = BatchFinished("q", sample, tasks, (OPERATOR,), 0)
        self.decider.finish_batch(event, record, EXECUTORS, 50.0)
        self.keys.batch += 1


def test_a_key_that_was_given_up_is_not_decided_on_again_whatever_was_measured_before() -> None:
    scene = Scene(Keys({DE: 4.0, FR: 3.0}))
    for _ in range(3):
        scene.run_batch(7.0, 0.5, 0.5)
    assert {route.key for plan in scene.plans for route in plan.routes} == {FR}
    scene.plans.clear()
    scene.keys.given_up = {DE, FR}
    scene.run_batch(7.0, 0.5, 0.5)
    assert [route for plan in scene.plans for route in plan.routes] == []


def test_a_key_that_no_assignment_can_split_is_told_of_as_metrics_may_name_it() -> None:
    scene = Scene(Keys({DE: 6.5}))
    for _ in range(2):
        scene.run_batch(7.0, 0.5, 0.5)
    reasons = [decision.reason for decision in scene.history.decisions]
    assert any(f"key {name_key(DE, 'hashed')} alone carries" in reason for reason in reasons)
    assert not any(DE in reason for reason in reasons)
