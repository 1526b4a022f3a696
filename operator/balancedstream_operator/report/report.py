"""Turns the outcome of a pass into the status and the events of a stream: pure."""

from __future__ import annotations

from balancedstream.core.policy import Policy
from balancedstream_operator.api.annotations import RESTART_ANNOTATION
from balancedstream_operator.api.conditions import KINDS
from balancedstream_operator.api.spec import StreamSpec, clamp_fixed, policy_of
from balancedstream_operator.api.status import (
    StatusDraft,
    StreamEvent,
    format_time,
    parse_time,
    summarize,
)
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.errors import ClusterError
from balancedstream_operator.kube.refusals import describe_refusal
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.advice import Advice
from balancedstream_operator.plan.answers import SILENT_AFTER_S, AnswerFound, Control
from balancedstream_operator.plan.planner import (
    Balance,
    Given,
    judge_balance,
)
from balancedstream_operator.plan.record import PlanFound
from balancedstream_operator.reconcile.outcome import (
    Decided,
    MissingMeasurements,
    PassOutcome,
)
from balancedstream_operator.report.balance import report_balance
from balancedstream_operator.report.costs import report_costs
from balancedstream_operator.report.limits import report_limits
from balancedstream_operator.report.losses import report_losses
from balancedstream_operator.report.progress import (
    report_progress,
    report_unmeasured_progress,
    was_measured,
)
from balancedstream_operator.report.readiness import judge_readiness
from balancedstream_operator.report.requests import (
    report_approval,
    report_exclusion,
    report_pause,
    report_proposal,
)

BLIND_AFTER_S = 120.0
"""Passes have failed for longer than this before what they said last is not believed any more."""

EFFECT_BATCHES = 3
"""Batches after a plan before its effect is reported."""


def report(outcome: PassOutcome, draft: StatusDraft) -> None:
    """Writes all that there is to say of a pass into the draft of a status.

    Args:
        outcome: of the pass.
        draft: of the stream's status; its events are appended in the order of the pass.
    """
    known = draft.condition("Stalled")["reason"]
    _report_pass(outcome, draft)
    report_pause(outcome.paused, draft)
    if outcome.approval is not None:
        report_approval(outcome.approval, draft)
    running = draft.condition("Running")
    if outcome.refusal and running["reason"] != "Refused" != known:
        draft.events.append(StreamEvent("Refused", outcome.refusal, warning=True))
    found = judge_readiness(outcome, running)
    draft.set_condition("Ready", found.ready, found.reason, found.message)
    for kind, holds in (("Reconciling", found.reconciling), ("Stalled", found.stalled)):
        draft.set_condition(kind, holds, found.reason, found.message)


def _report_pass(outcome: PassOutcome, draft: StatusDraft) -> None:
    draft.set_condition("PassFailed", False, "Completed", "the last pass came to its end")
    spec = outcome.spec
    if spec is None:
        draft.fields |= {"phase": "Invalid", "reason": summarize([outcome.invalid])}
        draft.set_condition("Accepted", False, "InvalidSpec", outcome.invalid)
        if outcome.driver is None or outcome.driver.running:
            report_unmeasured_progress(outcome.driver, draft)
            _report_unmeasured("InvalidSpec", outcome.invalid, draft)
        # A driver that was made before runs on, and may end.
        if outcome.driver is not None:
            _report_suspended(outcome.driver, draft)
            if not outcome.driver.running:
                _report_stopped(outcome.driver, draft)
        return
    message = "the spec is accepted"
    if outcome.unknown:
        names = ", ".join(outcome.unknown)
        message += f"; this release of the operator does not know, and ignores, {names}"
    if outcome.removed:
        message += f"; without effect in this release: {', '.join(outcome.removed)}"
    reason = "FieldsIgnored" if outcome.unknown or outcome.removed else "Accepted"
    draft.set_condition("Accepted", True, reason, message)
    policy = policy_of(spec)
    draft.fields |= {
        "partitions": outcome.partitions or None,
        "selector": _select_executors(outcome, spec),
        "mode": "Paused" if outcome.paused else _describe_mode(spec, policy),
    }
    report_exclusion(policy, draft)
    if outcome.driver is None or (outcome.refusal and not outcome.driver.running):
        draft.fields |= {"phase": "Failing", "reason": summarize([outcome.refusal])}
        # Where looking for the driver is refused, nobody knows whether it runs.
        runs = None if outcome.driver is None else False
        draft.set_condition("Running", runs, "Refused", outcome.refusal)
        _report_unmeasured("Refused", outcome.refusal, draft)
        return
    if outcome.begun:
        _report_begin(outcome.driver, draft)
    _report_driver(outcome.driver, draft)
    _report_plan_found(outcome.plan_found, draft)
    if outcome.answer is not None and outcome.control is not None:
        _report_answer(outcome.answer, outcome.control, draft)
    elif outcome.refusal and outcome.driver.running:
        _report_left_alone(outcome, outcome.driver, draft)
    if outcome.missing is not None:
        _report_missing(outcome.missing, outcome.driver, draft)
    if outcome.decided is not None:
        unusable = outcome.answer.unreadable if outcome.answer is not None else ""
        _report_decided(spec, policy, outcome.decided, unusable, draft)
        report_proposal(Advice() if outcome.paused else outcome.decided.proposal, draft)


def _select_executors(outcome: PassOutcome, spec: StreamSpec) -> str | None:
    driver = outcome.driver or DriverState("", "", "")
    return driver.select_executors(outcome.stream, spec.target_ref) or None


def _describe_mode(spec: StreamSpec, policy: Policy) -> str:
    """The modes of balancing and scaling in a word or two."""
    scaling = f"Fixed {clamp_fixed(spec.executors)}" if spec.executors.fixed else ""
    scaling = scaling or policy.scaling.mode.capitalize()
    balancing = policy.balance.mode.capitalize()
    return scaling if scaling == balancing else f"{balancing}/{scaling}"


def _report_begin(driver: DriverState, draft: StatusDraft) -> None:
    """What is known of an application that is gone does not hold for the next one."""
    draft.fields |= {"planEpoch": 0, "appliedEpoch": 0, "lastScaleTime": None}
    message = (
        f"pod {driver.pod} is the driver of a new application, {driver.application}: a new history "
        "of plans begins, from epoch 1"
    )
    draft.events.append(StreamEvent("NewApplication", message))
    draft.set_condition("Running", None, "NoBatchYet", message)


def _report_suspended(driver: DriverState, draft: StatusDraft) -> None:
    suspended = driver.phase == "Suspended"
    message = driver.message if suspended else "spec.suspend is false"
    draft.set_condition("Suspended", suspended, "Suspended" if suspended else "Active", message)


def _report_driver(driver: DriverState, draft: StatusDraft) -> None:
    # A driver that runs is starting until a batch has ended.
    begun = driver.running and was_measured(draft)
    draft.fields["phase"] = "Running" if begun else driver.phase
    _report_suspended(driver, draft)
    reason, message = "Current", "a new driver would be made in the same way"
    if driver.waits_for:
        reason = "WaitsForTurn"
        message = f"its driver is replaced after that of {driver.waits_for}: one at a time"
    elif driver.outdated:
        reason = "OlderTemplate"
        message = (
            "a new driver would be made in another way, because the release of the operator or "
            "driver.evictable changed since; it runs on, and is replaced with the next change of "
            "the spec that needs a new one, or by kubectl annotate bst NAME --overwrite "
            f'{RESTART_ANNOTATION}="$(date)"'
        )
    draft.set_condition("DriverOutdated", driver.outdated, reason, message)
    if driver.running:
        return
    draft.fields["reason"] = summarize([driver.message])
    _report_stopped(driver, draft)


def _report_stopped(driver: DriverState, draft: StatusDraft) -> None:
    draft.set_condition("Running", False, driver.reason, driver.message)
    draft.fields |= {"executors": 0, "imbalance": None, "imbalanceText": None, "proposal": None}
    _report_unmeasured(driver.reason, driver.message, draft)


def _report_unmeasured(reason: str, message: str, draft: StatusDraft) -> None:
    for kind in KINDS:
        if kind.measured:
            draft.set_condition(kind.name, None, reason, message)


def report_deletion(message: str, draft: StatusDraft) -> None:
    """Writes down that a stream is being deleted: it is not looked after any more."""
    reason = "BeingDeleted"
    draft.fields |= {"phase": "Deleting", "reason": summarize([message]), "proposal": None}
    draft.set_condition("Ready", False, reason, message)
    draft.set_condition("Reconciling", True, reason, message)
    draft.set_condition("Stalled", False, reason, message)
    draft.set_condition("Running", None, reason, message)
    _report_unmeasured(reason, message, draft)


def report_failure(error: Exception, draft: StatusDraft) -> None:
    """Writes down what ended a pass; all else stays as it was, and is not believed for long.

    Args:
        error: whatever it was.
        draft: of the stream's status.
    """
    failed = draft.condition("PassFailed")
    since_s = parse_time(failed.get("lastTransitionTime")) or 0.0
    if failed["status"] == "True" and draft.now_s - since_s > BLIND_AFTER_S:
        message = f"no pass has come to its end for {draft.now_s - since_s:.0f} s"
        draft.set_condition("Ready", None, "PassFailed", message)
        draft.set_condition("Reconciling", True, "PassFailed", message)
        draft.set_condition("Stalled", False, "PassFailed", message)
    said = f"{type(error).__name__}: {error}".partition("\n")[0]
    advice = error.advice if isinstance(error, ClusterError) else ""
    known = describe_refusal(f"the last pass failed: {said}", advice, runs=False)
    message = (
        f"{known}. The pods of the stream stay as they are, and the operator tries again; its log "
        "has more"
    )
    draft.set_condition("PassFailed", True, type(error).__name__, message)
    draft.fields["reason"] = summarize([message])


def _report_plan_found(found: PlanFound, draft: StatusDraft) -> None:
    if found.adopted:
        message = "another operator wrote a newer plan, and this one goes on from there"
        draft.events.append(StreamEvent("PlanAdopted", message, warning=True))
    elif found.overwritten:
        message = (
            "something else overwrote the plan; the operator restores it, and only the operator "
            "may write plans (see docs/security.md)"
        )
        draft.events.append(StreamEvent("PlanOverwritten", message, warning=True))
    elif found.unreadable:
        message = f"the plan cannot be used and will be replaced: {found.unreadable}"
        draft.events.append(StreamEvent("PlanUnreadable", message, warning=True))


def _report_answer(found: AnswerFound, control: Control, draft: StatusDraft) -> None:
    if found.unreadable:
        draft.events.append(StreamEvent("AnswerUnreadable", found.unreadable, warning=True))
    if control.refusal:
        message = (
            f"the driver refused the newest plan: {control.refusal}. The stream runs on where it "
            "is; the next plan leaves out what was refused"
        )
        draft.set_condition("PlanRefused", True, "PlanRefused", message)
    elif control.follows:
        draft.set_condition("PlanRefused", False, "PlanAccepted", "no plan is refused")
    if found.answer is not None:
        draft.fields["appliedEpoch"] = found.answer.epoch
        if found.refused_anew and control.follows:
            draft.events.append(StreamEvent("PlanRefused", found.answer.refused, warning=True))


def _report_left_alone(outcome: PassOutcome, driver: DriverState, draft: StatusDraft) -> None:
    """A driver that no plan can be written for, because children are refused, is not led."""
    report_unmeasured_progress(driver, draft)
    _report_unmeasured("Refused", outcome.refusal, draft)
    report_proposal(Advice(), draft)
    draft.fields |= {"imbalance": None, "imbalanceText": None}
    draft.fields["reason"] = summarize([outcome.refusal])
    if draft.fields["phase"] != "Running":
        draft.fields["phase"] = "Failing"


def _report_missing(missing: MissingMeasurements, driver: DriverState, draft: StatusDraft) -> None:
    report_unmeasured_progress(driver, draft)
    draft.set_condition("MetricsAvailable", False, "Missing", missing.reason)
    if missing.holds:
        report_proposal(Advice(), draft)
        _report_fallback("MetricsMissing", missing.reason, draft)


def _report_fallback(reason: str, message: str, draft: StatusDraft) -> None:
    held = f"{message}. The stream keeps running as it is: nothing is moved, added or removed"
    draft.set_condition("Fallback", True, reason, held)
    draft.fields["reason"] = summarize([held])


def _report_decided(
    spec: StreamSpec, policy: Policy, decided: Decided, unusable: str, draft: StatusDraft
) -> None:
    measurement = decided.measurement
    draft.set_condition("MetricsAvailable", True, "Scraped", "Prometheus has the stream's metrics")
    report_progress(measurement, draft)
    report_costs(measurement, draft)
    report_losses(measurement, draft)
    kinds = {stage.kind for stage in measurement.stages}
    stateless = bool(kinds) and "stateful" not in kinds
    balance = judge_balance(decided.choice.decision, policy, stateless=stateless)
    report_balance(measurement, decided.choice, balance, draft)
    report_limits(spec, decided, draft)
    queried = decided.queried
    draft.set_condition("FloorKnown", queried.known, queried.reason, queried.message)
    plan = decided.given.plan
    draft.fields["planEpoch"] = plan.epoch if plan else 0
    _report_effect(measurement, decided.given, balance, draft)
    _report_control(decided, unusable, draft)
    _report_new_plan(decided, draft)


def _report_effect(
    measurement: Measurement, given: Given, balance: Balance, draft: StatusDraft
) -> None:
    """The effect of the last plan, once batches ran under it and its moves are done."""
    plan = given.plan
    if plan is None or measurement.epoch < plan.epoch or not given.planned_after:
        return
    passed = min(
        (
            measurement.last_batches[query] - batch
            for query, batch in given.planned_after.items()
            if query in measurement.last_batches
        ),
        default=0,
    )
    if passed <= EFFECT_BATCHES or any(measurement.under_way.values()):
        return
    effects = {}
    if balance.imbalance is not None:
        effects["move"] = f"imbalance {balance.imbalance:.2f}, {passed} batches later"
    utilization = draft.recall("utilization")
    if len(measurement.executors) == len(plan.executors):
        busy = "" if utilization is None else f", {utilization:.0%} busy"
        effects["scale"] = f"{len(measurement.executors)} executors{busy}"
    draft.set_effect(plan.epoch, effects)


def _report_control(decided: Decided, unusable: str, draft: StatusDraft) -> None:
    """Whether the driver answers plans; `unusable` says why its answer says nothing."""
    plan, silent_s = decided.given.plan, decided.silent_s
    if silent_s is None or (plan is None and silent_s <= SILENT_AFTER_S):
        draft.set_condition(
            "Fallback", False, "InControl", "the stream is measured, and its driver answers"
        )
        return
    if unusable:
        _report_fallback("AnswerUnusable", f"the driver's answer cannot be used: {unusable}", draft)
        return
    what = f"answered plan {plan.epoch}" if plan else "said that it follows plans,"
    message = (
        f"the driver has not {what} for {silent_s:.0f} s: its log says why it does not reach the "
        "API server"
    )
    _report_fallback("DriverSilent", message, draft)


def _report_new_plan(decided: Decided, draft: StatusDraft) -> None:
    choice, desired = decided.choice, decided.given.desired
    draft.fields["desiredExecutors"] = desired
    if decided.given.last_scaled_s is not None:
        draft.fields["lastScaleTime"] = format_time(decided.given.last_scaled_s)
    if decided.new_plan is None:
        return
    plan, moves = decided.new_plan, choice.moves
    asked = f"proposal {choice.advice.id} was approved" if choice.approved else ""
    draft.fields["planEpoch"] = plan.epoch
    draft.fields["desiredExecutors"] = len(plan.executors)
    if len(plan.executors) != desired:
        draft.fields["lastScaleTime"] = format_time(draft.now_s)
        draft.add_decision("scale", plan.epoch, summarize([asked, choice.decision.scaling.reason]))
    if moves or choice.left_out:
        draft.add_decision("move", plan.epoch, summarize([asked, *moves, choice.left_out]))
