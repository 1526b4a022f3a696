"""Names and limits of the BalancedStream resource, shared by all that read or write one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from balancedstream.core.wire.objects import STREAM_LABEL

Manifest = dict[str, Any]
"""A Kubernetes object as its YAML or JSON holds it."""

GROUP = "balancedstream.io"
VERSION = "v1alpha1"
KIND = "BalancedStream"
API_VERSION = f"{GROUP}/{VERSION}"
PLURAL = "balancedstreams"

NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
"""Pattern of the name of an object in Kubernetes."""

MAX_NAME = 40
"""Characters of a stream's name: its services and pods add their suffixes to it."""

MAX_MESSAGE = 1024
"""Characters of a condition's message, and of a decision's reason."""

MAX_DECISIONS = 10
"""Decisions that the status keeps."""

MAX_HOTTEST = 10
"""Partitions, and keys, that the status lists."""

MAX_KEY = 256
"""Characters of a key that the status shows."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A BalancedStream's identity.

    Attributes:
        namespace: of the resource and of all objects that it owns.
        name: of the resource.
        uid: of the resource, for owner references.
    """

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def is_owned_by(metadata: Mapping[str, Any], uid: str) -> bool:
    """Whether the object with that uid is an owner of another object.

    >>> is_owned_by({"ownerReferences": [{"uid": "1"}]}, "1"), is_owned_by({}, "1")
    (True, False)
    """
    return any(owner["uid"] == uid for owner in metadata.get("ownerReferences") or [])


def is_owned_by_another(metadata: Mapping[str, Any], uid: str) -> bool:
    """Whether an object has owners, and the object with that uid is none of them.

    >>> is_owned_by_another({"ownerReferences": [{"uid": "1"}]}, "2")
    True
    """
    return bool(metadata.get("ownerReferences")) and not is_owned_by(metadata, uid)


def is_being_deleted(metadata: Mapping[str, Any]) -> bool:
    """Whether an object is on its way out: its finalizers, or its grace period, still hold it.

    >>> is_being_deleted({"deletionTimestamp": "2026-01-01T00:00:00Z"}), is_being_deleted({})
    (True, False)
    """
    return bool(metadata.get("deletionTimestamp"))


def belongs_to(metadata: Mapping[str, Any], stream: Stream) -> bool:
    """Whether an object is a stream's: it owns it, or nobody does and it has the stream's label.

    `kubectl delete` with `--cascade=orphan` leaves such ones behind.

    >>> stream = Stream("shop", "clicks", "1")
    >>> belongs_to({"labels": {STREAM_LABEL: "clicks"}}, stream), belongs_to({}, stream)
    (True, False)
    """
    if metadata.get("ownerReferences"):
        return is_owned_by(metadata, stream.uid)
    return bool((metadata.get("labels") or {}).get(STREAM_LABEL) == stream.name)


def driver_name(stream: Stream) -> str:
    """Name of the driver's StatefulSet, Service and ServiceAccount.

    >>> driver_name(Stream("default", "clicks", "1"))
    'clicks-driver'
    """
    return f"{stream.name}-driver"


def driver_pod_name(stream: Stream) -> str:
    """Name of the driver's pod: the only one of its StatefulSet.

    >>> driver_pod_name(Stream("default", "clicks", "1"))
    'clicks-driver-0'
    """
    return f"{driver_name(stream)}-0"
