"""What the loop would do is decided, reported and served where the policy only advises."""

from __future__ import annotations

from collections.abc import Sequence

from metric_samples import Samples, collect, select, series
from report_pages import page_of
from scripted import RecordingSpectator, ScriptedEngine

from balancedstream.core.policy import BalancePolicy, Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, TaskSample
from balancedstream.engine.events import BatchFinished, StatefulOperator
from balancedstream.loop.controller import Controller
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo

OPERATOR = StatefulOperator((0,), "StateStoreSave", 4)
ADVISE = Policy(
    BalancePolicy(mode="advise"),
    ScalingPolicy(mode="advise", max_executors=4),
)


def batch(number: int, placement: str, busy_s: Sequence[float]) -> BatchFinished:
    at_s = 1000.0 + 10.0 * number
    tasks = tuple(TaskSample("q", 0, p, number, placement[p], s, 100, 1000, at_s)
                  for p, s in enumerate(busy_s))  # fmt: skip
    busiest_s = max(
        sum(s for e, s in zip(placement, busy_s, strict=True) if e == at) for at in "ab"
    )
    sample = BatchSample("q", number, at_s, busiest_s + 0.2, 400, interval_s=10.0)
    return BatchFinished("q", sample, tasks, (OPERATOR,), 0)


def run(placement: str, *busy_s: float) -> tuple[ScriptedEngine, History, Samples]:
    """Eight batches on executors a and b, under a policy that only advises."""
    engine = ScriptedEngine([batch(n, placement, busy_s) for n in range(8)], {"a": 1, "b": 1})
    history, exporter = History(RunInfo("test", 1000.0, 2, "4.3.0", "3.11")), Exporter()
    journal = Journal(history, RecordingSpectator(), exporter, lambda: engine.now_s)
    controller = Controller(engine, ADVISE, journal, clock=lambda: engine.now_s)
    controller.start()
    controller.stop()
    return engine, history, collect(exporter)


def count_decisions(samples: Samples) -> dict[str, float]:
    """By kind, those that were made."""
    made = select(samples, "decisions_total")
    return {kind: count for (kind, _, _), count in made.items() if count}


def test_moves_that_are_only_advised_are_decisions_of_that_kind() -> None:
    engine, history, samples = run("aaaa", 4.0, 3.0, 0.5, 0.5)
    assert engine.placed == []
    moves = [decision for decision in history.decisions if decision.query == "q"]
    assert {decision.kind for decision in moves} == {"advise"}
    assert moves[-1].reason.startswith("advise: 1 move")
    assert count_decisions(samples) == {"advise": len(moves)}


def test_executors_that_are_only_advised_are_decisions_of_that_kind_with_their_number() -> None:
    engine, history, samples = run("abab", 4.8, 4.8, 4.8, 4.8)
    assert engine.counts == []
    last = [decision for decision in history.decisions if decision.operator is None][-1]
    assert last.kind == "advise"
    assert last.reason.startswith("advise: capacity: ")
    assert samples[series("executors_advised")] == 4
    assert samples[series("executors")] == 2
    told = {"advise": 6, "none": 1}
    assert count_decisions(samples) == told, "those that come get their share, once measured"
    moves = [decision for decision in history.decisions if decision.operator == 0]
    assert moves[-1].reason.startswith("advise: 2 moves: ")
    assert moves[-1].reason.endswith(", on 4 executors")
    assert moves[-1].imbalance == 1.0, "as it is measured on those that are there"


def test_where_as_many_executors_are_advised_as_there_are_nothing_is() -> None:
    _, history, samples = run("abab", 2.5, 2.5, 2.5, 2.5)
    kinds = {decision.kind for decision in history.decisions if decision.operator is None}
    assert kinds == {"none"}
    assert count_decisions(samples) == {"none": 7}, "nothing moves between two equal loads"
    assert samples[series("executors_advised")] == 2


def test_the_report_lists_advice_as_what_it_is() -> None:
    _, history, _ = run("aaaa", 4.0, 3.0, 0.5, 0.5)
    page = page_of(history)
    assert '<span class="kind advise">advise</span>' in page
    assert "advise: 1 move" in page
