"""What a figure marks on its axis: moves, scale actions, and the windows before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from balancedstream.record.records import BatchRecord, KeyMoveRecord, MoveRecord, ScaleRecord
from balancedstream.record.wording import plural
from balancedstream.report.axis import BatchAxis, split
from balancedstream.report.summary import QueryRecords
from balancedstream.report.svg import Panel, clean, element

_Move = TypeVar("_Move", MoveRecord, KeyMoveRecord)

MARKS = 120
MARK_TITLE_MOVES = 8


Mark = tuple[float, int, str]
"""Place on the axis, number of moves, and title."""


def move_marks(axis: BatchAxis, moves: Sequence[MoveRecord]) -> list[Mark]:
    """Groups moves by the batch edge they took effect at; many edges are joined."""
    marks = []
    for place, joined in _join(moves, lambda move: axis.after_batch(move.decided_after_batch)):
        listed = _list(
            f"partition {move.partition} of operator {move.operator}: "
            f"{move.source or 'nowhere'} to {move.target}"
            for move in joined
        )
        title = f"{plural(len(joined), 'move')} after batch {joined[0].decided_after_batch:,}"
        marks.append((place, len(joined), f"{title}: {listed}. {joined[0].reason}"))
    return marks


def key_move_marks(axis: BatchAxis, moves: Sequence[KeyMoveRecord]) -> list[Mark]:
    """Groups moves of keys by the batch they took effect in; many are joined."""
    marks = []
    for batch, joined in _join(moves, lambda move: move.settled_batch):
        listed = _list(f"{move.key}: partition {move.source} to {move.target}" for move in joined)
        title = f"{plural(len(joined), 'key')} moved in batch {batch:,}: {listed}"
        place = axis.after_batch(int(batch) - 1)
        marks.append((place, len(joined), f"{title}. {joined[0].reason}"))
    return marks


def _join(
    moves: Iterable[_Move], place_of: Callable[[_Move], float | None]
) -> Iterator[tuple[float, list[_Move]]]:
    """The first place of each of at most `MARKS` groups, and the moves there."""
    by_place: dict[float, list[_Move]] = {}
    for move in moves:
        place = place_of(move)
        if place is not None:
            by_place.setdefault(place, []).append(move)
    places = sorted(by_place)
    for group in split(len(places), MARKS):
        yield places[group[0]], [move for i in group for move in by_place[places[i]]]


def _list(described: Iterable[str]) -> str:
    first = [*described]
    more = f"; {len(first) - MARK_TITLE_MOVES} more" if len(first) > MARK_TITLE_MOVES else ""
    return "; ".join(first[:MARK_TITLE_MOVES]) + more


def draw_moves(panel: Panel, marks: Sequence[Mark]) -> None:
    """Marks moves over a panel: a line, a triangle and, if they are not many, their number."""
    for x, count, title in marks:
        at_px = panel.x.px(x)
        panel.column(x, "move-line")
        panel.add(triangle(at_px, 59.0, title))
        if len(marks) <= 40:
            panel.text(at_px, 44.0, str(count), css="mark-label", anchor="middle")


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
