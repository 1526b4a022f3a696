"""The state of a driver, from its pod and StatefulSet: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from balancedstream_operator.pods import DRIVER_GRACE_S, SPEC_ANNOTATION

STUCK_AFTER_S = 60.0
"""A pod that still exists this long after its grace period is on a node that does not respond."""

_BAD_IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}


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
        ips: addresses of its pod.
        spec: fingerprint of the spec that its pod was made for; empty if an older release made it.
        settled: whether its StatefulSet has been acted on; until then `outdated` is not known.
    """

    phase: str
    reason: str
    message: str
    outdated: bool = False
    running: bool = False
    uid: str = ""
    settled: bool = True
    ips: tuple[str, ...] = ()
    spec: str = ""


def describe_driver(
    pod: Mapping[str, Any] | None, stateful_set: Mapping[str, Any] | None, now_s: float
) -> DriverState:
    """The driver's state.

    Args:
        pod: of the driver; None if there is none.
        stateful_set: that owns the pod; None if there is none yet.
        now_s: seconds since the Unix epoch.

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
        return _describe_leaving(name, metadata["namespace"], now_s - _seconds(deleted))
    if replicas == 0:
        return DriverState("Suspended", "Stopping", f"pod {name} will be stopped")
    found = (stateful_set or {}).get("status") or {}
    generation = ((stateful_set or {}).get("metadata") or {}).get("generation", 0)
    settled = found.get("observedGeneration", generation) >= generation
    wanted = found.get("updateRevision")
    revision = (metadata.get("labels") or {}).get("controller-revision-hash")
    outdated = settled and bool(wanted and revision and wanted != revision)
    containers = status.get("containerStatuses") or []
    container = next((c for c in containers if c["name"] == "driver"), None)
    state = (container or {}).get("state") or {}
    uid = metadata.get("uid", "")
    if "running" in state and state["running"] is not None:
        message = f"pod {name} is running"
        return DriverState(
            "Starting",
            "DriverRunning",
            message,
            outdated,
            True,
            uid,
            settled,
            tuple(entry["ip"] for entry in status.get("podIPs") or []),
            (metadata.get("annotations") or {}).get(SPEC_ANNOTATION, ""),
        )
    phase, reason, message = _describe_waiting(name, status, container, state)
    return DriverState(phase, reason, message, outdated, uid=uid, settled=settled)


def _describe_leaving(name: str, namespace: str, since_s: float) -> DriverState:
    # deletionTimestamp is the end of the grace period.
    if since_s > STUCK_AFTER_S:
        message = (
            f"pod {name} should have stopped {since_s:.0f} s ago; its node may be lost. Make sure "
            "that the pod does not run, then: "
            f"kubectl delete pod {name} --namespace {namespace} --force --grace-period=0. "
            "Nothing is lost: the checkpoint has everything that was committed"
        )
        return DriverState("Failing", "DriverStuck", message)
    message = f"pod {name} stops within {DRIVER_GRACE_S} s; the next one continues from there"
    return DriverState("Pending", "DriverLeaving", message)


def _describe_waiting(
    name: str,
    status: Mapping[str, Any],
    container: Mapping[str, Any] | None,
    state: Mapping[str, Any],
) -> tuple[str, str, str]:
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason", "")
    ended = ((container or {}).get("lastState") or {}).get("terminated") or state.get("terminated")
    if reason in _BAD_IMAGE:
        said = waiting.get("message", reason)
        return (
            "Failing",
            "ImageUnavailable",
            f"the image cannot be pulled ({said}): correct spec.image; a new pod then starts",
        )
    if ended and (reason == "CrashLoopBackOff" or state.get("terminated")):
        said = (ended.get("message") or ended.get("reason") or "").strip()
        return (
            "Failing",
            "ApplicationFailed",
            f"the script ended with exit code {ended.get('exitCode')}; it restarts after a pause. "
            f"Its last output: {said[-700:]}",
        )
    if reason and reason != "ContainerCreating":
        said = waiting.get("message", "")
        return "Failing", reason, f"pod {name} cannot start: {said or reason}"
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said = condition.get("message") or "no node fits"
            return "Pending", "Unschedulable", f"pod {name} waits for a node: {said}"
    return "Pending", "ContainerCreating", f"pod {name} is starting"


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
