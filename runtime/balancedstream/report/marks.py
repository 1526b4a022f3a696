"""What a figure marks on its axis: moves, scale actions, and the windows before and after."""

from __future__ import annotations

from collections.abc import Sequence

from balancedstream.record.records import BatchRecord, KeyMoveRecord, MoveRecord, ScaleRecord
from balancedstream.record.wording import plural
from balancedstream.report.axis import BatchAxis, split
from balancedstream.report.summary import QueryRecords
from balancedstream.report.svg import Panel, clean, element

MARKS = 120
MARK_TITLE_MOVES = 8


def move_marks(axis: BatchAxis, moves: Sequence[MoveRecord]) -> list[tuple[float, int, str]]:
    """Groups moves by the batch edge they took effect at; many edges are joined."""
    by_place: dict[float, list[MoveRecord]] = {}
    for move in moves:
        by_place.setdefault(axis.after_batch(move.decided_after_batch), []).append(move)
    places = sorted(by_place)
    marks = []
    for group in split(len(places), MARKS):
        joined = [move for i in group for move in by_place[places[i]]]
        listed = "; ".join(
            f"partition {move.partition} of operator {move.operator}: "
            f"{move.source or 'nowhere'} to {move.target}"
            for move in joined[:MARK_TITLE_MOVES]
        )
        more = f"; {len(joined) - MARK_TITLE_MOVES} more" if len(joined) > MARK_TITLE_MOVES else ""
        title = f"{plural(len(joined), 'move')} after batch {joined[0].decided_after_batch:,}"
        marks.append(
            (places[group[0]], len(joined), f"{title}: {listed}{more}. {joined[0].reason}")
        )
    return marks


def key_move_marks(axis: BatchAxis, moves: Sequence[KeyMoveRecord]) -> list[tuple[float, int, str]]:
    """Groups moves of keys by the batch they took effect in; many are joined."""
    by_batch: dict[int, list[KeyMoveRecord]] = {}
    for move in moves:
        if move.settled_batch is not None:
            by_batch.setdefault(move.settled_batch, []).append(move)
    batches = sorted(by_batch)
    marks = []
    for group in split(len(batches), MARKS):
        joined = [move for i in group for move in by_batch[batches[i]]]
        first = batches[group[0]]
        listed = "; ".join(
            f"{move.key}: partition {move.source} to {move.target}"
            for move in joined[:MARK_TITLE_MOVES]
        )
        more = f"; {len(joined) - MARK_TITLE_MOVES} more" if len(joined) > MARK_TITLE_MOVES else ""
        title = f"{plural(len(joined), 'key')} moved in batch {first:,}: {listed}{more}"
        marks.append((axis.after_batch(first - 1), len(joined), f"{title}. {joined[0].reason}"))
    return marks


def scale_marks(axis: BatchAxis, scales: Sequence[ScaleRecord]) -> list[tuple[float, str]]:
    """Returns place and title of the latest scale actions."""
    return [
        (
            axis.at_time(scale.at_s),
            f"{scale.executors_before} to {scale.executors_after} executors ({scale.verdict}): "
            f"{scale.reason}",
        )
        for scale in scales[-MARKS:]
    ]


def triangle(x: float, y: float, title: str) -> str:
    """Draws the mark of a move; its tip is at (x, y), in pixels."""
    return element(
        "path",
        element("title", clean(title)),
        d=f"M{x - 5:.1f} {y - 9:.1f}L{x + 5:.1f} {y - 9:.1f}L{x:.1f} {y:.1f}Z",
        css="move",
    )


def diamond(x: float, y: float, title: str) -> str:
    """Draws the mark of a scale action around (x, y), in pixels."""
    return element(
        "path",
        element("title", clean(title)),
        d=f"M{x:.1f} {y - 6:.1f}L{x + 6:.1f} {y:.1f}L{x:.1f} {y + 6:.1f}L{x - 6:.1f} {y:.1f}Z",
        css="scale",
    )


def shade_windows(panel: Panel, axis: BatchAxis, query: QueryRecords) -> None:
    """Shades the batches that the figures before and after are taken over."""
    for window in distinct_windows(query):
        extent = axis.of(window)
        if extent is not None:
            panel.box(extent, (panel.y.low, panel.y.high), "window")


def distinct_windows(query: QueryRecords) -> list[Sequence[BatchRecord]]:
    """Returns the windows before and after; a single one if nothing moved."""
    moved = query.totals.first_move_after_batch is not None
    windows = [query.before, query.after] if moved else [query.before]
    return [window for window in windows if window]
