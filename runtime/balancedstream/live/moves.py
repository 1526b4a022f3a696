"""Moves under way, and how an operator's moves ended."""

from __future__ import annotations

from collections.abc import Sequence

from balancedstream.core.printing import printable
from balancedstream.record.records import MoveRecord
from balancedstream.record.wording import format_duration, plural


class MovesUnderWay:
    """Follows moves from their decision to their end, and counts those that have begun."""

    def __init__(self) -> None:
        self.begun = 0
        self._under_way: dict[tuple[str, int], dict[int, MoveRecord]] = {}
        self._ended: dict[tuple[str, int], list[MoveRecord]] = {}

    def of(self, query: str, operator: int) -> dict[int, MoveRecord]:
        """Returns the operator's moves under way, by partition."""
        return self._under_way.get((query, operator), {})

    def operators(self) -> list[tuple[str, int]]:
        """Returns query and id of each operator with a move under way."""
        return list(self._under_way)

    def take(self, record: MoveRecord) -> list[MoveRecord]:
        """Takes in a move that begins or ends.

        Returns:
            The operator's ended moves once no move of it is under way any more; else nothing.
        """
        operator = record.query, record.operator
        under_way = self._under_way.setdefault(operator, {})
        if record.under_way():
            self.begun += record.partition not in under_way
            under_way[record.partition] = record
            return []
        under_way.pop(record.partition, None)
        self._ended.setdefault(operator, []).append(record)
        if under_way:
            return []
        del self._under_way[operator]
        return self._ended.pop(operator)


def describe_ended(ended: Sequence[MoveRecord]) -> tuple[float, str]:
    """Says when the last of these moves ended, in seconds since the Unix epoch, and how all did."""
    settled_s = [move.settled_s for move in ended if move.settled_s is not None]
    dropped = [move for move in ended if move.dropped_s is not None]
    prepared_s = [move.prepared_s for move in ended if move.prepared_s is not None]
    restore_s = [move.restore_s for move in ended if move.restore_s is not None]
    parts = [f"{plural(len(settled_s), 'move')} settled"] if settled_s else []
    if prepared_s:
        parts.append(f"state loaded ahead in at most {format_duration(max(prepared_s))}")
    if restore_s:
        parts.append(f"state restored in at most {format_duration(max(restore_s))}")
    if dropped:
        count = f"{len(dropped)}" if settled_s else plural(len(dropped), "move")
        reason = printable(dropped[-1].dropped_reason or "no reason given")
        parts.append(f"{count} dropped ({reason})")
    ended_s = [*settled_s, *(move.dropped_s for move in dropped if move.dropped_s is not None)]
    return max(ended_s), ", ".join(parts)
