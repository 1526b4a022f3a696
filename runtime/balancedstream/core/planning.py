"""From a decision to the next plan, the same embedded in the driver and in Kubernetes.

Our own design. A plan is complete: it says where every partition that is measured one by one must
run, also those that stay, and which executors there must be. Hidden partitions stay where they are;
the driver, which knows them all, places those of an executor that is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from balancedstream.core.balance.hotspots import describe_count
from balancedstream.core.decisions import Decision
from balancedstream.core.observations import Observation
from balancedstream.core.policy import MigrationPolicy
from balancedstream.core.samples import OperatorId
from balancedstream.core.scaling.standing import says_the_same
from balancedstream.core.wire.plan import (
    MAX_KEY_PLACEMENTS,
    UNPLACED,
    KeyPlacement,
    Plan,
    Standing,
)
from balancedstream.core.wire.strict_json import MAX_BYTES


def propose(
    epoch: int,
    observation: Observation,
    decision: Decision,
    spread: MigrationPolicy,
    standing: Standing | None = None,
) -> Plan | None:
    """The plan that writes down a decision; None if nothing changes, or no plan can be made.

    Args:
        epoch: of the plan.
        observation: that was decided on.
        decision: to write down.
        spread: of the policy.
        standing: what the driver may do by itself from then on.

    >>> from balancedstream.core.decisions import decide
    >>> from balancedstream.core.policy import Policy
    >>> from balancedstream.core.samples import TaskSample
    >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
    >>> observation = Observation(10.0, {"a": 1, "b": 1}, tasks)
    >>> plan = propose(1, observation, decide(observation, Policy()), MigrationPolicy())
    >>> plan.executors, plan.placement
    (('a', 'b'), {('q', 0): (1, 0, 0, 1)})
    """
    before, count = observation.in_force, len(decision.executors)
    # One that leaves may be lost before it has left; then Spark replaces it.
    sizes = count != observation.asked or count < len(observation.executors)
    renews = not says_the_same(standing, before.standing)
    if before.waits or not (sizes or decision.moving or before.repeat or renews):
        return None
    index = {executor: i for i, executor in enumerate(decision.executors)}
    partition_of = {
        (placed.query, placed.key): placed.partition for placed in before.key_placements
    }
    placement = {}
    for operator, load in decision.loads.items():
        partition_of |= {(operator[0], m.key): m.target for m in decision.key_moves(operator)}
        owners = {**load.placement, **before.under_way.get(operator, {})}
        owners |= {move.partition: move.target for move in decision.balance[operator].moves}
        placement[operator] = tuple(
            index.get(owners.get(partition, ""), UNPLACED)
            for partition in range(max(owners, default=-1) + 1)
        )
    plan = Plan(epoch, decision.executors, placement, budget_s=spread.budget_s, standing=standing)
    # Keys of unknown load, which are no longer hot, are dropped first.
    hot = {
        (operator[0], load.key) for operator, loads in decision.key_loads.items() for load in loads
    }
    latest = [place for place in reversed(partition_of) if place not in before.refused_keys]
    places = sorted(latest, key=lambda place: place not in hot)
    busy_s = {operator: sum(load.busy_s.values()) for operator, load in decision.loads.items()}
    return fit_plan(plan, [KeyPlacement(*place, partition_of[place]) for place in places], busy_s)


def leave_out(decision: Decision, plan: Plan | None) -> Decision:
    """A decision without the moves that its plan has no room for.

    >>> from balancedstream.core.decisions import decide
    >>> from balancedstream.core.policy import Policy
    >>> from balancedstream.core.samples import TaskSample
    >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
    >>> decision = decide(Observation(10.0, {"a": 1, "b": 1}, tasks), Policy())
    >>> leave_out(decision, Plan(1, ("a", "b"), {})).balance["q", 0].moves
    ()
    """
    if plan is None:
        return decision
    why = f"a plan has room for {MAX_BYTES // 1024} KiB"
    balance, keys, held = dict(decision.balance), dict(decision.keys), dict(decision.held)
    for operator in balance.keys() - plan.placement.keys():
        if balance[operator].moves:
            reason = f"no change: {why} ({balance[operator].reason})"
            balance[operator] = replace(balance[operator], moves=(), reason=reason)
            held[operator] = why
    placed = {(placement.query, placement.key) for placement in plan.key_placements}
    for operator, assignment in keys.items():
        kept = tuple(m for m in assignment.moves if (operator[0], m.key) in placed)
        if kept != assignment.moves:
            said = describe_count(len(kept), "key move") if kept else "no key moves"
            outcome = f"{said}: {why} ({assignment.outcome})"
            keys[operator] = replace(assignment, moves=kept, outcome=outcome)
            held[operator] = why
    return replace(decision, balance=balance, keys=keys, held=held)


def fit_plan(
    plan: Plan, places: Iterable[KeyPlacement], busy_s: Mapping[OperatorId, float]
) -> Plan:
    """The plan with as many key placements as it has room for, the most important first.

    If placements of partitions alone are too much, those of the operators with the least load are
    left out, so that their partitions stay where they are.

    >>> long = [KeyPlacement("q", f"{n:0100000}", 0) for n in range(9)]
    >>> len(fit_plan(Plan(1, ("a",), {("q", 0): (0,)}), long, {}).key_placements)
    5
    """
    placement = dict(plan.placement)
    while len(plan.write()) > MAX_BYTES and placement:
        del placement[min(placement, key=lambda operator: busy_s.get(operator, 0.0))]
        plan = replace(plan, placement=placement)
    room = MAX_BYTES - len(plan.write())
    kept: list[KeyPlacement] = []
    for place in places:
        # A comma stands between two of them.
        room -= len(place.write()) + 1
        if room < 0 or len(kept) == MAX_KEY_PLACEMENTS:
            break
        kept.append(place)
    return replace(plan, key_placements=tuple(kept))
