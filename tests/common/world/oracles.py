"""What must hold in every schedule, and what was found where it did not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from balancedstream.core.periods import Period, find_exclusion
from balancedstream.core.policy import ScalingPolicy
from balancedstream.core.wire.objects import PLAN_KEY, STOP_KEY
from balancedstream.core.wire.plan import Answer, Plan, Stood, parse_plan
from balancedstream.errors import BalancedStreamError
from balancedstream_operator.api.annotations import read_requests
from balancedstream_operator.api.conditions import KINDS
from balancedstream_operator.api.resource import (
    KIND,
    MAX_DECISIONS,
    Manifest,
    driver_name,
    driver_pod_name,
)
from balancedstream_operator.api.spec import StreamSpec, read_spec
from balancedstream_operator.api.status import Status
from balancedstream_operator.children.fingerprint import fingerprint_spec
from balancedstream_operator.children.pods import SPEC_ANNOTATION
from balancedstream_operator.errors import ClusterError
from balancedstream_operator.process.passes import Pass

if TYPE_CHECKING:
    from world.driver_model import WatchedPlans
    from world.operator_model import OperatorProcess
    from world.spark_model import Application
    from world.worlds import World

MAX_STATUS_BYTES = 32 * 1024
MAX_CALLS = 40
"""Of one pass: every child is looked at and applied, and little more."""

MAX_CALLS_PER_MINUTE = 80
"""Over ten minutes."""

CLOCKS_S = 70.0
"""An operator's clock is off by less."""

KNOWN_S = 120.0
"""A backlog that has been there for so long was scraped, and seen by a pass."""


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
        self._written: list[Plan] = []
        self._stood: list[Stood] = []
        self._answered: WeakKeyDictionary[WatchedPlans, int] = WeakKeyDictionary()
        self._calls: list[tuple[float, float]] = []  # of each operator that acted
        self._resource: Manifest = {}
        self.interrupted = False
        self._there = ""
        self._leaves = False
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
        elif self._leaves and self._is_new(manifest):
            self.add("a child of a stream that is being deleted", manifest["kind"])
        elif there not in owners:
            if there != self._there:
                # The stream was deleted after the pass had begun; what is left is collected.
                self._world.nodes.collect()
            elif manifest["metadata"].get("resourceVersion") is None:
                self.add("a child of a deleted stream", manifest["kind"])

    def _is_new(self, manifest: Manifest) -> bool:
        return self._world.api.get(manifest["kind"], manifest["metadata"]["name"]) is None

    def check_taken(self, manifest: Manifest, there: Manifest | None) -> None:
        """No object of somebody else is changed; `there` is what has the name."""
        if there and not there["metadata"].get("ownerReferences"):
            self.add("an object of somebody else is changed", manifest["kind"])

    def begin_pass(self, resource: Manifest) -> None:
        """A pass looks at a stream as it was once."""
        self._resource = resource
        self.interrupted = False
        now = self._world.resource()
        self._there = now["metadata"]["uid"] if now else ""
        self._leaves = bool(now and now["metadata"].get("deletionTimestamp"))

    def check_plan(self, manifest: Manifest, before: Manifest | None) -> None:
        """Epochs never fall, none has two plans, and executors stay within bounds."""
        text = manifest.get("data", {}).get(PLAN_KEY, "")
        old = read_plan((before or {}).get("data", {}).get(PLAN_KEY, ""))
        if not text:
            if old is not None:
                self.add("a plan was replaced by none", f"epoch {old.epoch}")
            return
        plan = parse_plan(text)
        self.note(f"plan {plan.epoch}: {len(plan.executors)} executors {plan.executors}")
        if old is not None and plan.epoch < old.epoch:
            self.add("an epoch fell", f"from {old.epoch} to {plan.epoch}")
        steps = plan.standing.steps if plan.standing else ()
        allowed = max((step.executors for step in steps), default=0)
        self._largest = max(self._largest, len(plan.executors), allowed)
        # What was lost is put back, whatever the bounds are by now, and of two operators one may
        # know an older plan; the next plan heeds them. While queries end, nothing else changes.
        if plan not in (old, *self._written):
            if not manifest["data"].get(STOP_KEY):
                self._check_bounds(plan, old)
            self._written.append(plan)

    def _check_bounds(self, plan: Plan, old: Plan | None) -> None:
        allowed = list(self._list_limits())
        if self._check_exclusion(plan, old):
            return
        if not allowed:
            self.note("the spec is not valid, and a plan is written")
            return
        count = len(plan.executors)
        # The limit over all streams takes nothing away, neither what was planned nor what runs.
        running = self._world.driver.application.executors() if self._world.driver else ()
        kept = max(len(old.executors) if old else 0, len(running))
        kept = kept if self._world.schedule.cap else 0
        if not any(
            limits.min_executors <= count <= max(limits.max_executors, kept) for limits in allowed
        ):
            bounds = " or ".join(f"{lim.min_executors} to {lim.max_executors}" for lim in allowed)
            self.add("executors out of bounds", f"plan {plan.epoch} has {count}, not {bounds}")
        driver = self._world.driver
        before = len(old.executors) if old else count
        may_stay = all(
            limits.min_executors != limits.max_executors and before <= limits.max_executors
            for limits in allowed
        )
        if (
            driver is not None
            and may_stay
            and count < before
            and (behind_s := driver.application.behind_s) > KNOWN_S
        ):
            self.add("scale-in under backlog", f"{before} to {count}, behind for {behind_s:.0f} s")

    def _check_exclusion(self, plan: Plan, old: Plan | None) -> bool:
        """In an excluded period the number of executors stays what was planned or added last.

        Returns:
            Whether such a period may hold, so that they need not be within bounds.
        """
        hold = self._find_exclusions(self._world.now_s)
        if all(hold) and old is not None and self._written:
            known = {len(before.executors) for before in (old, self._written[-1])}
            known |= {stood.executors for stood in self._stood}
            if len(plan.executors) not in known:
                why = f"plan {plan.epoch}: {known} to {plan.executors}"
                self.add("scaled in an excluded period", why)
        return any(hold)

    def _find_exclusions(self, time_s: float) -> list[bool]:
        """Whether a period holds then by clocks that may be off."""
        times = (time_s - CLOCKS_S, time_s, time_s + CLOCKS_S)
        return [bool(find_exclusion(self._list_excluded(), each)) for each in times]

    def _list_excluded(self) -> tuple[Period, ...]:
        try:
            return read_spec(self._world.schedule.spec).policy.schedule.excluded
        except BalancedStreamError:
            return ()

    def _list_limits(self) -> Iterator[ScalingPolicy]:
        """Those of what the pass was given, and of all since: it may have read a newer one."""
        for resource in self._world.api.list_since(self._resource):
            with suppress(BalancedStreamError):
                yield find_limits(read_spec(resource["spec"]), self._world.schedule.cap)

    def check_replacement(self, pod: Manifest) -> None:
        """A driver that runs is replaced only if something else was wanted since it was made."""
        api, stale_s = self._world.api, self._world.weather.api_stale_s
        if not is_running(api.get_old("Pod", pod["metadata"]["name"], stale_s)):
            return
        made_for = (pod["metadata"].get("annotations") or {}).get(SPEC_ANNOTATION)
        wanted = {
            fingerprint_spec(spec, read_requests(resource).restart)
            for resource, spec in self._list_specs(pod)
        }
        if wanted == {made_for}:
            self.add("a driver was replaced and nobody asked", f"it was made for {made_for}")

    def check_stop(self, manifest: Manifest) -> None:
        """A driver is stopped only if that was asked for since it was made.

        Somebody suspended the stream, or asked for other partitions.
        """
        pod = self._world.api.get("Pod", driver_pod_name(self._world.stream))
        if manifest["kind"] != "StatefulSet" or manifest["spec"]["replicas"] or not pod:
            return
        specs = [spec for _, spec in self._list_specs(pod)]
        asked = {spec.partitions for spec in specs} - {None}
        if specs and not asked and not any(spec.suspend for spec in specs):
            self.add("a driver was stopped and nobody asked", pod["metadata"]["uid"])

    def _list_specs(self, pod: Manifest) -> Iterator[tuple[Manifest, StreamSpec]]:
        """What the stream has been, where it was valid, since a pod was made."""
        api = self._world.api
        then = api.get_old(KIND, self._world.stream.name, api.age_s(pod))
        for resource in api.list_since(then) if then else ():
            with suppress(BalancedStreamError):
                yield resource, read_spec(resource["spec"])

    def check_request(self, application: Application) -> None:
        """Spark is asked for no more than the largest plan allows, and those that leave."""
        asked = application.target - len(application.draining)
        if asked > max(self._largest, application.at_start):
            self.add("too many executors requested", f"{asked}, planned were {self._largest}")

    def check_answer(self, plans: WatchedPlans, answer: Answer) -> None:
        """What a driver has in force never gets older."""
        before = self._answered.get(plans, 0)
        if answer.epoch < before:
            self.add("a driver went back", f"from {before} to {answer.epoch}")
        if answer.refused:
            self.note(f"refused: {answer.refused}")
        if "accepted before with another content" in answer.refused:
            self.add("an epoch has two plans", answer.refused)
        self._answered[plans] = answer.epoch
        if answer.stood is not None and answer.stood not in self._stood:
            self._stood.append(answer.stood)
            if all(self._find_exclusions(answer.stood.at_s)):
                why = f"{answer.stood.executors} at {answer.stood.at_s:.0f} s"
                self.add("a driver added executors in an excluded period", why)

    def check_status(self, status: Mapping[str, Any]) -> None:
        """It stays small."""
        size = len(json.dumps(status))
        if size > MAX_STATUS_BYTES:
            self.add("status too large", f"{size} bytes")
        conditions = [c["type"] for c in status.get("conditions", ())]
        if len(status.get("decisions", ())) > MAX_DECISIONS or len(conditions) > len(KINDS):
            self.add("status too long", f"{len(conditions)} conditions")
        if len(set(conditions)) < len(conditions):
            self.add("a condition twice", str(conditions))

    def check_alone(self, operator: OperatorProcess) -> None:
        """Of several operators with a Lease, one acts."""
        others = sum(o.alive and o.acts for o in self._world.operators if o is not operator)
        if others:
            self.add("two operators act", f"{others} act, and another one begins")

    def check_calls(self, count: int, failure: Exception | None) -> None:
        """A pass makes few calls, and fails only with what the API server did."""
        now_s = self._world.now_s
        if count > MAX_CALLS:
            self.add("too many calls in a pass", str(count))
        acting = sum(operator.acts for operator in self._world.operators)
        self._calls = [(at_s, n) for at_s, n in self._calls if at_s > now_s - 600.0]
        self._calls.append((now_s, count / max(1, acting)))
        total = sum(n for _, n in self._calls)
        if total > 10 * MAX_CALLS_PER_MINUTE:
            self.add("too many calls", f"{total:.0f} in ten minutes")
        if failure is not None:
            self.note(f"pass failed: {failure!r}"[:300])
            if not isinstance(failure, ClusterError):
                self.add("unhandled exception", f"{type(failure).__name__}: {failure}")

    def check_pass(self, resource: Manifest, status: Status, done: Pass) -> None:
        """Conditions are true of what is."""
        said = {c.type: (c.status, c.reason) for c in status.conditions}
        self.note(
            f"pass: {status.phase} {status.plan_epoch}/{status.applied_epoch} "
            f"desired {status.desired_executors} of {status.executors} "
            f"{status.reason or ''}"[:260]
        )
        if done.interval_s <= 0:
            self.add("no pause between passes", str(done.interval_s))
        world = self._world
        if done.failure is not None or self.interrupted or world.weather.api_stale_s:
            return
        pod = world.api.get("Pod", driver_pod_name(world.stream))
        running = is_running(pod)
        current = resource["metadata"]["uid"] == world.stream.uid
        if not current:
            return
        if said.get("Running", ("", ""))[0] == "True" and not running:
            self.add("Running without a driver", str(said["Running"]))
        if said["Ready"][0] == "True" and not running:
            self.add("Ready without a driver", str(said["Ready"]))
        stays = running and self._is_own(pod) and not _leaves(pod)
        # One whose queries have ended, for other partitions, is about to be stopped.
        held = status.repartition is not None and status.repartition.step in {
            "Rewriting",
            "Undoing",
        }
        if said.get("Running") == ("False", "Refused") and stays and not held:
            self.add("Running is Refused, and the driver runs", str(said["Stalled"]))
        if said.get("Suspended", ("", ""))[0] == "True" and running and not _leaves(pod):
            found = world.api.get("StatefulSet", driver_name(world.stream)) or {}
            if found.get("spec", {}).get("replicas") != 0:
                self.add("Suspended, and runs", str(said["Suspended"]))
        kstatus = [said[kind][0] == "True" for kind in ("Ready", "Reconciling", "Stalled")]
        if sum(kstatus) > 1:
            self.add("Ready, Reconciling and Stalled contradict", str(kstatus))

    def _is_own(self, pod: Manifest | None) -> bool:
        """Whether a pod is of the StatefulSet of the stream that there is now."""
        found = self._world.api.get("StatefulSet", driver_name(self._world.stream)) or {}
        made = [o["uid"] for o in (pod or {}).get("metadata", {}).get("ownerReferences") or []]
        owned = [o["uid"] for o in found.get("metadata", {}).get("ownerReferences") or []]
        return found.get("metadata", {}).get("uid") in made and self._world.stream.uid in owned


def find_limits(spec: StreamSpec, cap: int) -> ScalingPolicy:
    """Between which numbers of executors a stream may be scaled.

    Args:
        spec: of the stream.
        cap: the operator's limit over all streams; 0 for none.
    """
    scaling = spec.policy.scaling
    most = max(cap, spec.executors.min) if cap else scaling.max_executors
    return replace(
        scaling,
        min_executors=min(scaling.min_executors, most),
        max_executors=min(scaling.max_executors, most),
    )


def is_running(pod: Manifest | None) -> bool:
    """Whether a driver's container runs."""
    containers = ((pod or {}).get("status") or {}).get("containerStatuses") or []
    return any("running" in container["state"] for container in containers)


def _leaves(pod: Manifest | None) -> bool:
    return bool(pod and pod["metadata"].get("deletionTimestamp"))


def read_plan(text: str) -> Plan | None:
    """A plan, unless there is none that can be read."""
    try:
        return parse_plan(text) if text else None
    except BalancedStreamError:
        return None
