"""One pass over one stream: observe it, decide with the core, realize the decision, report.

A pass starts from what the cluster holds and ends with what the cluster holds, so an operator that
was restarted continues with the next pass. What is kept between passes only saves work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from balancedstream.core.objects import ANSWER_KEY, answer_name, executor_selector
from balancedstream.core.plan import Answer, Plan, parse_answer
from balancedstream.core.policy import Policy
from balancedstream.errors import BalancedStreamError, InvalidInputError
from balancedstream_operator.applying import Applier
from balancedstream_operator.approving import Approver
from balancedstream_operator.asking import Asked, read_asked
from balancedstream_operator.children import build_children
from balancedstream_operator.drivers import DriverState, describe_driver
from balancedstream_operator.endpoints import Defaults, Endpoint
from balancedstream_operator.errors import ClusterError, StreamGoneError
from balancedstream_operator.executors import SHORT_AFTER_S, explain_shortage
from balancedstream_operator.measurements import Measurement, MissingMeasurementsError
from balancedstream_operator.measuring import Measurer
from balancedstream_operator.outcomes import (
    AnswerFound,
    Decided,
    MissingMeasurements,
    PassOutcome,
)
from balancedstream_operator.partitioning import choose_partitions
from balancedstream_operator.planner import Given, choose_plan
from balancedstream_operator.plans import PlanBook
from balancedstream_operator.ports import Cluster, Source
from balancedstream_operator.records import (
    Record,
    check_epoch,
    judge_control,
)
from balancedstream_operator.reporting import report, report_failure
from balancedstream_operator.resource import Manifest, Stream, driver_name, driver_pod_name
from balancedstream_operator.restarts import fingerprint
from balancedstream_operator.spec import find_unknown, policy_of, read_spec
from balancedstream_operator.status import (
    StatusDraft,
    StreamEvent,
    parse_time,
    recall,
    waited_s,
)
from balancedstream_operator.writing import StatusWriter

log = logging.getLogger(__name__)

WAITING_S = 5.0
"""Pause between passes until a stream runs; it grows with the time that this takes."""

PATIENCE = 4.0
"""A stream that has been on its way for this many pauses rests for one more."""

RESTING_S = 60.0
"""Pause between passes over a stream that only a change of its spec can wake."""

OUTAGE_PASSES = 3
"""The API server must have failed this many passes in a row before the status says so."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of a pass.

    Attributes:
        status: of the stream, complete.
        events: what is new.
        interval_s: until the next pass.
        failure: what ended it too early; None if nothing did.
    """

    status: Mapping[str, Any]
    events: tuple[StreamEvent, ...]
    interval_s: float
    failure: Exception | None = None


class Supervisor:
    """Looks after one stream.

    Args:
        stream: which.
        cluster: where.
        open_source: gives the Prometheus at an endpoint.
        defaults: Prometheus for a stream that names none, and what streams may name.
        find_streams: gives all BalancedStreams that are known, this one among them.
    """

    def __init__(
        self,
        stream: Stream,
        cluster: Cluster,
        open_source: Callable[[Endpoint], Source],
        defaults: Defaults,
        find_streams: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
    ) -> None:
        self._stream = stream
        self._cluster = cluster
        self._measurer = Measurer(stream, cluster, open_source, defaults)
        self._applier = Applier(stream, cluster, find_streams)
        self._approver = Approver(stream, cluster)
        self._book = PlanBook(stream, cluster)
        # Drivers that an older release made do not say which spec they were made for.
        self._first_spec: str | None = None
        self._status: Mapping[str, Any] | None = None
        self._writer = StatusWriter(stream, cluster)
        self._events: list[StreamEvent] = []
        self._outages = 0
        self._missing = 0
        self._short_since_s: float | None = None
        self._refused = ""

    def run_pass(self, resource: Mapping[str, Any], now_s: float) -> Pass:
        """Brings a stream one step closer to its spec, and writes its status.

        Whatever goes wrong is in the status, and no pass depends on the one before.

        Args:
            resource: the BalancedStream as it was last seen.
            now_s: seconds since the Unix epoch.

        Raises:
            ClusterError: the API server does not answer, or does not take the status; nothing is
                lost, call again.
            StreamGoneError: the stream does not exist any more.
        """
        before = self._status if self._status is not None else resource.get("status") or {}
        generation = int(resource["metadata"].get("generation", 0))
        failure: Exception | None = None
        outcome = PassOutcome(self._stream)
        asked = read_asked(resource)
        try:
            outcome = self._supervise(resource, asked, before, now_s)
            answer = self._approver.answer(asked.approve, outcome, self._book.record, before)
            outcome = replace(outcome, approval=answer)
            draft = StatusDraft(before, generation, now_s)
            report(outcome, draft)
        except StreamGoneError:
            raise
        except Exception as error:
            outage = isinstance(error, ClusterError) and not error.refused
            self._outages = self._outages + 1 if outage else 0
            if outage and self._outages < OUTAGE_PASSES:
                raise
            log.exception("%s: this pass failed; the stream keeps running as it is", self._stream)
            failure = error
            draft = StatusDraft(before, int(recall(before, "observedGeneration", 0)), now_s)
            report_failure(error, draft)
        else:
            self._outages = 0
        self._write_status(draft)
        interval_s = self._choose_interval(outcome, self._status or {}, now_s)
        events, self._events = tuple(self._events), []
        return Pass(self._status or {}, events, interval_s, failure)

    def _write_status(self, draft: StatusDraft) -> None:
        """What could not be written is written with the next status, and its events are posted."""
        self._status = draft.build()
        self._events += draft.events
        try:
            self._writer.write(self._status, draft.now_s)
        except ClusterError:
            # The stream may have been deleted, or made again, meanwhile.
            self._applier.forget()
            raise

    @staticmethod
    def _choose_interval(outcome: PassOutcome, status: Mapping[str, Any], now_s: float) -> float:
        """A stream that is on its way is looked at more often, and one that rests less.

        One that has been on its way for minutes rests, too: it crashes, or nobody measures it.
        """
        phase = status.get("phase")
        settled = outcome.driver is None or outcome.driver.settled
        if phase == "Running" and outcome.spec and settled:
            return outcome.spec.metrics.interval_s
        if phase in {"Invalid", "Suspended"}:
            return RESTING_S
        return max(WAITING_S, min(waited_s(status, now_s) / PATIENCE, RESTING_S))

    def _supervise(
        self, resource: Mapping[str, Any], asked: Asked, status: Mapping[str, Any], now_s: float
    ) -> PassOutcome:
        """Everything that a pass does, except for what it writes into the BalancedStream."""
        outcome = PassOutcome(self._stream, paused=asked.paused)
        try:
            spec = read_spec(resource["spec"])
        except InvalidInputError as error:
            # One that is gone would keep its checkpoint from others.
            self._applier.require_stream()
            return replace(outcome, invalid=str(error), driver=self._find_driver(now_s))
        wanted = fingerprint(spec, asked.restart)
        if self._first_spec is None:
            # A spec that changed while no operator ran is no reason to keep an old driver.
            acted = status.get("observedGeneration") == resource["metadata"].get("generation")
            self._first_spec = wanted if acted else ""
        known_epoch = int(recall(status, "planEpoch", 0))
        found = self._book.read(known_epoch, now_s)
        # The status counts only where nothing was written with a plan.
        known_epoch = self._book.epoch or known_epoch
        record = self._book.record
        partitions = int(recall(status, "partitions", choose_partitions(spec)))
        partitions = record.partitions if record else partitions
        outcome = replace(
            outcome,
            spec=spec,
            unknown=tuple(find_unknown(resource["spec"])),
            partitions=partitions,
            plan_found=found,
        )
        try:
            children = build_children(self._stream, spec, partitions, asked.restart)
            if self._applier.is_due(children, now_s):
                self._apply(children, partitions, now_s)
                self._book.read(known_epoch, now_s)
            if found.unreadable or (found.overwritten and not found.adopted):
                # It may have been deleted with the stream.
                self._applier.require_stream()
                self._book.restore()
        except ClusterError as error:
            if not error.refused:
                raise
            refusal = f"{error}. Correct the spec; everything that ran before keeps running"
            return replace(outcome, refusal=refusal)
        driver = self._look_at_driver(wanted, now_s)
        if not driver.running:
            self._missing = 0
            return replace(outcome, driver=driver)
        answer = self._read_answer(max(known_epoch, self._book.epoch))
        record = self._book.record or Record(partitions)
        control = judge_control(self._book.plan, record, answer.answer, now_s)
        outcome = replace(outcome, driver=driver, answer=answer, control=control)
        policy = policy_of(spec)
        try:
            measurement = self._measurer.measure(spec, driver, policy, now_s)
        except MissingMeasurementsError as error:
            self._missing += 1
            holds = self._missing >= policy.scaling.metric_failures
            return replace(outcome, missing=MissingMeasurements(str(error), holds))
        self._missing = 0
        least = max(spec.executors.min, len(measurement.executors))
        desired = _recall_desired(record, self._book.plan, status, least)
        given = Given(
            plan=self._book.plan,
            planned_after=record.planned_after,
            moved=record.moved,
            desired=desired,
            last_scaled_s=record.scaled_s or parse_time(recall(status, "lastScaleTime")),
            last_scale_out=record.scale_out,
            refusals=record.refusals.follow(driver.uid, control, self._book.plan),
            refused_s=now_s - record.planned_s if control.refusal else None,
        )
        answered = answer.answer or Answer(0)
        newest_epoch = max(known_epoch, self._book.epoch, answered.epoch)
        decided = self._decide(
            replace(record, known_refusal=answered.refused),
            policy,
            measurement,
            given,
            asked,
            silent_s=control.silent_s,
            newest_epoch=newest_epoch,
            now_s=now_s,
        )
        return replace(outcome, decided=decided)

    def _apply(self, children: Sequence[Manifest], partitions: int, now_s: float) -> None:
        self._applier.check(children)
        if self._book.record is None:
            # A later limit of executors would lead to another number of partitions.
            first = Record(partitions, epoch=self._book.epoch, planned_s=now_s)
            self._book.write(self._book.plan, first)
        self._applier.apply(children, now_s)
        # A status that was lost is repaired, too.
        self._writer.forget()

    def _find_driver(self, now_s: float) -> DriverState:
        """The driver's state."""
        namespace = self._stream.namespace
        found = self._cluster.get("apps/v1", "StatefulSet", namespace, driver_name(self._stream))
        pod = self._cluster.get("v1", "Pod", namespace, driver_pod_name(self._stream))
        return describe_driver(pod, found, now_s)

    def _look_at_driver(self, wanted: str, now_s: float) -> DriverState:
        """The driver's state; a pod that was made for another spec is replaced.

        One that runs stays if only the release of the operator makes its template another one.
        """
        driver = self._find_driver(now_s)
        if driver.outdated and not (driver.running and wanted == (driver.spec or self._first_spec)):
            pod_name = driver_pod_name(self._stream)
            self._cluster.delete_pod(self._stream.namespace, pod_name, driver.uid)
            message = "the spec changed: a new driver continues from the checkpoint"
            return DriverState("Pending", "Replacing", message)
        return driver

    def _read_answer(self, known_epoch: int) -> AnswerFound:
        name = answer_name(self._stream.name)
        found = self._cluster.get("v1", "ConfigMap", self._stream.namespace, name) or {}
        text = str((found.get("data") or {}).get(ANSWER_KEY, ""))
        if not text:
            return AnswerFound()
        try:
            answer = parse_answer(text)
            check_epoch("answer", answer.epoch, known_epoch)
        except BalancedStreamError as error:
            return AnswerFound(unreadable=str(error))
        refused_anew = bool(answer.refused) and answer.refused != self._refused
        self._refused = answer.refused
        return AnswerFound(answer, refused_anew=refused_anew)

    def _decide(
        self,
        record: Record,
        policy: Policy,
        measurement: Measurement,
        given: Given,
        asked: Asked,
        *,
        silent_s: float | None,
        newest_epoch: int,
        now_s: float,
    ) -> Decided:
        """Decides on a measurement, and writes the plan that the decision asks for."""
        shortage = self._find_shortage(given.desired - len(measurement.executors), now_s)
        held = silent_s is not None or bool(asked.paused)
        approve = "" if held else asked.approve
        epoch = newest_epoch + 1
        choice = choose_plan(measurement, policy, given, epoch, now_s, approve=approve)
        new_plan = None if held else choice.plan
        scale_out = choice.decision.scaling.scale_out
        judged = scale_out if scale_out and scale_out.at_s < now_s else record.scale_out
        if new_plan is not None:
            count = len(new_plan.executors)
            written = replace(
                record,
                epoch=new_plan.epoch,
                desired=count,
                scaled_s=now_s if count != given.desired else given.last_scaled_s,
                scale_out=scale_out if count > given.desired else judged,
                planned_s=now_s,
                planned_after=dict(measurement.last_batches),
                # An executor that leaves hands over its partitions, whatever balancing decided.
                moved=bool(choice.moves) or count < given.desired,
                refusals=given.refusals,
                approved=choice.advice.id if choice.approved else record.approved,
            )
            self._book.write(new_plan, written)
        elif judged != record.scale_out:
            self._book.write(given.plan, replace(record, scale_out=judged))
        return Decided(
            measurement=measurement,
            given=given,
            choice=choice,
            newest_epoch=newest_epoch,
            new_plan=new_plan,
            silent_s=silent_s,
            shortage=shortage,
        )

    def _find_shortage(self, pending: int, now_s: float) -> str:
        """Why some executors have been missing for long; empty if none have."""
        if pending <= 0:
            self._short_since_s = None
            return ""
        if self._short_since_s is None:
            self._short_since_s = now_s
        if now_s <= self._short_since_s + SHORT_AFTER_S:
            return ""
        selector = executor_selector(self._stream.name)
        return explain_shortage(self._cluster.list_pods(self._stream.namespace, selector))


def _recall_desired(
    record: Record, plan: Plan | None, status: Mapping[str, Any], least: int
) -> int:
    """How many executors were decided on last: what is written with the plan comes first."""
    if record.desired is not None:
        return record.desired
    return len(plan.executors) if plan else int(recall(status, "desiredExecutors", least))
