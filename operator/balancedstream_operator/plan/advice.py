"""Describes the changes that the operator would make if it could do more than advise: pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from balancedstream.core.decisions import Decision
from balancedstream.core.policy import Policy


@dataclass(frozen=True, slots=True)
class Advice:
    """The changes that the operator would make in mode Auto.

    Attributes:
        id: identifies the advice: the epoch of the plan that would carry it out, and a hash of the
            operators to move and the number of executors. It leaves out the targets of the moves,
            which follow the load until then. Empty if there is no advice.
        reason: the changes and their reasons, for people.
    """

    id: str = ""
    reason: str = ""


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
