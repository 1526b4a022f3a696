"""What one decision remembers for the next."""

from __future__ import annotations

from dataclasses import replace

from balancedstream.core.decisions import Decision
from balancedstream.core.observations import ScaleOut
from balancedstream.core.past import Past
from balancedstream.core.scaling.executors import ScalingDecision, Verdict
from balancedstream.core.wire.plan import Plan

KNOWN = ScaleOut(50.0, 1, 2, 100.0, 0.5)
NEW = ScaleOut(90.0, 2, 3, 100.0, 0.4)
PAST = Past(2, 50.0, KNOWN, {"q": 3}, moved=True)
BATCHES = {"q": 9}


def decide(count: int, scale_out: ScaleOut | None) -> Decision:
    scaling = ScalingDecision(count, Verdict.CAPACITY, "because", scale_out=scale_out)
    return Decision({}, {}, scaling, tuple("abc"[:count]), {})


def plan(count: int) -> Plan:
    return Plan(4, tuple("abc"[:count]), {})


def test_a_scale_out_that_no_plan_makes_is_forgotten() -> None:
    assert PAST.after(decide(3, NEW), None, 92.0, BATCHES) == PAST
    made = PAST.after(decide(3, NEW), plan(3), 92.0, BATCHES)
    assert made == Past(3, 92.0, NEW, BATCHES, moved=True)


def test_what_is_found_of_a_scale_out_is_remembered_without_a_plan_too() -> None:
    failed = replace(KNOWN, failed=True)
    assert PAST.after(decide(2, failed), None, 92.0, BATCHES) == replace(PAST, scale_out=failed)
    fewer = PAST.after(decide(1, failed), plan(1), 92.0, BATCHES)
    assert fewer == Past(1, 92.0, failed, BATCHES, moved=True)


def test_a_plan_that_changes_nothing_keeps_the_time_of_the_last_change() -> None:
    assert PAST.after(decide(2, None), plan(2), 92.0, BATCHES) == Past(2, 50.0, KNOWN, BATCHES)
