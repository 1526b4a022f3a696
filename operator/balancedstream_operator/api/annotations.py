"""What people ask of a stream by annotations, beside its spec: pure.

An annotation is for what is asked once, or for a while. A tool that keeps the spec as it is in a
repository neither writes it nor takes it away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from balancedstream_operator.api.resource import GROUP, is_being_deleted

RESTART_ANNOTATION = f"{GROUP}/restart"
"""On a BalancedStream: a new value asks for a new driver."""

APPROVE_ANNOTATION = f"{GROUP}/approve"
"""On a BalancedStream: the id of the proposal to carry out; the operator takes it away."""

PAUSED_ANNOTATION = f"{GROUP}/paused"
"""On a BalancedStream: anything but `false` holds it as it is; the value says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What annotations of a BalancedStream ask for.

    Attributes:
        restart: a new value asks for a new driver; empty for none.
        approve: id of the proposal to carry out; empty for none.
        paused: why nothing is to be moved, added or removed; empty if the stream is not paused.
    """

    restart: str = ""
    approve: str = ""
    paused: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that people want of a stream: an annotation does not change the generation.

    Attributes:
        generation: of the spec.
        asked: beside it.
        deleted: whether it is being deleted.
    """

    generation: int
    asked: Asked
    deleted: bool = False


def read_wanted(resource: Mapping[str, Any]) -> Wanted:
    """What is wanted, from a BalancedStream.

    >>> read_wanted({"metadata": {"generation": 2}}).generation
    2
    """
    metadata = resource["metadata"]
    deleted = is_being_deleted(metadata)
    return Wanted(int(metadata.get("generation", 0)), read_asked(resource), deleted)


def read_asked(resource: Mapping[str, Any]) -> Asked:
    """What is asked for, from a BalancedStream.

    >>> read_asked({"metadata": {"annotations": {"balancedstream.io/paused": "false"}}})
    Asked(restart='', approve='', paused='')
    """
    annotations = resource["metadata"].get("annotations") or {}
    restart, approve, paused = (
        str(annotations.get(name, "")).strip()
        for name in (RESTART_ANNOTATION, APPROVE_ANNOTATION, PAUSED_ANNOTATION)
    )
    return Asked(restart, approve, "" if paused.lower() == "false" else paused)
