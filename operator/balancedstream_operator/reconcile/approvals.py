"""Answers approvals: the operator carries a proposal out once, or refuses it with a reason."""

from __future__ import annotations

import logging

from balancedstream.core.periods import describe_time, find_exclusion
from balancedstream_operator.api.annotations import APPROVE_ANNOTATION
from balancedstream_operator.api.status import Status, parse_time
from balancedstream_operator.errors import ClusterError, UnreachableError
from balancedstream_operator.kube.cluster import Cluster
from balancedstream_operator.plan.advice import name_partitions, read_partitions
from balancedstream_operator.plan.record import Record
from balancedstream_operator.reconcile.outcome import Approval, PassOutcome

log = logging.getLogger(__name__)

PROPOSED_FOR_S = 600.0
"""A number of state partitions is carried out without an approval once it was proposed so long."""


def answer_approval(
    cluster: Cluster, approve: str, outcome: PassOutcome, record: Record | None, status: Status
) -> Approval | None:
    """The operator's answer to an approval, in the pass that sees it; None if there is none.

    The operator that removes the annotation answers, so each approval gets one answer. The record
    of the plan names the approval, because the operator may die before it removes the annotation
    and writes the status.

    Raises:
        ClusterError: the operator cannot remove the annotation of a refused approval for now.
    """
    if not approve:
        return None
    approval = judge_approval(approve, outcome)
    if approval.partitions:
        # Before the annotation is taken: it is done again if the operator dies in between.
        cluster.set_partitions(outcome.stream, approval.partitions)
    carried_out = record is not None and record.approved == approve
    answered = status.approval is not None and status.approval.id == approve
    try:
        taken = cluster.take_annotation(outcome.stream, APPROVE_ANNOTATION, approve)
    except ClusterError as error:
        if isinstance(error, UnreachableError) and not carried_out:
            raise
        log.warning("%s: the approval stays where it is: %s", outcome.stream, error)
        taken = not answered
    if not approval.refusal:
        return approval
    if carried_out:
        # An earlier pass carried it out, and may have died before it reported that.
        return None if answered else Approval(approve, int(approve.partition("-")[0]))
    return approval if taken else None


def carry_out_due(
    cluster: Cluster, outcome: PassOutcome, status: Status, now_s: float
) -> Approval | None:
    """Carries out a proposal that needs no approval now; None if there is none.

    Raises:
        ClusterError: the operator cannot change the spec for now.
    """
    due = find_due(outcome, status, now_s)
    if due is not None:
        cluster.set_partitions(outcome.stream, due.partitions)
    return due


def find_due(outcome: PassOutcome, status: Status, now_s: float) -> Approval | None:
    """The number of state partitions that a period of the schedule lets be carried out now.

    It was proposed for a while, so that no passing load asks for it, and the stream runs again
    before the period ends, as far as that can be told.
    """
    spec, decided, known = outcome.spec, outcome.decided, status.proposal
    if spec is None or decided is None or known is None or outcome.paused:
        return None
    if find_exclusion(spec.policy.schedule.excluded, now_s):
        return None
    advice = decided.partitions
    proposed_s = parse_time(known.time)
    if not advice.id or advice.id != known.id or proposed_s is None:
        return None
    ends = [
        (end_s, period)
        for period in spec.repartition_periods
        if (end_s := period.find_end_s(now_s)) is not None
    ]
    end_s, period = max(ends, key=lambda found: found[0], default=(0.0, None))
    partitions = read_partitions(advice.id)
    if period is None or spec.partitions == partitions:
        return None
    if now_s - proposed_s < PROPOSED_FOR_S or now_s + advice.stands_s > end_s:
        return None
    until = describe_time(end_s, period.time_zone, now_s)
    return Approval(advice.id, partitions=partitions, period=f"in the period until {until}")


def judge_approval(approve: str, outcome: PassOutcome) -> Approval:
    """Whether a pass carried out an approved proposal, and why not."""
    decided = outcome.decided
    asked = outcome.spec.partitions if outcome.spec is not None else None
    ids = {name_partitions(asked)} if asked else set()
    if decided is not None and not outcome.paused:
        ids.add(decided.partitions.id)
    if approve in ids:
        return Approval(approve, partitions=read_partitions(approve))
    if decided is not None and decided.choice.approved and decided.choice.plan is not None:
        return Approval(approve, decided.choice.plan.epoch)
    return Approval(approve, refusal=_describe_hindrance(approve, outcome))


def _describe_hindrance(approve: str, outcome: PassOutcome) -> str:
    decided, driver = outcome.decided, outcome.driver
    if outcome.spec is None or driver is None:
        return f"the stream is stalled: {outcome.invalid or outcome.refusal}"
    if not driver.running:
        return f"the driver does not run: {driver.message}"
    if outcome.paused:
        return f"the stream is paused ({outcome.paused}); resume it first"
    if decided is None and outcome.refusal:
        return f"the stream is stalled: {outcome.refusal}"
    if decided is None:
        missing = outcome.missing.reason if outcome.missing else "nothing was measured"
        return f"the operator cannot decide now: {missing}"
    if decided.silent_s is not None:
        return f"the driver has not answered the last plan for {decided.silent_s:.0f} s"
    if decided.choice.demands.excluded:
        return f"the stream is {decided.choice.demands.excluded}"
    if decided.choice.waits:
        return f"it is out of date: {decided.choice.waits}"
    now = decided.choice.advice if decided.choice.advice.id else decided.partitions
    if now.id == approve:
        return (
            "the operator can make no plan of it now; moves of the last one may still be under way"
        )
    if now.id:
        return f"it is out of date; the present proposal is {now.id}: {now.reason}"
    return "the operator proposes nothing like it now; the status says why (reason)"
