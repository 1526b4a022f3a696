"""Which batches stand for "before" and which for "after".

Pure functions of the record. A batch that read no rows (a timer's, a watermark's) counts in
neither: it says nothing about how the load is spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from balancedstream.record.records import BatchRecord, KeyMoveRecord, MoveRecord

Move = MoveRecord | KeyMoveRecord

QUIET_BATCHES = 3
"""Batches that a stretch without moves must have to stand for "after"."""


def batches_before(
    batches: Sequence[BatchRecord], first_move_after_batch: int | None
) -> tuple[BatchRecord, ...]:
    """Picks the batches that no move of ours had touched.

    Args:
        batches: batches of one query, in order.
        first_move_after_batch: the last batch that finished before the first move was decided;
            None if nothing moved.

    Returns:
        The batches up to that one that read rows. The query's first batch is left out: it starts
        Python workers and compiles code, which has nothing to do with balance.
    """
    last = math.inf if first_move_after_batch is None else first_move_after_batch
    return tuple(batch for batch in batches[1:] if batch.batch <= last and batch.input_rows > 0)


def batches_after(
    batches: Sequence[BatchRecord],
    moves: Sequence[Move],
    first_move_after_batch: int | None,
) -> tuple[BatchRecord, ...]:
    """Picks the batches that ran on the placement that the moves led to.

    Args:
        batches: batches of one query, in order.
        moves: moves of that query's partitions and keys, in any order.
        first_move_after_batch: the last batch that finished before the first move was decided;
            None if nothing moved.

    Returns:
        The batches that finished after the last move had settled. If fewer than three did, the
        latest stretch of at least three batches between two moves; if there is none, the longest
        stretch. The same batches as before if nothing moved.
    """
    if first_move_after_batch is None:
        return batches_before(batches, None)
    latest: tuple[BatchRecord, ...] = ()
    for stretch in _quiet_stretches(batches[1:], moves, first_move_after_batch):
        if len(stretch) >= min(QUIET_BATCHES, len(latest)):
            latest = stretch
    return latest


def _quiet_stretches(
    batches: Sequence[BatchRecord], moves: Sequence[Move], first_move_after_batch: int
) -> Iterator[tuple[BatchRecord, ...]]:
    """Yields the runs of batches, after the first move, during which no move was under way."""
    by_decision = sorted(moves, key=lambda move: move.decided_after_batch)
    decided = 0
    under_way_until_s = -math.inf
    stretch: list[BatchRecord] = []
    for batch in batches:
        while decided < len(by_decision) and by_decision[decided].decided_after_batch < batch.batch:
            under_way_until_s = max(under_way_until_s, _end_s(by_decision[decided]))
            decided += 1
        if batch.batch <= first_move_after_batch:
            continue
        if batch.finished_s <= under_way_until_s:
            if stretch:
                yield tuple(stretch)
            stretch = []
        elif batch.input_rows > 0:
            stretch.append(batch)
    if stretch:
        yield tuple(stretch)


def _end_s(move: Move) -> float:
    if move.settled_s is not None:
        return move.settled_s
    return math.inf if move.dropped_s is None else move.dropped_s
