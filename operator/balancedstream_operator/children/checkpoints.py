"""Finds streams that share a checkpoint: two drivers on one would lose data; pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from balancedstream.core.wire.objects import STREAM_LABEL
from balancedstream_operator.api.resource import KIND, Stream
from balancedstream_operator.children.pods import CHECKPOINTS_DIR, UID_ANNOTATION, is_at_work

_SCHEMES = {"s3": "s3a", "s3n": "s3a", "abfs": "abfss"}
"""Schemes of URIs that name the same store in Hadoop."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another stream or pod that has the checkpoint of a stream.

    Attributes:
        message: names the other one, for people.
        passes: whether the other one is a pod that is being deleted, so that waiting helps.
    """

    message: str
    passes: bool = False


def find_conflict(
    stream: Stream,
    resources: Iterable[Mapping[str, Any]],
    driver_pods: Iterable[Mapping[str, Any]],
) -> Conflict | None:
    """Finds another stream or pod that has the checkpoint of a stream; None if there is none.

    The older of two streams has the checkpoint. The driver of a deleted stream has it until its pod
    no longer exists, and so has a Job that writes its state anew, even if the next stream has the
    same name.

    `driver_pods` are those of all namespaces that can reach the checkpoint, with those of Jobs.
    """
    known = {resource["metadata"]["uid"]: resource for resource in resources}
    mine = known.get(stream.uid)
    place = _place_of_stream(mine) if mine else ""
    if mine is None or not place:
        return None
    for other in known.values():
        metadata = other["metadata"]
        # A stream of the same name was deleted, and the watch has not told it yet.
        if _name(other) == _name(mine):
            continue
        if _place_of_stream(other) == place and _age(other) < _age(mine):
            name = f"{metadata['namespace']}/{metadata['name']}"
            return Conflict(f"{KIND} {name} has the checkpoint {place}")
    for pod in driver_pods:
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        label = (metadata.get("labels") or {}).get(STREAM_LABEL)
        owner = (metadata.get("annotations") or {}).get(UID_ANNOTATION, stream.uid)
        if owner == stream.uid and (namespace, label) == (stream.namespace, stream.name):
            continue
        if not is_at_work(pod):
            continue
        if _place_of_pod(pod) == place:
            message = f"pod {namespace}/{name}, which still exists, has the checkpoint {place}"
            return Conflict(message, passes=bool(metadata.get("deletionTimestamp")))
    return None


def _place_of_stream(resource: Mapping[str, Any]) -> str:
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    given = spec.get("checkpoints") or {}
    if given.get("uri"):
        return _normalize(given["uri"])
    if not given.get("claim"):
        return ""
    folder = posixpath.normpath(f"{CHECKPOINTS_DIR}/{given.get('path') or metadata['name']}")
    return f"{metadata['namespace']}/{given['claim']}:{folder}"


def _normalize(uri: str) -> str:
    """One spelling for a folder, as Hadoop's `Path` reads it; some stores have several schemes.

    >>> _normalize("s3://lake//clicks/"), _normalize("s3a://lake/clicks")
    ('s3a://lake/clicks', 's3a://lake/clicks')
    >>> _normalize("hdfs://nn:8020/team/../clicks/."), _normalize("file:/a"), _normalize("/a/b")
    ('hdfs://nn/clicks', 'file:///a', '/a/b')
    """
    parts = urlsplit(uri)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    path = posixpath.normpath("/" + parts.path.lstrip("/")).rstrip("/")
    host = parts.netloc.removesuffix(":8020") if scheme == "hdfs" else parts.netloc
    return f"{scheme}://{host}{path}" if scheme else path


def _place_of_pod(pod: Mapping[str, Any]) -> str:
    spec = pod.get("spec") or {}
    folder = next(
        (
            entry.get("value") or ""
            for container in spec.get("containers") or []
            for entry in container.get("env") or []
            if entry["name"] == "CHECKPOINT_DIR"
        ),
        "",
    )
    claim = next(
        (
            volume["persistentVolumeClaim"]["claimName"]
            for volume in spec.get("volumes") or []
            if volume["name"] == "checkpoints" and volume.get("persistentVolumeClaim")
        ),
        "",
    )
    if not claim:
        return _normalize(folder)
    return f"{pod['metadata']['namespace']}/{claim}:{posixpath.normpath(folder)}"


def _name(resource: Mapping[str, Any]) -> tuple[str, str]:
    return resource["metadata"]["namespace"], resource["metadata"]["name"]


def _age(resource: Mapping[str, Any]) -> tuple[str, str]:
    metadata = resource["metadata"]
    return str(metadata.get("creationTimestamp") or ""), str(metadata["uid"])
