"""What a decision says of a plan is what the plan does, whatever was observed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from observed import POLICIES, check_plan, observations, observe_a_scale_out

from balancedstream.core.decisions import decide
from balancedstream.core.observations import Observation, parse_observation
from balancedstream.core.planning import leave_out, propose
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import TaskSample
from balancedstream.core.wire.plan import NEW_EXECUTOR


def test_what_moves_to_an_executor_that_comes_is_what_the_decision_says() -> None:
    seen, policy = observe_a_scale_out(), Policy(scaling=ScalingPolicy(max_executors=8))
    decision = decide(seen, policy)
    plan = propose(1, seen, decision, policy.migration)
    assert plan is not None
    assert plan.executors == decision.executors == ("e0", "e1", "+1")
    moved = {p for p, owner in plan.owners("q", 0).items() if owner != f"e{p % 2}"}
    assert len(moved) > 1
    assert {move.partition for move in decision.balance["q", 0].moves} == moved
    assert decision.describe_reason(("q", 0)).startswith(f"{len(moved)} moves: ")
    assert decision.describe_reason(("q", 0)).endswith(", on 3 executors")
    assert round(decision.imbalance["q", 0].imbalance, 2) == 1.11, "as it is measured"


@given(observations(), POLICIES)
@settings(max_examples=400, deadline=None)
def test_what_a_decision_says_of_a_plan_is_what_the_plan_does(
    seen: Observation, policy: Policy
) -> None:
    decision = decide(seen, policy)
    plan = propose(4, seen, decision, policy.migration)
    assert leave_out(decision, plan) == decision, "there is room for all"
    check_plan(seen, decision, plan)
    count, scaling = len(decision.executors), decision.scaling
    changes = plan is not None and count != seen.asked
    assert (
        scaling.reason.startswith("no change: ")
        == (scaling.executors != seen.asked and not changes)
        or seen.excluded
    )
    if changes:
        assert f"from {seen.asked} to {count}" in scaling.reason
    if plan is None and count != seen.asked:
        assert seen.in_force.waits


@given(observations(), POLICIES)
@settings(max_examples=200, deadline=None)
def test_what_is_refused_or_under_way_is_not_told_as_done(
    seen: Observation, policy: Policy
) -> None:
    decision = decide(seen, policy)
    staying = set(decision.executors)
    for operator, found in decision.balance.items():
        under_way = seen.in_force.under_way.get(operator)
        acts = policy.balance.mode == "auto" and under_way is None
        acts = acts and not seen.in_force.waits
        if not acts:
            owners = under_way or {}
            assert {owners.get(m.partition, m.source) for m in found.moves}.isdisjoint(staying)
        for move in decision.key_moves(operator):
            assert acts
            assert not seen.excluded
            assert operator[0] not in seen.in_force.settling
            assert (operator[0], move.key) not in seen.in_force.refused_keys
        assert not (seen.in_force.waits and found.moves)
        assert operator not in decision.held or decision.held[operator] in decision.describe_reason(
            operator
        )
        assert {move.target for move in found.moves} <= staying
    live = {e for e in decision.executors if not e.startswith(NEW_EXECUTOR)}
    assert live <= seen.executors.keys()


@given(observations(), POLICIES)
@settings(max_examples=100, deadline=None)
def test_a_recorded_observation_leads_to_the_same_decision(
    seen: Observation, policy: Policy
) -> None:
    read = parse_observation(seen.to_json())
    assert read == seen
    assert decide(read, policy) == decide(seen, policy)


def test_moves_that_a_plan_has_no_room_for_are_not_told_as_done() -> None:
    tasks = tuple(
        TaskSample("q", o, p, 1, "a", 1.0 + o, 5, 0, 9.0) for o in range(2) for p in range(4)
    )
    seen = Observation(10.0, {"a": 1, "b": 1}, tasks)
    decision = decide(seen, Policy())
    plan = propose(1, seen, decision, Policy().migration)
    assert plan is not None
    small = replace(plan, placement={("q", 1): plan.placement["q", 1]})
    told = leave_out(decision, small)
    check_plan(seen, told, small)
    assert told.describe_reason(("q", 0)).startswith(
        "no change: a plan has room for 512 KiB (2 moves: "
    )
    assert told.describe_reason(("q", 1)) == decision.describe_reason(("q", 1))
