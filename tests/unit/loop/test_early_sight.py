"""What is seen before a batch ends adds executors, and bounds the batches after it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from scripted import RecordingSpectator

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.policy import AdmissionPolicy, Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, StageSample
from balancedstream.core.wire.plan import Plan
from balancedstream.engine.events import BatchFinished, BatchPlanned, RowsWaiting
from balancedstream.loop.deciding import Decider
from balancedstream.loop.ports import FinishedBatch
from balancedstream.loop.progress import RealizerState
from balancedstream.loop.query_keys import KeyState
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo

EXECUTORS = {"a": 1, "b": 1}
RATE = 100.0
KEYS = KeyState((), frozenset(), {}, {}, {})


class Scene:
    """Batches of 100 rows a second that take 7.5 of 10 s; the next one begins at 100 s."""

    def __init__(self, policy: Policy | None = None, refusal: str = "") -> None:
        self.plans: list[Plan] = []
        self.bounds: list[tuple[str, float]] = []
        self.growth: dict[str, float] = {}
        self.foreseen = 0
        self.view = RecordingSpectator()
        self.history = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11"))
        self.refusal = refusal
        realizer: Any = SimpleNamespace(
            state=lambda: RealizerState(0, None, RestoreCost(), {}, KEYS),
            apply=lambda plan, why: self.plans.append(plan),
            bound=self.bound,
            expect=self.expect,
        )
        journal = Journal(self.history, self.view, Exporter(), lambda: 7.0)
        usual = Policy(scaling=ScalingPolicy(max_executors=8))
        self.decider = Decider(realizer, policy or usual, journal)
        for number in range(10):
            self.finish_batch(number)
        assert self.plans == []

    def bound(self, query: str, rows: float) -> str:
        self.bounds.append((query, rows))
        return self.refusal

    def expect(self, growth: Mapping[str, float]) -> None:
        self.growth.update(growth)
        self.foreseen += 1

    def finish_batch(self, number: int, query: str = "q") -> None:
        end_s = 10.0 * number + 7.5
        sample = BatchSample(query, number, end_s, 7.5, 1000, 10.0, 0.0, 10.0, gaps_s=0.5)
        stage = StageSample(query, number, "source", end_s, 32, 0.3, {"a": 6.8, "b": 6.8})
        record: Any = None
        event = BatchFinished(query, sample, (), (), 0, stages=(stage,))
        self.decider.finish_batch(FinishedBatch(event, record, EXECUTORS, end_s))

    def plan(self, rows: float, waiting_rows: float | None = 0.0, at_s: float = 100.0) -> None:
        event = BatchPlanned("q", 10, at_s, rows, waiting_rows, 10.0)
        self.decider.see(event, EXECUTORS, at_s)

    def look(self, at_s: float, rows: float) -> None:
        self.decider.see(RowsWaiting("q", at_s, rows), EXECUTORS, at_s)


def test_a_batch_that_is_planned_with_many_rows_adds_executors_before_it_ends() -> None:
    scene = Scene()
    scene.plan(1000.0)
    assert scene.plans == []
    scene = Scene()
    scene.plan(6000.0)
    (plan,) = scene.plans
    assert len(plan.executors) > 2


def test_rows_that_pile_up_behind_a_batch_add_executors_once_it_shows_how_many_come() -> None:
    scene = Scene()
    scene.plan(1000.0)
    for second in range(1, 10):
        scene.look(100.0 + second, RATE * second)
    assert scene.plans == []
    asked_after = None
    for second in range(1, 10):
        scene.look(109.0 + second, 900.0 + 8 * RATE * second)
        if scene.plans:
            asked_after = second
            break
    assert asked_after is not None
    assert asked_after <= 6
    assert len(scene.plans[0].executors) > 4


def test_executors_that_may_not_come_are_decided_on_once_a_batch() -> None:
    scene = Scene(Policy(scaling=ScalingPolicy(mode="advise", max_executors=8)))
    before = len(scene.history.decisions)
    for second in range(1, 30):
        scene.look(100.0 + second, 8000.0)
    assert scene.plans == []
    assert len(scene.history.decisions) == before + 1


def test_looks_at_many_queries_cost_as_many_decisions_as_looks_at_one() -> None:
    scene = Scene()
    queries = [f"q{number}" for number in range(20)]
    for query in queries:
        scene.finish_batch(10, query)
    before = scene.foreseen
    for second in range(1, 11):
        for place, query in enumerate(queries):
            at_s = 108.0 + second + 0.04 * place
            scene.decider.see(RowsWaiting(query, at_s, 5.0), EXECUTORS, at_s)
    assert 5 <= scene.foreseen - before <= 11


def test_what_waits_at_a_query_that_was_never_measured_says_nothing() -> None:
    scene = Scene()
    scene.decider.see(RowsWaiting("other", 101.0, 1e6), EXECUTORS, 101.0)
    assert scene.plans == []


def test_sources_that_do_not_say_what_waits_change_nothing() -> None:
    scene = Scene()
    scene.plan(1000.0, waiting_rows=None)
    assert scene.plans == []


def test_without_executors_nothing_is_decided() -> None:
    scene = Scene()
    scene.decider.see(BatchPlanned("q", 10, 100.0, 6000.0, 0.0, 10.0), {}, 100.0)
    assert scene.plans == []


def test_by_default_bounds_are_only_said_and_once_for_each_time() -> None:
    scene = Scene(Policy(scaling=ScalingPolicy(mode="off")))
    scene.plan(1000.0)
    assert scene.view.notes == []
    scene.plan(9000.0)
    scene.plan(9000.0)
    assert scene.bounds == []
    (note,) = scene.view.notes
    assert note.startswith("q: 9,000 rows wait: batches would be bounded to 1,")
    scene.plan(1000.0)
    scene.plan(9000.0)
    assert len(scene.view.notes) == 2


ACTS = Policy(scaling=ScalingPolicy(max_executors=8), admission=AdmissionPolicy(mode="auto"))


def test_where_admission_acts_each_batch_is_bounded_to_half_the_objective() -> None:
    scene = Scene(ACTS)
    query, rows = scene.bounds[-1]
    assert query == "q"
    # 12.5 s; 1,000 rows take 7.5 s.
    assert 1500 < rows < 1900


def test_a_source_that_takes_no_bound_is_said_once_and_left_alone() -> None:
    scene = Scene(ACTS, refusal="rate takes none")
    assert scene.view.notes == ["q: its batches are not bounded: rate takes none"]


def test_a_source_that_takes_no_bound_yet_gets_one_once_it_does() -> None:
    scene = Scene(ACTS, refusal="how many rows its files hold is not known yet")
    assert "q" not in scene.decider._admission.bounded
    scene.refusal = ""
    scene.finish_batch(10)
    assert "q" in scene.decider._admission.bounded


def test_where_admission_is_off_nothing_is_said_or_bounded() -> None:
    scene = Scene(Policy(admission=AdmissionPolicy(mode="off")))
    scene.plan(9000.0)
    assert (scene.bounds, scene.view.notes) == ([], [])
