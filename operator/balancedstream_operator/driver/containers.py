"""Why a container of a pod does not run, in Kubernetes' own words: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SHOWN_CHARACTERS = 700
"""Of a container's last output: a status has to stay small."""

_BAD_IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}

_STARTING = {"ContainerCreating", "PodInitializing"}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a container does not run.

    Attributes:
        reason: ImageUnavailable, ApplicationFailed (it ended) or CannotStart.
        init: name of the init container, which may be a sidecar; empty for one of the others.
        waiting: Kubernetes' word for it, such as ImagePullBackOff; empty if it does not wait.
        said: Kubernetes' message, or the last output of a container that ended.
        exit_code: of a container that ended.
    """

    reason: str
    init: str
    waiting: str
    said: str
    exit_code: int | None = None


def find_fault(status: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]) -> Fault | None:
    """Why a pod does not run; None if no container tells a cause.

    Init containers run before `containers`, the statuses of the other containers that matter.

    >>> waits = {"name": "a", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
    >>> find_fault({"initContainerStatuses": [waits]}, []).init
    'a'
    """
    inits = status.get("initContainerStatuses") or []
    candidates = [(entry["name"], entry) for entry in inits if not has_succeeded(entry)]
    candidates += [("", entry) for entry in containers]
    faults = (_judge(init, entry) for init, entry in candidates)
    return next((fault for fault in faults if fault), None)


def _judge(init: str, container: Mapping[str, Any]) -> Fault | None:
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason", "")
    said = waiting.get("message") or reason
    if reason in _BAD_IMAGE:
        return Fault("ImageUnavailable", init, reason, said)
    loops = reason == "CrashLoopBackOff"
    ended = (container.get("lastState") or {} if loops else state).get("terminated")
    if ended:
        output = read_output(ended)
        return Fault("ApplicationFailed", init, reason, output, ended.get("exitCode"))
    if reason and reason not in _STARTING:
        return Fault("CannotStart", init, reason, said)
    return None


def list_containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Statuses of all containers of a pod."""
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []


def has_succeeded(container: Mapping[str, Any]) -> bool:
    """Whether a container has ended without an error."""
    terminated = (container.get("state") or {}).get("terminated") or {}
    return terminated.get("exitCode") == 0


def read_output(terminated: Mapping[str, Any]) -> str:
    """The end of the last output of a container that ended."""
    said = (terminated.get("message") or terminated.get("reason") or "").strip()
    return str(said[-SHOWN_CHARACTERS:])
