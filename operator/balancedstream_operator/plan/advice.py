"""What the operator would do where it may only advise: pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from balancedstream.core.decisions import Decision
from balancedstream.core.policy import Policy
from balancedstream.core.samples import OperatorId


@dataclass(frozen=True, slots=True)
class Advice:
    """What the operator would do in mode Auto.

    Attributes:
        id: names it: the epoch of the plan that would carry it out, and which operators it moves
            and how many executors it wants; empty if there is none. Where partitions go to is no
            part of it, because that follows the load until it is carried out.
        reason: why, for people.
    """

    id: str = ""
    reason: str = ""


def advise(
    decision: Decision,
    policy: Policy,
    desired: int,
    next_epoch: int,
    moving: Collection[OperatorId] = (),
) -> Advice:
    """What a decision would change, where the mode is Advise.

    Args:
        decision: of the core.
        policy: of the stream; its two modes say what is advice only.
        desired: executors that the stream should have.
        next_epoch: of the plan that would carry it out.
        moving: operators whose last moves are still under way; nothing can be done about them now.
    """
    actions = []
    reasons = []
    if policy.balance.mode == "advise":
        for key in decision.balance:
            if key not in moving and decision.moves_any(key):
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
