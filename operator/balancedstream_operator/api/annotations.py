"""Requests of people by annotations of a BalancedStream, beside its spec: pure.

An annotation is for a request that holds once, or for a while. A tool that keeps the spec equal to
a repository neither writes nor removes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from balancedstream_operator.api.resource import GROUP

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


def read_goal(resource: Mapping[str, Any]) -> tuple[int, Requests, bool]:
    """Everything that people ask of a stream; a change of it needs a new pass.

    Returns:
        The generation of the spec, which annotations do not change; the requests by annotations;
        whether somebody deletes the BalancedStream.

    >>> read_goal({"metadata": {"generation": 2}})
    (2, Requests(restart='', approve='', paused=''), False)
    """
    metadata = resource["metadata"]
    generation = int(metadata.get("generation", 0))
    return generation, read_requests(resource), bool(metadata.get("deletionTimestamp"))


def read_requests(resource: Mapping[str, Any]) -> Requests:
    """The requests by annotations of a BalancedStream.

    >>> read_requests({"metadata": {"annotations": {"balancedstream.io/paused": "false"}}})
    Requests(restart='', approve='', paused='')
    """
    annotations = resource["metadata"].get("annotations") or {}
    restart, approve, paused = (
        str(annotations.get(name, "")).strip()
        for name in (RESTART_ANNOTATION, APPROVE_ANNOTATION, PAUSED_ANNOTATION)
    )
    return Requests(restart, approve, "" if paused.lower() == "false" else paused)
