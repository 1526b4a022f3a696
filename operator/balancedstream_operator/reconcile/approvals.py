"""Answers approvals: the operator carries a proposal out once, or refuses it with a reason."""

from __future__ import annotations

import logging

from balancedstream_operator.api.annotations import APPROVE_ANNOTATION
from balancedstream_operator.api.status import Status
from balancedstream_operator.errors import ClusterError, UnreachableError
from balancedstream_operator.kube.cluster import Cluster
from balancedstream_operator.plan.advice import name_partitions
from balancedstream_operator.plan.record import Record
from balancedstream_operator.reconcile.outcome import Approval, PassOutcome

log = logging.getLogger(__name__)


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


def judge_approval(approve: str, outcome: PassOutcome) -> Approval:
    """Whether a pass carried out an approved proposal, and why not."""
    decided = outcome.decided
    ids = {name_partitions((outcome.spec and outcome.spec.partitions) or 0)}
    if decided is not None and not outcome.paused:
        ids.add(decided.partitions.id)
    if approve in ids:
        return Approval(approve, partitions=int(approve.rpartition("-")[2]))
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
