"""Describes the changes that the operator would make if it could do more than advise: pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from balancedstream.core.decisions import Decision
from balancedstream.core.policy import Policy
from balancedstream.core.repartition import estimate_duration_s
from balancedstream.core.scaling.partitions import propose_partitions
from balancedstream.core.scaling.verdicts import Verdict
from balancedstream_operator.api.spec import MAX_PARTITIONS, StreamSpec
from balancedstream_operator.observe.measurement import Measurement

RESTART_S = 60.0
"""What a driver takes about to stop and to start again, beside the work on the state."""

_FEW = {Verdict.PARTITION_BOUND, Verdict.UNSPLITTABLE}
"""Verdicts of which more state partitions may be the cure."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The changes that the operator would make in mode Auto.

    Attributes:
        id: identifies the advice: the epoch of the plan that would carry it out, and a hash of the
            operators to move and the number of executors. It leaves out the targets of the moves,
            which follow the load until then. Empty if there is no advice.
        reason: the changes and their reasons, for people.
        stands_s: for about so long the stream would stand still.
    """

    id: str = ""
    reason: str = ""
    stands_s: float = 0.0


def advise(
    decision: Decision, free: Decision, policy: Policy, requested: int, next_epoch: int
) -> Advice:
    """The changes that mode Auto would make beyond those that mode Advise makes.

    Args:
        decision: the core's decision under the stream's policy.
        free: the core's decision if the policy's modes were Auto instead of Advise.
        policy: the stream's policy; its modes say whether moves and scaling are only advice.
        requested: number of executors that the stream should have.
        next_epoch: epoch of the plan that would carry the advice out.
    """
    actions = []
    reasons = []
    if policy.balance.mode == "advise":
        for query, operator in free.balance:
            then = free.list_moves((query, operator))
            if then and then != decision.list_moves((query, operator)):
                actions.append(f"move {(query, operator)}")
                why = free.describe_reason((query, operator))
                reasons.append(f"would move: query {query}, operator {operator}: {why}")
    if policy.scaling.mode == "advise" and free.scaling.executors != requested:
        actions.append(f"scale {free.scaling.executors}")
        reasons.append(f"would scale: {free.scaling.reason}")
    if not actions:
        return Advice()
    digest = hashlib.sha256("\n".join(sorted(actions)).encode()).hexdigest()[:6]
    return Advice(f"{next_epoch}-{digest}", "; ".join(reasons))


def name_partitions(partitions: int) -> str:
    """Id of the advice to have so many state partitions.

    >>> name_partitions(96)
    'partitions-96'
    """
    return f"partitions-{partitions}"


def read_partitions(advice: str) -> int:
    """The number of state partitions that such an id names.

    >>> read_partitions(name_partitions(96))
    96
    """
    return int(advice.rpartition("-")[2])


def advise_partitions(
    decision: Decision, measurement: Measurement, spec: StreamSpec, present: int
) -> Advice:
    """More state partitions, where they limit the stream; what they bring, and what they cost."""
    verdict = decision.scaling.verdict
    if verdict not in _FEW or spec.target_ref is not None or spec.checkpoints.claim is None:
        return Advice()
    cores = spec.executors.max * spec.executors.cores
    more = propose_partitions(decision.scaling.demands, present, cores, MAX_PARTITIONS)
    if more is None:
        return Advice()
    sizes = {(t.query, t.operator, t.partition): t.state_bytes for t in measurement.tasks}
    stores = len({(query, operator) for query, operator, _ in sizes})
    stands_s = RESTART_S + estimate_duration_s(
        sum(sizes.values()), stores, present, more.partitions
    )
    at_best = " at best" if verdict is Verdict.UNSPLITTABLE else ""
    return Advice(
        name_partitions(more.partitions),
        f"would write the state anew for {more.partitions} state partitions instead of {present}: "
        f"a batch of query {more.query} on {spec.executors.max} executors would take "
        f"{more.after_s:.1f} instead of {more.before_s:.1f} s{at_best}; the stream would stand "
        f"still for about {stands_s:.0f} s",
        stands_s,
    )
