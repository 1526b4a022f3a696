"""Turns the outcome of a pass into the status and the events of a stream: pure.

Which conditions hold (`_judge`) and what the rest of the status says (`_describe`) follow from the
outcome and the last status. The draft compares them with the last status.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from balancedstream.core.policy import Policy
from balancedstream.core.scaling.slots import describe_holders
from balancedstream.core.scaling.standing import describe_standing
from balancedstream_operator.api.conditions import (
    ACCEPTED,
    COSTS_TRUSTED,
    EXCLUDED,
    FLOOR_KNOWN,
    KINDS,
    METRICS_AVAILABLE,
    PASS_FAILED,
    PLAN_REFUSED,
    RUNNING,
    SCALING_LIMITED,
    STALLED,
    Condition,
)
from balancedstream_operator.api.spec import StreamSpec, clamp_fixed
from balancedstream_operator.api.status import (
    DecisionKind,
    Proposal,
    Status,
    StreamEvent,
    format_time,
    parse_time,
    summarize,
)
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.errors import ClusterError
from balancedstream_operator.kube.refusals import describe_refusal
from balancedstream_operator.plan.advice import Advice
from balancedstream_operator.reconcile.outcome import Decided, PassOutcome
from balancedstream_operator.report.balance import (
    Balance,
    describe_effects,
    describe_load,
    judge_balance,
    judge_moves,
    judge_spread,
)
from balancedstream_operator.report.control import (
    hold,
    judge_fallback,
    judge_refusal,
    tell_of_answer,
    tell_of_plan,
)
from balancedstream_operator.report.costs import judge_costs
from balancedstream_operator.report.draft import Report, StatusDraft
from balancedstream_operator.report.limits import judge_limits
from balancedstream_operator.report.losses import judge_losses
from balancedstream_operator.report.memory import judge_memory
from balancedstream_operator.report.money import describe_cost
from balancedstream_operator.report.progress import (
    NO_BATCH,
    judge_age,
    judge_progress,
    judge_suspension,
    judge_unmeasured_progress,
    was_measured,
)
from balancedstream_operator.report.readiness import judge_readiness, on_its_way
from balancedstream_operator.report.repartition import (
    describe_repartition,
    judge_repartition,
    tell_end,
)
from balancedstream_operator.report.requests import (
    describe_approval,
    describe_pause,
    judge_exclusion,
    judge_pause,
)

BLIND_AFTER_S = 120.0
"""The last status counts for this long while passes fail."""


def report(outcome: PassOutcome, before: Status, generation: int, now_s: float) -> Report:
    """The status and the events after a pass."""
    if outcome.begun:
        before = _forget_application(before, now_s)
    draft = StatusDraft(before, generation, now_s)
    before = draft.before
    running = _judge_running(outcome, before, now_s)
    known = running or before.recall(RUNNING)
    draft.events += _tell(outcome, known, before)
    if running is not None:
        draft.set(running)
    draft.set(*_judge(outcome, before, generation, now_s), *judge_readiness(outcome, known))
    draft.status = _describe(outcome, known, before, now_s)
    for kind, reason in _list_decisions(outcome, before, now_s):
        draft.add_decision(kind, draft.status.plan_epoch or 0, reason)
    return draft.build()


def report_deletion(message: str, before: Status, now_s: float) -> Report:
    """The status of a stream that somebody deletes: the operator leaves it alone."""
    draft = StatusDraft(before, max(before.observed_generation, 0), now_s)
    reason = "BeingDeleted"
    draft.set(*on_its_way(reason, message), Condition(RUNNING, None, reason, message))
    draft.set(*_judge_unmeasured(reason, message))
    draft.status = replace(
        draft.status, phase="Deleting", reason=summarize([message]), proposal=None
    )
    return draft.build()


def report_failure(error: Exception, before: Status, now_s: float) -> Report:
    """The status after a pass that failed: the rest stays, and counts for `BLIND_AFTER_S`."""
    draft = StatusDraft(before, max(before.observed_generation, 0), now_s)
    failed = draft.before.find(PASS_FAILED)
    if failed is not None and failed.status == "True" and now_s - failed.changed_s > BLIND_AFTER_S:
        message = f"no pass has come to its end for {now_s - failed.changed_s:.0f} s"
        draft.set(*on_its_way("PassFailed", message, ready=None))
    said = f"{type(error).__name__}: {error}".partition("\n")[0]
    advice = error.advice if isinstance(error, ClusterError) else ""
    refused = describe_refusal(f"the last pass failed: {said}", advice, runs=False)
    message = (
        f"{refused}. The pods of the stream stay as they are, and the operator tries again; its "
        "log has more"
    )
    draft.set(Condition(PASS_FAILED, True, type(error).__name__, message))
    draft.status = replace(draft.status, reason=summarize([message]))
    return draft.build()


def _is_blocked(outcome: PassOutcome) -> bool:
    """Whether a refusal keeps the driver from running, or the operator from looking for it."""
    driver = outcome.driver
    if outcome.spec is None:
        return False
    return driver is None or (bool(outcome.refusal) and not driver.running)


def _is_left_alone(outcome: PassOutcome) -> bool:
    """Whether a refusal keeps the operator from writing plans for a running driver."""
    driver = outcome.driver
    led = outcome.answer is not None and outcome.control is not None
    return bool(outcome.refusal) and driver is not None and driver.running and not led


def _is_stopped(outcome: PassOutcome) -> bool:
    """Whether the driver does not run, without a refusal."""
    driver = outcome.driver
    return driver is not None and not driver.running and not _is_blocked(outcome)


def _forget_application(before: Status, now_s: float) -> Status:
    """The status without facts about an earlier application."""
    draft = StatusDraft(before, before.observed_generation, now_s)
    draft.set(Condition(RUNNING, None, NO_BATCH, "the driver is of a new application"))
    draft.status = replace(draft.status, plan_epoch=0, applied_epoch=0, last_scale_time=None)
    return draft.build().status


def _tell(outcome: PassOutcome, running: Condition, before: Status) -> Iterable[StreamEvent]:
    """Events other than decisions and changes of conditions."""
    driver, approval = outcome.driver, outcome.approval
    if outcome.begun and driver is not None:
        message = (
            f"pod {driver.pod} is the driver of a new application, {driver.application}: a new "
            "history of plans begins, from epoch 1"
        )
        yield StreamEvent("NewApplication", message)
    if outcome.spec is not None and not _is_blocked(outcome):
        yield from tell_of_plan(outcome.plan_found)
    if outcome.answer is not None and outcome.control is not None:
        yield from tell_of_answer(outcome.answer, outcome.control)
    if approval is not None and not approval.refusal:
        yield StreamEvent("Approved", describe_approval(approval, 0.0).message)
    if outcome.refusal and running.reason != "Refused" != before.recall(STALLED).reason:
        yield StreamEvent("Refused", outcome.refusal, warning=True)


def _judge(
    outcome: PassOutcome, before: Status, generation: int, now_s: float
) -> Iterable[Condition]:
    """The conditions that the pass judges; the other ones stay as they were."""
    spec, driver, decided = outcome.spec, outcome.driver, outcome.decided
    yield Condition(PASS_FAILED, False, "Completed", "the last pass came to its end")
    yield _judge_spec(outcome)
    yield judge_pause(outcome.paused)
    if spec is None:
        yield Condition(EXCLUDED, None, "InvalidSpec", outcome.invalid)
    else:
        yield judge_exclusion(spec.policy, now_s)
        yield from judge_repartition(outcome.repartition, before)
    if driver is not None and not _is_blocked(outcome):
        yield judge_suspension(driver)
        if spec is not None:
            yield judge_age(driver)
    refused = judge_refusal(outcome.control) if outcome.answer and outcome.control else None
    if refused is not None:
        yield refused
    elif driver is not None and not driver.running:
        yield Condition(PLAN_REFUSED, None, driver.reason, driver.message)
    if _is_blocked(outcome) or _is_left_alone(outcome):
        yield from _judge_unmeasured("Refused", outcome.refusal)
    elif driver is not None and not driver.running:
        yield from _judge_unmeasured(driver.reason, driver.message)
    elif spec is None:
        yield from _judge_unmeasured("InvalidSpec", outcome.invalid)
    elif outcome.missing is not None:
        yield Condition(METRICS_AVAILABLE, False, "Missing", outcome.missing.reason)
        if outcome.missing.holds:
            yield hold("MetricsMissing", outcome.missing.reason)
    elif decided is not None:
        yield from _judge_decided(outcome, spec, decided, before, generation)


def _judge_spec(outcome: PassOutcome) -> Condition:
    if outcome.spec is None:
        return Condition(ACCEPTED, False, "InvalidSpec", outcome.invalid)
    ignored = ""
    if outcome.unknown:
        names = ", ".join(outcome.unknown)
        ignored += f"; this release of the operator does not know, and ignores, {names}"
    if outcome.removed:
        ignored += f"; without effect in this release: {', '.join(outcome.removed)}"
    reason = "FieldsIgnored" if ignored else "Accepted"
    return Condition(ACCEPTED, True, reason, f"the spec is accepted{ignored}")


def _judge_running(outcome: PassOutcome, before: Status, now_s: float) -> Condition | None:
    """Whether batches end; None if the last judgement still holds."""
    driver = outcome.driver
    if _is_blocked(outcome):
        # If the operator may not look for the driver, nobody knows whether it runs.
        return Condition(RUNNING, None if driver is None else False, "Refused", outcome.refusal)
    if driver is not None and not driver.running:
        return Condition(RUNNING, False, driver.reason, driver.message)
    if outcome.decided is not None:
        return judge_progress(outcome.decided.measurement)
    if outcome.spec is None or outcome.missing is not None or _is_left_alone(outcome):
        return judge_unmeasured_progress(driver, before, now_s)
    return None


def _judge_unmeasured(reason: str, message: str) -> Iterable[Condition]:
    return (Condition(kind, None, reason, message) for kind in KINDS if kind.measured)


def _judge_decided(
    outcome: PassOutcome, spec: StreamSpec, decided: Decided, before: Status, generation: int
) -> Iterable[Condition]:
    measurement, queried = decided.measurement, decided.choice.demands.queried
    yield Condition(METRICS_AVAILABLE, True, "Scraped", "Prometheus has the stream's metrics")
    distrusted = before.recall(COSTS_TRUSTED).holds is False
    yield judge_costs(measurement.shuffles, distrusted=distrusted)
    yield judge_losses(measurement)
    tight = decided.choice.decision.scaling.tight
    yield judge_memory(measurement.memory, tight, owns_pods=spec.target_ref is None)
    yield from judge_spread(_find_balance(spec, decided))
    yield judge_moves(measurement)
    yield judge_limits(
        spec,
        decided,
        before.find(SCALING_LIMITED),
        generation=generation,
        selector=_select_executors(outcome, spec),
    )
    yield Condition(FLOOR_KNOWN, queried.known, queried.reason, queried.message)
    yield judge_fallback(decided, _find_unusable(outcome))


def _find_unusable(outcome: PassOutcome) -> str:
    """Why the operator cannot use the driver's answer; empty if it can, or without an answer."""
    return outcome.answer.unreadable if outcome.answer is not None else ""


def _find_balance(spec: StreamSpec, decided: Decided) -> Balance:
    kinds = {stage.kind for stage in decided.measurement.stages}
    stateless = bool(kinds) and "stateful" not in kinds
    return judge_balance(decided.choice.decision, spec.policy, stateless=stateless)


def _describe(outcome: PassOutcome, running: Condition, before: Status, now_s: float) -> Status:
    """The status without its conditions and new decisions; fields without news stay."""
    spec, decided, reason = outcome.spec, outcome.decided, _describe_reason(outcome)
    status = replace(before, phase=_choose_phase(outcome, running, before))
    if reason is not None:
        paused = describe_pause(outcome.paused) if outcome.paused else ""
        status = replace(status, reason=summarize([paused, reason]))
    if spec is not None:
        status = replace(
            status,
            partitions=outcome.partitions or None,
            repartition=describe_repartition(outcome.repartition),
            selector=_select_executors(outcome, spec) or None,
            mode="Paused" if outcome.paused else _describe_mode(spec, spec.policy),
        )
    if _is_stopped(outcome) or _is_left_alone(outcome):
        status = replace(status, imbalance=None, imbalance_text=None, proposal=None)
    if outcome.driver is not None and not outcome.driver.running:
        status = _forget_load(status)
    if outcome.answer is not None and outcome.answer.answer is not None and outcome.control:
        status = replace(status, applied_epoch=outcome.answer.answer.epoch)
    if outcome.missing is not None and outcome.missing.holds:
        status = replace(status, proposal=None)
    if spec is not None and decided is not None:
        balance = _find_balance(spec, decided)
        status = _describe_decided(status, decided, balance, now_s)
        status = replace(
            status,
            proposal=_describe_proposal(outcome, before, now_s),
            cost=describe_cost(outcome.price, len(decided.measurement.executors), spec.executors),
        )
    if outcome.approval is not None:
        status = replace(status, approval=describe_approval(outcome.approval, now_s))
    return status


def _forget_load(status: Status) -> Status:
    """The status of a stream that does not run, without figures of when it did."""
    return replace(
        status,
        executors=0,
        cost=None,
        utilization=None,
        backlog_rows=None,
        input_rows_per_second=None,
        true_processing_rate=None,
        hottest_partitions=(),
        hottest_keys=(),
        standing=None,
    )


def _choose_phase(outcome: PassOutcome, running: Condition, before: Status) -> str:
    driver = outcome.driver
    if outcome.spec is None:
        return "Invalid"
    if driver is None or _is_blocked(outcome):
        return "Failing"
    if outcome.decided is not None:
        return "Starting" if running.reason == NO_BATCH else "Running"
    # A driver that runs is starting until a batch has ended.
    if driver.running and was_measured(before.recall(RUNNING)):
        return "Running"
    return "Failing" if _is_left_alone(outcome) else driver.phase


def _describe_reason(outcome: PassOutcome) -> str | None:
    """The reason of the status; None if the last reason still holds."""
    driver, decided = outcome.driver, outcome.decided
    if outcome.spec is None:
        return outcome.invalid
    if _is_blocked(outcome) or _is_left_alone(outcome):
        return outcome.refusal
    if driver is not None and not driver.running:
        return driver.message
    if outcome.missing is not None and outcome.missing.holds:
        return hold("MetricsMissing", outcome.missing.reason).message
    if decided is None:
        return None
    fallback = judge_fallback(decided, _find_unusable(outcome))
    if fallback.holds:
        return fallback.message
    balance, scaling = _find_balance(outcome.spec, decided), decided.choice.decision.scaling
    left_alone = describe_holders(decided.measurement.holders)
    return summarize([balance.reason, left_alone, scaling.reason])


def _select_executors(outcome: PassOutcome, spec: StreamSpec) -> str:
    driver = outcome.driver or DriverState("", "", "")
    return driver.select_executors(outcome.stream, spec.target_ref)


def _describe_mode(spec: StreamSpec, policy: Policy) -> str:
    scaling = f"Fixed {clamp_fixed(spec.executors)}" if spec.executors.fixed else ""
    scaling = scaling or policy.scaling.mode.capitalize()
    balancing = policy.balance.mode.capitalize()
    return scaling if scaling == balancing else f"{balancing}/{scaling}"


def _describe_decided(status: Status, decided: Decided, balance: Balance, now_s: float) -> Status:
    inputs, new_plan = decided.inputs, decided.choice.plan
    plan = new_plan or inputs.plan
    desired = len(new_plan.executors) if new_plan else inputs.desired
    scaled_s = now_s if desired != inputs.desired else inputs.past.scaled_at_s
    status = describe_load(status, decided.measurement, decided.choice.decision, balance)
    status = describe_effects(status, decided.measurement, inputs, balance)
    return replace(
        status,
        plan_epoch=plan.epoch if plan else 0,
        standing=describe_standing(plan.standing) if plan and plan.standing else None,
        desired_executors=desired,
        last_scale_time=status.last_scale_time if scaled_s is None else format_time(scaled_s),
    )


def _find_proposal(outcome: PassOutcome) -> Advice:
    decided = outcome.decided
    if decided is None:
        return Advice()
    return decided.choice.advice if decided.choice.advice.id else decided.partitions


def _describe_proposal(outcome: PassOutcome, before: Status, now_s: float) -> Proposal | None:
    """The present proposal; one that stays keeps its words, and its time if that has come."""
    advice = _find_proposal(outcome)
    if not advice.id:
        return None
    if before.proposal is not None and before.proposal.id == advice.id:
        proposed_s = parse_time(before.proposal.time)
        if proposed_s is None or proposed_s > now_s:
            return replace(before.proposal, time=format_time(now_s))
        return before.proposal
    return Proposal(id=advice.id, time=format_time(now_s), reason=summarize([advice.reason]))


def _list_decisions(
    outcome: PassOutcome, before: Status, now_s: float
) -> Iterable[tuple[DecisionKind, str]]:
    decided = outcome.decided
    stood = None if decided is None else decided.inputs.stood
    if stood is not None and stood.executors > (before.desired_executors or math.inf):
        yield "scale", summarize([f"the driver went to {stood.executors} executors", stood.reason])
    if decided is not None and decided.choice.plan is not None:
        choice, moves = decided.choice, decided.choice.moves
        asked = f"proposal {choice.advice.id} was approved" if choice.approved else ""
        if len(decided.choice.plan.executors) != decided.inputs.desired:
            yield "scale", summarize([asked, choice.decision.scaling.reason])
        if moves or choice.left_out:
            yield "move", summarize([asked, *moves, choice.left_out])
    ended = tell_end(outcome.repartition, before.repartition)
    if ended:
        yield "repartition", ended
    advice = _find_proposal(outcome)
    if advice.id and (before.proposal is None or before.proposal.id != advice.id):
        yield "advise", summarize([advice.reason])
    if outcome.approval is not None and outcome.approval.refusal:
        yield "refuse", describe_approval(outcome.approval, now_s).message
