"""Which batches stand for "before" and which for "after".

Pure functions of the record. A batch that read no rows (a timer's, a watermark's) counts in
neither: it says nothing about how the load is spread.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from balancedstream.record.records import BatchRecord, KeyMoveRecord, MoveRecord

Move = MoveRecord | KeyMoveRecord

MIN_BEFORE_BATCHES = 5
"""Batches with rows that must lie before the first move, so that figures are taken over them."""

MIN_AFTER_BATCHES = 5
"""Batches with rows that a stretch in which no move settles must have to give figures."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The batches of a query that its figures before and after are taken over.

    Attributes:
        batches_before: how many batches could stand for "before".
        batches_after: how many batches could stand for "after".
        before: those batches; empty where something moved and they are too few.
        after: those batches; empty where something moved and they are too few.
    """

    batches_before: int
    batches_after: int
    before: tuple[BatchRecord, ...]
    after: tuple[BatchRecord, ...]


def find_windows(
    batches: Sequence[BatchRecord],
    moves: Sequence[Move],
    first_move_after_batch: int | None,
) -> Windows:
    """Picks the batches that figures are taken over.

    Args:
        batches: batches of one query, in order.
        moves: moves of that query's partitions and keys, in any order.
        first_move_after_batch: the last batch that finished before the first move was decided;
            None if nothing moved, and then any number of batches is enough.

    >>> find_windows([], [], 3)
    Windows(batches_before=0, batches_after=0, before=(), after=())
    """
    before = batches_before(batches, first_move_after_batch)
    after = batches_after(batches, moves, first_move_after_batch)
    moved = first_move_after_batch is not None
    return Windows(
        len(before),
        len(after),
        () if moved and len(before) < MIN_BEFORE_BATCHES else before,
        () if moved and len(after) < MIN_AFTER_BATCHES else after,
    )


def describe_too_few(before: int, after: int) -> tuple[str, ...]:
    """Says which side of a query that had moves has too few batches for figures.

    >>> describe_too_few(2, 30)
    ('too few batches before the first move (2, at least 5 are needed)',)
    """
    sides = (
        ("before the first move", before, MIN_BEFORE_BATCHES),
        ("after the moves", after, MIN_AFTER_BATCHES),
    )
    return tuple(
        f"too few batches {side} ({count}, at least {least} are needed)"
        for side, count, least in sides
        if count < least
    )


def batches_before(
    batches: Sequence[BatchRecord], first_move_after_batch: int | None
) -> tuple[BatchRecord, ...]:
    """Picks the batches with rows that no move of ours had touched; see `find_windows`.

    The query's first batch is left out: it starts Python workers and compiles code, which has
    nothing to do with balance.
    """
    last = math.inf if first_move_after_batch is None else first_move_after_batch
    return tuple(batch for batch in batches[1:] if batch.batch <= last and batch.input_rows > 0)


def batches_after(
    batches: Sequence[BatchRecord],
    moves: Sequence[Move],
    first_move_after_batch: int | None,
) -> tuple[BatchRecord, ...]:
    """Picks the batches that ran on the placement that the moves led to; see `find_windows`.

    Returns:
        The batches since the last move settled. If fewer than five did, the latest stretch of at
        least five batches between two settlements; if there is none, the longest stretch. The same
        batches as before if nothing moved. A move that is still being prepared ends no stretch: its
        batches run where they ran.
    """
    if first_move_after_batch is None:
        return batches_before(batches, None)
    latest: tuple[BatchRecord, ...] = ()
    for stretch in _settled_stretches(batches, moves):
        if len(stretch) >= min(MIN_AFTER_BATCHES, len(latest)):
            latest = stretch
    return latest


def _settled_stretches(
    batches: Sequence[BatchRecord], moves: Sequence[Move]
) -> Iterator[tuple[BatchRecord, ...]]:
    """Yields the runs of batches, after the first settlement, during which no move settled."""
    finished_s = [batch.finished_s for batch in batches]
    # A move is seen to have settled a little after its batch has finished.
    settling = {
        bisect_right(finished_s, move.settled_s) - 1 for move in moves if move.settled_s is not None
    }
    stretch: list[BatchRecord] = []
    for index in range(min(settling, default=len(batches)) + 1, len(batches)):
        if index in settling:
            if stretch:
                yield tuple(stretch)
            stretch = []
        elif batches[index].input_rows > 0:
            stretch.append(batches[index])
    if stretch:
        yield tuple(stretch)
