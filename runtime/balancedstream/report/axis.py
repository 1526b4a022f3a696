"""The horizontal axis that the figures of one query share, and how values meet an axis.

It is the micro-batch, not the clock: a stream may wait for hours, and every decision takes effect
at the edge of a batch. More than 2,000 batches are drawn as 600 stretches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isfinite
from statistics import median

from balancedstream.record.records import BatchRecord
from balancedstream.record.wording import format_elapsed
from balancedstream.report.svg import LEFT, RIGHT, Panel, Scale

EXACT_BATCHES = 2_000
STRETCHES = 600
HOVER_STRIPS = 240


class BatchAxis:
    """The horizontal axis that the figures of one query share: its kept batches, in order."""

    def __init__(self, batches: Sequence[BatchRecord], started_s: float) -> None:
        self.batches = batches
        self.started_s = started_s
        self.scale = Scale(-0.5, len(batches) - 0.5, LEFT, RIGHT)
        self.gaps = [
            position
            for position, (left, right) in enumerate(pairwise(batches), start=1)
            if right.batch > left.batch + 1
        ]
        self.stretches = split(
            len(batches), len(batches) if len(batches) <= EXACT_BATCHES else STRETCHES
        )
        self.strips = split(len(batches), HOVER_STRIPS)
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


def split(count: int, parts: int) -> list[range]:
    """Cuts `range(count)` into at most `parts` ranges of nearly equal length."""
    parts = min(count, parts)
    edges = [round(i * count / parts) for i in range(parts + 1)] if parts else []
    return [range(left, right) for left, right in pairwise(edges)]


def steps(run: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Turns points into a staircase: a value holds until the next one."""
    stairs: list[tuple[float, float]] = []
    for i, (x, value) in enumerate(run):
        if i:
            stairs.append((x, run[i - 1][1]))
        stairs.append((x, value))
    return stairs


def widen(run: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Turns points into a staircase: a value holds from half a step before to half a step after."""
    edges = [run[0][0] - 0.5, *((x + y) / 2 for (x, _), (y, _) in pairwise(run)), run[-1][0] + 0.5]
    return [
        (x, value)
        for (left, right), (_, value) in zip(pairwise(edges), run, strict=True)
        for x in (left, right)
    ]


def headroom(highest: float, share: float = 0.08) -> float:
    """Returns the upper end of an axis: somewhat above the highest value, never zero."""
    return highest * (1.0 + share) if highest > 1e-6 else 1.0


def tick_duration(highest_s: float) -> Callable[[float], str]:
    """Returns how a duration is written on an axis that ends at this value."""
    if highest_s < 2.0:
        return lambda value: f"{value * 1_000:.4g} ms"
    if highest_s < 300.0:
        return lambda value: f"{value:.4g} s"
    return lambda value: f"{value / 60:.4g} min"


def finite(value: float | None) -> float | None:
    """Returns the value; None for one that is not a number or not finite."""
    return value if value is not None and isfinite(value) else None


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Writes a single value, or the median and the range of several."""
    if len(values) == 1:
        return form(values[0])
    return f"median {form(median(values))}, {form(min(values))} to {form(max(values))}"
