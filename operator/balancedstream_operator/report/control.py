"""Reports whether the driver follows plans, and who else changed them: pure."""

from __future__ import annotations

from collections.abc import Iterable

from balancedstream_operator.api.conditions import FALLBACK, PLAN_REFUSED, Condition
from balancedstream_operator.api.status import StreamEvent
from balancedstream_operator.plan.answers import SILENT_AFTER_S, AnswerFound, Control
from balancedstream_operator.plan.record import PlanFound
from balancedstream_operator.reconcile.outcome import Decided


def tell_of_plan(found: PlanFound) -> Iterable[StreamEvent]:
    """Events of others' changes of the plan."""
    if found.adopted:
        message = "another operator wrote a newer plan, and this one goes on from there"
        yield StreamEvent("PlanAdopted", message, warning=True)
    elif found.overwritten:
        message = (
            "something else overwrote the plan; the operator restores it, and only the operator "
            "may write plans (see docs/security.md)"
        )
        yield StreamEvent("PlanOverwritten", message, warning=True)
    elif found.unreadable:
        message = f"the plan cannot be used and will be replaced: {found.unreadable}"
        yield StreamEvent("PlanUnreadable", message, warning=True)


def tell_of_answer(found: AnswerFound, control: Control) -> Iterable[StreamEvent]:
    """Events of answers to older plans, because the newest plan has a condition."""
    if found.unreadable:
        yield StreamEvent("AnswerUnreadable", found.unreadable, warning=True)
    if found.answer is not None and found.refused_anew and control.follows:
        yield StreamEvent("PlanRefused", found.answer.refused, warning=True)


def judge_refusal(control: Control) -> Condition | None:
    """Whether the driver refused the newest plan; None until it answers."""
    if control.refusal:
        message = (
            f"the driver refused the newest plan: {control.refusal}. The stream runs on where it "
            "is; the next plan leaves out what was refused"
        )
        return Condition(PLAN_REFUSED, True, "PlanRefused", message)
    if control.follows:
        return Condition(PLAN_REFUSED, False, "PlanAccepted", "no plan is refused")
    return None


def judge_fallback(decided: Decided, unusable: str) -> Condition:
    """Whether the operator leads a measured stream.

    `unusable` tells why the operator cannot use the driver's answer; empty if it can.
    """
    plan, silent_s = decided.inputs.plan, decided.silent_s
    if silent_s is None or (plan is None and silent_s <= SILENT_AFTER_S):
        message = "the stream is measured, and its driver answers"
        return Condition(FALLBACK, False, "InControl", message)
    if unusable:
        return hold("AnswerUnusable", f"the driver's answer cannot be used: {unusable}")
    what = f"answered plan {plan.epoch}" if plan else "said that it follows plans,"
    return hold(
        "DriverSilent",
        f"the driver has not {what} for {silent_s:.0f} s: its log says why it does not reach the "
        "API server",
    )


def hold(reason: str, message: str) -> Condition:
    """The operator holds the stream as it is."""
    held = f"{message}. The stream keeps running as it is: nothing is moved, added or removed"
    return Condition(FALLBACK, True, reason, held)
