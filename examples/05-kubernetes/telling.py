"""What of a stream is news, as lines for a terminal; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Status = Mapping[str, Any]

TOLD_CONDITIONS = ("Ready", "Balanced")
"""Of the others, decisions and columns tell enough."""

UNREMARKABLE_COLUMNS = ("AGE", "BACKLOG")
"""A change of these alone is no news: every batch changes them."""

_WIDTHS = {"NAME": len("clicks"), "IMBALANCE": len("1.04 (1.00)"), "PHASE": len("Starting")}
"""Of columns whose cells are wider than their headings."""


def read_row(table: str) -> dict[str, str]:
    r"""The cells of the only row that `kubectl get` prints, by their headings.

    Cells can be empty or hold spaces, so they are found by where the headings stand.

    >>> read_row("NAME     MODE   EXECUTORS\nclicks          2")
    {'NAME': 'clicks', 'MODE': '', 'EXECUTORS': '2'}
    """
    headings, cells = table.splitlines()[:2]
    starts = [heading.start() for heading in re.finditer(r"\S+", headings)]
    columns = [slice(*ends) for ends in zip(starts, [*starts[1:], None], strict=True)]
    return {headings[column].strip(): cells[column].strip() for column in columns}


def format_clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> format_clock(65.9)
    '1:05'
    """
    minutes, left_s = divmod(int(seconds), 60)
    return f"{minutes}:{left_s:02}"


def holds(status: Status, condition: str) -> bool:
    """Whether a condition is True."""
    return any(
        entry["type"] == condition and entry["status"] == "True"
        for entry in status.get("conditions") or []
    )


def is_settled(status: Status) -> bool:
    """Whether the load is even, and nothing moves any more."""
    return holds(status, "Balanced") and not holds(status, "Migrating")


def has_decided(status: Status, kind: str, since: int) -> bool:
    """Whether a plan after that of the epoch `since` carries out a decision of this kind."""
    return any(
        entry["kind"] == kind and entry["epoch"] > since for entry in status.get("decisions") or []
    )


def has_executors(status: Status, count: int) -> bool:
    """Whether so many executors run, and no more and no fewer should."""
    return status.get("executors") == count == status.get("desiredExecutors")


@dataclass
class News:
    """Remembers what was told of a stream, to tell each thing once."""

    _row: dict[str, str] = field(default_factory=dict)
    _conditions: dict[str, str] = field(default_factory=dict)
    _decisions: set[tuple[str, str, int]] = field(default_factory=set)
    _effects: set[tuple[str, str, int]] = field(default_factory=set)

    def find(self, row: Mapping[str, str], status: Status) -> list[str]:
        """A line for each thing that is new.

        Args:
            row: of `kubectl get bst`.
            status: of the stream at about the same time.
        """
        conditions = self._find_conditions(status)
        return [*conditions, *self._find_decisions(status), *self._find_row(row)]

    def _find_conditions(self, status: Status) -> list[str]:
        lines = []
        for entry in status.get("conditions") or []:
            kind = entry["type"]
            state = f"{kind} is {entry['status']}: {entry['reason']}"
            if kind in TOLD_CONDITIONS and state != self._conditions.get(kind):
                self._conditions[kind] = state
                lines.append(f"{state}, {entry.get('message', '')}")
        return lines

    def _find_decisions(self, status: Status) -> list[str]:
        lines = []
        # The status has the newest first.
        for entry in reversed(status.get("decisions") or []):
            identity = (entry["time"], entry["kind"], entry["epoch"])
            what = f"{entry['kind']}, plan {entry['epoch']}"
            if identity not in self._decisions:
                self._decisions.add(identity)
                lines.append(f"decision: {what}: {entry['reason']}")
            if "effect" in entry and identity not in self._effects:
                self._effects.add(identity)
                lines.append(f"effect of {what}: {entry['effect']}")
        return lines

    def _find_row(self, row: Mapping[str, str]) -> list[str]:
        is_first = not self._row
        if not is_first and _pick_remarkable(row) == _pick_remarkable(self._row):
            return []
        self._row = dict(row)
        headings = [_align(row, row)] if is_first else []
        return [*headings, _align(row, row.values())]


def _pick_remarkable(row: Mapping[str, str]) -> dict[str, str]:
    """What of a row is worth a line: of the imbalance, one digit behind the point."""
    cells = {name: cell for name, cell in row.items() if name not in UNREMARKABLE_COLUMNS}
    return cells | {"IMBALANCE": cells.get("IMBALANCE", "")[:3]}


def _align(headings: Iterable[str], cells: Iterable[str]) -> str:
    padded = [
        cell.ljust(max(len(heading), _WIDTHS.get(heading, 0)))
        for heading, cell in zip(headings, cells, strict=True)
    ]
    return "   ".join(padded).rstrip()
