"""What must hold in every schedule, and what was found where it did not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from balancedstream.core.objects import ANSWER_KEY, PLAN_KEY, answer_name, plan_name
from balancedstream.core.plan import Answer, Plan, parse_answer, parse_plan
from balancedstream.errors import BalancedStreamError
from balancedstream_operator.asking import read_asked
from balancedstream_operator.errors import ClusterError
from balancedstream_operator.pods import SPEC_ANNOTATION
from balancedstream_operator.resource import (
    CONDITIONS,
    MAX_DECISIONS,
    Manifest,
    driver_name,
    driver_pod_name,
)
from balancedstream_operator.restarts import fingerprint
from balancedstream_operator.spec import StreamSpec, policy_of, read_spec
from balancedstream_operator.supervising import Pass

if TYPE_CHECKING:
    from driver_model import WatchedPlans
    from spark_model import Application
    from worlds import World

MAX_STATUS_BYTES = 32 * 1024
MAX_CALLS = 40
"""Of one pass: every child is looked at and applied, and little more."""

MAX_CALLS_PER_MINUTE = 80
"""Over ten minutes."""

BACKLOG_S = 400.0
"""Rows that wait, and need so many seconds, are a backlog; by default 300 s hold a removal."""

QUIET = {
    "Accepted": "True",
    "Ready": "True",
    "Reconciling": "False",
    "Stalled": "False",
    "Running": "True",
    "MetricsAvailable": "True",
    "Migrating": "False",
    "Fallback": "False",
    "Suspended": "False",
    "Paused": "False",
    "PlanRefused": "False",
    "PassFailed": "False",
}
"""Conditions of a stream that runs as its spec wants it; those that are missing count as False."""


class Oracles:
    """Judges a world.

    Attributes:
        found: what did not hold, each once, with the time at which it was seen first.
        log: what happened, for a person.
        interrupted: whether something happened in the middle of this pass.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.found: dict[str, str] = {}
        self.log: list[str] = []
        self._epoch = 0
        self._plans: dict[int, str] = {}
        self._answered: dict[int, int] = {}
        self._calls: list[tuple[float, int]] = []
        self._resource: Manifest = {}
        self.interrupted = False
        self._there = ""
        self._largest = 0

    def note(self, text: str) -> None:
        """Remembers what happened."""
        self.log.append(f"{self._world.now_s:8.1f} {text}")

    def add(self, what: str, why: str) -> None:
        """Something does not hold."""
        self.note(f"VIOLATED {what}: {why}")
        self.found.setdefault(what, f"at {self._world.now_s:.0f} s: {why}")

    def check_owner(self, manifest: Manifest) -> None:
        """No child without an owner that exists."""
        owners = [o["uid"] for o in manifest["metadata"].get("ownerReferences") or []]
        resource = self._world.resource()
        there = resource["metadata"]["uid"] if resource else ""
        if not owners:
            self.add("a child without owner", f"{manifest['kind']} {manifest['metadata']['name']}")
        elif there not in owners:
            if there != self._there:
                # The stream was deleted after the pass had begun; what is left is collected.
                self._world.nodes.collect()
            elif manifest["metadata"].get("resourceVersion") is None:
                self.add("a child of a deleted stream", manifest["kind"])

    def begin_pass(self, resource: Manifest) -> None:
        """A pass looks at a stream as it was once."""
        self._resource = resource
        self.interrupted = False
        now = self._world.resource()
        self._there = now["metadata"]["uid"] if now else ""

    def check_plan(self, manifest: Manifest, before: Manifest | None) -> None:
        """Epochs never fall, none has two plans, and executors stay within bounds."""
        text = manifest.get("data", {}).get(PLAN_KEY, "")
        old = _read_plan((before or {}).get("data", {}).get(PLAN_KEY, ""))
        if not text:
            if old is not None:
                self.add("a plan was replaced by none", f"epoch {old.epoch}")
            return
        plan = parse_plan(text)
        self.note(f"plan {plan.epoch}: {len(plan.executors)} executors {plan.executors}")
        if old is not None and plan.epoch < old.epoch:
            self.add("an epoch fell", f"from {old.epoch} to {plan.epoch}")
        known = self._plans.setdefault(plan.epoch, text)
        if known != text:
            self.note(f"epoch {plan.epoch} has another plan now")
        self._largest = max(self._largest, len(plan.executors))
        self._check_bounds(plan, old)
        self._epoch = max(self._epoch, plan.epoch)

    def _check_bounds(self, plan: Plan, old: Plan | None) -> None:
        try:
            limits = policy_of(read_spec(self._resource["spec"])).scaling
        except BalancedStreamError:
            self.note("the spec is not valid, and a plan is written")
            return
        if old is not None and plan.epoch == old.epoch:
            return
        count = len(plan.executors)
        if not limits.min_executors <= count <= limits.max_executors:
            bounds = f"{limits.min_executors} to {limits.max_executors}"
            self.add("executors out of bounds", f"plan {plan.epoch} has {count}, not {bounds}")
        driver = self._world.driver
        before = len(old.executors) if old else count
        if (
            driver is not None
            and limits.min_executors != limits.max_executors
            and count < before <= limits.max_executors
            and (drain_s := driver.application.drain_s(count)) > BACKLOG_S
        ):
            self.add("scale-in under backlog", f"{before} to {count} need {drain_s:.0f} s")

    def check_request(self, application: Application) -> None:
        """Spark is asked for no more than the largest plan, and those that leave."""
        asked = application.target - len(application.draining)
        if asked > max(self._largest, application.at_start):
            self.add("too many executors requested", f"{asked}, planned were {self._largest}")

    def check_answer(self, plans: WatchedPlans, answer: Answer) -> None:
        """What a driver has in force never gets older."""
        before = self._answered.get(id(plans), 0)
        if answer.epoch < before:
            self.add("a driver went back", f"from {before} to {answer.epoch}")
        if answer.refused:
            self.note(f"refused: {answer.refused}")
        self._answered[id(plans)] = answer.epoch

    def check_status(self, status: Mapping[str, Any]) -> None:
        """It stays small."""
        size = len(json.dumps(status))
        if size > MAX_STATUS_BYTES:
            self.add("status too large", f"{size} bytes")
        conditions = [c["type"] for c in status.get("conditions", ())]
        if len(status.get("decisions", ())) > MAX_DECISIONS or len(conditions) > len(CONDITIONS):
            self.add("status too long", f"{len(conditions)} conditions")
        if len(set(conditions)) < len(conditions):
            self.add("a condition twice", str(conditions))

    def check_calls(self, count: int, failure: Exception | None) -> None:
        """A pass makes few calls, and fails only with what the API server did."""
        now_s = self._world.now_s
        if count > MAX_CALLS:
            self.add("too many calls in a pass", str(count))
        self._calls = [(at, n) for at, n in self._calls if at > now_s - 600.0] + [(now_s, count)]
        total = sum(n for _, n in self._calls) / max(1, len(self._world.operators))
        if total > 10 * MAX_CALLS_PER_MINUTE:
            self.add("too many calls", f"{total:.0f} in ten minutes")
        if failure is not None:
            self.note(f"pass failed: {failure!r}"[:300])
            if not isinstance(failure, ClusterError):
                self.add("unhandled exception", f"{type(failure).__name__}: {failure}")

    def check_pass(self, resource: Manifest, done: Pass) -> None:
        """Conditions are true of what is."""
        status = done.status
        said = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
        self.note(
            f"pass: {status.get('phase')} {status.get('planEpoch')}/{status.get('appliedEpoch')} "
            f"desired {status.get('desiredExecutors')} of {status.get('executors')} "
            f"{status.get('reason', '')}"[:260]
        )
        if done.interval_s <= 0:
            self.add("no pause between passes", str(done.interval_s))
        world = self._world
        if done.failure is not None or self.interrupted or world.weather.api_stale_s:
            return
        pod = world.api.get("Pod", driver_pod_name(world.stream))
        running = _is_running(pod)
        current = resource["metadata"]["uid"] == world.stream.uid
        if not current:
            return
        if said.get("Running", ("", ""))[0] == "True" and not running:
            self.add("Running without a driver", str(said["Running"]))
        if said["Ready"][0] == "True" and not running:
            self.add("Ready without a driver", str(said["Ready"]))
        if said.get("Suspended", ("", ""))[0] == "True" and running and not _leaves(pod):
            found = world.api.get("StatefulSet", driver_name(world.stream)) or {}
            if found.get("spec", {}).get("replicas") != 0:
                self.add("Suspended, and runs", str(said["Suspended"]))
        kstatus = [said[kind][0] == "True" for kind in ("Ready", "Reconciling", "Stalled")]
        if sum(kstatus) > 1:
            self.add("Ready, Reconciling and Stalled contradict", str(kstatus))

    def find_missing(self) -> tuple[list[str], object]:
        """What the spec asks for and is not there; and what must not change any more."""
        world = self._world
        resource = world.resource()
        if resource is None:
            return ["the stream is deleted"], None
        spec, asked = read_spec(resource["spec"]), read_asked(resource)
        status = resource.get("status") or {}
        said = {c["type"]: c["status"] for c in status.get("conditions", ())}
        wrong = []
        generation = resource["metadata"]["generation"]
        if status.get("observedGeneration") != generation:
            wrong.append(f"observedGeneration {status.get('observedGeneration')} != {generation}")
        pod = world.api.get("Pod", driver_pod_name(world.stream))
        found = world.api.get("StatefulSet", driver_name(world.stream))
        state: list[object] = [generation, pod and pod["metadata"]["uid"], sorted(said.items())]
        if found is None or found["metadata"]["ownerReferences"][0]["uid"] != world.stream.uid:
            return [*wrong, "no StatefulSet of this stream"], state
        if spec.suspend:
            if pod is not None:
                wrong.append("suspended, and there is a pod")
            for kind, expected in (("Suspended", "True"), ("Ready", "False"), ("Stalled", "False")):
                if said.get(kind) != expected:
                    wrong.append(f"{kind} is {said.get(kind)}")
            return wrong, state
        rate = world.trace.rates[-1]
        carries = self._carries(spec, status)
        for kind, expected in QUIET.items():
            # A move ends with a batch, and without data there is none; too much data make endless
            # ones.
            if kind in {"Migrating", "Ready", "Reconciling", "Stalled", "Running"} and (
                not carries or (kind == "Migrating" and not rate)
            ):
                continue
            if said.get(kind, "False") != expected:
                wrong.append(f"{kind} is {said.get(kind)}")
        driver = world.driver
        if pod is None or driver is None or not _is_running(pod):
            return [*wrong, "no driver runs"], state
        made_for = (pod["metadata"].get("annotations") or {}).get(SPEC_ANNOTATION)
        if made_for != fingerprint(spec, asked.restart):
            wrong.append("the driver is of an older spec")
        if not carries:
            return wrong, None
        more, plan_state = self._find_missing_of_plan(spec, status)
        return wrong + more, [*state, plan_state]

    def _carries(self, spec: StreamSpec, status: Mapping[str, Any]) -> bool:
        """Whether as many executors as there may be have time for all rows."""
        scaling, world = policy_of(spec).scaling, self._world
        most = scaling.max_executors
        if scaling.mode != "auto":
            most = status.get("desiredExecutors", 0)
        job = world.job
        tasks_s = job.task_s * (job.splits + job.partitions) / job.trigger_s
        return 0.6 * most > world.trace.rates[-1] * job.row_s + tasks_s

    def _find_missing_of_plan(
        self, spec: StreamSpec, status: Mapping[str, Any]
    ) -> tuple[list[str], object]:
        world = self._world
        wrong: list[str] = []
        driver = world.driver
        assert driver is not None
        application = driver.application
        data = (world.api.get("ConfigMap", plan_name(world.stream.name)) or {}).get("data") or {}
        plan = _read_plan(data.get(PLAN_KEY, ""))
        answer = _read_answer(
            (world.api.get("ConfigMap", answer_name(world.stream.name)) or {}).get("data") or {}
        )
        epoch = plan.epoch if plan else 0
        if answer is None or answer.epoch != epoch:
            wrong.append(f"plan {epoch} is answered with {answer}")
        if status.get("planEpoch", 0) != epoch:
            wrong.append(f"planEpoch {status.get('planEpoch')} != {epoch}")
        live = application.executors()
        desired = status.get("desiredExecutors")
        if len(live) != desired or application.asked != desired:
            wrong.append(f"{len(live)} executors of {desired}, {application.asked} asked for")
        limits = policy_of(spec).scaling
        if not limits.min_executors <= len(live) <= limits.max_executors:
            bounds = f"{limits.min_executors} to {limits.max_executors}"
            wrong.append(f"{len(live)} executors, not {bounds}")
        if application.target != desired:
            wrong.append(f"Spark keeps {application.target} executors, desired are {desired}")
        said = {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", ())}
        if said.get("ScalingLimited", ("", ""))[1] == "ExecutorsPending":
            wrong.append("executors are said to be missing")
        if world.trace.rates[-1] and policy_of(spec).balance.mode == "auto":
            if said.get("Balanced", ("", ""))[0] != "True":
                wrong.append(f"Balanced is {said.get('Balanced')}")
            if status.get("executors") != len(live):
                wrong.append(f"executors is {status.get('executors')}, and there are {len(live)}")
        if plan and len(plan.executors) != desired:
            wrong.append(f"the plan has {len(plan.executors)} executors, desired are {desired}")
        if draining := application.draining:
            wrong.append(f"{draining} are being drained")
        rate = world.trace.rates[-1]
        if not rate and limits.mode == "auto" and len(live) > limits.min_executors:
            wrong.append(f"{len(live)} executors have nothing to do")
        if (drain_s := application.drain_s(len(live))) > BACKLOG_S:
            wrong.append(f"rows wait that need {drain_s:.0f} s")
        return wrong, (epoch, sorted(live), desired)


def _is_running(pod: Manifest | None) -> bool:
    containers = ((pod or {}).get("status") or {}).get("containerStatuses") or []
    return any("running" in container["state"] for container in containers)


def _leaves(pod: Manifest | None) -> bool:
    return bool(pod and pod["metadata"].get("deletionTimestamp"))


def _read_plan(text: str) -> Plan | None:
    try:
        return parse_plan(text) if text else None
    except BalancedStreamError:
        return None


def _read_answer(data: Mapping[str, str]) -> Answer | None:
    try:
        return parse_answer(data[ANSWER_KEY]) if ANSWER_KEY in data else None
    except BalancedStreamError:
        return None
