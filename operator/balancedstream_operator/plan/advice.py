"""Describes the changes that the operator would make if it could do more than advise: pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from balancedstream.core.decisions import Decision
from balancedstream.core.policy import Policy
from balancedstream.core.samples import OperatorId


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
    decision: Decision,
    policy: Policy,
    desired: int,
    next_epoch: int,
    under_way: Collection[OperatorId] = (),
) -> Advice:
    """The changes of a decision that the mode Advise holds back.

    Args:
        decision: the core's decision.
        policy: the stream's policy; its modes say whether moves and scaling are only advice.
        desired: number of executors that the stream should have.
        next_epoch: epoch of the plan that would carry the advice out.
        under_way: operators with moves that are still under way; the advice leaves them out.
    """
    actions = []
    reasons = []
    if policy.balance.mode == "advise":
        for key in decision.balance:
            if key not in under_way and decision.moves_any(key):
                actions.append(f"move {key}")
                query, operator = key
                why = f"query {query}, operator {operator}: {decision.say_why(key)}"
                reasons.append(f"would move: {why}")
    if policy.scaling.mode == "advise" and decision.scaling.executors != desired:
        actions.append(f"scale {decision.scaling.executors}")
        reasons.append(f"would scale: {decision.scaling.reason}")
    if not actions:
        return Advice()
    digest = hashlib.sha256("\n".join(sorted(actions)).encode()).hexdigest()[:6]
    return Advice(f"{next_epoch}-{digest}", "; ".join(reasons))
