"""Requests of people by annotations of a BalancedStream, beside its spec: pure.

An annotation is for a request that holds once, or for a while. A tool that keeps the spec equal to
a repository neither writes nor removes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from balancedstream_operator.api.resource import GROUP, is_being_deleted

RESTART_ANNOTATION = f"{GROUP}/restart"
"""Annotation of a BalancedStream: a new value asks for a new driver."""

APPROVE_ANNOTATION = f"{GROUP}/approve"
"""Annotation of a BalancedStream: id of the proposal to carry out. The operator removes it then."""

PAUSED_ANNOTATION = f"{GROUP}/paused"
"""Annotation of a BalancedStream: any value but `false` pauses the stream and says why."""


@dataclass(frozen=True, slots=True)
class Requests:
    """What annotations of a BalancedStream ask for.

    Attributes:
        restart: a new value asks for a new driver; empty for none.
        approve: id of the proposal to carry out; empty for none.
        paused: why the stream is paused, so that nothing is moved, added or removed; empty if it is
            not paused.
    """

    restart: str = ""
    approve: str = ""
    paused: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that people want of a stream; a change of any attribute needs a new pass.

    Attributes:
        generation: generation of the spec; annotations do not change it.
        asked: requests by annotations.
        deleted: whether the BalancedStream is being deleted.
    """

    generation: int
    requests: Requests
    deleted: bool = False


def read_wanted(resource: Mapping[str, Any]) -> Wanted:
    """Read from a BalancedStream what people want of the stream.

    >>> read_wanted({"metadata": {"generation": 2}}).generation
    2
    """
    metadata = resource["metadata"]
    deleted = is_being_deleted(metadata)
    return Wanted(int(metadata.get("generation", 0)), read_requests(resource), deleted)


def read_requests(resource: Mapping[str, Any]) -> Requests:
    """Read from a BalancedStream what its annotations ask for.

    >>> read_requests({"metadata": {"annotations": {"balancedstream.io/paused": "false"}}})
    Requests(restart='', approve='', paused='')
    """
    annotations = resource["metadata"].get("annotations") or {}
    restart, approve, paused = (
        str(annotations.get(name, "")).strip()
        for name in (RESTART_ANNOTATION, APPROVE_ANNOTATION, PAUSED_ANNOTATION)
    )
    return Requests(restart, approve, "" if paused.lower() == "false" else paused)
