"""Why executors do not start, from their pods and a dry run of one more: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from balancedstream_operator.api.resource import Manifest, Stream
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.children.configuration import build_running_conf
from balancedstream_operator.children.pods import build_executor_pod, copy_pod
from balancedstream_operator.children.spark_pods import make_executor_pod
from balancedstream_operator.driver.containers import Fault, find_fault

SHORT_AFTER_S = 60.0
"""The status reports executors that have been missing for longer than this."""

MAX_WORDS = 600
"""Characters of what Kubernetes says."""

TAKEN = "the API server would take one more: the driver's log says why Spark asks for none"
"""The shortage of executors where the API server would take another pod of theirs."""


def explain_shortage(pods: Iterable[Mapping[str, Any]], asked: str = "") -> str:
    """What keeps executors from starting, in Kubernetes' own words; the most frequent come first.

    `asked` is the API server's answer to a dry run of one more pod; empty without a dry run.

    >>> explain_shortage([])
    "no pod of theirs waits: the driver's log says why"
    """
    said = Counter(words for words in map(_describe, pods) if words)
    words = [*([asked] if asked else []), *(words for words, _ in said.most_common())]
    return "; ".join(words)[:MAX_WORDS] or "no pod of theirs waits: the driver's log says why"


def count_live(pods: Iterable[Mapping[str, Any]]) -> int:
    """Number of pods that run, or will run: some executors may have no pod."""
    return sum(
        (pod.get("status") or {}).get("phase") in {"Pending", "Running"}
        and not pod["metadata"].get("deletionTimestamp")
        for pod in pods
    )


def describe_next(
    stream: Stream, spec: StreamSpec, pods: Sequence[Mapping[str, Any]]
) -> Manifest | None:
    """A pod like the next executor's, for a dry run: a pod that was refused leaves no trace.

    Spark makes the next pod like `pods`, those of the executors.

    Returns:
        The pod; None if another operator runs the application, and there is no pod to copy.
    """
    name = f"{stream.name}-executor"
    if pods:
        return copy_pod(pods[0], name, stream.namespace)
    if spec.target_ref is not None:
        return None
    made = make_executor_pod(
        build_executor_pod(stream, spec), build_running_conf(stream, spec), name=name
    )
    return made | {"metadata": made["metadata"] | {"namespace": stream.namespace}}


def _describe(pod: Mapping[str, Any]) -> str:
    """What a pod waits for, or what kept it from starting; empty if there is nothing."""
    status = pod.get("status") or {}
    phase = status.get("phase")
    if phase not in {"Pending", "Failed"} or pod["metadata"].get("deletionTimestamp"):
        return ""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "no node fits")
    # An executor that ran and failed was lost; one whose init container failed never ran.
    ran = status.get("containerStatuses") or [] if phase == "Pending" else []
    fault = find_fault(status, ran)
    if fault:
        return _describe_fault(fault)
    return f"pod {pod['metadata']['name']} is starting" if phase == "Pending" else ""


def _describe_fault(fault: Fault) -> str:
    """Without the pod's name, so that pods with the same problem share one sentence."""
    what = f"init container {fault.init}" if fault.init else ""
    if fault.exit_code is not None:
        output = f": {fault.said}" if fault.said else ""
        return f"{what or 'a container'} ended with exit code {fault.exit_code}{output}"
    said = fault.said if fault.said != fault.waiting else "see the pod"
    return f"{what}{': ' if what else ''}{fault.waiting}: {said}"
