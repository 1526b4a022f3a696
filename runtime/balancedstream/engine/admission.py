"""Bounds the rows that the next batches of a query read, source by source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from balancedstream.engine.sources.backlog import KINDS, Backlog
from balancedstream.engine.sources.limits import (
    PYTHON,
    SourceLimits,
    UnboundedError,
    Unit,
    read_limits,
    read_python_rows,
)
from balancedstream.engine.sources.progress import SourceKind

MOST = 2**53
"""What bounds nothing, and is still a number that Java reads."""

_KIND_OF = {name: kind for kind in KINDS for name in kind.java_classes}


@dataclass(frozen=True, slots=True)
class BoundedSource:
    """A source that takes a bound.

    Attributes:
        number: its place among the sources of the query.
        unit: of its bound.
        limits: those that the user has set.
        kind: what has read its batches so far; None if nothing has.
    """

    number: int
    unit: Unit
    limits: SourceLimits
    kind: SourceKind | None


def bound_rows(
    listener: Any, run_id: str, backlog: Backlog, rows: float, *, bytes_too: bool
) -> str:
    """Bounds the next batches of a run of a query.

    Args:
        listener: the `BatchListener`.
        run_id: of the run.
        backlog: what waits at its sources.
        rows: that a batch may read.
        bytes_too: whether this version of Spark can limit the bytes of a batch.

    Returns:
        Why none of its sources takes a bound; "" if one does.
    """
    query = json.loads(listener.describeSources(run_id))
    if query is None:
        return "the query does not run"
    try:
        sources = find_bounded(query, backlog, bytes_too=bytes_too)
        wanted = share_rows(rows, sources, backlog.waiting, backlog.rows_read)
    except UnboundedError as reason:
        listener.giveLimitsBack(run_id)
        return str(reason)
    limits = ",".join(wanted.get(number, "") for number in range(len(query["sources"])))
    return "" if listener.bound(run_id, limits, float(rows)) else "the query ends"


def find_bounded(
    query: Mapping[str, Any], backlog: Backlog, *, bytes_too: bool
) -> list[BoundedSource]:
    """The sources of a query that take a bound.

    Args:
        query: as `Admission.java` describes it.
        backlog: what has read its batches.
        bytes_too: whether this version of Spark can limit the bytes of a batch.

    Raises:
        UnboundedError: there is none.
    """
    if not query["is_timed"]:
        message = "only a query whose trigger has an interval (processingTime) is bounded"
        raise UnboundedError(message)
    found, reasons = [], []
    for number, row in enumerate(query["sources"]):
        name = row["kind"].rpartition(".")[2]
        try:
            limits = read_limits(row, has_max_bytes=bytes_too)
            kind = _KIND_OF.get(limits.java_class)
            if kind is None:
                reasons.append(f"{name}: what bounds it is not known")
                continue
            unit = kind.choose_unit(limits)
            found.append(BoundedSource(number, unit, limits, backlog.find_kind(number)))
        except UnboundedError as reason:
            reasons.append(f"{name}: {reason}")
    if not found:
        raise UnboundedError("; ".join(reasons) or "no batch is planned yet")
    # With the highest of several watermarks, the rows of a source that is held back would be late.
    if len(query["sources"]) > 1 and query["watermarks"] != "min":
        message = "its sources' watermarks are joined by their highest (multipleWatermarkPolicy)"
        raise UnboundedError(message)
    return found


def share_rows(
    rows: float,
    sources: Sequence[BoundedSource],
    waiting: Mapping[int, float],
    read: Mapping[int, float],
) -> dict[int, str]:
    """The bound of each source, by its number, as `Admission.java` reads it.

    Sources share the rows by what waits at each, so that they catch up at the same time. Where one
    does not tell, or nothing waits, they share them as the rows of the last batches came. A batch
    always gets on: each source may give at least one row or one file.

    Args:
        rows: that a batch may read.
        sources: that take a bound.
        waiting: rows that wait, by number of the source; others are unknown.
        read: rows of the last batches, likewise.

    Raises:
        UnboundedError: of a source of files nobody knows yet how many rows they hold.

    >>> limits = SourceLimits("Mine", {})
    >>> sources = [BoundedSource(n, "rows", limits, None) for n in range(2)]
    >>> share_rows(100, sources, {0: 300.0, 1: 100.0}, {})
    {0: 'rows:75', 1: 'rows:25'}
    >>> share_rows(100, sources, {0: 300.0}, {0: 95.0, 1: 5.0})
    {0: 'rows:95', 1: 'rows:5'}
    """
    parts = [1.0] * len(sources)
    for told in (read, waiting):
        known = [told[source.number] for source in sources if source.number in told]
        if len(known) == len(sources) and any(known):
            parts = known
    bounds = {}
    for source, part in zip(sources, parts, strict=True):
        share = rows * part / sum(parts)
        if source.unit in {"files", "bytes"}:
            converted = source.kind.convert(share, source.unit) if source.kind else None
            if converted is None:
                message = "how many rows its files hold is not known yet"
                raise UnboundedError(message)
            share = converted
        if source.unit == "python":
            share = min(share, read_python_rows(source.limits.own[PYTHON]) or share)
        bounds[source.number] = f"{source.unit}:{max(1, int(min(share, MOST)))}"
    return bounds
