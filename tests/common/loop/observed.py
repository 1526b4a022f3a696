"""Generated observations and policies, and what has to hold of decisions on them."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from balancedstream.core.decisions import Decision
from balancedstream.core.memory.use import ExecutorMemory, Memory, MemoryLimits, StateReads
from balancedstream.core.observations import Observation, PlanInForce
from balancedstream.core.policy import BalancePolicy, Policy, ScalingPolicy
from balancedstream.core.samples import (
    BatchSample,
    HiddenSample,
    KeySample,
    OperatorId,
    StageSample,
    TaskSample,
)
from balancedstream.core.wire.plan import KeyPlacement, Plan

BATCHES = 12
INTERVAL_S = 13.0
OPERATORS = (("q", 0), ("q", 1), ("r", 0))
KEYS = ('"de"', '"fr"', '"it"')


def observe_a_scale_out() -> Observation:
    """Two executors that are too few, whose loads differ a little."""
    cost_s = {0: 2.2, 2: 2.2}
    numbers = range(1, 8)
    tasks = tuple(
        TaskSample("q", 0, p, b, f"e{p % 2}", cost_s.get(p, 1.1), 50, 1000, 13.0 * b)
        for b in numbers
        for p in range(16)
    )
    batches = tuple(BatchSample("q", b, 13.0 * b, 13.0, 800, 13.0, 0.0, 8.0) for b in numbers)
    stages = tuple(
        StageSample("q", b, "stateful", 13.0 * b, 16, 2.2, {"e0": 11.0, "e1": 8.8}) for b in numbers
    )
    return Observation(92.0, {"e0": 1, "e1": 1}, tasks, batches, stages=stages)


@st.composite
def memories(draw: st.DrawFn, executors: list[str]) -> Memory:
    """Any memory of these executors, with limits near it, and how state is read."""
    sizes = st.integers(0, 3 * 1024).map(lambda mib: mib * 1024.0**2)
    known = draw(st.lists(st.sampled_from(executors), unique=True))
    use = tuple(ExecutorMemory(e, *draw(st.tuples(*[sizes] * 6))) for e in known)
    reads = st.floats(0.0, 1.0)
    slow = draw(st.lists(st.tuples(*[reads] * 3, *[st.floats(0.0, 20.0)] * 2), max_size=1))
    growth = draw(st.none() | st.floats(0.0, 1e6))
    limits = MemoryLimits(*draw(st.tuples(*[sizes] * 3)))
    return Memory(use, limits, tuple(StateReads("q", 0, *values) for values in slow), growth)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Any load of some operators on some executors, and what a plan before them left to do."""
    live = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    places = st.sampled_from([*live, "gone"] if draw(st.booleans()) else live)
    numbers = (BATCHES - 2, BATCHES - 1, BATCHES)
    tasks: list[TaskSample] = []
    hidden: list[HiddenSample] = []
    keys: list[KeySample] = []
    under_way = {}
    level_s = draw(st.sampled_from([0.3, 1.0, 3.0]))
    for query, operator in draw(st.sets(st.sampled_from(OPERATORS), min_size=1)):
        shares = draw(
            st.lists(st.tuples(places, st.floats(0.0, 3 * level_s)), min_size=1, max_size=9)
        )
        tasks += [
            TaskSample(query, operator, p, batch, place, busy_s, 10, 1000 * p, batch * INTERVAL_S)
            for batch in numbers
            for p, (place, busy_s) in enumerate(shares)
        ]
        if draw(st.booleans()):
            hidden += [
                HiddenSample(query, operator, n, draw(places), level_s, 900, n * INTERVAL_S)
                for n in numbers
            ]
        # A query has one operator whose keys can move.
        hot = 0 if operator else draw(st.integers(0, len(KEYS)))
        keys += [
            KeySample(query, operator, key, 0, BATCHES, shares[0][1] / (n + 2))
            for n, key in enumerate(KEYS[:hot])
        ]
        if draw(st.integers(0, 3)) == 0:
            targets = st.sampled_from([*live, ""])
            under_way[query, operator] = draw(
                st.dictionaries(st.integers(0, len(shares) - 1), targets, max_size=3)
            )
    longest_s = sum(task.busy_s for task in tasks) / len(numbers) / len(live)
    busy_s = dict.fromkeys(live, longest_s)
    queries = {task.query for task in tasks}
    samples = tuple(
        BatchSample(query, n, n * INTERVAL_S, min(longest_s + 1.0, INTERVAL_S), 800, INTERVAL_S)
        for query in sorted(queries)
        for n in range(1, BATCHES + 1)
    )
    stages = tuple(
        StageSample(query, n, "stateful", n * INTERVAL_S, 9, longest_s / 4, busy_s)
        for query in sorted(queries)
        for n in numbers
    )
    places_of_keys = st.tuples(st.sampled_from("qr"), st.sampled_from([*KEYS, '"x"']))
    placed = draw(st.dictionaries(places_of_keys, st.integers(0, 8), max_size=3))
    in_force = PlanInForce(
        under_way,
        settling=draw(st.frozensets(st.sampled_from("qr"), max_size=1)),
        key_placements=tuple(KeyPlacement(*place, target) for place, target in placed.items()),
        refused_keys=draw(st.frozensets(places_of_keys, max_size=2)),
        repeat=draw(st.booleans()),
        waits=draw(st.sampled_from(["", "", "", "plan 3 is not applied yet"])),
    )
    floor = draw(st.sampled_from([0, 0, 5]))
    return Observation(
        now_s=BATCHES * INTERVAL_S + draw(st.floats(0.0, 13.0)),
        executors=dict.fromkeys(live, draw(st.sampled_from([1, 2]))),
        tasks=tuple(tasks),
        batches=samples,
        stages=stages,
        requested=draw(st.none() | st.integers(1, 8)),
        last_scaled_s=draw(st.none() | st.floats(0.0, 150.0)),
        keys=tuple(keys),
        hidden=tuple(hidden),
        excluded=draw(st.sampled_from(["", "", "", "excluded until 18:00"])),
        floor=floor,
        floor_why=f"{floor} until 18:00" if floor else "",
        in_force=in_force,
        memory=draw(memories(live)),
    )


MODES = st.sampled_from(["auto", "auto", "advise", "off"])
POLICIES = st.builds(
    Policy,
    st.builds(BalancePolicy, mode=MODES, act_above=st.sampled_from([1.0, 1.1])),
    scaling=st.builds(
        ScalingPolicy,
        mode=MODES,
        min_executors=st.integers(1, 2),
        max_executors=st.sampled_from([0, 2, 3, 8]),
        latency_objective_s=st.sampled_from([0.0, 30.0]),
    ),
)


def list_moved(seen: Observation, decision: Decision, plan: Plan, operator: OperatorId) -> set[int]:
    """Partitions that a plan places elsewhere than where they run or are on their way to."""
    under_way = seen.in_force.under_way.get(operator, {})
    before = {**decision.loads[operator].placement, **under_way}
    return {p for p, owner in plan.owners(*operator).items() if before.get(p) != owner}


def check_plan(seen: Observation, decision: Decision, plan: Plan | None) -> None:
    """What a decision says is what a plan does, or says that it does not."""
    if plan is None:
        assert not decision.moving
    for operator, found in decision.balance.items():
        keys = decision.key_moves(operator)
        said = decision.describe_reason(operator)
        counts = [int(count) for count in re.findall(r"(?:^|; )(\d+) moves?\b", said)]
        key_counts = [int(count) for count in re.findall(r"^(\d+) key moves?\b", said)]
        assert counts == ([len(found.moves)] if found.moves else [])
        assert key_counts == ([len(keys)] if keys else [])
        if plan is None:
            continue
        targets = {move.partition: move.target for move in found.moves}
        assert list_moved(seen, decision, plan, operator) == targets.keys()
        owners = plan.owners(*operator)
        assert {p: owners[p] for p in targets} == targets
        placed = {(p.query, p.key): p.partition for p in plan.key_placements}
        assert {move.key: placed.get((operator[0], move.key)) for move in keys} == {
            move.key: move.target for move in keys
        }
    carried = {(p.query, p.key) for p in seen.in_force.key_placements}
    moved = {
        (operator[0], move.key)
        for operator in decision.balance
        for move in decision.key_moves(operator)
    }
    if plan is not None:
        assert plan.executors == decision.executors
        assert {(p.query, p.key) for p in plan.key_placements} == (
            (carried | moved) - seen.in_force.refused_keys
        )
