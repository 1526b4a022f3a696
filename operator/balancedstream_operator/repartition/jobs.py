"""The Jobs that give a stream's state another number of partitions, and take that back: pure.

Their pod is the driver's, with another command: the same image, storage, account and security.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from balancedstream.core.wire.objects import STREAM_LABEL
from balancedstream_operator.api.resource import GROUP, Manifest, Stream
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.children.configuration import build_spark_conf
from balancedstream_operator.children.manifests import build_object, mark
from balancedstream_operator.children.pods import (
    CONFIGURATION_ANNOTATION,
    JOB_PODS,
    SPEC_ANNOTATION,
    UID_ANNOTATION,
    build_driver_pod,
    is_at_work,
    stream_labels,
)
from balancedstream_operator.repartition.steps import (
    JobSeen,
    Repartition,
    read_repartition,
    write_repartition,
)

REPARTITION_ANNOTATION = f"{GROUP}/repartition"
"""Annotation of a Job: the step that it carries out, for an operator that has lost its record."""

EXIT_REFUSED = 2
"""Of a command that said why in one sentence: the same one again says the same."""

RETRIES = 3

SAYS = "balancedstream: "
"""Begins the line in which a command says what went wrong."""

_OF_METRICS = ("prometheus.io/scrape", "prometheus.io/port", "prometheus.io/path")


def job_pods(stream: Stream) -> str:
    """Label selector of the pods of one stream's Jobs."""
    return f"{JOB_PODS},{STREAM_LABEL}={stream.name}"


def job_names(stream: Stream) -> tuple[str, str]:
    """Names of the Jobs that rewrite and that undo.

    >>> job_names(Stream("shop", "clicks", "1"))
    ('clicks-repartition', 'clicks-undo')
    """
    return f"{stream.name}-repartition", f"{stream.name}-undo"


def job_name(stream: Stream, known: Repartition) -> str:
    """Name of the Job of a step that has one."""
    rewrites, undoes = job_names(stream)
    return undoes if known.step == "undoing" else rewrites


def build_job(stream: Stream, spec: StreamSpec, known: Repartition) -> Manifest:
    """The Job of a step, `rewriting` or `undoing`.

    Raises:
        InvalidInputError: a pod template cannot be merged; the message names the field.
    """
    driver = build_driver_pod(stream, spec, build_spark_conf(stream, spec, known.before))
    labels = {**driver["metadata"]["labels"], **stream_labels(stream, "repartition")}
    annotations = {
        name: text
        for name, text in driver["metadata"]["annotations"].items()
        if name not in {*_OF_METRICS, CONFIGURATION_ANNOTATION, SPEC_ANNOTATION}
    }
    pod = driver["spec"]
    # A sidecar that does not end would keep the Job from its end.
    container = next(entry for entry in pod["containers"] if entry["name"] == "driver")
    container = {
        name: value
        for name, value in container.items()
        if name not in {"ports", "readinessProbe", "livenessProbe", "startupProbe", "lifecycle"}
    }
    container["args"] = [*_build_command(known)]
    template = {
        "metadata": {"labels": labels, "annotations": {**annotations, UID_ANNOTATION: stream.uid}},
        "spec": {**pod, "containers": [container], "restartPolicy": "Never"},
    }
    name = job_name(stream, known)
    job = build_object(stream, "batch/v1", "Job", name, component="repartition")
    step = json.dumps(write_repartition(known), sort_keys=True)
    job["metadata"]["annotations"] = {REPARTITION_ANNOTATION: step}
    spec_of_job = {
        "backoffLimit": RETRIES,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": "driver",
                        "operator": "In",
                        "values": [EXIT_REFUSED],
                    },
                },
                # Evicted, or its node went away: that is no failure of the command.
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
            ]
        },
        "template": template,
    }
    return mark(job | {"spec": spec_of_job}, spec)


def _build_command(known: Repartition) -> list[str]:
    # With its number, so that a pod that runs again undoes no change before this one.
    undo = ["--undo"] if known.step == "undoing" else []
    return [
        *("balancedstream", "repartition", *known.checkpoints, *undo),
        *("--partitions", str(known.wanted)),
    ]


def read_step(job: Mapping[str, Any]) -> Repartition | None:
    """The step that a Job carries out; None if nobody knows."""
    annotations = job["metadata"].get("annotations") or {}
    try:
        return read_repartition(json.loads(annotations.get(REPARTITION_ANNOTATION, "")))
    except ValueError:
        return None


def describe_job(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> JobSeen:
    """How far a Job is.

    Args:
        job: as the API server has it.
        pods: of this stream's Jobs.
    """
    conditions = (job.get("status") or {}).get("conditions") or []
    held = {c["type"] for c in conditions if c.get("status") == "True"}
    uid = job["metadata"].get("uid")
    mine = [
        pod
        for pod in pods
        if any(o.get("uid") == uid for o in pod["metadata"].get("ownerReferences") or [])
    ]
    said = _read_last_words(mine)
    if any(is_at_work(pod) for pod in pods) or not held & {"Complete", "Failed"}:
        return JobSeen("running", _find_hindrance(mine))
    if "Complete" in held:
        return JobSeen("succeeded", said)
    message = next((c.get("message") for c in conditions if c["type"] == "Failed"), "")
    return JobSeen("failed", said or str(message or ""))


def _read_last_words(pods: Sequence[Mapping[str, Any]]) -> str:
    """The last lines of the pod that ended last."""
    ended = [
        entry["state"]["terminated"]
        for pod in pods
        for entry in (pod.get("status") or {}).get("containerStatuses") or []
        if entry["name"] == "driver" and (entry.get("state") or {}).get("terminated")
    ]
    last: Mapping[str, Any] = max(
        ended, key=lambda end: str(end.get("finishedAt") or ""), default={}
    )
    lines = str(last.get("message") or "").strip().splitlines()
    if lines and lines[-1].startswith(SAYS):
        return lines[-1].removeprefix(SAYS)
    if not last.get("exitCode"):
        return ""
    return f"its pod ended with exit code {last['exitCode']} ({last.get('reason') or 'Error'})"


def _find_hindrance(pods: Sequence[Mapping[str, Any]]) -> str:
    """Why no pod runs, in the words of Kubernetes; empty if one does or nothing is said."""
    for pod in pods:
        status = pod.get("status") or {}
        for entry in status.get("containerStatuses") or []:
            waiting = (entry.get("state") or {}).get("waiting") or {}
            if waiting.get("message"):
                return f"{waiting.get('reason')}: {waiting['message']}"
        for condition in status.get("conditions") or []:
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return str(condition.get("message") or "no node fits")
    return ""
