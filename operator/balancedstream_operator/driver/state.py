"""The state of a driver, from its pod and, if it is ours, its StatefulSet: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

from balancedstream.core.wire.objects import (
    APPLICATION_LABEL,
    application_selector,
    executor_selector,
)
from balancedstream_operator.api.annotations import RESTART_ANNOTATION
from balancedstream_operator.api.resource import Stream, is_owned_by
from balancedstream_operator.api.target import TargetRef, driver_selector
from balancedstream_operator.children.pods import DRIVER_GRACE_S, SPEC_ANNOTATION
from balancedstream_operator.driver.containers import (
    Fault,
    find_fault,
    has_succeeded,
    list_containers,
    read_output,
)
from balancedstream_operator.kube.clocks import find_age_s

STUCK_AFTER_S = 60.0
"""A pod that still exists this long after its grace period is on a node that does not respond."""

FEW_RESTARTS = 3
"""A container that ended may do better once what it needs is there, such as a broker."""

STARTED_WITHIN_S = 300.0
"""A pod that has a node, and of which nothing has changed for longer than this, does not start."""

SPARK_CONTAINER = "spark-kubernetes-driver"
"""Spark's name of a driver's container, where a pod template has no other one."""


@dataclass(frozen=True, slots=True)
class DriverState:
    """The state of a driver.

    Attributes:
        phase: Pending, Starting, Running, Failing or Suspended.
        reason: the cause, in one CamelCase word.
        message: the cause and what to do, for people.
        outdated: whether its pod was made from another template than a new one would be.
        running: whether its container runs.
        uid: of its pod; empty if there is none.
        began: when its container began to run; empty if it is not running or unknown.
        ips: addresses of its pod.
        pod: name of its pod; empty if there is none.
        application: Spark's id of its application, if it is not ours; empty if unknown.
        account: ServiceAccount of its pod, if it is not ours.
        restart: value of the annotation that asked for its pod; empty without an annotation.
        spec: fingerprint of the spec that its pod was made for; empty if an older release made it.
        retries: whether it has ended only a few times, so that Kubernetes starts it again soon.
        waits_for: the stream whose driver is replaced before this one; empty if there is none.
        settled: whether the controller has acted on its StatefulSet; `outdated` is unknown before.
    """

    phase: str
    reason: str
    message: str
    outdated: bool = False
    running: bool = False
    uid: str = ""
    settled: bool = True
    began: str = ""
    ips: tuple[str, ...] = ()
    spec: str = ""
    restart: str = ""
    pod: str = ""
    application: str = ""
    account: str = ""
    retries: bool = False
    waits_for: str = ""

    def select_executors(self, stream: Stream, target: TargetRef | None) -> str:
        """Label selector of the executors' pods; empty if it is not known."""
        if target is None:
            return executor_selector(stream.name)
        return application_selector(self.application) if self.application else ""


def describe_driver(
    pod: Mapping[str, Any] | None,
    stateful_set: Mapping[str, Any] | None,
    now_s: float,
    seen_s: float = inf,
) -> DriverState:
    """The driver's state.

    Args:
        pod: of the driver; None if there is none.
        stateful_set: that owns the pod; None if there is none yet.
        now_s: seconds since the Unix epoch.
        seen_s: for how long this process has seen the pod leave or start without any change. The
            pod's own times are of other clocks.

    >>> describe_driver(None, {"spec": {"replicas": 0}}, 0.0).phase
    'Suspended'
    """
    replicas = ((stateful_set or {}).get("spec") or {}).get("replicas", 1)
    if pod is None:
        if replicas == 0:
            return DriverState(
                "Suspended", "Suspended", "suspended: set spec.suspend to false to continue"
            )
        return DriverState("Pending", "NoDriver", "the driver's pod does not exist yet")
    metadata, status = pod["metadata"], pod.get("status") or {}
    name = metadata["name"]
    deleted = metadata.get("deletionTimestamp")
    if deleted:
        node = (pod.get("spec") or {}).get("nodeName") or "NODE"
        grace_s = float(metadata.get("deletionGracePeriodSeconds") or DRIVER_GRACE_S)
        since_s = find_age_s(_seconds(deleted) - grace_s, now_s, seen_s) - grace_s
        return _describe_leaving(name, metadata["namespace"], node, since_s)
    owner = ((stateful_set or {}).get("metadata") or {}).get("uid", "")
    if metadata.get("ownerReferences") and not is_owned_by(metadata, owner):
        message = (
            f"pod {name} is left from a StatefulSet that was deleted; Kubernetes stops it, and the "
            "next one continues from the checkpoint"
        )
        return DriverState("Pending", "DriverLeaving", message)
    if replicas == 0:
        return DriverState("Suspended", "Stopping", f"pod {name} will be stopped")
    found = (stateful_set or {}).get("status") or {}
    generation = ((stateful_set or {}).get("metadata") or {}).get("generation", 0)
    settled = found.get("observedGeneration", generation) >= generation
    wanted = found.get("updateRevision")
    revision = (metadata.get("labels") or {}).get("controller-revision-hash")
    outdated = settled and bool(wanted and revision and wanted != revision)
    container = _find_container(status, "driver")
    cure = "correct spec.image; a new pod then starts"
    phase, reason, message = _describe_pod(pod, container, cure, now_s, seen_s)
    annotations = metadata.get("annotations") or {}
    few = all(entry.get("restartCount", 0) < FEW_RESTARTS for entry in list_containers(status))
    return DriverState(
        phase,
        reason,
        message,
        outdated=outdated,
        running=_runs(container),
        uid=metadata.get("uid", ""),
        settled=settled,
        began=_read_begin(container),
        ips=_read_ips(status),
        spec=annotations.get(SPEC_ANNOTATION, ""),
        restart=annotations.get(RESTART_ANNOTATION, ""),
        pod=name,
        retries=few and reason == "ApplicationFailed",
    )


def describe_target(
    target: TargetRef, pods: Sequence[Mapping[str, Any]], now_s: float, seen_s: float = inf
) -> DriverState:
    """The state of a driver that another operator runs.

    Pods of ended drivers may still be among `pods`; `seen_s` is as for `describe_driver`.

    >>> describe_target(TargetRef(selector={"app": "clicks"}), [], 0.0).reason
    'TargetMissing'
    """
    live = [pod for pod in pods if not _is_over(pod)]
    if not live:
        return _describe_absence(target, pods)
    if len(live) > 1:
        names = " and ".join(sorted(pod["metadata"]["name"] for pod in live))
        message = (
            f"pods {names} all have the labels {driver_selector(target)}, and a stream has one "
            "driver: let targetRef name labels that only one has"
        )
        return DriverState("Failing", "SeveralDrivers", message)
    pod = live[0]
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    given = [entry["name"] for entry in spec.get("containers") or [{"name": SPARK_CONTAINER}]]
    container = _find_container(status, SPARK_CONTAINER if SPARK_CONTAINER in given else given[0])
    cure = "correct it in the application"
    phase, reason, message = _describe_pod(pod, container, cure, now_s, seen_s)
    return DriverState(
        phase,
        "TargetFailed" if phase == "Failing" else reason,
        message,
        running=_runs(container),
        uid=metadata.get("uid", ""),
        began=_read_begin(container),
        ips=_read_ips(status),
        pod=metadata["name"],
        application=(metadata.get("labels") or {}).get(APPLICATION_LABEL, ""),
        account=spec.get("serviceAccountName") or "default",
    )


def _is_over(pod: Mapping[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in {"Succeeded", "Failed"} or bool(pod["metadata"].get("deletionTimestamp"))


def _describe_absence(target: TargetRef, pods: Sequence[Mapping[str, Any]]) -> DriverState:
    if not pods:
        message = (
            f"no pod here has the labels {driver_selector(target)}: {target} has not started its "
            "driver, or targetRef names another one"
        )
        return DriverState("Pending", "TargetMissing", message)
    last = max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""))
    name, status = last["metadata"]["name"], last.get("status") or {}
    if status.get("phase") != "Failed":
        message = f"pod {name} has ended, or ends; plans are made again for the next driver"
        return DriverState("Pending", "TargetEnded", message)
    ended = [
        entry["state"]["terminated"]
        for entry in list_containers(status)
        if (entry.get("state") or {}).get("terminated") and not has_succeeded(entry)
    ]
    words = "; ".join(_describe_end(entry) for entry in ended) or status.get("message") or "?"
    message = f"pod {name} has failed ({words}); plans are made again for the next driver"
    return DriverState("Failing", "TargetFailed", message)


def _describe_end(terminated: Mapping[str, Any]) -> str:
    return f"exit code {terminated.get('exitCode')}: {read_output(terminated)}"


def _find_container(status: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    containers = status.get("containerStatuses") or []
    return next((entry for entry in containers if entry["name"] == name), None)


def _runs(container: Mapping[str, Any] | None) -> bool:
    state = (container or {}).get("state") or {}
    return state.get("running") is not None


def _read_begin(container: Mapping[str, Any] | None) -> str:
    running = ((container or {}).get("state") or {}).get("running") or {}
    return str(running.get("startedAt") or "")


def _read_ips(status: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(entry["ip"] for entry in status.get("podIPs") or [])


def _describe_leaving(name: str, namespace: str, node: str, since_s: float) -> DriverState:
    # deletionTimestamp is the end of the grace period.
    if since_s > STUCK_AFTER_S:
        message = (
            f"pod {name} should have stopped {since_s:.0f} s ago; its node may be lost. If the "
            f"machine is off for good: kubectl taint nodes {node} "
            "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute. Otherwise make sure that "
            "the pod does not run, then: "
            f"kubectl delete pod {name} --namespace {namespace} --force --grace-period=0. "
            "Nothing is lost: the checkpoint has everything that was committed"
        )
        return DriverState("Failing", "DriverStuck", message)
    message = f"pod {name} stops within {DRIVER_GRACE_S} s; the next one continues from there"
    return DriverState("Pending", "DriverLeaving", message)


def _describe_pod(
    pod: Mapping[str, Any],
    container: Mapping[str, Any] | None,
    cure: str,
    now_s: float,
    seen_s: float,
) -> tuple[str, str, str]:
    """Phase, reason and message; `cure` says what to do about an image that cannot be pulled."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    if _runs(container):
        return "Starting", "DriverRunning", f"pod {name} is running"
    fault = find_fault(status, [container] if container else [])
    if fault:
        return "Failing", fault.reason, _describe_fault(name, fault, cure)
    conditions = status.get("conditions") or []
    for condition in conditions:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said = condition.get("message") or "no node fits"
            return "Pending", "Unschedulable", f"pod {name} waits for a node: {said}"
    changed = [condition.get("lastTransitionTime") for condition in conditions]
    last_s = max((_seconds(time) for time in changed if time), default=now_s)
    since_s = find_age_s(last_s, now_s, seen_s)
    if since_s > STARTED_WITHIN_S:
        message = (
            f"pod {name} has been starting for {since_s / 60.0:.0f} minutes; kubectl describe pod "
            f"{name} --namespace {pod['metadata']['namespace']} says why"
        )
        return "Failing", "StartStuck", message
    return "Pending", "ContainerCreating", f"pod {name} is starting"


def _describe_fault(pod: str, fault: Fault, cure: str) -> str:
    """What keeps a pod from running; `cure` says what to do about its image."""
    whose = f" (init container {fault.init})" if fault.init else ""
    if fault.reason == "ImageUnavailable":
        if fault.init:
            cure = cure.replace("spec.image", "spec.driver.podTemplate")
        return f"the image cannot be pulled ({fault.said}){whose}: {cure}"
    if fault.reason == "ApplicationFailed":
        what = f"init container {fault.init}" if fault.init else "the script"
        return (
            f"{what} ended with exit code {fault.exit_code}; it restarts after a pause. "
            f"Its last output: {fault.said}"
        )
    return f"pod {pod} cannot start: {fault.waiting}: {fault.said}{whose}"


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
