"""In an excluded period nothing moves or scales but what a loss makes necessary; floors hold."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.decisions import decide, raise_minimum
from balancedstream.core.observations import Observation, parse_observation
from balancedstream.core.planning import propose
from balancedstream.core.policy import BalancePolicy, MigrationPolicy, Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, KeySample, StageSample, TaskSample

KEY = ("q", 0)
UNTIL = "excluded until 18:00 Europe/Berlin"
BATCHES = 12
INTERVAL_S = 30.0
POLICY = Policy(
    balance=BalancePolicy(act_above=1.0),
    scaling=ScalingPolicy(min_executors=2, max_executors=8),
)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Any load on some executors, of which one may be new and one may be gone."""
    live = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    places = st.sampled_from([*live, "gone"] if draw(st.booleans()) else live)
    shares = draw(st.lists(st.tuples(places, st.floats(0.0, 30.0)), min_size=1, max_size=10))
    newest = BATCHES * INTERVAL_S
    tasks = tuple(
        TaskSample("q", 0, p, batch, executor, busy_s, 10, 1000 * p, batch * INTERVAL_S)
        for batch in (BATCHES - 2, BATCHES - 1, BATCHES)
        for p, (executor, busy_s) in enumerate(shares)
    )
    busy_s = {e: sum(s for at, s in shares if at == e) for e in {e for e, _ in shares}}
    longest_s = max(busy_s.values())
    batches = tuple(
        BatchSample("q", n, n * INTERVAL_S, longest_s, 800, INTERVAL_S)
        for n in range(1, BATCHES + 1)
    )
    stages = tuple(
        StageSample("q", n, "stateful", n * INTERVAL_S, len(shares), longest_s, busy_s)
        for n in (BATCHES - 2, BATCHES - 1, BATCHES)
    )
    keys = (KeySample("q", 0, '"de"', 0, BATCHES, shares[0][1] / 2),)
    return Observation(
        now_s=newest + draw(st.floats(0.0, 30.0)),
        executors=dict.fromkeys(live, 1),
        tasks=tasks,
        batches=batches,
        stages=stages,
        requested=draw(st.none() | st.integers(1, 8)),
        last_scaled_s=draw(st.none() | st.floats(0.0, newest)),
        keys=keys if draw(st.booleans()) else (),
    )


@given(observations())
@settings(max_examples=200, deadline=None)
def test_only_what_a_loss_makes_necessary_happens(observation: Observation) -> None:
    held = replace(observation, excluded=UNTIL)
    free, decision = decide(observation, POLICY), decide(held, POLICY)
    assert decision.scaling.executors == observation.asked
    assert decision.scaling.scale_out is None
    assert decision.scaling.reason.startswith(f"no change: {UNTIL} (")
    assert not decision.keys
    busy = {task.executor for task in observation.tasks if task.batch == BATCHES}
    for operator, found in decision.balance.items():
        urgent = f"{len(found.moves)} move{'s' * (len(found.moves) > 1)} that cannot wait"
        said = urgent if found.moves else "no change"
        assert found.reason.startswith(f"{said}: {UNTIL} (")
        for move in found.moves:
            assert move.source not in decision.executors or move.target not in busy
        # What had no executor has one.
        orphans = {
            p for p, e in free.loads[operator].placement.items() if e not in observation.executors
        }
        assert orphans <= {move.partition for move in found.moves}
    plan = propose(1, held, decision, POLICY.migration)
    if plan is not None and "gone" not in busy and observation.executors.keys() <= busy:
        # Only executors that were asked for before the period, or that leave, are in question.
        assert len(plan.executors) == observation.asked
        assert observation.asked < len(observation.executors)


@given(observations(), st.integers(0, 20))
@settings(max_examples=150, deadline=None)
def test_a_floor_raises_the_minimum_and_nothing_else(observation: Observation, floor: int) -> None:
    raised = replace(observation, floor=floor, floor_why=f"{floor} until 18:00")
    decision, plain = decide(raised, POLICY), decide(observation, POLICY)
    assert 2 <= decision.scaling.executors <= 8
    assert decision.scaling.executors >= min(floor, 8)
    if plain.scaling.executors >= floor:
        assert decision.scaling.executors >= min(plain.scaling.executors, observation.asked)
    assert decision.scaling.reason.endswith(f"; at least {floor} until 18:00")
    assert (decision.loads, decision.imbalance) == (plain.loads, plain.imbalance)
    if decision.executors == plain.executors:
        assert decision.balance == plain.balance


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 20))
def test_no_floor_is_above_the_maximum_or_below_the_minimum(
    least: int, more: int, floor: int
) -> None:
    policy = Policy(scaling=ScalingPolicy(min_executors=least, max_executors=least + more))
    raised = raise_minimum(policy, floor).scaling
    assert raised.min_executors == min(max(least, floor), least + more)
    assert raised.max_executors == least + more


def test_without_a_maximum_no_floor_scales() -> None:
    assert raise_minimum(Policy(), 9) == Policy()


def test_an_executor_that_takes_the_place_of_a_lost_one_gets_its_share() -> None:
    tasks = tuple(TaskSample("q", 0, p, 1, "ab"[p % 2], 1.0, 5, 0, 9.0) for p in range(8))
    observation = Observation(10.0, {"a": 1, "b": 1, "new": 1}, tasks, excluded=UNTIL)
    decision = decide(observation, Policy())
    assert {move.target for move in decision.balance[KEY].moves} == {"new"}
    plan = propose(1, observation, decision, MigrationPolicy())
    assert plan is not None
    assert sorted(plan.owners(*KEY).values()) == ["a"] * 3 + ["b"] * 3 + ["new"] * 2


def test_an_observation_keeps_why_nothing_may_change_and_who_asks_for_more() -> None:
    observation = Observation(10.0, {"a": 1}, excluded=UNTIL, floor=3, floor_why="3 until 18:00")
    assert parse_observation(observation.to_json()) == observation
