"""The pictures of a run: each function turns records into one figure.

The horizontal axis is the micro-batch, not the clock: a stream may wait for hours, and every
decision takes effect at the edge of a batch. Sizes are bounded whatever the run: more than 2,000
batches are drawn as 600 stretches (median, and the range where it matters), more than 12 executors
or 48 partitions as the hottest ones and the rest. The captions say so where it happens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from statistics import fmean, median
from typing import TypeVar

from balancedstream.record.records import (
    BatchRecord,
    KeyMoveRecord,
    MoveRecord,
    OperatorBatchLoad,
    ScaleRecord,
)
from balancedstream.record.wording import (
    format_count,
    format_duration,
    format_elapsed,
    format_ratio,
    format_short_count,
    plural,
)
from balancedstream.report.summary import QueryRecords, loads_of
from balancedstream.report.svg import LEFT, RIGHT, Panel, Scale, clean, drawing, element, nice_ticks

EXACT_BATCHES = 2_000
STRETCHES = 600
HOVER_STRIPS = 240
MARKS = 120
COLOURS = 8
COLUMNS = 12
BARS = 48
LANES = 12
LANE_PX = 34.0
MARK_TITLE_MOVES = 8
SMALLEST_BLOCK_PX = 2.5


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture with its words.

    Attributes:
        title: what it shows.
        caption: how to read it, and what was left out.
        svg: the drawing.
        legend: CSS class of the mark's key, and its label.
    """

    title: str
    caption: str
    svg: str
    legend: tuple[tuple[str, str], ...] = ()


class BatchAxis:
    """The horizontal axis that the figures of one query share: its kept batches, in order.

    Args:
        batches: the query's batches; at least one.
        started_s: start of the run, seconds since the Unix epoch.
    """

    def __init__(self, batches: Sequence[BatchRecord], started_s: float) -> None:
        self.batches = batches
        self.started_s = started_s
        self.scale = Scale(-0.5, len(batches) - 0.5, LEFT, RIGHT)
        self.gaps = [
            position
            for position, (left, right) in enumerate(pairwise(batches), start=1)
            if right.batch > left.batch + 1
        ]
        self.stretches = _split(
            len(batches), len(batches) if len(batches) <= EXACT_BATCHES else STRETCHES
        )
        self.strips = _split(len(batches), HOVER_STRIPS)
        self._numbers = [batch.batch for batch in batches]

    @property
    def exact(self) -> bool:
        """Whether every batch is drawn."""
        return len(self.batches) <= EXACT_BATCHES

    def after_batch(self, number: int) -> float:
        """Returns the place between a batch and the next one."""
        return bisect_right(self._numbers, number) - 0.5

    def at_time(self, at_s: float) -> float:
        """Returns the place of a point in time: before the first batch that finished later."""
        return bisect_right(self.batches, at_s, key=lambda batch: batch.finished_s) - 0.5

    def of(self, window: Sequence[BatchRecord]) -> tuple[float, float] | None:
        """Returns the extent of a window of these batches."""
        if not window:
            return None
        first = self._numbers.index(window[0].batch) - 0.5
        return first, bisect_right(self._numbers, window[-1].batch) - 0.5

    def runs(
        self, values: Sequence[float | None], pick: Callable[[list[float]], float] = median
    ) -> list[list[tuple[float, float]]]:
        """Reduces one value a batch to the points of a line, cut where batches are missing."""
        return [
            [(x, pick(present)) for x, present in run] for run in self._present_by_stretch(values)
        ]

    def ranges(self, values: Sequence[float | None]) -> list[list[tuple[float, float, float]]]:
        """Reduces one value a batch to its range in each stretch."""
        return [
            [(x, min(present), max(present)) for x, present in run]
            for run in self._present_by_stretch(values)
        ]

    def draw(self, panel: Panel) -> None:
        """Draws the axis under a panel, and the places where batches are not on record."""
        count = len(self.batches)
        step = next(
            step
            for size in range(12)
            for step in (10**size, 2 * 10**size, 5 * 10**size)
            if step * 10 >= count
        )
        first = -self.batches[0].batch % step if not self.gaps else 0
        panel.x_axis(
            [
                (
                    position,
                    f"{self.batches[position].batch:,}",
                    format_elapsed(self.batches[position].finished_s - self.started_s),
                )
                for position in range(first, count, step)
            ],
            "batch",
        )
        panel.text(LEFT - 24, panel.y.start_px + 31, "time", css="tick faint", anchor="end")

    def draw_gaps(self, panel: Panel) -> None:
        """Marks the places where batches are not on record."""
        for position in self.gaps:
            panel.column(position - 0.5, "gap")

    def name(self, strip: range) -> str:
        """Names the batches of a strip."""
        first, last = self.batches[strip[0]], self.batches[strip[-1]]
        elapsed = format_elapsed(last.finished_s - self.started_s)
        if len(strip) == 1:
            return f"batch {first.batch:,} at {elapsed}"
        return f"batches {first.batch:,} to {last.batch:,}, until {elapsed}"

    def hover(self, panel: Panel, describe: Callable[[range], str]) -> None:
        """Lays strips over a panel whose titles name the batches and describe them."""
        for strip in self.strips:
            panel.hover((strip[0] - 0.5, strip[-1] + 0.5), f"{self.name(strip)}: {describe(strip)}")

    def _present_by_stretch(
        self, values: Sequence[float | None]
    ) -> list[list[tuple[float, list[float]]]]:
        gaps = set(self.gaps)
        runs: list[list[tuple[float, list[float]]]] = [[]]
        for stretch in self.stretches:
            present = [value for i in stretch if (value := values[i]) is not None]
            if runs[-1] and (not present or not gaps.isdisjoint(stretch)):
                runs.append([])
            if present:
                runs[-1].append(((stretch[0] + stretch[-1]) / 2, present))
        return [run for run in runs if run]


def executor_order(executors: Iterable[str]) -> list[str]:
    """Sorts executor ids as a person counts.

    >>> executor_order(["10", "9", "driver"])
    ['9', '10', 'driver']
    """
    return sorted(executors, key=lambda e: (0, int(e), "") if e.isdecimal() else (1, 0, e))


def executor_colours(batches: Sequence[BatchRecord]) -> dict[str, str]:
    """Gives the executors that were hottest at any time a colour each; others share one.

    Args:
        batches: batches of one query, in order.

    Returns:
        Executor id to CSS class; at most eight executors, in the order of their ids.
    """
    peak_s: dict[str, float] = {}
    for batch in batches[1:] or batches:
        for load in batch.loads:
            for executor, busy_s in load.executor_busy_s().items():
                peak_s[executor] = max(busy_s, peak_s.get(executor, 0.0))
    hottest = sorted(peak_s, key=lambda executor: (-peak_s[executor], executor))[:COLOURS]
    return {executor: f"s{i}" for i, executor in enumerate(executor_order(hottest))}


def batch_time_figure(
    query: QueryRecords, axis: BatchAxis, scales: Sequence[ScaleRecord]
) -> Figure:
    """Draws the duration of each batch, with the moves and scale actions marked."""
    durations_s = [batch.duration_ms / 1_000 for batch in axis.batches]
    highest = max(durations_s[1:], default=durations_s[0])
    panel = Panel(axis.scale, Scale(0.0, _headroom(highest), 252.0, 62.0))
    label = "batch duration"
    if durations_s[0] > panel.y.high:  # it starts workers; the others would be flat beside it
        label += f" (the first, {format_duration(durations_s[0])}, is cut off)"
    panel.y_axis(label, _tick_duration(highest), label_lift_px=44.0)
    axis.draw(panel)
    _shade_windows(panel, axis, query)
    axis.draw_gaps(panel)
    if not axis.exact:
        panel.band(axis.ranges(durations_s), "fill-main")
    panel.line(axis.runs(durations_s), "line-main")
    for window in _distinct_windows(query):
        extent = axis.of(window)
        middle = median(batch.duration_ms / 1_000 for batch in window)
        panel.rule(middle, "median", extent)
    axis.hover(
        panel,
        lambda strip: (
            _spread([durations_s[i] for i in strip], format_duration)
            + f", {format_count(sum(axis.batches[i].input_rows for i in strip))} rows"
        ),
    )
    marks = _move_marks(axis, query.moves)
    for x, count, title in marks:
        panel.column(x, "move-line")
        panel.add(_triangle(axis.scale.px(x), 59.0, title))
        if len(marks) <= 40:
            panel.text(axis.scale.px(x), 44.0, str(count), css="mark-label", anchor="middle")
    scale_marks = _scale_marks(axis, scales)
    for x, title in scale_marks:
        panel.column(x, "scale-line")
        panel.add(_diamond(axis.scale.px(x), 258.0, title))
    caption = "Shaded: the batches that the figures before and after are taken over."
    if not axis.exact:
        caption += (
            f" {len(axis.batches):,} batches in {len(axis.stretches)} stretches: the line is the"
            " median, the band the shortest and the longest."
        )
    if axis.gaps:
        caption += " Dotted: batches between are no longer on record."
    legend = [("key line-main", "batch"), ("key median", "median before, after")]
    if marks:
        legend.append(("key move", "moves, with their number"))
    if scale_marks:
        legend.append(("key scale", "executors added or removed"))
    return Figure("Batch time", caption, drawing(292.0, "Batch time", [panel]), tuple(legend))


def imbalance_figure(query: QueryRecords, operator: int, axis: BatchAxis) -> Figure:
    """Draws an operator's imbalance in each batch against the least that could be reached."""
    imbalance = _figure_a_batch(axis.batches, operator, lambda load: load.imbalance)
    bound = _figure_a_batch(axis.batches, operator, lambda load: load.bound)
    warm = [value for value in imbalance[1:] + bound[1:] if value is not None]
    highest = max(warm, default=1.1)
    panel = Panel(axis.scale, Scale(1.0, 1.0 + _headroom(max(highest - 1.0, 0.1)), 172.0, 28.0))
    panel.y_axis("imbalance: hottest executor / mean", lambda value: f"{value:.4g}")
    axis.draw(panel)
    _shade_windows(panel, axis, query)
    axis.draw_gaps(panel)
    if not axis.exact:
        panel.band(axis.ranges(imbalance), "fill-main")
    for x, _, _ in _move_marks(axis, query.moves):
        panel.column(x, "move-line")
    panel.line(axis.runs(bound), "line-bound")
    panel.line(axis.runs(imbalance), "line-main")

    def describe(strip: range) -> str:
        here = [value for i in strip if (value := imbalance[i]) is not None]
        least = [value for i in strip if (value := bound[i]) is not None]
        if not here or not least:
            return "no task of this operator"
        return f"imbalance {_spread(here, format_ratio)}, bound {format_ratio(median(least))}"

    axis.hover(panel, describe)
    return Figure(
        "Imbalance",
        "1 is perfect. The bound is the least that any placement of these partitions could reach.",
        drawing(212.0, "Imbalance against its bound", [panel]),
        (("key line-main", "imbalance"), ("key line-bound", "bound")),
    )


def executor_load_figure(
    query: QueryRecords, operator: int, axis: BatchAxis, colours: Mapping[str, str]
) -> Figure:
    """Draws the busy seconds of each executor in each batch."""
    loads = [
        next((load for load in batch.loads if load.operator == operator), None)
        for batch in axis.batches
    ]
    busy_s = [
        load.executor_busy_s() if load is not None and load.partition_busy_s else {}
        for load in loads
    ]
    mean_s = [
        sum(here.values()) / max(batch.executors, len(here)) if here else None
        for batch, here in zip(axis.batches, busy_s, strict=True)
    ]
    highest = max((max(here.values()) for here in busy_s[1:] if here), default=0.0)
    if highest == 0.0:
        highest = max((max(here.values()) for here in busy_s if here), default=1.0)
    panel = Panel(axis.scale, Scale(0.0, _headroom(highest), 232.0, 28.0))
    panel.y_axis("busy time of an executor in a batch", _tick_duration(highest))
    axis.draw(panel)
    axis.draw_gaps(panel)
    for x, _, _ in _move_marks(axis, query.moves):
        panel.column(x, "move-line")
    seen = {executor for here in busy_s for executor in here}
    rest = seen - set(colours)
    legend = [(f"key line {colours[e]}", f"executor {e}") for e in colours if e in seen]
    if rest:
        highest_rest = [_extreme(max, here, rest) for here in busy_s]
        lowest_rest = [_extreme(min, here, rest) for here in busy_s]
        panel.band(
            [
                [(x, low, high) for (x, low), (_, high) in zip(low_run, high_run, strict=True)]
                for low_run, high_run in zip(
                    axis.runs(lowest_rest, min), axis.runs(highest_rest, max), strict=True
                )
            ],
            "fill-rest",
        )
        legend.append(("key fill-rest", f"range of {plural(len(rest), 'other executor')}"))
    for executor, css in colours.items():
        if executor in seen:
            panel.line(axis.runs([here.get(executor) for here in busy_s]), f"line {css}")
    panel.line(axis.runs(mean_s), "line-bound")
    legend.append(("key line-bound", "mean"))

    def describe(strip: range) -> str:
        totals: dict[str, list[float]] = {}
        for i in strip:
            for executor, executor_s in busy_s[i].items():
                totals.setdefault(executor, []).append(executor_s)
        if not totals:
            return "loads per executor are no longer on record"
        hottest = sorted(totals, key=lambda executor: -median(totals[executor]))
        named = [f"{e}: {format_duration(median(totals[e]))}" for e in hottest[:COLOURS]]
        more = f", {len(hottest) - COLOURS} more" if len(hottest) > COLOURS else ""
        return f"executor {', '.join(named)}{more}"

    axis.hover(panel, describe)
    caption = "The closer the lines, the better the balance; the highest one decides the batch."
    if rest:
        caption += f" Shown one by one: the {len(colours)} that were hottest at any time."
    without_detail = sum(1 for load in loads if load is not None and not load.partition_busy_s)
    if without_detail:
        caption += (
            f" Of the {len(loads):,} batches on record, {without_detail:,} older ones keep no loads"
            " per executor."
        )
    return Figure(
        "Load per executor", caption, drawing(272.0, "Load per executor", [panel]), tuple(legend)
    )


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

    Args:
        window: batches of one query.
        operator: Spark's operator id.

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
    y = Scale(0.0, _headroom(highest, 0.16), 262.0, 44.0)
    columns, rest = _hottest([p.executor_busy_s() for _, p in placements], COLUMNS, executor_order)
    panels = []
    for i, (label, placement) in enumerate(placements):
        width = (RIGHT - LEFT - 40.0 * (len(placements) - 1)) / len(placements)
        left = LEFT + i * (width + 40.0)
        slots = len(columns) + bool(rest)
        panel = Panel(Scale(0.0, slots, left, left + width), y)
        if i == 0:
            panel.y_axis("busy time in a batch", _tick_duration(highest))
            panel.text(LEFT - 8, y.start_px + 17, "executor", css="tick", anchor="end")
        panel.text(left + width / 2, 16.0, label, css="heading", anchor="middle")
        _draw_columns(panel, placement, columns, origin, colours)
        panels.append(panel)
    caption = "Each block is a state partition, each column an executor; over the column its load"
    caption += " as a multiple of the mean."
    if len(placements) > 1:
        caption += " The colour is the executor that held the partition before, on both sides."
    if rest:
        caption += f" Shown: the {len(columns)} hottest executors, and the mean of the others."
    executors = {executor for _, p in placements for executor in p.executor}
    return Figure(
        "Where the load was",
        caption,
        drawing(286.0, "Load per executor, by partition, before and after", panels),
        (*_executor_legend(colours, executors), ("key line-bound", "mean of the executors")),
    )


def partition_figure(query: QueryRecords, operator: int, colours: Mapping[str, str]) -> Figure:
    """Draws a bar for each partition, before and after, in the colour of its executor."""
    placements = _placements(query, operator)
    if not placements:
        return _no_detail("Load per partition")
    highest = max(max(p.busy_s) for _, p in placements)
    loads = [dict(enumerate(p.busy_s)) for _, p in placements]
    digits = len(str(max(len(p.busy_s) for _, p in placements) - 1))
    shown, rest = _hottest(loads, min(BARS, int((RIGHT - LEFT) / (8 * digits + 4))), sorted)
    others = len(shown) + 0.5  # where the bar of the rest begins
    panels = []
    for i, (label, placement) in enumerate(placements):
        top = 30.0 + i * 170.0
        scale = Scale(0.0, others + 1.0 if rest else len(shown), LEFT, RIGHT)
        panel = Panel(scale, Scale(0.0, _headroom(highest), top + 110.0, top))
        panel.y_axis(f"{label}: busy time in a batch", _tick_duration(highest))
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
        caption += " Partitions in bold run on another executor than before."
    if rest:
        caption += (
            f" Shown: the {len(shown)} hottest partitions, and the mean of the other {len(rest):,}."
        )
    executors = {executor for _, p in placements for executor in p.executor}
    return Figure(
        "Load per partition",
        caption,
        drawing(170.0 * len(placements), "Load per partition", panels),
        _executor_legend(colours, executors),
    )


@dataclass(frozen=True, slots=True)
class _HotKeys:
    """One operator's hot keys, in each batch on record.

    Attributes:
        names: the keys shown, hottest first.
        others: how many more there were.
        places: for each batch, key to its state partition and busy seconds.
    """

    names: tuple[str, ...]
    others: int
    places: tuple[Mapping[str, tuple[int, float]], ...]

    def busy_s(self, key: str) -> list[float | None]:
        """Returns the key's busy seconds in each batch; None where it was not hot."""
        return [here[key][1] if key in here else None for here in self.places]


def hot_keys_figure(query: QueryRecords, operator: int, axis: BatchAxis) -> Figure | None:
    """Draws what the hottest keys cost in each batch, and which state partition they were in.

    Returns:
        None where nothing is known of the operator's keys: they are not balanced.
    """
    hot = _find_hot_keys(query, operator, axis)
    if not hot.names:
        return None
    colours = {key: f"s{i}" for i, key in enumerate(hot.names)}
    highest = max((place[1] for here in hot.places[1:] for place in here.values()), default=1.0)
    costs = Panel(axis.scale, Scale(0.0, _headroom(highest), 212.0, 62.0))
    costs.y_axis("busy time of a key in a batch", _tick_duration(highest), label_lift_px=44.0)
    costs.rule(0.0, "baseline")
    partitions = [dict(here.values()) for here in hot.places]
    shown, rest = _hottest(partitions, LANES, sorted)
    lane = {partition: i for i, partition in enumerate(shown)} | dict.fromkeys(rest, len(shown))
    names = [*map(str, shown), *(["rest"] if rest else [])]
    bottom = 250.0 + LANE_PX * len(names)
    lanes = Panel(axis.scale, Scale(float(len(names)), 0.0, bottom, 250.0))
    lanes.y_axis("state partition that the key was in", str, ticks=[])
    for i, name in enumerate(names):
        lanes.rule(float(i), "grid")
        lanes.text(LEFT - 8, lanes.y.px(i + 0.5) + 4, name, css="tick", anchor="end")
    axis.draw(lanes)
    axis.draw_gaps(costs)
    axis.draw_gaps(lanes)
    marks = _key_move_marks(axis, [move for move in query.key_moves if move.operator == operator])
    for x, count, title in marks:
        costs.column(x, "move-line")
        lanes.column(x, "move-line")
        costs.add(_triangle(axis.scale.px(x), 59.0, title))
        if len(marks) <= 40:
            costs.text(axis.scale.px(x), 44.0, str(count), css="mark-label", anchor="middle")
    for i, (key, css) in enumerate(colours.items()):
        costs.line(axis.runs(hot.busy_s(key)), f"line {css}")
        within = (i + 1) / (len(colours) + 1)
        at = [lane[here[key][0]] + within if key in here else None for here in hot.places]
        lanes.line(map(_widen, axis.runs(at, _last)), f"line {css}")
    for panel in (costs, lanes):
        axis.hover(panel, lambda strip: _describe_keys(strip, hot, axis, operator))
    caption = "A key leaves its partition with all its state, at the edge of a batch."
    if hot.others:
        caption += f" Shown: the {len(hot.names)} hottest of {len(hot.names) + hot.others} keys"
        caption += " that were hot at any time."
    legend = [(f"key line {css}", key) for key, css in colours.items()]
    if marks:
        legend.append(("key move", "keys that moved, with their number"))
    label = "Busy time of hot keys, and their state partitions"
    return Figure("Hot keys", caption, drawing(bottom + 40.0, label, [costs, lanes]), tuple(legend))


def _find_hot_keys(query: QueryRecords, operator: int, axis: BatchAxis) -> _HotKeys:
    position = {batch.batch: i for i, batch in enumerate(axis.batches)}
    places: list[dict[str, tuple[int, float]]] = [{} for _ in axis.batches]
    total_s: dict[str, float] = {}
    for sample in query.key_samples:
        if sample.operator != operator or sample.batch not in position:
            continue
        here = places[position[sample.batch]]
        # In the batch that it arrives in, a key is told of at both places.
        if sample.busy_s >= here.get(sample.key, (0, 0.0))[1]:
            here[sample.key] = sample.partition, sample.busy_s
        total_s[sample.key] = total_s.get(sample.key, 0.0) + sample.busy_s
    names = sorted(total_s, key=lambda key: (-total_s[key], key))
    shown = {*names[:COLOURS]}
    return _HotKeys(
        tuple(names[:COLOURS]),
        len(names[COLOURS:]),
        tuple({key: place for key, place in here.items() if key in shown} for here in places),
    )


def _describe_keys(strip: range, hot: _HotKeys, axis: BatchAxis, operator: int) -> str:
    """Names the keys of the strip's last batch that had any, hottest first."""
    last = next((i for i in reversed(strip) if hot.places[i]), None)
    if last is None:
        return "no hot key on record"
    load = next((each for each in axis.batches[last].loads if each.operator == operator), None)
    told = []
    by_load = sorted(hot.places[last].items(), key=lambda entry: -entry[1][1])
    for key, (partition, busy_s) in by_load:
        text = f"{key} {format_duration(busy_s)} in partition {partition}"
        if load is not None and partition < len(load.partition_executor):
            share = busy_s / sum(load.partition_busy_s) if any(load.partition_busy_s) else 0.0
            text += (
                f" on executor {load.partition_executor[partition]} ({100 * share:.0f} % of all)"
            )
        told.append(text)
    return ", ".join(told)


def _key_move_marks(
    axis: BatchAxis, moves: Sequence[KeyMoveRecord]
) -> list[tuple[float, int, str]]:
    """Groups moves of keys by the batch they took effect in; many are joined."""
    by_batch: dict[int, list[KeyMoveRecord]] = {}
    for move in moves:
        if move.settled_batch is not None:
            by_batch.setdefault(move.settled_batch, []).append(move)
    batches = sorted(by_batch)
    marks = []
    for group in _split(len(batches), MARKS):
        joined = [move for i in group for move in by_batch[batches[i]]]
        first = batches[group[0]]
        listed = "; ".join(
            f"{move.key}: partition {move.source} to {move.target}"
            for move in joined[:MARK_TITLE_MOVES]
        )
        more = f"; {len(joined) - MARK_TITLE_MOVES} more" if len(joined) > MARK_TITLE_MOVES else ""
        title = f"{plural(len(joined), 'key')} moved with batch {first:,}: {listed}{more}"
        marks.append((axis.after_batch(first - 1), len(joined), f"{title}. {joined[0].reason}"))
    return marks


def _last(values: list[float]) -> float:
    return values[-1]


def _widen(run: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Turns points into a staircase: a value holds from half a step before to half a step after."""
    edges = [run[0][0] - 0.5, *((x + y) / 2 for (x, _), (y, _) in pairwise(run)), run[-1][0] + 0.5]
    return [
        (x, value)
        for (left, right), (_, value) in zip(pairwise(edges), run, strict=True)
        for x in (left, right)
    ]


def supply_figure(axis: BatchAxis) -> Figure:
    """Draws what came in, what waits and how many executors there are."""
    rows: list[float | None] = [float(batch.input_rows) for batch in axis.batches]
    backlog = [_finite(batch.backlog_rows) for batch in axis.batches]
    executors: list[float | None] = [float(batch.executors) for batch in axis.batches]
    series = [("input rows in a batch", rows, "line-main", "rows")]
    if any(value is not None for value in backlog):
        series.append(("backlog: rows that wait at the sources", backlog, "line-main", "rows"))
    series.append(("live executors", executors, "line-main", "executors"))
    panels = []
    for i, (label, values, css, unit) in enumerate(series):
        top = 28.0 + i * 112.0
        present = [value for value in values if value is not None]
        scale = Scale(0.0, _headroom(max(present)), top + 70.0, top)
        panel = Panel(axis.scale, scale)
        ticks = nice_ticks(0.0, scale.high, 3) if unit == "rows" else sorted({0.0, max(present)})
        panel.y_axis(label, format_short_count, ticks=ticks)
        if i == len(series) - 1:
            axis.draw(panel)
        else:
            panel.rule(0.0, "baseline")
        axis.draw_gaps(panel)
        if not axis.exact and unit == "rows":
            panel.band(axis.ranges(values), "fill-main")
        runs = axis.runs(values)
        panel.line(map(_steps, runs) if unit == "executors" else runs, css)
        axis.hover(panel, _describe_counts(values, unit))
        panels.append(panel)
    caption = "" if len(series) == 3 else "No source of this query reports a backlog."
    return Figure(
        "Input, backlog and executors" if len(series) == 3 else "Input and executors",
        caption,
        drawing(112.0 * len(series) + 28.0, "Input rows, backlog and executors", panels),
    )


def _describe_counts(values: Sequence[float | None], unit: str) -> Callable[[range], str]:
    def describe(strip: range) -> str:
        present = [value for i in strip if (value := values[i]) is not None]
        return f"{_spread(present, format_count)} {unit}" if present else "not reported"

    return describe


def _draw_columns(
    panel: Panel,
    placement: Placement,
    columns: Sequence[str],
    origin: Mapping[int, str],
    colours: Mapping[str, str],
) -> None:
    """Stacks the partitions of each executor in the colours of where they were at first."""
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
        panel.box(
            (slot + 0.12, slot + 0.88),
            (base_s, base_s + busy_s),
            f"block {colours.get(came_from, 'rest')}",
            f"partition {partition} on executor {executor or 'unknown'}: "
            f"{format_duration(busy_s)} a batch"
            + (f"; before on executor {came_from}" if came_from != executor else ""),
        )
        base_s += busy_s
    if small:
        panel.box(
            (slot + 0.12, slot + 0.88),
            (base_s, base_s + small_s),
            "block rest",
            f"{plural(small, 'small partition')}: {format_duration(small_s)} a batch",
        )


def _placements(query: QueryRecords, operator: int) -> list[tuple[str, Placement]]:
    """Returns the placement before and after; a single one if nothing moved."""
    windows = [("before", query.before), ("after", query.after)]
    if query.totals.first_move_after_batch is None:
        windows = [("all batches", query.before or query.batches)]
    return [
        (f"{label} ({_batch_range(window)})", placement)
        for label, window in windows
        if (placement := placement_over(window, operator)) is not None
    ]


def _batch_range(window: Sequence[BatchRecord]) -> str:
    if len(window) == 1:
        return f"batch {window[0].batch:,}"
    return f"batches {window[0].batch:,} to {window[-1].batch:,}"


def _no_detail(title: str) -> Figure:
    return Figure(title, "No batch with loads per partition is on record.", "")


_Key = TypeVar("_Key", int, str)


def _hottest(
    loads: Sequence[Mapping[_Key, float]],
    limit: int,
    order: Callable[[Iterable[_Key]], list[_Key]],
) -> tuple[list[_Key], list[_Key]]:
    """Splits keys into those that were hottest in any of the loads, and the rest."""
    peak: dict[_Key, float] = {}
    for load in loads:
        for key, value in load.items():
            peak[key] = max(value, peak.get(key, 0.0))
    if len(peak) <= limit:
        return order(peak), []
    ranked = sorted(peak, key=lambda key: -peak[key])
    return order(ranked[: limit - 1]), order(ranked[limit - 1 :])


def _shade_windows(panel: Panel, axis: BatchAxis, query: QueryRecords) -> None:
    for window in _distinct_windows(query):
        extent = axis.of(window)
        if extent is not None:
            panel.box(extent, (panel.y.low, panel.y.high), "window")


def _distinct_windows(query: QueryRecords) -> list[Sequence[BatchRecord]]:
    moved = query.totals.first_move_after_batch is not None
    windows = [query.before, query.after] if moved else [query.before]
    return [window for window in windows if window]


def _move_marks(axis: BatchAxis, moves: Sequence[MoveRecord]) -> list[tuple[float, int, str]]:
    """Groups moves by the batch edge they took effect at; many edges are joined."""
    by_place: dict[float, list[MoveRecord]] = {}
    for move in moves:
        by_place.setdefault(axis.after_batch(move.decided_after_batch), []).append(move)
    places = sorted(by_place)
    marks = []
    for group in _split(len(places), MARKS):
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


def _scale_marks(axis: BatchAxis, scales: Sequence[ScaleRecord]) -> list[tuple[float, str]]:
    return [
        (
            axis.at_time(scale.at_s),
            f"{scale.executors_before} to {scale.executors_after} executors ({scale.verdict}): "
            f"{scale.reason}",
        )
        for scale in scales[-MARKS:]
    ]


def _triangle(x: float, y: float, title: str) -> str:
    return element(
        "path",
        element("title", clean(title)),
        d=f"M{x - 5:.1f} {y - 9:.1f}L{x + 5:.1f} {y - 9:.1f}L{x:.1f} {y:.1f}Z",
        css="move",
    )


def _diamond(x: float, y: float, title: str) -> str:
    return element(
        "path",
        element("title", clean(title)),
        d=f"M{x:.1f} {y - 6:.1f}L{x + 6:.1f} {y:.1f}L{x:.1f} {y + 6:.1f}L{x - 6:.1f} {y:.1f}Z",
        css="scale",
    )


def _figure_a_batch(
    batches: Sequence[BatchRecord], operator: int, pick: Callable[[OperatorBatchLoad], float]
) -> list[float | None]:
    return [
        next((_finite(pick(load)) for load in batch.loads if load.operator == operator), None)
        for batch in batches
    ]


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _extreme(
    pick: Callable[[Iterable[float]], float], busy_s: Mapping[str, float], executors: set[str]
) -> float | None:
    present = [value for executor, value in busy_s.items() if executor in executors]
    return pick(present) if present else None


def _executor_legend(
    colours: Mapping[str, str], executors: set[str]
) -> tuple[tuple[str, str], ...]:
    legend = [(f"key bar {css}", f"executor {e}") for e, css in colours.items() if e in executors]
    if executors - set(colours):
        legend.append(("key bar rest", "others"))
    return tuple(legend)


def _spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    if len(values) == 1:
        return form(values[0])
    return f"median {form(median(values))}, {form(min(values))} to {form(max(values))}"


def _split(count: int, parts: int) -> list[range]:
    """Cuts `range(count)` into at most `parts` ranges of nearly equal length."""
    parts = min(count, parts)
    edges = [round(i * count / parts) for i in range(parts + 1)] if parts else []
    return [range(left, right) for left, right in pairwise(edges)]


def _steps(run: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Turns points into a staircase: a value holds until the next one."""
    stairs: list[tuple[float, float]] = []
    for i, (x, value) in enumerate(run):
        if i:
            stairs.append((x, run[i - 1][1]))
        stairs.append((x, value))
    return stairs


def _headroom(highest: float, share: float = 0.08) -> float:
    """Returns the upper end of an axis: somewhat above the highest value, never zero."""
    return highest * (1.0 + share) if highest > 1e-6 else 1.0


def _tick_duration(highest_s: float) -> Callable[[float], str]:
    if highest_s < 2.0:
        return lambda value: f"{value * 1_000:.4g} ms"
    if highest_s < 300.0:
        return lambda value: f"{value:.4g} s"
    return lambda value: f"{value / 60:.4g} min"
