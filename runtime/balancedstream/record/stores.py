"""Bounded memory for what a history keeps: batches and moves."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import chain, count
from operator import itemgetter
from typing import Any, Generic, TypeVar

from balancedstream.record.records import BatchRecord, KeyMoveRecord, MoveRecord

OPENING_BATCHES = 200
"""Batches kept for good from each query's start: what the run is later compared with."""

RECENT_BATCHES = 20_000
"""Batches kept from the end of the run, over all queries."""

OPENING_MEASUREMENTS = 200_000
"""Partition measurements kept with the opening batches, about 32 bytes each."""

RECENT_MEASUREMENTS = 1_000_000
"""Partition measurements kept with the latest batches, about 32 bytes each."""

_Numbered = tuple[int, BatchRecord]


class BatchStore:
    """The opening of each query and the latest batches of all, within the budgets above."""

    def __init__(self) -> None:
        self._opening: dict[str, list[_Numbered]] = {}
        self._opening_measurements = 0
        self._detailed: deque[_Numbered] = deque()
        self._plain: deque[_Numbered] = deque()  # older than every detailed one
        self._recent_measurements = 0
        self._placements: dict[tuple[str, int], tuple[str, ...]] = {}  # latest per operator

    def add(self, number: int, record: BatchRecord) -> None:
        """Keeps a batch; `number` says in which order batches came."""
        record = self._share_placements(record)
        size = record.measurements()
        opening = self._opening.setdefault(record.query, [])
        if (
            len(opening) < OPENING_BATCHES
            and self._opening_measurements + size <= OPENING_MEASUREMENTS
        ):
            opening.append((number, record))
            self._opening_measurements += size
            return
        self._detailed.append((number, record))
        self._recent_measurements += size
        # the newest batch keeps its detail, however large
        while self._recent_measurements > RECENT_MEASUREMENTS and len(self._detailed) > 1:
            self._strip_oldest()
        if len(self._plain) + len(self._detailed) > RECENT_BATCHES:
            if not self._plain:
                self._strip_oldest()
            oldest_number, oldest = self._plain.popleft()
            opening = self._opening.get(oldest.query, [])
            if len(opening) < OPENING_BATCHES:  # its opening was too large to keep in detail
                opening.append((oldest_number, oldest))

    def forget_query(self, query: str) -> None:
        """Lets go of a query's opening."""
        for _, record in self._opening.pop(query, []):
            self._opening_measurements -= record.measurements()
        for key in [key for key in self._placements if key[0] == query]:
            del self._placements[key]

    def records(self) -> tuple[BatchRecord, ...]:
        """The batches kept, in order of arrival."""
        numbered = chain(*self._opening.values(), self._plain, self._detailed)
        return tuple(record for _, record in sorted(numbered, key=itemgetter(0)))

    def _share_placements(self, record: BatchRecord) -> BatchRecord:
        """Lets batches share one tuple of executors for as long as nothing moves."""
        loads = []
        for load in record.loads:
            key = record.query, load.operator
            if self._placements.get(key) != load.partition_executor:
                self._placements[key] = load.partition_executor
            loads.append(replace(load, partition_executor=self._placements[key]))
        return replace(record, loads=tuple(loads))

    def _strip_oldest(self) -> None:
        number, oldest = self._detailed.popleft()
        self._recent_measurements -= oldest.measurements()
        self._plain.append((number, oldest.without_partitions()))


_Move = TypeVar("_Move", MoveRecord, KeyMoveRecord)


class MoveLedger(Generic[_Move]):
    """The latest moves of one kind, and which of them are under way."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._numbers = count()
        self._moves: dict[int, _Move] = {}  # by number, oldest first
        self._under_way: dict[tuple[str | int, ...], int] = {}  # place to number of its move

    def add(self, move: _Move) -> None:
        """Keeps a move; the oldest one makes room."""
        number = next(self._numbers)
        self._moves[number] = move
        if move.under_way():
            self._under_way[move.place] = number
        if len(self._moves) > self._kept:
            oldest = self._moves.pop(next(iter(self._moves)))
            if oldest.under_way():
                del self._under_way[oldest.place]

    def change(self, place: tuple[str | int, ...], **values: Any) -> _Move | None:
        """Changes the move of a place that is under way; None if none is."""
        number = self._under_way.get(place)
        if number is None:
            return None
        changed = self._moves[number] = replace(self._moves[number], **values)
        return changed

    def end(self, place: tuple[str | int, ...], **outcome: Any) -> _Move | None:
        """Writes the outcome into the move of a place; None if none was under way."""
        ended = self.change(place, **outcome)
        self._under_way.pop(place, None)
        return ended

    def records(self) -> tuple[_Move, ...]:
        """The moves kept, in order of decision."""
        return tuple(self._moves.values())
