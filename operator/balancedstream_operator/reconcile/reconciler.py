"""One pass over one stream: observe it, decide with the core, realize the decision, report.

A pass starts from what the cluster holds and ends with what the cluster holds, so an operator that
was restarted continues with the next pass. What is kept between passes only saves work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from balancedstream.core.wire.objects import plan_name
from balancedstream.core.wire.plan import Answer
from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.annotations import Asked, read_asked
from balancedstream_operator.api.escalations import refuse_escalation
from balancedstream_operator.api.partitions import choose_partitions
from balancedstream_operator.api.resource import Manifest, Stream
from balancedstream_operator.api.spec import StreamSpec, find_unknown, policy_of, read_spec
from balancedstream_operator.api.status import (
    StatusDraft,
    StreamEvent,
    has_batches,
    recall,
    waited_s,
)
from balancedstream_operator.children.applier import Applier, refuse_stranger
from balancedstream_operator.children.conflicts import check_templates
from balancedstream_operator.children.fingerprint import fingerprint_spec
from balancedstream_operator.children.manifests import build_children, build_target_children
from balancedstream_operator.children.rights import DriverRights
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.driver.watch import DriverWatch
from balancedstream_operator.errors import ClusterError, StreamGoneError, StreamLeavingError
from balancedstream_operator.kube.cluster import Cluster
from balancedstream_operator.kube.reading import refuse_unread
from balancedstream_operator.kube.refusals import describe_refusal
from balancedstream_operator.kube.retry import RESTING_S, choose_retry_s
from balancedstream_operator.kube.stream_reader import StreamReader
from balancedstream_operator.observe.endpoints import Endpoint, refuse_queries
from balancedstream_operator.observe.measurement import Measurement, MissingMeasurementsError
from balancedstream_operator.observe.measurer import Measurer, Source
from balancedstream_operator.plan.answers import AnswerReader, Control, judge_control
from balancedstream_operator.plan.book import PlanBook
from balancedstream_operator.plan.choice import Chooser
from balancedstream_operator.plan.record import Record
from balancedstream_operator.plan.shares import Shares
from balancedstream_operator.plan.start import Start, bound_epoch
from balancedstream_operator.reconcile.approvals import Approver
from balancedstream_operator.reconcile.outcome import Decided, MissingMeasurements, PassOutcome
from balancedstream_operator.reconcile.pace import Pace
from balancedstream_operator.reconcile.turns import Turns
from balancedstream_operator.report.report import report, report_deletion, report_failure
from balancedstream_operator.report.writer import StatusWriter
from balancedstream_operator.settings import Settings

log = logging.getLogger(__name__)

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
        settings: Prometheus for a stream that names none, and what streams may ask for.
        find_streams: gives all BalancedStreams that are known, this one among them.
        turns: of all streams, to replace their drivers.
        shares: of all streams, under the operator's limits over all of them.
    """

    def __init__(
        self,
        stream: Stream,
        cluster: Cluster,
        open_source: Callable[[Endpoint], Source],
        settings: Settings,
        find_streams: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
        *,
        turns: Turns | None = None,
        shares: Shares | None = None,
    ) -> None:
        self._stream = stream
        self._cluster = cluster
        self._settings = settings
        self._measurer = Measurer(stream, cluster, open_source, settings)
        self._reader = StreamReader(stream, cluster)
        self._applier = Applier(stream, cluster, self._reader, find_streams, settings.namespaces)
        self._approver = Approver(stream, cluster)
        self._turns = turns or Turns()
        self._rights = DriverRights(stream, cluster)
        self._watch = DriverWatch(stream, cluster)
        self._chooser = Chooser(
            stream, self._measurer, shares or Shares(settings.caps), find_streams
        )
        self._book = PlanBook(stream, cluster)
        self._answers = AnswerReader(stream, cluster)
        # Drivers that an older release made do not say which spec they were made for.
        self._first_spec: str | None = None
        self._status: Mapping[str, Any] | None = None
        self._writer = StatusWriter(stream, cluster)
        self._events: list[StreamEvent] = []
        self._outages = 0
        self._missing = 0
        self._pace = Pace()

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
        try:
            return self._pass(resource, now_s)
        except StreamGoneError:
            self._turns.end(self._stream)
            raise

    def _pass(self, resource: Mapping[str, Any], now_s: float) -> Pass:
        try:
            resource = self._reader.find_current(resource)
        except StreamLeavingError as error:
            return self._leave(resource, error, now_s)
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
        except StreamLeavingError as error:
            return self._leave(resource, error, now_s)
        except Exception as error:
            outage = isinstance(error, ClusterError) and not error.refused
            self._outages = self._outages + 1 if outage else 0
            if outage and self._outages < OUTAGE_PASSES:
                raise
            log.exception("%s: this pass failed; its pods stay as they are", self._stream)
            failure = error
            self._pace.forget()
            draft = StatusDraft(before, int(recall(before, "observedGeneration", 0)), now_s)
            report_failure(error, draft)
        else:
            self._outages = 0
        self._write_status(draft)
        if failure is None:
            self._turns.see(self._stream, self._status or {})
        interval_s = self._choose_interval(outcome, self._status or {}, now_s)
        events, self._events = tuple(self._events), []
        return Pass(self._status or {}, events, interval_s, failure)

    def _leave(self, resource: Mapping[str, Any], error: StreamLeavingError, now_s: float) -> Pass:
        """Ends a pass over a stream that is being deleted: it gets a status, and nothing else."""
        self._turns.end(self._stream)
        before = self._status if self._status is not None else resource.get("status") or {}
        draft = StatusDraft(before, int(recall(before, "observedGeneration", 0)), now_s)
        report_deletion(str(error), draft)
        self._write_status(draft)
        events, self._events = tuple(self._events), []
        return Pass(self._status or {}, events, RESTING_S)

    def _take_turn(self, status: Mapping[str, Any], now_s: float) -> Stream | None:
        """The stream whose driver is replaced first; one without batches waits for nobody."""
        return self._turns.take(self._stream, now_s) if has_batches(status) else None

    def _write_status(self, draft: StatusDraft) -> None:
        """What could not be written is written with the next status, and its events are posted."""
        self._status = draft.build()
        self._events += draft.events
        try:
            self._writer.write(self._status, draft.now_s)
        except ClusterError:
            self._reader.forget()
            raise

    def _choose_interval(
        self, outcome: PassOutcome, status: Mapping[str, Any], now_s: float
    ) -> float:
        """A stream that is on its way is looked at more often, and one that rests less.

        One that has been on its way for minutes rests, too: it crashes, or nobody measures it.
        """
        phase = status.get("phase")
        settled = outcome.driver is None or outcome.driver.settled
        if phase == "Running" and outcome.spec and settled:
            return self._pace.choose_pause_s(outcome.spec.metrics.interval_s, now_s)
        if phase in {"Invalid", "Suspended"}:
            return RESTING_S
        return choose_retry_s(waited_s(status, now_s))

    def _supervise(
        self, resource: Mapping[str, Any], asked: Asked, status: Mapping[str, Any], now_s: float
    ) -> PassOutcome:
        """Everything that a pass does, except for what it writes into the BalancedStream."""
        outcome = PassOutcome(self._stream, paused=asked.paused)
        try:
            refuse_unread(resource)
            spec = read_spec(resource["spec"])
            if spec.target_ref is None:
                check_templates(self._stream, spec)
            refuse_queries(spec, self._settings)
            if self._settings.forbids_escalation:
                refuse_escalation(spec, self._settings.allowed_accounts)
        except InvalidInputError as error:
            # A deleted stream must not block its checkpoint: look before reporting.
            self._reader.require()
            ours = "targetRef" not in resource["spec"]
            driver = self._watch.find_driver(now_s) if ours else None
            return replace(outcome, invalid=str(error), driver=driver)
        wanted = fingerprint_spec(spec, asked.restart)
        if self._first_spec is None:
            # A spec that changed while no operator ran is no reason to keep an old driver.
            acted = status.get("observedGeneration") == resource["metadata"].get("generation")
            self._first_spec = wanted if acted else ""
        bound = bound_epoch(resource["metadata"], now_s)
        found = self._book.read(bound, now_s)
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
            driver = self._keep(outcome, spec, asked.restart, bound, now_s)
        except ClusterError as error:
            if not error.refused:
                raise
            # A deleted stream must not block its checkpoint: look before reporting.
            self._reader.require()
            driver = self._find_driver(spec, now_s)
            runs = driver is not None and driver.running
            refusal = describe_refusal(str(error), error.advice, runs=runs)
            outcome = replace(outcome, refusal=refusal, waits=error.passes, driver=driver)
            # What runs by the objects before is led on, if it can be, and not replaced.
            if driver is None or found.foreign or self._book.record is None:
                return outcome
        if driver is None:
            driver = self._watch.look(
                wanted,
                self._first_spec,
                asked.restart,
                lambda: self._take_turn(status, now_s),
                now_s,
            )
        begun = self._begin(driver, now_s)
        outcome = replace(outcome, driver=driver, begun=begun)
        if not driver.running:
            self._missing = 0
            self._pace.forget()
            return outcome
        return self._lead(outcome, spec, driver, asked=asked, status=status, now_s=now_s)

    def _find_driver(self, spec: StreamSpec, now_s: float) -> DriverState | None:
        """The driver, which nothing is done to; None if the API server refuses to look for it."""
        if spec.target_ref is None:
            return self._watch.find_driver(now_s)
        try:
            return self._watch.look_at_target(
                spec.target_ref, self._answers.read_application, now_s
            )
        except ClusterError as error:
            if not error.refused:
                raise
            return None

    def _keep(
        self,
        outcome: PassOutcome,
        spec: StreamSpec,
        restart: str,
        bound: int,
        now_s: float,
    ) -> DriverState | None:
        """Keeps the objects of the stream as its spec wants them.

        Returns:
            The driver, if it is another operator's: what it needs depends on it.
        """
        driver, found = None, outcome.plan_found
        if found.foreign:
            refuse_stranger("ConfigMap", plan_name(self._stream.name))
        if spec.target_ref is None:
            children = build_children(self._stream, spec, outcome.partitions, restart)
        else:
            driver = self._watch.look_at_target(
                spec.target_ref, self._answers.read_application, now_s
            )
            needs_role = self._rights.needs_role(driver.account, now_s)
            children = build_target_children(
                self._stream, driver.account if needs_role else "", spec
            )
        if self._applier.is_due(children, now_s):
            self._apply(children, outcome.partitions, bound, now_s)
            self._book.read(bound, now_s)
        if found.unreadable or (found.overwritten and not found.adopted):
            # It may have been deleted with the stream.
            self._reader.require()
            self._book.restore()
        return driver

    def _lead(
        self,
        outcome: PassOutcome,
        spec: StreamSpec,
        driver: DriverState,
        *,
        asked: Asked,
        status: Mapping[str, Any],
        now_s: float,
    ) -> PassOutcome:
        """Measures a stream whose driver runs, decides, and writes what was decided."""
        answer = self._answers.read(self._book.epoch, driver.application)
        record = self._book.record or Record(outcome.partitions)
        control = judge_control(
            self._book.plan, record.planned_s, record.known_refusal, answer.answer, now_s
        )
        if spec.target_ref and answer.answer is None:
            # Only its answer says whether the plugin is there, and whether it may scale.
            control = Control(None, silent_s=now_s - record.planned_s)
        outcome = replace(outcome, answer=answer, control=control)
        seen, interval_s = (spec, asked, driver), spec.metrics.interval_s
        if status.get("phase") == "Running" and not self._pace.is_due(seen, interval_s, now_s):
            return outcome
        policy = policy_of(spec)
        try:
            measurement = self._measurer.measure(spec, driver, policy, now_s)
        except MissingMeasurementsError as error:
            self._missing += 1
            holds = self._missing >= policy.scaling.metric_failures
            silent = spec.target_ref is not None and answer.answer is None
            reason = f"{error}{_say_how_to_attach(self._stream, driver) if silent else ''}"
            return replace(outcome, missing=MissingMeasurements(reason, holds))
        self._missing = 0
        self._pace.note(seen, now_s)
        start = Start(
            spec, driver, record, self._book.plan, answer.answer or Answer(0), control, status
        )
        return replace(outcome, decided=self._decide(start, measurement, asked, now_s))

    def _decide(
        self, start: Start, measurement: Measurement, asked: Asked, now_s: float
    ) -> Decided:
        """Decides on a measurement, and writes the plan that the decision asks for."""
        silent_s, answer = start.control.silent_s, start.answer
        held = silent_s is not None or bool(asked.paused)
        given = start.give(measurement, now_s)
        pods = start.driver.select_executors(self._stream, start.spec.target_ref)
        running = len(measurement.executors)
        shortage = self._watch.find_shortage(given.desired, running, pods, start.spec, now_s)
        chosen = self._chooser.choose(
            start,
            given,
            measurement,
            max(self._book.epoch, answer.epoch) + 1,
            approve=asked.approve,
            held=held,
            now_s=now_s,
        )
        choice = chosen.choice
        new_plan = None if held else choice.plan
        record = start.note(given, measurement, choice, new_plan, now_s)
        if record != start.record:
            self._book.write(new_plan or given.plan, record)
        return Decided(
            measurement=measurement,
            given=given,
            choice=choice,
            new_plan=new_plan,
            silent_s=silent_s,
            shortage=shortage,
            scales=answer.scales,
            demands=chosen.demands,
            queried=chosen.queried,
        )

    def _begin(self, driver: DriverState, now_s: float) -> bool:
        """Begins a new history of epochs, if the newest plan is for another application.

        Returns:
            Whether there was one before.
        """
        record = self._book.record or Record(0)
        if not driver.application or record.application == driver.application:
            return False
        known = bool(record.application)
        if known:
            begun = Record(record.partitions, 0, planned_s=now_s, application=driver.application)
            self._book.write(None, begun)
        else:
            told = replace(record, planned_s=now_s, application=driver.application)
            self._book.write(self._book.plan, told)
        return known

    def _apply(
        self, children: Sequence[Manifest], partitions: int, bound: int, now_s: float
    ) -> None:
        old = self._applier.check(children)
        if self._book.record is None:
            # A later limit of executors would lead to another number of partitions. An old stream
            # has lost its record, and its driver may know of plans that nobody else does.
            epoch = bound if old and self._book.plan is None else self._book.epoch
            self._book.write(self._book.plan, Record(partitions, epoch, planned_s=now_s))
        self._applier.apply(children, now_s)


def _say_how_to_attach(stream: Stream, driver: DriverState) -> str:
    """What the driver of another operator needs, for a person."""
    return (
        f". Pod {driver.pod} has not answered either: its application needs the plugin, with "
        f"spark.balancedstream.stream={stream} (docs/existing-spark.md)"
    )
