"""Where an operator's partitions were and what they cost, before and after, as two figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from balancedstream.record.records import BatchRecord
from balancedstream.record.wording import format_duration, format_ratio, plural
from balancedstream.report.axis import headroom, tick_duration
from balancedstream.report.colours import executor_legend, executor_order, hottest
from balancedstream.report.summary import QueryRecords, loads_of
from balancedstream.report.svg import LEFT, RIGHT, Figure, Panel, Scale, drawing, element
from balancedstream.report.windows import MIN_AFTER_BATCHES, describe_too_few

COLUMNS = 8
WIDTH_PX = 330.0
"""Of each of the drawings; a page sets them beside or, if it is narrow, below each other."""

BARS = 48
SMALLEST_BLOCK_PX = 2.5


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an operator's partitions were over some batches, and what they cost.

    Attributes:
        busy_s: mean busy seconds a batch, per partition.
        executor: who ran each partition at the end.
        executors: live executors at the end.
        batches: batches the means are taken over.
    """

    busy_s: tuple[float, ...]
    executor: tuple[str, ...]
    executors: int
    batches: int

    def executor_busy_s(self) -> dict[str, float]:
        """Returns mean busy seconds a batch, per executor."""
        total_s: dict[str, float] = {}
        for executor, busy_s in zip(self.executor, self.busy_s, strict=True):
            total_s[executor] = total_s.get(executor, 0.0) + busy_s
        return total_s

    def mean_s(self) -> float:
        """Returns busy seconds a batch, mean over live executors."""
        return sum(self.busy_s) / max(1, self.executors, len(set(self.executor)))


def placement_over(window: Sequence[BatchRecord], operator: int) -> Placement | None:
    """Averages an operator's loads over a window.

    Returns:
        The placement; None if no batch of the window has loads per partition on record.
    """
    loads = [load for load in loads_of(window, operator) if load.partition_busy_s]
    if not loads:
        return None
    last = loads[-1]
    same = [load for load in loads if len(load.partition_busy_s) == len(last.partition_busy_s)]
    return Placement(
        busy_s=tuple(map(fmean, zip(*(load.partition_busy_s for load in same), strict=True))),
        executor=last.partition_executor,
        executors=window[-1].executors,
        batches=len(same),
    )


def placement_figure(query: QueryRecords, operator: int, colours: Mapping[str, str]) -> Figure:
    """Draws each executor as a column of its partitions, before and after."""
    placements = _placements(query, operator)
    if not placements:
        return _no_detail("Where the load was")
    origin = dict(enumerate(placements[0][1].executor))
    highest = max(max(p.executor_busy_s().values()) for _, p in placements)
    y = Scale(0.0, headroom(highest, 0.16), 262.0, 44.0)
    columns, rest = hottest([p.executor_busy_s() for _, p in placements], COLUMNS, executor_order)
    drawings = []
    for label, placement in placements:
        panel = Panel(Scale(0.0, len(columns) + bool(rest), LEFT, WIDTH_PX - 10.0), y)
        panel.y_axis("busy time in a batch", tick_duration(highest))
        panel.text(LEFT - 8, y.start_px + 17, "executor", css="tick", anchor="end")
        panel.text(4.0, 16.0, label, css="heading")
        _draw_columns(panel, placement, columns, origin, colours)
        drawings.append(drawing(286.0, f"Load per executor, {label}", [panel], WIDTH_PX))
    caption = "Each column is an executor, each block a state partition. The number above a column"
    caption += " is the executor's load divided by the mean."
    caption += _describe_window(query)
    if rest:
        caption += f" Shown: the {len(columns)} hottest executors, and the mean of the others."
    executors = {executor for _, p in placements for executor in p.executor}
    have_moved = placements[0][1].executor != placements[-1][1].executor
    return Figure(
        "Where the load was",
        caption,
        element("div", *drawings, css="pair"),
        (
            *executor_legend(colours, executors),
            *((("key moved", "moved there"),) if have_moved else ()),
            ("key line-bound", "mean of the executors"),
        ),
    )


def partition_figure(query: QueryRecords, operator: int, colours: Mapping[str, str]) -> Figure:
    """Draws a bar for each partition, before and after, in the colour of its executor."""
    placements = _placements(query, operator)
    if not placements:
        return _no_detail("Load per partition")
    highest = max(max(p.busy_s) for _, p in placements)
    loads = [dict(enumerate(p.busy_s)) for _, p in placements]
    digits = len(str(max(len(p.busy_s) for _, p in placements) - 1))
    shown, rest = hottest(loads, min(BARS, int((RIGHT - LEFT) / (8 * digits + 4))), sorted)
    others = len(shown) + 0.5  # where the bar of the rest begins
    panels = []
    for i, (label, placement) in enumerate(placements):
        top = 30.0 + i * 170.0
        scale = Scale(0.0, others + 1.0 if rest else len(shown), LEFT, RIGHT)
        panel = Panel(scale, Scale(0.0, headroom(highest), top + 110.0, top))
        panel.y_axis(f"{label}: busy time in a batch", tick_duration(highest))
        for slot, partition in enumerate(shown):
            if partition >= len(placement.busy_s):
                continue
            executor = placement.executor[partition]
            came_from = placements[0][1].executor[partition : partition + 1]
            moved = i > 0 and came_from != (executor,)
            panel.box(
                (slot + 0.1, slot + 0.9),
                (0.0, placement.busy_s[partition]),
                f"bar {colours.get(executor, 'rest')}",
                f"partition {partition} on executor {executor or 'unknown'}: "
                f"{format_duration(placement.busy_s[partition])} a batch"
                + (f"; before on executor {came_from[0]}" if moved and came_from else ""),
            )
            panel.text(
                scale.px(slot + 0.5),
                top + 128.0,
                str(partition),
                css="tick strong" if moved else "tick",
                anchor="middle",
            )
        if rest:
            others_s = [placement.busy_s[p] for p in rest if p < len(placement.busy_s)]
            panel.box(
                (others + 0.1, others + 0.9),
                (0.0, fmean(others_s) if others_s else 0.0),
                "bar rest",
                f"mean of {plural(len(others_s), 'other partition')}",
            )
            panel.text(scale.px(others + 0.5), top + 128.0, "rest", css="tick", anchor="middle")
        panel.rule(0.0, "baseline")
        panel.text(LEFT - 8, top + 128.0, "partition", css="tick", anchor="end")
        panels.append(panel)
    caption = "The colour is the executor that ran the partition."
    if len(placements) > 1:
        caption += " Partitions in bold have moved to another executor."
    if rest:
        caption += (
            f" Shown: the {len(shown)} hottest partitions, and the mean of the other {len(rest):,}."
        )
    executors = {executor for _, p in placements for executor in p.executor}
    return Figure(
        "Load per partition",
        caption,
        drawing(170.0 * len(placements), "Load per partition", panels),
        executor_legend(colours, executors),
    )


def _draw_columns(
    panel: Panel,
    placement: Placement,
    columns: Sequence[str],
    origin: Mapping[int, str],
    colours: Mapping[str, str],
) -> None:
    """Stacks the partitions of each executor, and marks those that were elsewhere at first."""
    total_s = placement.executor_busy_s()
    mean_s = placement.mean_s()
    below = panel.y.start_px + 17
    for slot, executor in enumerate(columns):
        _stack_partitions(panel, placement, slot, executor, origin=origin, colours=colours)
        middle = panel.x.px(slot + 0.5)
        panel.text(middle, below, executor or "unknown", css="tick", anchor="middle")
    others_s = [busy_s for executor, busy_s in total_s.items() if executor not in columns]
    if others_s:
        panel.box(
            (len(columns) + 0.12, len(columns) + 0.88),
            (0.0, fmean(others_s)),
            "block rest",
            f"mean of {plural(len(others_s), 'other executor')}",
        )
        panel.text(panel.x.px(len(columns) + 0.5), below, "rest", css="tick", anchor="middle")
    panel.rule(mean_s, "line-bound")
    for slot, executor in enumerate(columns):
        if executor in total_s and mean_s > 0:
            panel.text(
                panel.x.px(slot + 0.5),
                panel.y.px(total_s[executor]) - 5,
                format_ratio(total_s[executor] / mean_s),
                css="value",
                anchor="middle",
            )
    panel.rule(0.0, "baseline")


def _stack_partitions(
    panel: Panel,
    placement: Placement,
    slot: int,
    executor: str,
    *,
    origin: Mapping[int, str],
    colours: Mapping[str, str],
) -> None:
    """Stacks one executor's partitions, those that came from elsewhere on top."""
    px_per_s = (panel.y.start_px - panel.y.end_px) / (panel.y.high - panel.y.low)
    held = [p for p, holder in enumerate(placement.executor) if holder == executor]
    held.sort(key=lambda p: (origin.get(p, executor) != executor, -placement.busy_s[p]))
    base_s = small_s = 0.0
    small = 0
    for partition in held:
        busy_s = placement.busy_s[partition]
        if busy_s * px_per_s < SMALLEST_BLOCK_PX:
            small, small_s = small + 1, small_s + busy_s
            continue
        came_from = origin.get(partition) or executor
        moved = " moved" if came_from != executor else ""
        panel.box(
            (slot + 0.12, slot + 0.88),
            (base_s, base_s + busy_s),
            f"block {colours.get(executor, 'rest')}{moved}",
            f"partition {partition} on executor {executor or 'unknown'}: "
            f"{format_duration(busy_s)} a batch"
            + (f"; before on executor {came_from}" if came_from != executor else ""),
        )
        base_s += busy_s
    if small:
        panel.box(
            (slot + 0.12, slot + 0.88),
            (base_s, base_s + small_s),
            f"block {colours.get(executor, 'rest')} small",
            f"{plural(small, 'small partition')}: {format_duration(small_s)} a batch",
        )


def _placements(query: QueryRecords, operator: int) -> list[tuple[str, Placement]]:
    """Returns the placement before and after; one if nothing moved, or neither has figures."""
    windows: list[tuple[str, Sequence[BatchRecord]]]
    windows = [("before", query.before), ("after", query.after)]
    if query.totals.first_move_after_batch is None:
        windows = [("all batches", query.before or query.batches)]
    elif not query.before and not query.after:
        windows = [("latest batches", query.batches[-MIN_AFTER_BATCHES:])]
    return [
        (f"{label} ({_batch_range(window)})", placement)
        for label, window in windows
        if (placement := placement_over(window, operator)) is not None
    ]


def _describe_window(query: QueryRecords) -> str:
    """What is missing beside the placement that is drawn."""
    if query.totals.first_move_after_batch is None or (query.before and query.after):
        return ""
    missing = describe_too_few(query.windows.batches_before, query.windows.batches_after)
    return f" Not compared: {'; '.join(missing)}."


def _batch_range(window: Sequence[BatchRecord]) -> str:
    if len(window) == 1:
        return f"batch {window[0].batch:,}"
    return f"batches {window[0].batch:,} to {window[-1].batch:,}"


def _no_detail(title: str) -> Figure:
    return Figure(title, "No batch with loads per partition is on record.", "")
