"""The plan that realizes a decision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from balancedstream.core.decisions import decide
from balancedstream.core.observations import Observation, PlanInForce
from balancedstream.core.planning import fit_plan, propose
from balancedstream.core.policy import BalancePolicy, Policy, ScalingPolicy
from balancedstream.core.samples import HiddenSample, KeySample, TaskSample
from balancedstream.core.wire.plan import (
    MAX_KEY_PLACEMENTS,
    UNPLACED,
    KeyPlacement,
    Plan,
)
from balancedstream.core.wire.strict_json import MAX_BYTES

KEY = ("q", 0)
DEFAULT = Policy()
SCALED = Policy(scaling=ScalingPolicy(max_executors=9))
SKEWED = {0: ("a", 4.0), 1: ("a", 3.0), 2: ("a", 1.0), 3: ("b", 1.0), 4: ("b", 0.5), 5: ("b", 0.5)}
EVEN = {0: ("a", 1.0), 1: ("a", 1.0), 2: ("b", 1.0), 3: ("b", 1.0), 4: ("c", 1.0), 5: ("c", 1.0)}
STATE_BYTES = {"a": 300, "b": 100, "c": 200}


def observe(
    partitions: dict[int, tuple[str, float]], *executors: str, requested: int | None = None
) -> Observation:
    tasks = tuple(
        TaskSample("q", 0, p, 1, executor, busy_s, 10, STATE_BYTES[executor], 9.0)
        for p, (executor, busy_s) in partitions.items()
    )
    return Observation(10.0, dict.fromkeys(executors, 1), tasks, requested=requested)


def plan_for(
    observation: Observation,
    policy: Policy,
    count: int | None = None,
    under_way: dict[tuple[str, int], dict[int, str]] | None = None,
) -> Plan | None:
    if count is not None and policy.scaling.max_executors:
        # Limits that leave one number.
        scaling = replace(policy.scaling, min_executors=count, max_executors=count)
        policy = replace(policy, scaling=scaling)
    if under_way is not None:
        observation = replace(observation, in_force=PlanInForce(under_way))
    return plan_of(observation, policy)


def plan_of(observation: Observation, policy: Policy = DEFAULT, **in_force: Any) -> Plan | None:
    observation = replace(observation, in_force=replace(observation.in_force, **in_force))
    return propose(7, observation, decide(observation, policy), policy.migration)


def test_a_plan_names_the_place_of_partitions_that_stay_too() -> None:
    plan = plan_for(observe(SKEWED, "a", "b"), Policy())
    assert plan is not None
    owners = plan.owners(*KEY)
    assert sorted(owners) == [0, 1, 2, 3, 4, 5]
    assert owners[1] == "b"
    assert owners[0] == "a"
    assert plan.epoch == 7


def test_no_change_is_no_plan() -> None:
    assert plan_for(observe(EVEN, "a", "b", "c"), SCALED, count=3) is None


def test_a_plan_that_only_advises_moves_nothing() -> None:
    policy = Policy(balance=BalancePolicy(mode="advise"))
    assert plan_for(observe(SKEWED, "a", "b"), policy) is None


def test_executors_still_to_be_started_have_no_id_yet() -> None:
    plan = plan_for(observe(EVEN, "a", "b", "c"), SCALED, count=5)
    assert plan is not None
    assert plan.executors == ("a", "b", "c", "+1", "+2")


def test_a_plan_that_asks_for_executors_says_what_they_get() -> None:
    plan = plan_for(observe(EVEN, "a", "b", "c"), SCALED, count=6)
    assert plan is not None
    assert sorted(plan.owners(*KEY).values()) == ["+1", "+2", "+3", "a", "b", "c"]
    advised = Policy(BalancePolicy(mode="advise"), scaling=SCALED.scaling)
    plan = plan_for(observe(EVEN, "a", "b", "c"), advised, count=6)
    assert plan is not None
    assert set(plan.owners(*KEY).values()) == {"a", "b", "c"}


def test_while_executors_are_awaited_the_load_is_shared_among_those_that_there_are() -> None:
    plan = plan_for(observe(SKEWED, "a", "b", requested=4), SCALED, count=4)
    assert plan is not None
    assert set(plan.owners(*KEY).values()) == {"a", "b"}


def test_executors_that_were_asked_for_are_not_asked_for_again() -> None:
    assert plan_for(observe(EVEN, "a", "b", "c", requested=5), SCALED, count=5) is None


def test_an_executor_that_nobody_asked_for_goes_also_where_nothing_else_changes() -> None:
    policy = Policy(balance=BalancePolicy(mode="off"), scaling=ScalingPolicy(mode="advise"))
    plan = plan_for(observe(EVEN, "a", "b", "c", requested=2), policy)
    assert plan is not None
    assert plan.executors == ("a", "c")
    assert set(plan.owners(*KEY).values()) == {"a", "c"}


def test_moves_that_are_made_meanwhile_leave_the_request_for_executors_alone() -> None:
    plan = plan_for(observe(SKEWED, "a", "b", requested=4), SCALED, count=4)
    assert plan is not None
    assert plan.executors == ("a", "b", "+1", "+2")


def test_the_executor_with_the_least_state_goes_and_its_partitions_are_placed_elsewhere() -> None:
    plan = plan_for(observe(EVEN, "a", "b", "c"), SCALED, count=2)
    assert plan is not None
    assert plan.executors == ("a", "c")
    assert sorted(plan.owners(*KEY).values()) == ["a", "a", "a", "c", "c", "c"]


def test_hidden_state_counts_too_and_what_is_hidden_on_the_executor_that_goes_has_no_place() -> (
    None
):
    hidden = tuple(
        HiddenSample("q", 0, 1, executor, 1.0, size, 9.0)
        for executor, size in {"a": 0, "b": 900, "c": 100}.items()
    )
    shown = {p: home for p, home in EVEN.items() if p not in {3, 5}}
    observation = replace(observe(shown, "a", "b", "c"), hidden=hidden)
    plan = plan_for(observation, SCALED, count=2)
    assert plan is not None
    assert plan.executors == ("a", "b")
    assert plan.placement[KEY][:4] == (0, 0, 1, UNPLACED)
    assert plan.owners(*KEY)[4] in {"a", "b"}


def test_an_operator_all_of_whose_partitions_are_hidden_is_scaled() -> None:
    hidden = tuple(HiddenSample("q", 0, 1, executor, 1.0, 100, 9.0) for executor in "abc")
    plan = plan_for(replace(observe({}, "a", "b", "c"), hidden=hidden), SCALED, count=2)
    assert plan is not None
    assert (plan.executors, plan.placement) == (("b", "c"), {KEY: ()})


def test_partitions_leave_a_retiring_executor_even_where_balancing_only_advises() -> None:
    policy = Policy(balance=BalancePolicy(mode="advise"), scaling=ScalingPolicy(max_executors=9))
    plan = plan_for(observe(EVEN, "a", "b", "c"), policy, count=2)
    assert plan is not None
    assert set(plan.owners(*KEY).values()) == {"a", "c"}
    assert plan.owners(*KEY)[0] == "a"


def test_moves_under_way_stay_in_the_plan_and_get_no_company() -> None:
    observation = observe(SKEWED, "a", "b")
    assert plan_for(observation, Policy(), under_way={KEY: {2: "b"}}) is None
    plan = plan_for(observation, SCALED, count=3, under_way={KEY: {2: "b"}})
    assert plan is not None
    assert plan.owners(*KEY) == {0: "a", 1: "a", 2: "b", 3: "b", 4: "b", 5: "b"}


def test_executors_do_not_scale_without_a_limit() -> None:
    assert plan_for(observe(EVEN, "a", "b", "c"), Policy(), count=5) is None


def test_where_a_plan_has_no_room_for_more_keys_those_that_are_no_longer_hot_go_home() -> None:
    busy_s = (8.0, 1.0, 1.0, 1.0)
    tasks = tuple(
        TaskSample("q", 0, p, 1, "ab"[p % 2], s, 10, 100, 9.0) for p, s in enumerate(busy_s)
    )
    stays, goes = (KeySample("q", 0, key, 0, 1, s) for key, s in (('"a"', 4.0), ('"b"', 3.5)))
    observation = Observation(10.0, {"a": 1, "b": 1}, tasks, keys=(stays, goes))
    decision = decide(observation, Policy())
    assert [move.key for move in decision.key_moves(KEY)] == [goes.key]
    cold = [KeyPlacement("q", f'"c{n:04}"', 2) for n in range(MAX_KEY_PLACEMENTS)]
    routes = [KeyPlacement("q", stays.key, 0), *cold]
    plan = plan_of(observation, key_placements=tuple(routes))
    assert plan is not None
    (moved,) = decision.key_moves(KEY)
    assert plan.key_placements == (routes[0], KeyPlacement("q", goes.key, moved.target), *cold[2:])


def test_long_keys_take_the_room_of_a_plan_before_their_number_does() -> None:
    cold = [KeyPlacement("q", f'"{n:0200}"', 2) for n in range(MAX_KEY_PLACEMENTS)]
    observation = observe(SKEWED, "a", "b")
    plan = plan_of(observation, key_placements=tuple(cold))
    assert plan is not None
    assert len(plan.to_json()) > 0.99 * MAX_BYTES, "as many as there is room for"
    assert set(plan.key_placements) < set(cold)
    assert plan.owners(*KEY)[0] != plan.owners(*KEY)[1], "and partitions move all the same"


def test_placements_without_room_leave_out_the_operators_with_the_least_load() -> None:
    placement = {("q", operator): (0,) * 100_000 for operator in range(4)}
    plan = Plan(1, ("a",), placement)
    fitted = fit_plan(plan, [], {("q", 0): 1.0, ("q", 1): 9.0, ("q", 2): 2.0, ("q", 3): 3.0})
    assert set(fitted.placement) == {("q", 1), ("q", 3)}
    assert len(fitted.to_json()) <= MAX_BYTES


def test_a_refused_key_is_left_out_and_makes_no_plan_of_its_own() -> None:
    tasks = tuple(
        TaskSample("q", 0, p, 1, "ab"[p % 2], s, 10, 100, 9.0)
        for p, s in enumerate((8.0, 1.0, 1.0, 1.0))
    )
    keys = tuple(KeySample("q", 0, key, 0, 1, s) for key, s in (('"a"', 4.0), ('"b"', 3.5)))
    observation = Observation(10.0, {"a": 1, "b": 1}, tasks, keys=keys)
    decision = decide(observation, Policy())
    (moved,) = decision.key_moves(KEY)
    other = next(key.key for key in keys if key.key != moved.key)
    plan = plan_of(observation, refused_keys=frozenset({("q", moved.key)}))
    assert plan is not None
    assert [placed.key for placed in plan.key_placements] == [other]
    refused = frozenset({("q", moved.key), ("q", other)})
    carried = (KeyPlacement("q", moved.key, 3), KeyPlacement("q", '"z"', 1))
    assert plan_of(observation) is not None
    plan = plan_of(observation, key_placements=carried, refused_keys=refused, repeat=True)
    assert plan is not None
    assert plan.key_placements == (carried[1],)
    even = Observation(10.0, {"a": 1, "b": 1}, (), keys=())
    assert plan_of(even, refused_keys=refused) is None


def test_a_plan_is_made_again_though_nothing_changes_if_the_last_one_was_refused() -> None:
    observation = observe(EVEN, "a", "b", "c", requested=5)
    assert plan_for(observation, SCALED, count=5) is None
    again = replace(observation, in_force=PlanInForce(repeat=True))
    plan = plan_for(again, SCALED, count=5)
    assert plan is not None
    assert plan.executors == ("a", "b", "c", "+1", "+2")
    assert plan.owners(*KEY) == {p: executor for p, (executor, _) in EVEN.items()}
