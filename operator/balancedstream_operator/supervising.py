"""One pass over one stream: observe it, decide with the core, realize the decision, report.

A pass starts from what the cluster holds and ends with what the cluster holds, so an operator that
was restarted continues with the next pass. What is kept between passes only saves work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from balancedstream.core.objects import ANSWER_KEY, PLAN_KEY, answer_name, plan_name
from balancedstream.core.plan import Answer, Plan, parse_answer, parse_plan
from balancedstream.core.policy import Policy
from balancedstream.core.scaling import ScaleOut
from balancedstream.errors import BalancedStreamError, InvalidInputError
from balancedstream_operator.children import build_children, build_plan
from balancedstream_operator.drivers import DriverState, describe_driver
from balancedstream_operator.errors import ClusterError, StreamGoneError
from balancedstream_operator.measurements import Measurement, MissingMeasurementsError
from balancedstream_operator.planner import Advice, Given, advise, choose_plan
from balancedstream_operator.ports import Cluster, Source
from balancedstream_operator.reporting import (
    AnswerFound,
    Decided,
    MissingMeasurements,
    PassOutcome,
    report,
)
from balancedstream_operator.resource import (
    API_VERSION,
    KIND,
    Manifest,
    Stream,
    driver_name,
    driver_pod_name,
)
from balancedstream_operator.spec import StreamSpec, choose_partitions, policy_of, read_spec
from balancedstream_operator.status import (
    StatusDraft,
    StreamEvent,
    changed_fields,
    parse_time,
    recall,
)

REPAIR_S = 300.0
"""Children are applied when the spec changes, and this often to undo changes by others."""

SILENT_AFTER_S = 60.0
"""A driver that has not answered a plan for this long gets no new one."""

WAITING_S = 5.0
"""Pause between passes until a stream runs."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of a pass.

    Attributes:
        status: of the stream, complete.
        events: what is new.
        interval_s: until the next pass.
    """

    status: Mapping[str, Any]
    events: tuple[StreamEvent, ...]
    interval_s: float


class Supervisor:
    """Looks after one stream.

    Args:
        stream: which.
        cluster: where.
        open_source: gives the Prometheus at a URL.
        default_url: Prometheus for a stream that names none; empty for none.
    """

    def __init__(
        self,
        stream: Stream,
        cluster: Cluster,
        open_source: Callable[[str], Source],
        default_url: str,
    ) -> None:
        self._stream = stream
        self._cluster = cluster
        self._open_source = open_source
        self._default_url = default_url
        self._status: Mapping[str, Any] | None = None
        self._applied = ""
        self._applied_s = 0.0
        self._missing = 0
        self._plan: Plan | None = None
        self._planned_s = 0.0
        self._planned_after: Mapping[str, int] = {}
        self._moved = False
        # Lost when the operator restarts: at worst a scale-out that did not help is made again.
        self._last_scale_out: ScaleOut | None = None
        self._short_since_s: float | None = None
        self._advice = Advice()
        self._refused = ""

    def run_pass(self, resource: Mapping[str, Any], now_s: float) -> Pass:
        """Brings a stream one step closer to its spec, and writes its status.

        Args:
            resource: the BalancedStream as it was last seen.
            now_s: seconds since the Unix epoch.

        Raises:
            ClusterError: the API server cannot be reached; nothing is lost, call again.
            StreamGoneError: the stream does not exist any more.
        """
        before = self._status if self._status is not None else resource.get("status") or {}
        outcome = self._supervise(resource["spec"], before, now_s)
        draft = StatusDraft(before, int(resource["metadata"].get("generation", 0)), now_s)
        report(outcome, draft)
        status = draft.build()
        changes = changed_fields(before, status)
        if changes:
            self._cluster.write_status(self._stream.namespace, self._stream.name, changes)
        self._status = status
        spec, running = outcome.spec, status.get("phase") == "Running"
        # A stream that does not run yet is looked at more often.
        interval_s = spec.metrics.interval_s if spec and running else WAITING_S
        return Pass(status, tuple(draft.events), interval_s)

    def _supervise(self, manifest: object, status: Mapping[str, Any], now_s: float) -> PassOutcome:
        """Everything that a pass does, except for writing the status."""
        outcome = PassOutcome(self._stream)
        try:
            spec = read_spec(manifest)
        except InvalidInputError as error:
            return replace(outcome, invalid=str(error))
        partitions = int(recall(status, "partitions", choose_partitions(spec)))
        outcome = replace(outcome, spec=spec, partitions=partitions)
        try:
            self._apply_children(spec, partitions, now_s)
        except ClusterError as error:
            if not error.refused:
                raise
            refusal = f"{error}. Correct the spec; everything that ran before keeps running"
            return replace(outcome, refusal=refusal)
        driver = self._look_at_driver(now_s)
        if not driver.running:
            self._missing = 0
            return replace(outcome, driver=driver)
        outcome = replace(outcome, driver=driver, answer=self._read_answer())
        policy = policy_of(spec)
        try:
            measurement = self._measure(spec, policy, now_s)
        except MissingMeasurementsError as error:
            self._missing += 1
            holds = self._missing >= policy.scaling.metric_failures
            return replace(outcome, missing=MissingMeasurements(str(error), holds))
        self._missing = 0
        answer = outcome.answer.answer if outcome.answer else None
        decided = self._decide(spec, policy, measurement, answer=answer, status=status, now_s=now_s)
        return replace(outcome, decided=decided)

    def _apply_children(self, spec: StreamSpec, partitions: int, now_s: float) -> None:
        children = build_children(self._stream, spec, partitions)
        text = json.dumps(children, sort_keys=True)
        fingerprint = hashlib.sha256(text.encode()).hexdigest()
        if fingerprint == self._applied and now_s < self._applied_s + REPAIR_S:
            return
        self._require_stream()
        if not self._applied:
            self._refuse_foreign(children)
        for child in children:
            self._cluster.apply(child)
        self._applied, self._applied_s = fingerprint, now_s

    def _require_stream(self) -> None:
        """A broken watch may have missed the deletion, and the children would come back."""
        name = self._stream.name
        found = self._cluster.get(API_VERSION, KIND, self._stream.namespace, name)
        if found is None or found["metadata"]["uid"] != self._stream.uid:
            message = f"{self._stream} was deleted; its pods stop, and its checkpoint stays"
            raise StreamGoneError(message)

    def _refuse_foreign(self, children: Sequence[Manifest]) -> None:
        """Another owner's object with the name of a child is never taken over."""
        for child in children:
            kind, metadata = child["kind"], child["metadata"]
            found = self._cluster.get(
                child["apiVersion"], kind, metadata["namespace"], metadata["name"]
            )
            owners = ((found or {}).get("metadata") or {}).get("ownerReferences") or []
            if found and not any(owner["uid"] == self._stream.uid for owner in owners):
                message = (
                    f"{kind} {metadata['name']} exists and does not belong to this stream; delete "
                    "it, or give the stream another name"
                )
                raise ClusterError(message, refused=True)

    def _look_at_driver(self, now_s: float) -> DriverState:
        """The driver's state; a pod that was made for an older spec is replaced."""
        namespace, pod_name = self._stream.namespace, driver_pod_name(self._stream)
        name = driver_name(self._stream)
        stateful_set = self._cluster.get("apps/v1", "StatefulSet", namespace, name)
        pod = self._cluster.get("v1", "Pod", namespace, pod_name)
        driver = describe_driver(pod, stateful_set, now_s)
        if driver.outdated:
            self._cluster.delete_pod(namespace, pod_name)
            message = "the spec changed: a new driver continues from the checkpoint"
            return DriverState("Pending", "Replacing", message)
        return driver

    def _read_answer(self) -> AnswerFound:
        text = self._read_config_map(answer_name(self._stream.name), ANSWER_KEY)
        if not text:
            return AnswerFound()
        try:
            answer = parse_answer(text)
        except BalancedStreamError as error:
            return AnswerFound(unreadable=str(error))
        refused_anew = bool(answer.refused) and answer.refused != self._refused
        self._refused = answer.refused
        return AnswerFound(answer, refused_anew=refused_anew)

    def _read_config_map(self, name: str, key: str) -> str:
        found = self._cluster.get("v1", "ConfigMap", self._stream.namespace, name)
        return str(((found or {}).get("data") or {}).get(key, ""))

    def _measure(self, spec: StreamSpec, policy: Policy, now_s: float) -> Measurement:
        url = spec.metrics.prometheus_url or self._default_url
        if not url:
            message = (
                "no Prometheus is configured: set spec.metrics.prometheusUrl, or the chart's "
                "prometheus.url"
            )
            raise MissingMeasurementsError(message)
        return self._open_source(url).observe(str(self._stream), policy, now_s)

    def _decide(
        self,
        spec: StreamSpec,
        policy: Policy,
        measurement: Measurement,
        *,
        answer: Answer | None,
        status: Mapping[str, Any],
        now_s: float,
    ) -> Decided:
        """Decides on a measurement, and writes the plan that the decision asks for."""
        overwritten, unreadable = self._recall_plan(now_s)
        plan, desired = self._plan, int(recall(status, "desiredExecutors", spec.executors.min))
        given = Given(
            plan=plan,
            planned_after=self._planned_after,
            moved=self._moved,
            desired=desired,
            last_scaled_s=parse_time(recall(status, "lastScaleTime")),
            last_scale_out=self._last_scale_out,
        )
        newest_epoch = max(
            int(recall(status, "planEpoch", 0)),
            plan.epoch if plan else 0,
            answer.epoch if answer else 0,
            measurement.epoch,
        )
        choice = choose_plan(measurement, policy, given, newest_epoch + 1, now_s)
        scale_out = choice.decision.scaling.scale_out
        if scale_out is not None and scale_out.at_s < now_s:
            self._last_scale_out = scale_out
        silent_s = self._find_silence(answer, now_s)
        new_plan = choice.plan if silent_s is None else None
        decided = Decided(
            measurement=measurement,
            given=given,
            choice=choice,
            newest_epoch=newest_epoch,
            new_plan=new_plan,
            overwritten=overwritten,
            unreadable_plan=unreadable,
            silent_s=silent_s,
            short_s=self._find_shortage(desired - len(measurement.executors), now_s),
            advice=self._find_new_advice(advise(choice.decision, policy, desired)),
        )
        if new_plan is not None:
            self._write_plan(new_plan, measurement, now_s)
            # An executor that leaves hands over its partitions, whatever balancing decided.
            self._moved = bool(choice.moves) or len(new_plan.executors) < desired
            if len(new_plan.executors) > desired:
                self._last_scale_out = scale_out
        elif overwritten and plan is not None and silent_s is None:
            self._cluster.apply_plan(build_plan(self._stream, plan.to_json()))
        return decided

    def _recall_plan(self, now_s: float) -> tuple[bool, str]:
        """Reads the newest plan where it is not known yet.

        Returns:
            Whether something else overwrote the plan, and why it cannot be read (empty if it can).
        """
        text = self._read_config_map(plan_name(self._stream.name), PLAN_KEY)
        if self._plan is not None:
            return text != self._plan.to_json(), ""
        self._planned_s = now_s
        try:
            self._plan = parse_plan(text) if text else None
        except BalancedStreamError as error:
            return False, str(error)
        return False, ""

    def _find_silence(self, answer: Answer | None, now_s: float) -> float | None:
        """For how long the driver has left the plan unanswered; None while it has time to."""
        waited_s = now_s - self._planned_s
        answered_epoch = answer.epoch if answer else 0
        answered = self._plan is None or answered_epoch >= self._plan.epoch
        return None if answered or waited_s <= SILENT_AFTER_S else waited_s

    def _find_shortage(self, pending: int, now_s: float) -> float:
        """For how long some executors have been missing, given how many are missing now."""
        if pending <= 0:
            self._short_since_s = None
        elif self._short_since_s is None:
            self._short_since_s = now_s
        return now_s - (now_s if self._short_since_s is None else self._short_since_s)

    def _find_new_advice(self, advice: Advice) -> Advice:
        """The advice, unless the last pass gave the same."""
        known, self._advice = self._advice, advice
        return Advice() if advice.actions == known.actions else advice

    def _write_plan(self, plan: Plan, measurement: Measurement, now_s: float) -> None:
        self._cluster.apply_plan(build_plan(self._stream, plan.to_json()))
        self._plan, self._planned_s = plan, now_s
        self._planned_after = dict(measurement.last_batches)
