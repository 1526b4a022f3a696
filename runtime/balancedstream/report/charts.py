"""The figures with one value a batch: batch time, imbalance, load per executor, input and backlog.

Sizes are bounded whatever the run: more than 2,000 batches are drawn as 600 stretches (median, and
the range where it matters), more than 8 executors as the hottest ones and the rest. The captions
say so where it happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from balancedstream.record.records import BatchRecord, OperatorBatchLoad, ScaleRecord
from balancedstream.record.wording import (
    format_count,
    format_duration,
    format_ratio,
    format_short_count,
    plural,
)
from balancedstream.report.axis import BatchAxis, finite, headroom, spread, steps, tick_duration
from balancedstream.report.colours import COLOURS
from balancedstream.report.marks import (
    diamond,
    distinct_windows,
    draw_moves,
    move_marks,
    scale_marks,
    shade_windows,
)
from balancedstream.report.summary import QueryRecords
from balancedstream.report.svg import Figure, Panel, Scale, drawing, nice_ticks


def batch_time_figure(
    query: QueryRecords, axis: BatchAxis, scales: Sequence[ScaleRecord]
) -> Figure:
    """Draws the duration of each batch, with the moves and scale actions marked."""
    durations_s = [batch.duration_ms / 1_000 for batch in axis.batches]
    highest = max(durations_s[1:], default=durations_s[0])
    panel = Panel(axis.scale, Scale(0.0, headroom(highest), 252.0, 62.0))
    label = "batch duration"
    if durations_s[0] > panel.y.high:  # it starts workers; the others would be flat beside it
        label += f" (the first, {format_duration(durations_s[0])}, exceeds the axis)"
    panel.y_axis(label, tick_duration(highest), label_lift_px=44.0)
    axis.draw(panel)
    shade_windows(panel, axis, query)
    axis.draw_gaps(panel)
    if not axis.exact:
        panel.band(axis.ranges(durations_s), "fill-main")
    panel.line(axis.runs(durations_s), "line-main")
    for window in distinct_windows(query):
        extent = axis.of(window)
        middle = median(batch.duration_ms / 1_000 for batch in window)
        panel.rule(middle, "median", extent)
    axis.hover(
        panel,
        lambda strip: (
            spread([durations_s[i] for i in strip], format_duration)
            + f", {format_count(sum(axis.batches[i].input_rows for i in strip))} rows"
        ),
    )
    marks = move_marks(axis, query.moves)
    draw_moves(panel, marks)
    scaled = scale_marks(axis, scales)
    for x, title in scaled:
        panel.column(x, "scale-line")
        panel.add(diamond(axis.scale.px(x), 258.0, title))
    windows = distinct_windows(query)
    caption = ""
    if windows:
        caption = "Shaded: the batches that the figures are computed from."
    if not axis.exact:
        caption += (
            f" {len(axis.batches):,} batches in {len(axis.stretches)} stretches: the line is the"
            " median, the band the shortest and the longest."
        )
    if axis.gaps:
        caption += " Dotted: here, batches are no longer on record."
    legend = [("key line-main", "batch")]
    if windows:
        legend.append(
            ("key median", "their median" if len(windows) < 2 else "median before, after")
        )
    if marks:
        legend.append(("key move", "moves, with their number"))
    if scaled:
        legend.append(("key scale", "executors added or removed"))
    return Figure(
        "Batch time", caption.strip(), drawing(292.0, "Batch time", [panel]), tuple(legend)
    )


def imbalance_figure(query: QueryRecords, operator: int, axis: BatchAxis) -> Figure | None:
    """Draws an operator's imbalance in each batch against the lowest that placement can reach.

    Returns:
        None if the imbalance is the same in all batches; the operator's heading has it.
    """
    imbalance = _figure_a_batch(axis.batches, operator, lambda load: load.imbalance)
    bound = _figure_a_batch(axis.batches, operator, lambda load: load.bound)
    if _is_flat(imbalance, format_ratio):
        return None
    is_bound_flat = _is_flat(bound, format_ratio)
    warm = [value for value in imbalance[1:] + bound[1:] if value is not None]
    highest = max(warm, default=1.1)
    panel = Panel(axis.scale, Scale(1.0, 1.0 + headroom(max(highest - 1.0, 0.1)), 172.0, 28.0))
    panel.y_axis("imbalance: hottest executor / mean", lambda value: f"{value:.4g}")
    axis.draw(panel)
    shade_windows(panel, axis, query)
    axis.draw_gaps(panel)
    if not axis.exact:
        panel.band(axis.ranges(imbalance), "fill-main")
    for x, _, _ in move_marks(axis, query.moves):
        panel.column(x, "move-line")
    if not is_bound_flat:
        panel.line(axis.runs(bound), "line-bound")
    panel.line(axis.runs(imbalance), "line-main")

    def describe(strip: range) -> str:
        here = [value for i in strip if (value := imbalance[i]) is not None]
        least = [value for i in strip if (value := bound[i]) is not None]
        if not here or not least:
            return "no task of this operator"
        return f"imbalance {spread(here, format_ratio)}, bound {format_ratio(median(least))}"

    axis.hover(panel, describe)
    caption = "1 is perfect. The bound is the lowest imbalance that any placement of these"
    caption += " partitions can reach"
    legend = [("key line-main", "imbalance")]
    if is_bound_flat:
        first = next(value for value in bound if value is not None)
        caption += f": {format_ratio(first)} in every batch."
    else:
        caption += "."
        legend.append(("key line-bound", "bound"))
    picture = drawing(212.0, "Imbalance against its bound", [panel])
    return Figure("Imbalance", caption, picture, tuple(legend))


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
    panel = Panel(axis.scale, Scale(0.0, headroom(highest), 232.0, 28.0))
    panel.y_axis("busy time of an executor in a batch", tick_duration(highest))
    axis.draw(panel)
    axis.draw_gaps(panel)
    for x, _, _ in move_marks(axis, query.moves):
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
    if len(seen) > 1:
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
    caption = ""
    if len(seen) > 1:
        caption += "Lines close together mean good balance. The highest line determines the batch"
        caption += " time."
    if rest:
        caption += f" Lines: the {len(colours)} executors that were hottest in any batch."
    without_detail = sum(1 for load in loads if load is not None and not load.partition_busy_s)
    if without_detail:
        caption += (
            f" Of the {len(loads):,} batches on record, {without_detail:,} older ones keep no loads"
            " per executor."
        )
    return Figure(
        "Load per executor",
        caption.strip(),
        drawing(272.0, "Load per executor", [panel]),
        tuple(legend),
    )


def supply_figure(axis: BatchAxis) -> Figure:
    """Draws what came in, what waits and how many executors there are; says what never changed."""
    rows: list[float | None] = [float(batch.input_rows) for batch in axis.batches]
    backlog = [finite(batch.backlog_rows) for batch in axis.batches]
    executors: list[float | None] = [float(batch.executors) for batch in axis.batches]
    series, said = [], []
    if _is_flat(rows, format_count):
        said.append(f"Every batch read {plural(axis.batches[0].input_rows, 'row')}.")
    else:
        series.append(("input rows in a batch", rows, "rows"))
    if all(value is None for value in backlog):
        said.append("No source of this query reports a backlog.")
    elif not any(backlog):
        said.append("There was no backlog.")
    elif _is_flat(backlog, format_count):
        said.append(f"The backlog was always {format_count(backlog[-1])} rows.")
    else:
        series.append(("backlog: rows that wait at the sources", backlog, "rows"))
    counts = {batch.executors for batch in axis.batches}
    if len(counts) > 1:
        series.append(("live executors", executors, "executors"))
    else:
        said.append(f"There were always {plural(max(counts), 'executor')}.")
    panels = []
    for i, (label, values, unit) in enumerate(series):
        top = 28.0 + i * 112.0
        present = [value for value in values if value is not None]
        scale = Scale(0.0, headroom(max(present)), top + 70.0, top)
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
        panel.line(map(steps, runs) if unit == "executors" else runs, "line-main")
        axis.hover(panel, _describe_counts(values, unit))
        panels.append(panel)
    drawn = [label.split(":")[0].removesuffix(" rows in a batch") for label, _, _ in series]
    title = " and ".join(filter(None, (", ".join(drawn[:-1]), *drawn[-1:]))).capitalize()
    picture = drawing(112.0 * len(series) + 28.0, title, panels) if panels else ""
    return Figure(title or "Input", " ".join(said), picture)


def _is_flat(values: Sequence[float | None], form: Callable[[float], str]) -> bool:
    """Whether several batches have values, which all read the same."""
    present = [form(value) for value in values if value is not None]
    return len(present) > 1 and len(set(present)) == 1


def _describe_counts(values: Sequence[float | None], unit: str) -> Callable[[range], str]:
    def describe(strip: range) -> str:
        present = [value for i in strip if (value := values[i]) is not None]
        return f"{spread(present, format_count)} {unit}" if present else "not reported"

    return describe


def _figure_a_batch(
    batches: Sequence[BatchRecord], operator: int, pick: Callable[[OperatorBatchLoad], float]
) -> list[float | None]:
    return [
        next((finite(pick(load)) for load in batch.loads if load.operator == operator), None)
        for batch in batches
    ]


def _extreme(
    pick: Callable[[Iterable[float]], float], busy_s: Mapping[str, float], executors: set[str]
) -> float | None:
    present = [value for executor, value in busy_s.items() if executor in executors]
    return pick(present) if present else None
