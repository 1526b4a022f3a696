"""What the journal says of a decision is what the plan does that is made of it."""

from __future__ import annotations

import html
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from observed import POLICIES, list_moved, observations, observe_a_scale_out
from report_pages import page_of
from scripted import RecordingSpectator, ScriptedEngine

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.decisions import decide
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.wire.plan import Plan
from balancedstream.engine.events import BatchFinished, Event, ExecutorAdded, StatefulOperator
from balancedstream.loop.controller import Controller
from balancedstream.loop.deciding import Decider
from balancedstream.loop.ports import FinishedBatch
from balancedstream.loop.progress import RealizerState
from balancedstream.loop.query_keys import KeyState
from balancedstream.loop.realizing import Why
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo


def list_batches(seen: Observation) -> list[BatchFinished]:
    """The batches of an observation, each with its tasks and stages."""
    operators = {q: {t.operator for t in seen.tasks if t.query == q} for q in "qr"}
    return [
        BatchFinished(
            batch.query,
            batch,
            tuple(t for t in seen.tasks if (t.query, t.batch) == (batch.query, batch.batch)),
            tuple(StatefulOperator((n,), "save", 9) for n in sorted(operators[batch.query])),
            0,
            stages=tuple(
                s for s in seen.stages if (s.query, s.batch) == (batch.query, batch.batch)
            ),
        )
        for batch in sorted(seen.batches, key=lambda b: (b.batch, b.query))
    ]


@given(observations(), POLICIES, st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_journal_says_what_the_plan_does(
    seen: Observation, policy: Policy, paused: bool
) -> None:
    history = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11"))
    journal = Journal(history, RecordingSpectator(), Exporter(), lambda: 7.0)
    plans: list[tuple[Plan, Why]] = []
    observed: list[Observation] = []
    samples = {q: tuple(k for k in seen.keys if k.query == q) for q in "qr"}
    keys = KeyState(seen.in_force.key_placements, seen.in_force.settling, samples, {}, {})
    requested = None if seen.asked == len(seen.executors) else seen.asked
    # One that is new to the engine has had no task yet.
    requested = None if requested is not None and requested < len(seen.executors) else requested
    state = RealizerState(3, requested, RestoreCost(), seen.in_force.under_way, keys)
    realizer: Any = SimpleNamespace(
        state=lambda: state,
        apply=lambda plan, why: plans.append((plan, why)),
        expect=lambda growth: None,
    )
    decider = Decider(realizer, policy, journal, observed.append)
    if paused:
        decider.pause("paused by a test")
    record: Any = None
    asked = len(seen.executors) if requested is None else requested
    for event in list_batches(seen):
        told, made = len(history.decisions), len(plans)
        now_s = event.sample.finished_s
        decider.finish_batch(FinishedBatch(event, record, dict(seen.executors), now_s))
        assert len(plans) - made <= (0 if paused else 1)
        plan, why = plans[-1] if len(plans) > made else (None, Why({}))
        decision = decide(observed[-1], policy) if plan else None
        for found in history.decisions[told:]:
            if found.operator is None:
                scales = plan is not None and len(plan.executors) != asked
                assert (found.kind == "scale") == scales
                if plan is not None and scales:
                    assert f"from {asked} to {len(plan.executors)}" in found.reason
                continue
            operator = (found.query, found.operator)
            moved = set()
            if plan is not None and decision is not None:
                moved = list_moved(observed[-1], decision, plan, operator)
                moved_keys = decision.key_moves(operator)
                assert (found.kind == "move") == bool(moved or moved_keys)
                assert bool(why.moves.get(operator)) == bool(moved)
                assert found.reason.endswith(why.moves.get(operator, found.reason))
            if found.kind == "move":
                assert found.moves == len(moved)
                assert plan is not None
            else:
                assert not moved


def test_a_scale_out_moves_as_many_partitions_as_the_journal_and_the_report_say() -> None:
    batches = list_batches(observe_a_scale_out())
    events: list[Event] = [*batches[:3], ExecutorAdded("e2", 1)]
    engine = ScriptedEngine(events, {"e0": 1, "e1": 1})
    history, view = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11")), RecordingSpectator()
    journal = Journal(history, view, Exporter(), lambda: engine.now_s)
    policy = Policy(scaling=ScalingPolicy(max_executors=8))
    controller = Controller(engine, policy, journal, clock=lambda: engine.now_s, baseline_batches=2)
    controller.start()
    controller.stop()
    assert engine.counts == [3]
    (scaled,) = [d for d in history.decisions if d.kind == "scale"]
    (moved,) = [d for d in history.decisions if d.kind == "move" and d.at_s == scaled.at_s]
    assert moved.moves > 1
    assert moved.reason.startswith(f"{moved.moves} moves: ")
    assert moved.reason.endswith(", on 3 executors")
    targets = {m.partition: m for m in history.moves if m.reason == moved.reason}
    assert len(targets) == moved.moves
    assert html.escape(moved.reason) in page_of(history)
