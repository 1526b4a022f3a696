"""One pass over one stream: observe it, decide with the core, realize the decision, say it all.

A pass begins with what the cluster holds and ends with what the cluster holds: an operator that was
restarted goes on with the next one. What is remembered in between only spares work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from balancedstream.core.objects import (
    ANSWER_KEY,
    PLAN_KEY,
    answer_name,
    executor_selector,
    plan_name,
)
from balancedstream.core.plan import Answer, Plan, parse_answer, parse_plan
from balancedstream.core.policy import Policy
from balancedstream.errors import BalancedStreamError, InvalidInputError
from balancedstream_operator.children import (
    Manifest,
    Stream,
    build_children,
    build_plan,
    driver_name,
)
from balancedstream_operator.crd import API_VERSION, KIND
from balancedstream_operator.drivers import DriverState, describe_driver
from balancedstream_operator.errors import ClusterError, StreamGoneError
from balancedstream_operator.measurements import Measurement, MissingMeasurementsError
from balancedstream_operator.planner import (
    Balance,
    Given,
    Outcome,
    choose_plan,
    describe_load,
    judge_balance,
    judge_costs,
)
from balancedstream_operator.spec import (
    StreamSpec,
    choose_partitions,
    clamp_fixed,
    policy_of,
    read_spec,
)
from balancedstream_operator.status import (
    Report,
    StreamEvent,
    changed_fields,
    format_time,
    parse_time,
    summarize,
)

REPAIR_S = 300.0
"""Children are applied when they changed, and this often, in case somebody else changed them."""

SILENT_AFTER_S = 60.0
"""A driver that has not answered a plan for so long is said to be silent; no new plan is made."""

SHORT_AFTER_S = 60.0
"""Executors that are missing for so long are said to be missing."""

WAITING_S = 5.0
"""Pause between passes while a stream does not run yet."""

IDLE_AFTER_S = 600.0
"""A query whose last batch is this old is said to be idle, or, where rows wait, to hang."""


_MEASURED_CONDITIONS = (
    "MetricsAvailable",
    "Balanced",
    "Migrating",
    "Unsplittable",
    "CostsTrusted",
    "ScalingLimited",
    "Fallback",
)
"""Unknown while the driver does not run."""


class Cluster(Protocol):
    """The part of the cluster that a pass needs; `kube.Cluster` is the real one."""

    def get(self, version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        """An object, or None."""

    def apply(self, manifest: Manifest) -> None:
        """Makes an object be as the manifest says."""

    def apply_plan(self, manifest: Manifest) -> None:
        """The same for a plan, whose text has an owner of its own."""

    def delete_pod(self, namespace: str, name: str) -> None:
        """Deletes a pod in peace."""

    def write_status(self, namespace: str, name: str, status: dict[str, Any]) -> None:
        """Merges fields into a BalancedStream's status."""


class Source(Protocol):
    """Where measurements come from; `prometheus.Prometheus` is the real one."""

    def observe(self, stream: str, policy: Policy, now_s: float) -> Measurement:
        """What the stream's driver showed lately; MissingMeasurementsError if nothing."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass came to.

    Attributes:
        status: of the stream, whole.
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
        self._short_since_s: float | None = None
        self._advised: object = None
        self._refused = ""

    def run_pass(self, resource: Mapping[str, Any], now_s: float) -> Pass:
        """Brings a stream one step nearer to what it shall be.

        Args:
            resource: the BalancedStream as it was last seen.
            now_s: seconds since the Unix epoch.

        Raises:
            ClusterError: the API server cannot be reached; nothing is lost, call again.
            StreamGoneError: there is no such stream any more.
        """
        before = self._status if self._status is not None else resource.get("status") or {}
        report = Report(before, int(resource["metadata"].get("generation", 0)), now_s)
        interval_s = WAITING_S
        try:
            spec = read_spec(resource["spec"])
        except InvalidInputError as error:
            report.fields |= {"phase": "Invalid", "reason": str(error)}
            report.set_condition("Ready", False, "InvalidSpec", str(error))
        else:
            report.set_condition("Ready", True, "Accepted", "the spec is accepted")
            self._supervise(spec, report)
            # What is on its way is looked at more often.
            if report.recall("phase") == "Running":
                interval_s = spec.metrics.interval_s
        status = report.build()
        changes = changed_fields(before, status)
        if changes:
            self._cluster.write_status(self._stream.namespace, self._stream.name, changes)
        self._status = status
        return Pass(status, tuple(report.events), interval_s)

    def _supervise(self, spec: StreamSpec, report: Report) -> None:
        policy = policy_of(spec)
        partitions = int(report.recall("partitions", choose_partitions(spec)))
        report.fields |= {
            "partitions": partitions,
            "selector": executor_selector(self._stream.name),
            "mode": _describe_mode(spec, policy),
        }
        try:
            self._apply_children(spec, partitions, report.now_s)
        except ClusterError as error:
            if not error.refused:
                raise
            message = f"{error}. Correct the spec; what ran before runs on"
            report.fields |= {"phase": "Failing", "reason": summarize([message])}
            report.set_condition("Running", False, "Refused", message)
            return
        driver = self._look_at_driver(report.now_s)
        _report_driver(driver, report)
        if not driver.running:
            self._missing = 0
            report.fields |= {"executors": 0, "imbalance": None, "imbalanceText": None}
            for kind in _MEASURED_CONDITIONS:
                report.set_condition(kind, None, driver.reason, driver.message)
            return
        answer = self._read_answer(report)
        measurement = self._measure(spec, policy, report)
        if measurement is None:
            return
        self._decide(spec, policy, measurement, answer, report)

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
        """A watch that broke off may have missed the deletion: its children would come back."""
        name = self._stream.name
        found = self._cluster.get(API_VERSION, KIND, self._stream.namespace, name)
        if found is None or found["metadata"]["uid"] != self._stream.uid:
            message = f"{self._stream} was deleted; its pods end, and its checkpoint stays"
            raise StreamGoneError(message)

    def _refuse_foreign(self, children: Sequence[Manifest]) -> None:
        """An object of a child's name that is not ours is nobody's to take over."""
        for child in children:
            kind, metadata = child["kind"], child["metadata"]
            found = self._cluster.get(
                child["apiVersion"], kind, metadata["namespace"], metadata["name"]
            )
            owners = ((found or {}).get("metadata") or {}).get("ownerReferences") or []
            if found and not any(owner["uid"] == self._stream.uid for owner in owners):
                message = (
                    f"{kind} {metadata['name']} exists and does not belong to this stream; remove "
                    "it, or give the stream another name"
                )
                raise ClusterError(message, refused=True)

    def _look_at_driver(self, now_s: float) -> DriverState:
        """How the driver is; a pod that was made for an older spec is replaced."""
        namespace, name = self._stream.namespace, driver_name(self._stream)
        stateful_set = self._cluster.get("apps/v1", "StatefulSet", namespace, name)
        pod = self._cluster.get("v1", "Pod", namespace, f"{name}-0")
        driver = describe_driver(pod, stateful_set, now_s)
        if driver.outdated:
            self._cluster.delete_pod(namespace, f"{name}-0")
            message = "the spec changed: the driver is replaced, and goes on from its checkpoint"
            return DriverState("Pending", "Replacing", message)
        return driver

    def _read_answer(self, report: Report) -> Answer | None:
        """What the driver says of the plans; None if that cannot be read."""
        text = self._read_config_map(answer_name(self._stream.name), ANSWER_KEY)
        if not text:
            return None
        try:
            answer = parse_answer(text)
        except BalancedStreamError as error:
            report.events.append(StreamEvent("AnswerUnreadable", str(error), warning=True))
            return None
        report.fields["appliedEpoch"] = answer.epoch
        if answer.refused and answer.refused != self._refused:
            report.events.append(StreamEvent("PlanRefused", answer.refused, warning=True))
        self._refused = answer.refused
        return answer

    def _read_config_map(self, name: str, key: str) -> str:
        found = self._cluster.get("v1", "ConfigMap", self._stream.namespace, name)
        return str(((found or {}).get("data") or {}).get(key, ""))

    def _measure(self, spec: StreamSpec, policy: Policy, report: Report) -> Measurement | None:
        url = spec.metrics.prometheus_url or self._default_url
        try:
            if not url:
                message = (
                    "no Prometheus is known: set spec.metrics.prometheusUrl, or the chart's "
                    "prometheus.url"
                )
                raise MissingMeasurementsError(message)
            measurement = self._open_source(url).observe(str(self._stream), policy, report.now_s)
        except MissingMeasurementsError as error:
            self._missing += 1
            report.set_condition("MetricsAvailable", False, "Missing", str(error))
            if self._missing >= policy.scaling.metric_failures:
                self._fall_back(report, "MetricsMissing", str(error))
            return None
        self._missing = 0
        report.set_condition(
            "MetricsAvailable", True, "Scraped", "Prometheus has the stream's metrics"
        )
        return measurement

    def _fall_back(self, report: Report, reason: str, message: str) -> None:
        held = f"{message}. The stream runs on as it is: nothing is moved, added or removed"
        report.set_condition("Fallback", True, reason, held)
        report.fields["reason"] = summarize([held])

    def _decide(
        self,
        spec: StreamSpec,
        policy: Policy,
        measurement: Measurement,
        answer: Answer | None,
        report: Report,
    ) -> None:
        _report_progress(measurement, report)
        _report_costs(measurement, report)
        last_plan, rewritten = self._recall_plan(report)
        desired = int(report.recall("desiredExecutors", spec.executors.min))
        given = Given(
            plan=last_plan,
            planned_after=self._planned_after,
            moved=self._moved,
            desired=desired,
            last_scaled_s=parse_time(report.recall("lastScaleTime")),
        )
        newest = max(
            int(report.recall("planEpoch", 0)),
            last_plan.epoch if last_plan else 0,
            answer.epoch if answer else 0,
            measurement.epoch,
        )
        outcome = choose_plan(measurement, policy, given, newest + 1, report.now_s)
        balance = judge_balance(outcome.decision, policy)
        self._report_decision(spec, policy, measurement, outcome, balance, report=report)
        report.fields["planEpoch"] = newest
        self._report_effect(measurement, given, balance, report)
        silent = self._find_silence(given, answer, report)
        if outcome.plan is not None and not silent:
            self._write_plan(outcome.plan, measurement, outcome, desired, report)
        elif rewritten and last_plan is not None and not silent:
            self._cluster.apply_plan(build_plan(self._stream, last_plan.to_json()))
        report.fields.setdefault("desiredExecutors", desired)

    def _recall_plan(self, report: Report) -> tuple[Plan | None, bool]:
        """The newest plan, and whether somebody else wrote over it."""
        text = self._read_config_map(plan_name(self._stream.name), PLAN_KEY)
        if self._plan is not None:
            foreign = text != self._plan.to_json()
            if foreign:
                message = (
                    f"plan {self._plan.epoch} was written over by somebody else, and is restored; "
                    "only the operator may write plans (see docs/security.md)"
                )
                report.events.append(StreamEvent("PlanOverwritten", message, warning=True))
            return self._plan, foreign
        self._planned_s = report.now_s
        try:
            self._plan = parse_plan(text) if text else None
        except BalancedStreamError as error:
            message = f"the plan cannot be read, and will be replaced: {error}"
            report.events.append(StreamEvent("PlanUnreadable", message, warning=True))
        return self._plan, False

    def _write_plan(
        self,
        plan: Plan,
        measurement: Measurement,
        outcome: Outcome,
        desired: int,
        report: Report,
    ) -> None:
        self._cluster.apply_plan(build_plan(self._stream, plan.to_json()))
        self._plan, self._planned_s = plan, report.now_s
        self._planned_after = dict(measurement.last_batches)
        report.fields["planEpoch"] = plan.epoch
        report.fields["desiredExecutors"] = len(plan.executors)
        moves = [
            outcome.decision.say_why(key)
            for key in outcome.decision.balance
            if outcome.decision.moves_any(key)
        ]
        # An executor that is to go hands its partitions over, whatever was thought of balancing.
        self._moved = bool(moves) or len(plan.executors) < desired
        if len(plan.executors) != desired:
            report.fields["lastScaleTime"] = format_time(report.now_s)
            report.add_decision("scale", plan.epoch, outcome.decision.scaling.reason)
        if moves:
            report.add_decision("move", plan.epoch, summarize(moves))

    def _find_silence(self, given: Given, answer: Answer | None, report: Report) -> bool:
        """Whether the driver leaves a plan unanswered; says so."""
        plan = given.plan
        waited_s = report.now_s - self._planned_s
        answered_epoch = answer.epoch if answer else 0
        if plan is None or answered_epoch >= plan.epoch or waited_s <= SILENT_AFTER_S:
            report.set_condition("Fallback", False, "InControl", "measured and answered")
            return False
        message = (
            f"the driver has not answered plan {plan.epoch} for {waited_s:.0f} s: see its log for "
            "what keeps it from the API server"
        )
        self._fall_back(report, "DriverSilent", message)
        return True

    def _report_decision(
        self,
        spec: StreamSpec,
        policy: Policy,
        measurement: Measurement,
        outcome: Outcome,
        balance: Balance,
        *,
        report: Report,
    ) -> None:
        decision = outcome.decision
        report.fields |= describe_load(measurement, decision)
        report.fields |= {
            "imbalance": balance.imbalance,
            "imbalanceBound": balance.bound,
            "imbalanceText": None
            if balance.imbalance is None
            else f"{balance.imbalance:.2f} ({balance.bound:.2f})",
            "reason": summarize([outcome.waits, balance.reason, decision.scaling.reason]),
        }
        if balance.holds is not None:
            word = "Even" if balance.holds else "Skewed"
            report.set_condition("Balanced", balance.holds, word, balance.reason)
        partitions = sum(measurement.under_way.values())
        keys = sum(measurement.keys_under_way.values())
        if partitions or keys:
            counts = [(partitions, "state partitions"), (keys, "keys")]
            message = " and ".join(f"{count} {what}" for count, what in counts if count)
            report.set_condition("Migrating", True, "MovesUnderWay", f"{message} are on their way")
        else:
            report.set_condition("Migrating", False, "Settled", "no state partition is on its way")
        heavy = balance.unsplittable
        report.set_condition(
            "Unsplittable",
            bool(heavy),
            "HotPartition" if heavy else "NoHotPartition",
            heavy or "no partition is too heavy for an executor",
        )
        self._report_limits(spec, measurement, outcome, report)
        self._report_advice(policy, outcome, report)

    def _report_limits(
        self, spec: StreamSpec, measurement: Measurement, outcome: Outcome, report: Report
    ) -> None:
        limits, scaling = spec.executors, outcome.decision.scaling
        desired = int(report.recall("desiredExecutors", limits.min))
        pending = desired - len(measurement.executors)
        if pending <= 0:
            self._short_since_s = None
        elif self._short_since_s is None:
            self._short_since_s = report.now_s
        short_s = report.now_s - (self._short_since_s or report.now_s)
        if limits.fixed and clamp_fixed(limits) != limits.fixed:
            message = (
                f"{limits.fixed} executors were asked for; executors.min and max allow "
                f"{limits.min} to {limits.max}: {clamp_fixed(limits)} are had"
            )
            report.set_condition("ScalingLimited", True, "OutOfBounds", message)
        elif short_s > SHORT_AFTER_S:
            message = (
                f"{pending} of {desired} executors did not start: see "
                f"kubectl get pods --selector {executor_selector(self._stream.name)}"
            )
            report.set_condition("ScalingLimited", True, "ExecutorsPending", message)
        elif scaling.limited:
            report.set_condition("ScalingLimited", True, "AtLimit", scaling.reason)
        else:
            report.set_condition("ScalingLimited", False, "WithinLimits", scaling.reason)

    def _report_advice(self, policy: Policy, outcome: Outcome, report: Report) -> None:
        """In mode Advise: what would be done, once for each change of it."""
        decision = outcome.decision
        advice, reasons = [], []
        if policy.balance.mode == "advise":
            for key, balance in decision.balance.items():
                if decision.moves_any(key):
                    advice.append((key, (decision.key_moves(key), balance.moves)))
                    reasons.append(f"would move: {decision.say_why(key)}")
        desired = int(report.recall("desiredExecutors", policy.scaling.min_executors))
        if policy.scaling.mode == "advise" and decision.scaling.executors != desired:
            advice.append((("", 0), (decision.scaling.executors,)))  # type: ignore[arg-type]
            reasons.append(f"would scale: {decision.scaling.reason}")
        if advice and advice != self._advised:
            report.add_decision("advise", int(report.recall("planEpoch", 0)), summarize(reasons))
        self._advised = advice

    def _report_effect(
        self, measurement: Measurement, given: Given, balance: Balance, report: Report
    ) -> None:
        """What the last plan brought, once batches ran under it and its moves are done."""
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
        if passed <= 3 or any(measurement.under_way.values()):
            return
        effects = {}
        if balance.imbalance is not None:
            effects["move"] = f"imbalance {balance.imbalance:.2f}, {passed} batches later"
        utilization = report.recall("utilization")
        if len(measurement.executors) == len(plan.executors):
            busy = "" if utilization is None else f", {utilization:.0%} busy"
            effects["scale"] = f"{len(measurement.executors)} executors{busy}"
        report.set_effect(plan.epoch, effects)


def _describe_mode(spec: StreamSpec, policy: Policy) -> str:
    """The modes of balancing and scaling in a word or two."""
    scaling = f"Fixed {clamp_fixed(spec.executors)}" if spec.executors.fixed else ""
    scaling = scaling or policy.scaling.mode.capitalize()
    balancing = policy.balance.mode.capitalize()
    return scaling if scaling == balancing else f"{balancing}/{scaling}"


def _report_driver(driver: DriverState, report: Report) -> None:
    report.fields["phase"] = driver.phase
    suspended = driver.phase == "Suspended"
    report.set_condition(
        "Suspended",
        suspended,
        "Suspended" if suspended else "Active",
        driver.message if suspended else "the stream is to run",
    )
    if not driver.running:
        report.fields["reason"] = summarize([driver.message])
        report.set_condition("Running", False, driver.reason, driver.message)


def _report_progress(measurement: Measurement, report: Report) -> None:
    """Whether batches end."""
    if not measurement.batches:
        message = "no batch has ended since the driver started; the first one may take long"
        report.set_condition("Running", None, "NoBatchYet", message)
        return
    newest = max(measurement.batches, key=lambda b: b.finished_s)
    age_s = report.now_s - newest.finished_s
    report.fields["phase"] = "Running"
    if age_s > IDLE_AFTER_S and newest.backlog_rows:
        message = (
            f"the last batch ended {age_s:.0f} s ago, and {newest.backlog_rows:.0f} rows wait: the "
            "query hangs, see the driver's log"
        )
        report.set_condition("Running", False, "NoProgress", message)
        return
    if age_s > IDLE_AFTER_S:
        # Without input Spark runs no batch.
        message = f"the last batch ended {age_s:.0f} s ago: no input since"
        report.set_condition("Running", True, "Idle", message)
        return
    message = f"query {newest.query} finished batch {newest.batch}"
    report.set_condition("Running", True, "BatchesProgress", message)


def _report_costs(measurement: Measurement, report: Report) -> None:
    """Whether cost-aware shuffles trust what they have learnt."""
    distrusted = report.condition("CostsTrusted") == "False"
    trust = judge_costs(measurement.shuffles, distrusted=distrusted)
    report.set_condition("CostsTrusted", trust.holds, trust.reason, trust.message)
