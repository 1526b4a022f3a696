"""One pass over one stream: observe it, decide with the core, realize the decision.

All state is in the cluster, so an operator that was restarted continues with the next pass. State
that the reconciler keeps between passes only saves work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from balancedstream.core.periods import find_exclusion, find_floor
from balancedstream.core.wire.objects import plan_name
from balancedstream.core.wire.plan import Answer
from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.annotations import Requests, read_requests
from balancedstream_operator.api.escalations import refuse_escalation
from balancedstream_operator.api.resource import Manifest, Stream
from balancedstream_operator.api.spec import (
    StreamSpec,
    choose_partitions,
    find_removed,
    find_unknown,
    read_spec,
)
from balancedstream_operator.api.status import Status
from balancedstream_operator.children.applier import Applier, refuse_stranger
from balancedstream_operator.children.conflicts import check_templates
from balancedstream_operator.children.fingerprint import fingerprint_spec
from balancedstream_operator.children.manifests import build_children, build_target_children
from balancedstream_operator.children.rights import DriverRights
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.driver.watch import DriverWatch
from balancedstream_operator.errors import ConflictError, MissingMeasurementsError, RefusedError
from balancedstream_operator.kube.cluster import Cluster
from balancedstream_operator.kube.reading import refuse_unread
from balancedstream_operator.kube.refusals import describe_refusal
from balancedstream_operator.kube.stream_reader import StreamReader
from balancedstream_operator.observe.endpoints import Endpoint, refuse_queries
from balancedstream_operator.observe.floors import FloorQuery
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.observe.measurer import Measurer, Source
from balancedstream_operator.plan.advice import Advice, advise_partitions, name_partitions
from balancedstream_operator.plan.answers import AnswerFound, AnswerReader, Control, judge_control
from balancedstream_operator.plan.book import PlanBook
from balancedstream_operator.plan.planner import (
    DecisionInput,
    Demands,
    PlanChoice,
    choose_plan,
    find_demands,
)
from balancedstream_operator.plan.record import Record
from balancedstream_operator.plan.shares import Shares
from balancedstream_operator.plan.stream_state import StreamState, bound_epoch
from balancedstream_operator.reconcile.approvals import answer_approval, carry_out_due
from balancedstream_operator.reconcile.outcome import Decided, MissingMeasurements, PassOutcome
from balancedstream_operator.reconcile.pace import Pace
from balancedstream_operator.reconcile.repartitioning import Repartitioner, describe_hold
from balancedstream_operator.settings import Settings

METRIC_FAILURES = 3
"""The operator holds the stream as it is after this many passes in a row without a measurement."""


@dataclass(frozen=True, slots=True)
class _Context:
    """The goal of a pass over a stream with a valid spec, and its time.

    No plan of the stream has an epoch above `bound`.
    """

    spec: StreamSpec
    requests: Requests
    status: Status
    bound: int
    now_s: float


class Reconciler:
    """Brings one stream closer to its spec, a step with each pass.

    The parameters are those of `Passes`. `take_turn` takes the turn to replace the driver, or gives
    the stream that has the turn.
    """

    def __init__(
        self,
        stream: Stream,
        cluster: Cluster,
        reader: StreamReader,
        open_source: Callable[[Endpoint], Source],
        settings: Settings,
        *,
        find_streams: Callable[[], Iterable[Mapping[str, Any]]],
        take_turn: Callable[[float], Stream | None],
        shares: Shares,
    ) -> None:
        self._stream = stream
        self._cluster = cluster
        self._reader = reader
        self._settings = settings
        self._take_turn = take_turn
        self._find_streams = find_streams
        self._shares = shares
        self._measurer = Measurer(stream, cluster, open_source, settings)
        self._applier = Applier(stream, cluster, reader, find_streams, settings.namespaces)
        self._rights = DriverRights(stream, cluster)
        self._watch = DriverWatch(stream, cluster)
        self._floor = FloorQuery()
        self._book = PlanBook(stream, cluster)
        self._answers = AnswerReader(stream, cluster)
        self._repartitioner = Repartitioner(stream, cluster, reader, self._answers)
        # Drivers that an older release made do not say which spec they were made for.
        self._first_spec: str | None = None
        # To check a spec takes as long as the rest of a pass, and it seldom changes.
        self._accepted: tuple[str, StreamSpec] | None = None
        self._missing = 0
        self._pace = Pace()

    def reconcile(self, resource: Mapping[str, Any], status: Status, now_s: float) -> PassOutcome:
        """One pass: observes the stream, decides, and realizes the decision.

        `status` may be newer than that of the resource.

        Raises:
            ClusterError: the API server does not answer; nothing is lost, call again.
            StreamGoneError: the stream does not exist any more.
            StreamLeavingError: it is being deleted.
        """
        requests = read_requests(resource)
        outcome = PassOutcome(self._stream, paused=requests.paused, price=self._settings.price)
        try:
            spec = self._read_spec(resource)
        except InvalidInputError as error:
            outcome = self._refuse_spec(outcome, resource, str(error), now_s)
        else:
            bound = bound_epoch(resource["metadata"], now_s)
            context = _Context(spec, requests, status, bound, now_s)
            self._note_first_spec(context, resource)
            outcome = replace(
                outcome,
                spec=spec,
                unknown=tuple(find_unknown(resource["spec"])),
                removed=tuple(find_removed(resource["spec"])),
            )
            outcome = self._follow_spec(context, outcome)
            due_in_s = self._pace.left_s(spec.metrics.interval_s, now_s)
            outcome = replace(outcome, due_in_s=due_in_s)
        approval = answer_approval(
            self._cluster, requests.approve, outcome, self._book.record, status
        )
        if approval is None:
            approval = carry_out_due(self._cluster, outcome, status, now_s)
        return replace(outcome, approval=approval)

    def decide_anew(self) -> None:
        """Lets the next pass measure and decide, because nobody reported this one."""
        self._pace.forget()

    def _read_spec(self, resource: Mapping[str, Any]) -> StreamSpec:
        refuse_unread(resource)
        # To Python, 1 and true are equal; to whoever reads a pod template they are not.
        given = json.dumps(resource["spec"])
        if self._accepted is not None and self._accepted[0] == given:
            return self._accepted[1]
        spec = read_spec(resource["spec"])
        if spec.target_ref is None:
            check_templates(self._stream, spec)
        refuse_queries(spec, self._settings)
        if self._settings.forbids_escalation:
            refuse_escalation(spec, self._settings.allowed_accounts)
        self._accepted = given, spec
        return spec

    def _refuse_spec(
        self, outcome: PassOutcome, resource: Mapping[str, Any], why: str, now_s: float
    ) -> PassOutcome:
        # A deleted stream must not block its checkpoint: look before reporting.
        self._reader.require()
        ours = "targetRef" not in resource["spec"]
        driver = self._watch.find_driver(now_s) if ours else None
        return replace(outcome, invalid=why, driver=driver)

    def _note_first_spec(self, context: _Context, resource: Mapping[str, Any]) -> None:
        """Notes the spec of older drivers, unless it changed while no operator ran."""
        if self._first_spec is None:
            acted_on = context.status.observed_generation
            is_same = acted_on == resource["metadata"].get("generation")
            made_for = fingerprint_spec(context.spec, context.requests.restart)
            self._first_spec = made_for if is_same else ""

    def _follow_spec(self, context: _Context, outcome: PassOutcome) -> PassOutcome:
        """The steps of a pass over a stream with a valid spec, up to the first that ends it."""
        outcome = self._read_plan(context, outcome)
        outcome = self._step_repartition(context, outcome)
        outcome = self._keep_children(context, outcome)
        if outcome.refusal and not self._can_be_led(outcome):
            self._repartitioner.note(None, None, follows=False)
            return outcome
        driver = outcome.driver or self._look_at_driver(context, outcome.partitions)
        known = outcome.repartition
        if known is not None and known.holds_driver:
            waits = self._repartitioner.act(known, context.spec)
            driver = describe_hold(driver, known, waits)
        outcome = replace(outcome, driver=driver, begun=self._begin_epochs(driver, context.now_s))
        if driver.running:
            outcome = self._lead(context, outcome, driver)
        follows = outcome.control is not None and outcome.control.follows is True
        measurement = outcome.decided.measurement if outcome.decided else None
        self._repartitioner.note(driver, measurement, follows=follows)
        if driver.running:
            return outcome
        self._missing = 0
        self._pace.forget()
        return outcome

    def _read_plan(self, context: _Context, outcome: PassOutcome) -> PassOutcome:
        """Reads the newest plan and its record, which fixes the number of state partitions."""
        found = self._book.read(context.bound, context.now_s)
        known = context.status.partitions
        known = choose_partitions(context.spec) if known is None else known
        partitions = self._book.record.partitions if self._book.record else known
        return replace(outcome, partitions=partitions, plan_found=found)

    def _step_repartition(self, context: _Context, outcome: PassOutcome) -> PassOutcome:
        """Decides on the next step of another number of partitions, and notes it."""
        if outcome.plan_found.foreign:
            return outcome
        record = self._book.record
        paused = f"paused ({context.requests.paused})" if context.requests.paused else ""
        found = self._repartitioner.step(
            record.repartition if record else None,
            outcome.partitions,
            context.spec,
            held=paused or find_exclusion(context.spec.policy.schedule.excluded, context.now_s),
            is_sure=record is not None and not outcome.plan_found.overwritten,
            now_s=context.now_s,
        )
        present = outcome.partitions if found is None or found.is_over else found.present
        if record is not None and (found, present) != (record.repartition, record.partitions):
            # A Job may be missing because the stream was deleted, and the plan with it.
            self._reader.require()
            told = replace(record, partitions=present, repartition=found)
            self._book.write(self._book.plan, told)
        return replace(outcome, partitions=present, repartition=found)

    def _keep_children(self, context: _Context, outcome: PassOutcome) -> PassOutcome:
        """Makes the objects of the stream match its spec; the API server may refuse."""
        try:
            driver = self._apply_children(context, outcome)
        except (RefusedError, ConflictError) as error:
            # A deleted stream must not block its checkpoint: look before reporting.
            self._reader.require()
            driver = self._find_driver(context)
            runs = driver is not None and driver.running
            refusal = describe_refusal(str(error), error.advice, runs=runs)
            return replace(outcome, refusal=refusal, waits=error.passes, driver=driver)
        return replace(outcome, driver=driver)

    def _apply_children(self, context: _Context, outcome: PassOutcome) -> DriverState | None:
        """Applies the objects of the stream that differ from its spec.

        Returns:
            The driver, if another operator runs it, because the objects depend on it.
        """
        driver, found, now_s = None, outcome.plan_found, context.now_s
        if found.foreign:
            refuse_stranger("ConfigMap", plan_name(self._stream.name))
        if context.spec.target_ref is None:
            children = build_children(
                self._stream,
                context.spec,
                outcome.partitions,
                context.requests.restart,
                runs=outcome.repartition is None or not outcome.repartition.holds_driver,
            )
        else:
            driver = self._watch.look_at_target(
                context.spec.target_ref, self._answers.read_application, now_s
            )
            needs_role = self._rights.needs_role(driver.account, now_s)
            account = driver.account if needs_role else ""
            children = build_target_children(self._stream, account, context.spec)
        if self._applier.is_due(children, now_s):
            self._apply(children, outcome, context.bound, now_s)
            self._book.read(context.bound, now_s)
        if found.unreadable or (found.overwritten and not found.adopted):
            # Somebody may have deleted the stream, and the plan with it.
            self._reader.require()
            self._book.restore()
        return driver

    def _apply(
        self, children: Sequence[Manifest], outcome: PassOutcome, bound: int, now_s: float
    ) -> None:
        """Applies children; the record comes first, because it fixes the number of partitions."""
        old = self._applier.check(children)
        if self._book.record is None:
            # A later limit of executors would lead to another number of partitions. If the stream
            # has lost its record, only its driver may know the epoch of the last plan.
            epoch = bound if old and self._book.plan is None else self._book.epoch
            record = Record(
                outcome.partitions, epoch, planned_s=now_s, repartition=outcome.repartition
            )
            self._book.write(self._book.plan, record)
        self._applier.apply(children, now_s)

    def _find_driver(self, context: _Context) -> DriverState | None:
        """The driver as it is; None if the operator may not look for it."""
        target, now_s = context.spec.target_ref, context.now_s
        if target is None:
            return self._watch.find_driver(now_s)
        try:
            return self._watch.look_at_target(target, self._answers.read_application, now_s)
        except RefusedError:
            return None

    def _can_be_led(self, outcome: PassOutcome) -> bool:
        """Whether the operator leads a driver although the API server refuses children."""
        known = not outcome.plan_found.foreign and self._book.record is not None
        return known and outcome.driver is not None

    def _look_at_driver(self, context: _Context, partitions: int) -> DriverState:
        """The stream's own driver; the operator replaces it if its spec changed."""
        spec, restart = context.spec, context.requests.restart
        # A stream without progress need not wait for others.
        take_turn = self._take_turn if context.status.has_batches else lambda _: None
        return self._watch.look(
            (fingerprint_spec(spec, restart), fingerprint_spec(spec, restart, partitions)),
            self._first_spec or "",
            restart,
            lambda: take_turn(context.now_s),
            context.now_s,
        )

    def _begin_epochs(self, driver: DriverState, now_s: float) -> bool:
        """Begins a new history of epochs if the newest plan is for another application.

        Returns:
            Whether it replaced an earlier history.
        """
        record = self._book.record or Record(0)
        if not driver.application or record.application == driver.application:
            return False
        if not record.application:
            told = replace(record, planned_s=now_s, application=driver.application)
            self._book.write(self._book.plan, told)
            return False
        begun = Record(record.partitions, 0, planned_s=now_s, application=driver.application)
        self._book.write(None, begun)
        return True

    def _lead(self, context: _Context, outcome: PassOutcome, driver: DriverState) -> PassOutcome:
        """Leads a running driver: collects, evaluates and executes, if a decision is due."""
        record = self._book.record or Record(outcome.partitions)
        answer = self._answers.read(self._book.epoch, driver.application)
        control = self._judge_control(context, answer, record)
        outcome = replace(outcome, answer=answer, control=control)
        if not self._is_due(context, driver):
            return outcome
        try:
            measurement = self._collect(context, driver)
        except MissingMeasurementsError as error:
            return replace(outcome, missing=self._count_missing(context, driver, answer, error))
        state = StreamState(
            context.spec,
            driver,
            record,
            self._book.plan,
            answer.answer or Answer(0),
            control,
            context.status,
        )
        decided = self._evaluate(context, state, measurement)
        self._execute(state, decided, context.now_s)
        return replace(outcome, decided=decided)

    def _judge_control(self, context: _Context, answer: AnswerFound, record: Record) -> Control:
        if context.spec.target_ref and answer.answer is None:
            # Only the driver's answer tells whether it has the plugin, and whether it may scale.
            return Control(None, silent_s=context.now_s - record.planned_s)
        return judge_control(
            self._book.plan, record.planned_s, record.known_refusal, answer.answer, context.now_s
        )

    def _is_due(self, context: _Context, driver: DriverState) -> bool:
        """Whether to decide now: after an interval, or at once if something is new."""
        seen, interval_s = self._list_causes(context, driver), context.spec.metrics.interval_s
        runs = context.status.phase == "Running"
        return not runs or self._pace.is_due(seen, interval_s, context.now_s)

    def _collect(self, context: _Context, driver: DriverState) -> Measurement:
        spec, now_s = context.spec, context.now_s
        measurement = self._measurer.measure(spec, driver, spec.policy, now_s)
        self._missing = 0
        self._pace.note(self._list_causes(context, driver), now_s)
        return measurement

    def _list_causes(self, context: _Context, driver: DriverState) -> object:
        """What a decision depends on beside measurements; periods begin and end within seconds."""
        schedule, now_s = context.spec.policy.schedule, context.now_s
        periods = find_floor(schedule.floors, now_s), find_exclusion(schedule.excluded, now_s)
        return context.spec, context.requests, driver, periods

    def _count_missing(
        self, context: _Context, driver: DriverState, answer: AnswerFound, error: Exception
    ) -> MissingMeasurements:
        self._missing += 1
        reason = str(error)
        if context.spec.target_ref is not None and answer.answer is None:
            reason += (
                f". Pod {driver.pod} has not answered either: its application needs the plugin, "
                f"with spark.balancedstream.stream={self._stream} (docs/existing-spark.md)"
            )
        return MissingMeasurements(reason, self._missing >= METRIC_FAILURES)

    def _evaluate(self, context: _Context, state: StreamState, measurement: Measurement) -> Decided:
        silent_s, answer, now_s = state.control.silent_s, state.answer, context.now_s
        held = "nothing is to change now" if context.requests.paused else ""
        if state.record.repartition is not None and state.record.repartition.ends_queries:
            held = held or "its queries are to end, for another number of state partitions"
        if silent_s is not None:
            held = held or f"the driver has not answered for {silent_s:.0f} s"
        inputs = state.build_inputs(measurement, now_s)
        pods = state.driver.select_executors(self._stream, state.spec.target_ref)
        running = len(measurement.executors)
        shortage = self._watch.find_shortage(inputs.desired, running, pods, state.spec, now_s)
        choice = self._choose(context, state, inputs, measurement, held)
        more = advise_partitions(choice.decision, measurement, state.spec, state.record.partitions)
        known = state.record.repartition
        if known is not None and (
            not known.is_over or (known.why and more.id == name_partitions(known.wanted))
        ):
            more = Advice()
        return Decided(
            measurement=measurement,
            inputs=inputs,
            choice=choice,
            silent_s=silent_s,
            shortage=shortage,
            scales=answer.scales,
            partitions=more,
        )

    def _choose(
        self,
        context: _Context,
        state: StreamState,
        inputs: DecisionInput,
        measurement: Measurement,
        held: str,
    ) -> PlanChoice:
        """Decides under all demands, and then within the limits over all streams."""
        spec, policy, now_s = state.spec, state.policy, context.now_s
        queried = self._floor.look(
            spec.executors.min_query,
            lambda: self._measurer.ask(spec, now_s),
            inputs.desired,
            now_s,
        )
        demands = find_demands(policy, queried, now_s)
        demands = replace(demands, held=held, alone=not self._shares.caps.are_set)
        next_epoch = max(self._book.epoch, state.answer.epoch) + 1
        approve = context.requests.approve

        def choose(demands: Demands) -> PlanChoice:
            return choose_plan(
                measurement, policy, inputs, next_epoch, approve=approve, demands=demands
            )

        choice = choose(demands)
        if not self._shares.caps.are_set:
            return choice
        grows = choice.plan is not None and len(choice.plan.executors) > inputs.desired
        most, why = self._shares.ask(
            self._stream,
            state.claim(inputs, choice, measurement),
            self._find_streams(),
            now_s,
            takes=grows,
            waits=policy.scaling.acts and not held,
        )
        return choose(replace(demands, most=most, most_why=why)) if why else choice

    def _execute(self, state: StreamState, decided: Decided, now_s: float) -> None:
        """Writes the plan of a decision, and its record."""
        inputs, plan = decided.inputs, decided.choice.plan
        record = state.note(inputs, decided.measurement, decided.choice, now_s)
        if record != state.record:
            self._book.write(plan or inputs.plan, record)
