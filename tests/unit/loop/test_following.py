"""A driver follows plans that come from elsewhere, and answers each."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric
from scripted import RecordingSpectator, ScriptedEngine, ScriptedPlans

from balancedstream.core.policy import Policy
from balancedstream.core.samples import BatchSample, SlotHolder, TaskSample
from balancedstream.core.wire.plan import Answer, Plan
from balancedstream.engine.events import (
    BatchFinished,
    Event,
    ExecutorAdded,
    ExecutorRemoved,
    QueryStarted,
    StatefulOperator,
)
from balancedstream.loop.controller import Controller
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo

OPERATOR = StatefulOperator((0,), "StateStoreSave", 4)
ALL_ON_A = dict.fromkeys(range(4), "a")


def batch(number: int, placement: dict[int, str]) -> BatchFinished:
    at_s = 1000.0 + 10 * number
    tasks = tuple(TaskSample("q", 0, p, number, e, 9.0, 1, 1, at_s) for p, e in placement.items())
    return BatchFinished("q", BatchSample("q", number, at_s, 5.0, 4), tasks, (OPERATOR,), 0)


def follow(
    plans: ScriptedPlans, *events: Event, holders: tuple[SlotHolder, ...] = ()
) -> tuple[ScriptedEngine, RecordingSpectator, list[Metric]]:
    engine = ScriptedEngine(list(events), {"a": 1, "b": 1})
    engine.holders = holders
    view = RecordingSpectator()
    exporter = Exporter()

    def clock() -> float:
        return engine.now_s

    controller = Controller(
        engine,
        Policy(),
        Journal(History(RunInfo("test", 1000.0, 2, "4.3.0", "3.11")), view, exporter, clock),
        plans=plans,
        clock=clock,
    )
    controller.start()
    controller.stop()
    return engine, view, list(exporter.collect())


def plan(epoch: int, *placement: int) -> Plan:
    return Plan(epoch, ("a", "b"), {("q", 0): placement})


def value(metrics: list[Metric], name: str) -> float:
    found = [s.value for m in metrics for s in m.samples if s.name == f"balancedstream_{name}"]
    assert len(found) == 1, name
    return float(found[0])


def test_a_driver_decides_nothing_by_itself() -> None:
    plans = ScriptedPlans()
    engine, _, metrics = follow(plans, *(batch(n, ALL_ON_A) for n in range(4)))
    assert engine.placed == []
    assert value(metrics, "imbalance_ratio") == 2.0, "but it shows what it measures"
    assert plans.answers[-1] == Answer(0)


def test_a_plan_that_comes_is_applied_and_answered() -> None:
    plans = ScriptedPlans(None, plan(7, 0, 0, 1, 1))
    engine, _, metrics = follow(plans, batch(0, ALL_ON_A), batch(1, ALL_ON_A))
    assert engine.placed == [{2: "b", 3: "b"}]
    assert plans.answers[-1].epoch == 7
    assert value(metrics, "plan_epoch") == 7
    assert value(metrics, "moves_under_way") == 2


def test_a_plan_that_comes_before_the_first_batch_sizes_the_job_and_places_nothing() -> None:
    plans = ScriptedPlans(Plan(3, ("1", "2", "+1"), {}))
    engine, _, _ = follow(plans, batch(0, ALL_ON_A))
    assert engine.counts == [3]
    assert engine.placed == []


def test_plans_are_refused_while_a_query_in_real_time_mode_runs() -> None:
    plans = ScriptedPlans(None, plan(7, 0, 0, 1, 1), plan(8, 0, 0, 1, 1))
    batches = [batch(n, ALL_ON_A) for n in range(4)]
    engine, view, _ = follow(plans, *batches, holders=(SlotHolder("live", "real-time", None),))
    assert engine.placed == []
    assert engine.counts == []
    assert plans.answers[-1].epoch == 0
    assert "a query in Real-Time Mode runs (live)" in plans.answers[-1].refused
    assert [d.query for d in view.decisions if "Real-Time Mode" in d.reason] == ["live"]


def test_rubbish_is_refused_with_the_field_and_the_stream_goes_on() -> None:
    plans = ScriptedPlans(plan(7, 0, 0, 1, 1), '{"epohc": 8}', None)
    _, view, _ = follow(plans, *(batch(n, ALL_ON_A) for n in range(3)))
    assert "plan.epohc: unknown field" in plans.answers[-1].refused
    assert plans.answers[-1].epoch == 7
    assert "plan.epohc" in view.notes[0]


def test_an_older_plan_is_refused_and_a_newer_one_clears_that() -> None:
    plans = ScriptedPlans(plan(7, 0, 0, 1, 1), plan(6, 1, 1, 1, 1), plan(8, 0, 0, 0, 1))
    follow(plans, *(batch(n, ALL_ON_A) for n in range(3)))
    refused = [answer.refused for answer in plans.answers]
    assert any("6 is older than 7" in text for text in refused)
    assert (plans.answers[-1].epoch, plans.answers[-1].refused) == (8, "")


def test_the_same_is_not_answered_twice() -> None:
    plans = ScriptedPlans(plan(7), plan(7), plan(7))
    follow(plans, batch(0, ALL_ON_A), batch(0, ALL_ON_A), batch(0, ALL_ON_A))
    assert len(plans.answers) == len(set(map(Answer.to_json, plans.answers)))


def test_a_query_without_a_name_is_warned_of_because_the_driver_may_be_replaced() -> None:
    _, view, _ = follow(ScriptedPlans(), QueryStarted("clicks"), QueryStarted("4f1c", named=False))
    (note,) = view.notes
    assert "4f1c has no name" in note
    assert "queryName" in note


def test_an_executor_that_was_lost_is_counted_and_one_that_was_to_go_is_not() -> None:
    lost = ExecutorRemoved("b", "exited with exit code 52", "heap")
    _, view, metrics = follow(ScriptedPlans(), batch(1, ALL_ON_A), lost)
    assert view.notes == ["executor b left: exited with exit code 52"]
    assert count_losses(metrics) == {"memory": 0, "heap": 1, "exit": 0, "silence": 0}
    _, view, metrics = follow(ScriptedPlans(), batch(1, ALL_ON_A), ExecutorRemoved("b", "retired"))
    assert view.notes == ["executor b left: retired"]
    assert not any(count_losses(metrics).values())


def count_losses(metrics: Iterable[Metric]) -> dict[str, float]:
    (losses,) = (m for m in metrics if m.name == "balancedstream_executor_losses")
    return {sample.labels["cause"]: sample.value for sample in losses.samples}


def test_an_executor_is_shown_as_soon_as_it_joins_and_no_longer_when_it_left() -> None:
    _, _, metrics = follow(ScriptedPlans(), batch(1, ALL_ON_A), ExecutorRemoved("b", "killed"))
    (cores,) = (m for m in metrics if m.name == "balancedstream_executor_cores")
    assert {sample.labels["executor"] for sample in cores.samples} == {"a"}
    _, _, metrics = follow(ScriptedPlans(), ExecutorAdded("b", 1))
    (cores,) = (m for m in metrics if m.name == "balancedstream_executor_cores")
    assert {sample.labels["executor"] for sample in cores.samples} == {"a", "b"}
