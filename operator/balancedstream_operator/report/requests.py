"""Reports the requests of people: pauses, approvals and excluded periods; pure."""

from __future__ import annotations

from balancedstream.core.periods import find_exclusion
from balancedstream.core.policy import Policy
from balancedstream_operator.api.annotations import PAUSED_ANNOTATION
from balancedstream_operator.api.conditions import EXCLUDED, PAUSED, Condition
from balancedstream_operator.api.status import AnsweredApproval, format_time, summarize
from balancedstream_operator.reconcile.outcome import Approval


def judge_pause(paused: str) -> Condition:
    """Whether somebody paused the stream."""
    if not paused:
        return Condition(PAUSED, False, "NotPaused", "nobody paused this stream")
    message = (
        f"somebody {describe_pause(paused, 'paused this stream')}: its pods run on, and nothing is "
        f"moved, added or removed until annotation {PAUSED_ANNOTATION} is gone"
    )
    return Condition(PAUSED, True, "Asked", message)


def describe_pause(paused: str, said: str = "paused") -> str:
    """The words for a paused stream, with the reason that somebody gave.

    >>> describe_pause("true"), describe_pause("upgrade of Kafka")
    ('paused', 'paused (upgrade of Kafka)')
    """
    return said if paused.lower() == "true" else f"{said} ({paused})"


def judge_exclusion(policy: Policy, now_s: float) -> Condition:
    """Whether the schedule forbids moves and scaling now."""
    excluded = find_exclusion(policy.schedule.excluded, now_s)
    if not excluded:
        return Condition(EXCLUDED, False, "NotExcluded", "no excluded period holds")
    message = (
        f"{excluded}: nothing is moved or scaled; lost executors and drivers are replaced all the "
        "same"
    )
    return Condition(EXCLUDED, True, "InPeriod", message)


def describe_approval(approval: Approval, now_s: float) -> AnsweredApproval:
    """The status of an approval that the operator answers now."""
    name = approval.proposal[:64]
    message = f"proposal {name} was approved; plan {approval.epoch} carries it out"
    if approval.partitions:
        how = f"carried out {approval.period}" if approval.period else "approved"
        message = f"proposal {name} was {how}; spec.partitions is set to {approval.partitions}"
    if approval.refusal:
        message = f"approval of {name} is refused: {approval.refusal}. Nothing was changed"
    return AnsweredApproval(
        id=name,
        time=format_time(now_s),
        result="Refused" if approval.refusal else "CarriedOut",
        message=summarize([message]),
    )
