"""A run first measures without a change when it is asked to, and says so with each decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from scripted import RecordingSpectator, ScriptedEngine

from balancedstream.core.policy import BalancePolicy, Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, TaskSample
from balancedstream.engine.events import BatchFinished, Event, QueryEnded, StatefulOperator
from balancedstream.errors import InvalidInputError
from balancedstream.launch.attaching import attach
from balancedstream.loop.controller import Controller
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Metrics

OPERATOR = StatefulOperator((0,), "StateStoreSave", 4)
SKEWED_S = (4.0, 3.0, 0.5, 0.5)


def batch(
    number: int,
    query: str = "q",
    *,
    rows: int = 400,
    every_s: float = 10.0,
    busy_s: Sequence[float] = SKEWED_S,
    placement: str = "aaaa",
) -> BatchFinished:
    """A batch of a query; without `busy_s`, of one without state."""
    at_s = 1000.0 + every_s * number
    tasks = tuple(TaskSample(query, 0, p, number, placement[p], s, 100, 1000, at_s)
                  for p, s in enumerate(busy_s))  # fmt: skip
    sample = BatchSample(query, number, at_s, 9.8, rows, interval_s=every_s)
    return BatchFinished(query, sample, tasks, (OPERATOR,) if busy_s else (), 0)


def run(
    events: Sequence[Event], baseline_batches: int, policy: Policy | None = None
) -> tuple[ScriptedEngine, History, RecordingSpectator]:
    engine = ScriptedEngine(list(events), {"a": 1, "b": 1})
    history, view = History(RunInfo("test", 1000.0, 2, "4.3.0", "3.11")), RecordingSpectator()
    controller = Controller(
        engine,
        policy or Policy(),
        Journal(history, view, Metrics(), lambda: engine.now_s),
        baseline_batches=baseline_batches,
        clock=lambda: engine.now_s,
    )
    controller.start()
    controller.stop()
    return engine, history, view


def moved_after(history: History) -> list[int]:
    return [move.decided_after_batch for move in history.moves]


def test_without_a_baseline_the_second_batch_already_moves_something() -> None:
    _, history, view = run([batch(n) for n in range(3)], 0)
    assert moved_after(history) == [1]
    assert view.notes == []


def test_nothing_moves_before_the_cold_batch_and_the_baseline_are_over() -> None:
    engine, history, _ = run([batch(n) for n in range(4)], 4)
    assert engine.placed == []
    assert history.moves == ()
    _, history, view = run([batch(n) for n in range(6)], 4)
    assert moved_after(history) == [4]
    assert view.notes == ["baseline: 4 batches measured without a change; balancing begins"]


def test_each_decision_of_a_baseline_says_how_far_it_is_and_what_would_move() -> None:
    _, history, _ = run([batch(n) for n in range(5)], 4)
    assert [(decision.kind, decision.reason) for decision in history.decisions] == [
        *(
            (
                "hold",
                f"baseline: {n} of 4 batches measured; moves begin after that "
                "(1 move: imbalance 2.00 → 1.00 (bound 1.00))",
            )
            for n in (1, 2, 3)
        ),
        ("move", "1 move: imbalance 2.00 → 1.00 (bound 1.00)"),
    ]


def test_a_batch_without_rows_is_no_measurement_of_a_baseline() -> None:
    events = [batch(0), batch(1, rows=0), batch(2), batch(3, rows=0), batch(4), batch(5)]
    _, history, _ = run(events, 2)
    assert moved_after(history) == [4]


def test_a_baseline_waits_for_every_query_with_state_and_names_the_slowest() -> None:
    events = [
        *(batch(0, query) for query in ("fast", "slow")),
        *(batch(n, "fast") for n in range(1, 6)),
        *(batch(n, "slow", every_s=55.0) for n in (1, 2)),
    ]
    _, history, _ = run(events[:-1], 2)
    assert history.moves == ()
    assert history.decisions[-1].reason.startswith(
        "baseline: 1 of 2 batches of slow measured; moves begin after that ("
    )
    _, history, _ = run(events, 2)
    assert {move.query for move in history.moves} == {"slow", "fast"}


def test_a_baseline_does_not_wait_for_queries_without_state_or_at_their_end() -> None:
    stateless: list[Event] = [batch(0, "stateless", busy_s=())]
    _, history, _ = run([*stateless, *(batch(n) for n in range(3))], 2)
    assert moved_after(history) == [2]
    other: list[Event] = [batch(0, "other"), QueryEnded("other", None)]
    _, history, _ = run([*other, *(batch(n) for n in range(3))], 2)
    assert moved_after(history) == [2]


def test_a_query_that_starts_after_the_baseline_does_not_begin_it_again() -> None:
    _, history, _ = run([*(batch(n) for n in range(3)), batch(0, "new"), batch(1, "new")], 2)
    assert {move.query for move in history.moves} == {"q", "new"}


def test_batches_of_a_query_that_runs_again_and_again_add_up() -> None:
    ended = QueryEnded("q", None)
    again: list[Event] = [batch(0), batch(1), ended, batch(2), batch(3), ended, batch(4), batch(5)]
    _, history, _ = run(again, 3)
    assert moved_after(history) == [5]


SCALING = ScalingPolicy(min_executors=1, max_executors=4)


def test_the_number_of_executors_stays_during_a_baseline_too() -> None:
    events = [batch(n, busy_s=(4.8,) * 4, placement="abab") for n in range(8)]
    engine, _, _ = run(events, 0, Policy(scaling=SCALING))
    assert engine.counts, "scales without a baseline"
    engine, history, _ = run(events, 8, Policy(scaling=SCALING))
    assert engine.counts == []
    assert history.scales == ()
    last = [decision for decision in history.decisions if not decision.query][-1]
    assert last.kind == "hold"
    assert last.reason.startswith(
        "baseline: 7 of 8 batches measured; scaling begins after that (capacity: "
    )


def test_an_application_without_state_waits_for_its_queries() -> None:
    events = [batch(n, busy_s=()) for n in range(4)]
    _, history, view = run(events, 2, Policy(scaling=SCALING))
    assert view.notes == ["baseline: 2 batches measured without a change; balancing begins"]
    assert [
        decision.reason.partition(" batches")[0]
        for decision in history.decisions
        if decision.reason.startswith("baseline")
    ] == ["baseline: 0 of 2", "baseline: 1 of 2"]


def test_a_policy_that_never_moves_promises_no_moves() -> None:
    _, history, _ = run([batch(n) for n in range(3)], 4, Policy(balance=BalancePolicy(mode="off")))
    assert history.decisions[-1].reason == "off: 1 move: imbalance 2.00 → 1.00 (bound 1.00)"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"baseline_batches": -1}, "baseline_batches: must be 0 or more, not -1"),
        ({"baseline_batches": 1, "plans": object()}, "baseline_batches: plans that are made"),
    ],
)
def test_a_baseline_that_cannot_be_measured_is_refused(
    arguments: dict[str, Any], said: str
) -> None:
    untouched: Any = None
    with pytest.raises(InvalidInputError, match=f"^{said}"):
        attach(untouched, **arguments)
