"""What the status says of what people asked for, and of what they could ask for: pure."""

from __future__ import annotations

from balancedstream.core.periods import find_exclusion
from balancedstream.core.policy import Policy
from balancedstream_operator.api.annotations import PAUSED_ANNOTATION
from balancedstream_operator.api.status import StatusDraft, StreamEvent, format_time, summarize
from balancedstream_operator.plan.advice import Advice
from balancedstream_operator.reconcile.outcome import Approval


def report_pause(paused: str, draft: StatusDraft) -> None:
    """Whether somebody paused the stream.

    Args:
        paused: why; empty if nobody did.
        draft: of the stream's status.
    """
    if not paused:
        draft.set_condition("Paused", False, "NotPaused", "nobody paused this stream")
        return
    said = "" if paused.lower() == "true" else f" ({paused})"
    message = (
        f"somebody paused this stream{said}: its pods run on, and nothing is moved, added or "
        f"removed until annotation {PAUSED_ANNOTATION} is gone"
    )
    draft.set_condition("Paused", True, "Asked", message)
    if "reason" in draft.fields:
        draft.fields["reason"] = summarize([f"paused{said}", draft.fields["reason"]])


def report_exclusion(policy: Policy, draft: StatusDraft) -> None:
    """Whether the schedule lets nothing be moved or scaled now.

    Args:
        policy: of the stream.
        draft: of the stream's status.
    """
    excluded = find_exclusion(policy.schedule.excluded, draft.now_s)
    if not excluded:
        draft.set_condition("Excluded", False, "NotExcluded", "no excluded period holds")
        return
    message = (
        f"{excluded}: nothing is moved or scaled; lost executors and drivers are replaced all the "
        "same"
    )
    draft.set_condition("Excluded", True, "InPeriod", message)


def report_proposal(advice: Advice, draft: StatusDraft) -> None:
    """What somebody could approve; the same proposal is written down once.

    Args:
        advice: what is proposed now, if anything.
        draft: of the stream's status.
    """
    known = draft.recall("proposal") or {}
    if not advice.id:
        draft.fields["proposal"] = None
    elif advice.id != known.get("id"):
        reason = summarize([advice.reason])
        time = format_time(draft.now_s)
        draft.fields["proposal"] = {"id": advice.id, "time": time, "reason": reason}
        draft.add_decision("advise", int(draft.recall("planEpoch", 0)), reason)


def report_approval(approval: Approval, draft: StatusDraft) -> None:
    """What became of an approval.

    Args:
        approval: that was answered.
        draft: of the stream's status.
    """
    name = approval.proposal[:64]
    if approval.refusal:
        message = f"approval of {name} is refused: {approval.refusal}. Nothing was changed"
        draft.add_decision("refuse", int(draft.recall("planEpoch", 0)), message)
    else:
        message = f"proposal {name} was approved; plan {approval.epoch} carries it out"
        draft.events.append(StreamEvent("Approved", message))
    draft.fields["approval"] = {
        "id": name,
        "time": format_time(draft.now_s),
        "result": "Refused" if approval.refusal else "CarriedOut",
        "message": summarize([message]),
    }
