"""From a decision to the next plan, the same embedded in the driver and in Kubernetes.

Our own design. A plan is complete: it says where every partition that is measured one by one must
run, also those that stay, and which executors there must be. Hidden partitions stay where they are;
the driver, which knows them all, places those of an executor that is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from balancedstream.core.balance.loads import OperatorLoad
from balancedstream.core.decisions import Decision, decide
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy
from balancedstream.core.samples import OperatorId
from balancedstream.core.wire.plan import (
    MAX_KEY_PLACEMENTS,
    NEW_EXECUTOR,
    UNPLACED,
    KeyPlacement,
    Plan,
)
from balancedstream.core.wire.strict_json import MAX_BYTES


def propose(
    epoch: int,
    observation: Observation,
    decision: Decision,
    policy: Policy,
    *,
    wanted: Mapping[OperatorId, Mapping[int, str]] | None = None,
    key_placements: Iterable[KeyPlacement] = (),
    settling: Collection[str] = (),
    refused: Collection[tuple[str, str]] = (),
    again: bool = False,
) -> Plan | None:
    """The plan that realizes a decision; None if nothing changes.

    The executors with the least state are removed; the same plan places their partitions on the
    others, as far as it knows them. A plan that asks for executors says what they get. If they do
    not come, later plans share the load among those that there are.

    Args:
        epoch: of the new plan.
        observation: the input of the decision.
        decision: what `decide` returned.
        policy: the policy of the decision.
        wanted: operators whose last moves are still under way, with the target executor of each
            moving partition; they get no new moves.
        key_placements: of the plan before. A key keeps its place until it gets another one, or
            until a plan has no more room and the key is no longer hot.
        settling: queries with keys that have not arrived yet; they get no new key placements.
        refused: (query, key) of keys that the driver cannot place; the plan leaves them out.
        again: whether to make a plan even if nothing changes: the last one was refused, or the
            driver does not know how many executors there should be.

    >>> from balancedstream.core.samples import TaskSample
    >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
    >>> observation = Observation(10.0, {"a": 1, "b": 1}, tasks)
    >>> plan = propose(1, observation, decide(observation, Policy()), Policy())
    >>> plan.executors, plan.placement
    (('a', 'b'), {('q', 0): (1, 0, 0, 1)})
    """
    wanted = wanted or {}
    live = sorted(observation.executors)
    count = decision.scaling.executors if policy.scaling.acts else observation.asked
    # One that leaves may be lost before it has left; then Spark replaces it.
    acts = again or count != observation.asked or len(live) > count
    victims = choose_victims(decision.loads, live, len(live) - count) if acts else []
    if victims:
        live = [executor for executor in live if executor not in victims]
        staying = {executor: observation.executors[executor] for executor in live}
        decision = decide(replace(observation, executors=staying), policy)
    new = [f"{NEW_EXECUTOR}{n}" for n in range(1, count - len(live) + 1)]
    if live and count > observation.asked:
        # What they get is decided now: it can move as soon as they join.
        coming = dict.fromkeys(new, max(observation.executors.values()))
        executors_then = {**observation.executors, **coming}
        decision = decide(replace(observation, executors=executors_then), policy)
    executors = (*live, *new)
    index = {executor: i for i, executor in enumerate(executors)}
    # These were decided on the loads after key moves that are not made.
    void = {
        operator
        for operator, found in decision.keys.items()
        if found.moves and operator[0] in settling
    }
    partition_of = {(placed.query, placed.key): placed.partition for placed in key_placements}
    for operator, assignment in decision.keys.items():
        if policy.balance.mode == "auto" and operator[0] not in settling and operator not in wanted:
            moves = [move for move in assignment.moves if (operator[0], move.key) not in refused]
            acts = acts or bool(moves)
            partition_of |= {(operator[0], move.key): move.target for move in moves}
    owners_of = {
        operator: {**load.placement, **wanted.get(operator, {})}
        for operator, load in decision.loads.items()
    }
    moves_of = {}
    for operator, balance in decision.balance.items():
        balances = policy.balance.mode == "auto" and operator not in wanted and operator not in void
        # The partitions of a removed executor must go, even without balancing.
        moves_of[operator] = [
            move
            for move in balance.moves
            if balances or owners_of[operator][move.partition] in victims
        ]
    if not acts and not any(moves_of.values()):
        return None
    placement = {}
    for operator, owners in owners_of.items():
        owners |= {move.partition: move.target for move in moves_of[operator]}
        placement[operator] = tuple(
            index.get(owners.get(partition, ""), UNPLACED)
            for partition in range(max(owners, default=-1) + 1)
        )
    plan = Plan(epoch, executors, placement, budget_s=policy.migration.budget_s)
    # Keys of unknown load, which are no longer hot, are dropped first.
    hot = {
        (operator[0], load.key) for operator, loads in decision.key_loads.items() for load in loads
    }
    latest = [place for place in reversed(partition_of) if place not in refused]
    places = sorted(latest, key=lambda place: place not in hot)
    busy_s = {operator: sum(load.busy_s.values()) for operator, load in decision.loads.items()}
    return fit_plan(plan, [KeyPlacement(*place, partition_of[place]) for place in places], busy_s)


def fit_plan(
    plan: Plan, places: Iterable[KeyPlacement], busy_s: Mapping[OperatorId, float]
) -> Plan:
    """The plan with as many key placements as it has room for.

    If placements of partitions alone are too much, those of the operators with the least load are
    left out, so that their partitions stay where they are.

    Args:
        plan: without key placements.
        places: of keys, the most important first.
        busy_s: seconds of each operator.

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


def choose_victims(
    loads: Mapping[OperatorId, OperatorLoad], executors: Collection[str], count: int
) -> list[str]:
    """The `count` executors with the least state, hidden or not; none if `count` is below 1.

    >>> load = OperatorLoad((1,), {}, {}, {0: 90, 1: 10}, {0: "a", 1: "b"}, {})
    >>> choose_victims({("q", 0): load}, ["a", "b"], 1)
    ['b']
    """
    state_bytes = dict.fromkeys(executors, 0)
    for load in loads.values():
        for partition, executor in load.placement.items():
            if executor in state_bytes:
                state_bytes[executor] += load.state_bytes.get(partition, 0)
        for executor, size in load.hidden_state_bytes.items():
            if executor in state_bytes:
                state_bytes[executor] += size
    return sorted(state_bytes, key=lambda e: (state_bytes[e], e))[: max(0, count)]
