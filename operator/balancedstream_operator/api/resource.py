"""Names and limits of the BalancedStream resource, for all code that reads or writes one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from balancedstream.core.wire.objects import STREAM_LABEL
from balancedstream.errors import InvalidInputError

Manifest = dict[str, Any]
"""A Kubernetes object in the form of its YAML or JSON."""

GROUP = "balancedstream.io"
VERSION = "v1alpha1"
KIND = "BalancedStream"
API_VERSION = f"{GROUP}/{VERSION}"
PLURAL = "balancedstreams"

NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
"""Pattern of the name of a Kubernetes object."""

MAX_NAME = 40
"""Maximum number of characters in a stream's name; its services and pods append suffixes."""

MAX_MESSAGE = 1024
"""Maximum number of characters in a condition's message, and in a decision's reason."""

MAX_DECISIONS = 10
"""Maximum number of decisions in the status."""

MAX_HOTTEST = 10
"""Maximum number of partitions in the status, and of keys."""

MAX_KEY = 256
"""Maximum number of characters of a key in the status."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A BalancedStream's identity.

    Attributes:
        namespace: namespace of the resource and of all objects that it owns.
        name: name of the resource.
        uid: uid of the resource, for owner references.
    """

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def is_owned_by(metadata: Mapping[str, Any], uid: str) -> bool:
    """Whether an object with these metadata is owned by the object with this uid.

    >>> is_owned_by({"ownerReferences": [{"uid": "1"}]}, "1"), is_owned_by({}, "1")
    (True, False)
    """
    return any(owner["uid"] == uid for owner in metadata.get("ownerReferences") or [])


def belongs_to(metadata: Mapping[str, Any], stream: Stream) -> bool:
    """Whether an object belongs to a stream.

    Either the stream owns the object, or the object has no owner but the stream's label. `kubectl
    delete --cascade=orphan` leaves such objects without an owner behind.

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


def refuse(path: str, problem: str) -> NoReturn:
    """Refuses a field of a manifest.

    Raises:
        InvalidInputError: always; the message names the field.
    """
    message = f"{path}: {problem}"
    raise InvalidInputError(message)
