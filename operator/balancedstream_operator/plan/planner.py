"""Turns a measurement into the next plan, with the decision of the core: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

from balancedstream.core.decisions import Decision, decide, raise_minimum
from balancedstream.core.modes import switch_modes
from balancedstream.core.observations import Observation, PlanInForce
from balancedstream.core.past import Past
from balancedstream.core.periods import find_exclusion, find_floor
from balancedstream.core.planning import leave_out, propose
from balancedstream.core.policy import MigrationPolicy, Policy
from balancedstream.core.samples import OperatorId
from balancedstream.core.scaling.slots import list_unknown
from balancedstream.core.scaling.standing import prepare_standing
from balancedstream.core.scaling.workload import waits_for_data
from balancedstream.core.wire.plan import NEW_EXECUTOR, KeyPlacement, Plan, Standing, Stood
from balancedstream.core.wire.strict_json import MAX_BYTES
from balancedstream_operator.observe.floors import FloorAnswer
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.advice import Advice, advise
from balancedstream_operator.plan.record import Refusals

SETTLED_BATCHES = 2
"""Batches to wait for after a plan is applied; the first may have started before it."""


@dataclass(frozen=True, slots=True)
class DecisionInput:
    """The state that a decision starts from.

    Attributes:
        plan: the newest plan; None before the first.
        past: memory of earlier decisions.
        refusals: parts that plans must leave out, because the driver refused them.
        refused_s: age of the plan if the driver refused it; None if it did not.
        sizes: whether the operator owns the number of executors; false for a target that it never
            scaled.
        stood: executors that the driver has added by itself since the record was written.
    """

    plan: Plan | None
    past: Past
    refusals: Refusals = Refusals()  # noqa: RUF009 - frozen
    refused_s: float | None = None
    sizes: bool = True
    stood: Stood | None = None

    @property
    def desired(self) -> int:
        """Executors that the stream should have."""
        return self.past.requested or 0


@dataclass(frozen=True, slots=True)
class Demands:
    """The demands on a decision from outside the measurement.

    Attributes:
        excluded: why the operator may move and scale nothing now, for people; empty if it may.
        floor: the present minimum number of executors by schedule and query; 0 for none.
        floor_why: who demands it, for people.
        most: executors that the limits over all streams leave; None if they leave enough.
        most_why: the same for people.
        held: why the operator may write no plan, whatever the decision; empty if it may.
        alone: whether no limit over all streams holds, so that a driver may add executors itself.
        queried: answer of the stream's query.
    """

    excluded: str = ""
    floor: int = 0
    floor_why: str = ""
    most: int | None = None
    most_why: str = ""
    held: str = ""
    alone: bool = True
    queried: FloorAnswer = FloorAnswer()  # noqa: RUF009 - frozen


def find_demands(policy: Policy, queried: FloorAnswer, now_s: float) -> Demands:
    """The demands of a stream's schedule and query at a time.

    >>> find_demands(Policy(), FloorAnswer(3), 0.0).floor_why
    '3 by executors.minQuery'
    """
    schedule, least = policy.schedule, queried.executors
    floor = max(
        find_floor(schedule.floors, now_s),
        (least, f"{least} by executors.minQuery" if least else ""),
    )
    return Demands(find_exclusion(schedule.excluded, now_s), *floor, queried=queried)


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """A decision, and the plan that carries it out.

    Attributes:
        decision: of the core, limited to the changes of the plan.
        demands: on the decision.
        plan: a new plan; None if nothing changes.
        waits: why the operator makes no plan now, whatever the decision; empty if it may.
        left_out: the changes that the plan has no room for, for people; empty if it has room.
        advice: the changes that somebody may approve.
        approved: whether the plan carries out that advice.
    """

    decision: Decision
    demands: Demands
    plan: Plan | None = None
    waits: str = ""
    left_out: str = ""
    advice: Advice = Advice()  # noqa: RUF009 - frozen
    approved: bool = False

    @property
    def moves(self) -> list[str]:
        """Why partitions or keys move: a sentence for each operator that the plan changes."""
        decision = self.decision
        return [decision.describe_reason(operator) for operator in decision.moving]


def choose_plan(
    measurement: Measurement,
    policy: Policy,
    inputs: DecisionInput,
    next_epoch: int,
    *,
    approve: str = "",
    demands: Demands = Demands(),
) -> PlanChoice:
    """Decides on a measurement, and makes the plan that carries the decision out.

    Args:
        measurement: of the stream.
        policy: of the stream.
        inputs: the state to start from.
        next_epoch: epoch of a new plan.
        approve: id of the advice to carry out if the policy only advises; empty for none.
        demands: on the decision.
    """
    policy = _leave_to_others(raise_minimum(policy, demands.floor), demands.most)
    if inputs.sizes:
        policy = _within_limits(policy, inputs.desired)
    observation = _observe(measurement, inputs, demands)
    decision = _decide(observation, policy, demands)
    waits = observation.in_force.waits
    if waits:
        plan = _withdraw(inputs, next_epoch) if demands.held else None
        return PlanChoice(decision, demands, plan, waits=waits)
    acting = switch_modes(policy, "advise", "auto")
    free = decision if acting == policy else _decide(observation, acting, demands)
    advice = advise(decision, free, policy, inputs.desired, next_epoch)
    approved = bool(advice.id) and advice.id == approve
    if approved:
        decision = free
    plain = inputs.refusals.plain
    spread = MigrationPolicy() if plain else policy.migration
    standing = None if plain else _prepare_standing(observation, decision, policy, demands)
    plan = propose(next_epoch, observation, decision, spread, standing)
    if plan is None:
        return PlanChoice(decision, demands, advice=advice)
    decision = leave_out(decision, plan)
    if not inputs.sizes and len(plan.executors) == inputs.desired:
        plan = replace(plan, sizes=False)
    left_out = _describe_left_out(plan, observation.in_force.key_placements, decision)
    choice = PlanChoice(decision, demands, plan, left_out=left_out)
    # Other advice is for the plan after this one, and would have to name its epoch.
    return replace(choice, advice=advice, approved=True) if approved else choice


def _prepare_standing(
    observation: Observation, decision: Decision, policy: Policy, demands: Demands
) -> Standing | None:
    if demands.excluded or not demands.alone or not observation.executors:
        return None
    return prepare_standing(observation, decision.scaling, policy)


def _withdraw(inputs: DecisionInput, epoch: int) -> Plan | None:
    """The same plan, under which the driver adds no executors by itself; None if it adds none.

    Those that it has added stay.
    """
    plan = inputs.plan
    if plan is None or plan.standing is None:
        return None
    free = (f"{NEW_EXECUTOR}{n}" for n in count(1))
    names = (name for name in free if name not in plan.executors)
    added = tuple(islice(names, max(0, inputs.desired - len(plan.executors))))
    return replace(plan, epoch=epoch, executors=plan.executors + added, standing=None)


def _decide(observation: Observation, policy: Policy, demands: Demands) -> Decision:
    decision = decide(observation, policy)
    if not demands.most_why:
        return decision
    reason = f"{decision.scaling.reason}; {demands.most_why}"
    return replace(decision, scaling=replace(decision.scaling, reason=reason))


def _observe(measurement: Measurement, inputs: DecisionInput, demands: Demands) -> Observation:
    refusals, plan = inputs.refusals, inputs.plan
    refused_keys = {(key.query, key.key) for key in measurement.keys} if refusals.all_keys else ()
    placed = plan.key_placements if plan and not refusals.all_keys else ()
    # A driver starts with the minimum of that time. Or it follows a plan that was lost since.
    unsaid = len(measurement.executors) != inputs.desired or measurement.epoch > 0
    started = bool(measurement.finished_s or measurement.idle_s)
    in_force = PlanInForce(
        # A refused plan has moved nothing.
        under_way={} if inputs.refused_s is not None else _list_under_way(measurement, plan),
        settling=frozenset(query for query, n in measurement.keys_under_way.items() if n),
        key_placements=tuple(p for p in placed if (p.query, p.key) not in refusals.keys),
        refused_keys=frozenset(refusals.keys).union(refused_keys),
        repeat=inputs.refused_s is not None or (unsaid and plan is None and started),
        waits=demands.held or _why_wait(measurement, inputs),
        standing=plan.standing if plan else None,
        stood=inputs.stood is not None,
    )
    observation = Observation(
        # The operator knows nothing about the time after the newest scrape.
        now_s=measurement.scraped_s,
        executors=measurement.executors,
        # Without executors there is nothing to balance, but the core still decides their number.
        tasks=measurement.tasks if measurement.executors else (),
        batches=measurement.batches,
        restore_cost=measurement.restore_cost,
        requested=inputs.desired,
        keys=measurement.keys,
        stages=measurement.stages,
        idle_s=measurement.idle_s,
        running=tuple(measurement.last_batches),
        hidden=measurement.hidden if measurement.executors else (),
        prepared=measurement.prepared,
        excluded=demands.excluded,
        floor=demands.floor,
        floor_why=demands.floor_why,
        in_force=in_force,
        holders=measurement.holders,
        bounded=tuple(plan.standing.bound(0)) if plan and plan.standing else (),
        memory=measurement.memory,
    )
    return inputs.past.recall(observation)


def _describe_left_out(plan: Plan, placed: Sequence[KeyPlacement], decision: Decision) -> str:
    known = {(placement.query, placement.key) for placement in plan.key_placements}
    keys = sum((placement.query, placement.key) not in known for placement in placed)
    operators = len(decision.loads.keys() - plan.placement.keys())
    counts = [(keys, "keys that are not hot go back"), (operators, "operators stay as they are")]
    said = " and ".join(f"{count} {what}" for count, what in counts if count)
    return f"{said}, because a plan has room for {MAX_BYTES // 1024} KiB" if said else ""


def _leave_to_others(policy: Policy, most: int | None) -> Policy:
    """The policy within the limits over all streams, which even the stream's minimum obeys."""
    scaling = policy.scaling
    if most is None or most >= scaling.max_executors:
        return policy
    least = min(scaling.min_executors, most)
    return replace(policy, scaling=replace(scaling, min_executors=least, max_executors=most))


def _within_limits(policy: Policy, desired: int) -> Policy:
    """Limits hold in every mode: the number stays within them even if scaling only advises."""
    scaling = policy.scaling
    count = min(max(desired, scaling.min_executors), scaling.max_executors)
    if scaling.mode == "auto" or count == desired:
        return policy
    fixed = replace(scaling, mode="auto", min_executors=count, max_executors=count)
    return replace(policy, scaling=fixed)


def _why_wait(measurement: Measurement, inputs: DecisionInput) -> str:
    plan = inputs.plan
    if unknown := list_unknown(measurement.holders):
        return (
            f"query {unknown[0]} runs in Real-Time Mode, and how many slots it needs is known when "
            "its next batch begins"
        )
    if plan is None:
        return ""
    if inputs.refused_s is not None:
        wait_s = inputs.refusals.pause_s - inputs.refused_s
        return f"the driver refused plan {plan.epoch}; a next one waits" if wait_s > 0 else ""
    if measurement.epoch < plan.epoch:
        return f"plan {plan.epoch} is not applied yet"
    if not inputs.past.moved:
        return ""
    for query, batch in inputs.past.planned_after.items():
        done = measurement.last_batches.get(query)
        if waits_for_data(query, measurement.idle_s, measurement.scraped_s):
            # The next batch may take any time to come.
            continue
        # A lower number than before means that the query was restarted.
        if done is not None and batch <= done < batch + SETTLED_BATCHES:
            return f"plan {plan.epoch} is visible from batch {batch + SETTLED_BATCHES} of {query}"
    return ""


def _list_under_way(
    measurement: Measurement, plan: Plan | None
) -> dict[OperatorId, dict[int, str]]:
    """Operators with unfinished moves, and the executor of each partition in the last plan.

    Only the driver knows the id of an executor that the plan starts: its partitions get no place in
    the next plan, and go on to where they move.
    """
    if plan is None:
        return {}
    return {
        key: {p: "" if o.startswith(NEW_EXECUTOR) else o for p, o in plan.owners(*key).items()}
        for key, count in measurement.under_way.items()
        if count
    }
