"""How many rows arrive at the sources of a query, and how many will.

Our own design. Of several forecasts, the one counts that would have lost least lately: a row too
many foreseen costs an executor's time, a row too few makes rows late.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from balancedstream.core.samples import BatchSample, Sighting

FORECASTS = (
    ("as now", 1.0),
    ("as now", 1.15),
    ("as now", 1.35),
    ("as now", 1.6),
    ("as now", 2.0),
    ("by the trend", 1.0),
    ("by the trend", 1.15),
    ("by the trend", 1.35),
)
"""Ways to foresee a rate, and the margin on top."""

LATE_COSTS = 0.9
"""A row too few foreseen counts so much, a row too many the rest of 1."""

_TRIALS = 30
"""Forecasts are tried at so many moments of the past, or once in an interval."""

_SHORT_S = 4.0
_SHORT_PART = 0.2
_MIN_LOOKS = 3
_EVERY_LOOK = 3
_EXCEEDS = 0.1
_RISES = 1.05
_TREND_S = 60.0
_TREND_LOSES = 0.05
_MAX_RISE = 3.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """A rate that is foreseen.

    Attributes:
        rate: rows per second now.
        ahead: rows per second then, at least as many as now.
        way: how it was foreseen, for people.
    """

    rate: float
    ahead: float
    way: str


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows that have arrived at the sources of a query, counted from some moment on.

    Attributes:
        times_s: seconds since the Unix epoch, ascending.
        totals: rows until then.
        looks: how many of the last of them are looks between batches.

    >>> arrivals = Arrivals((0.0, 10.0, 20.0), (0.0, 100.0, 300.0))
    >>> arrivals.rate(10.0), arrivals.rate(20.0), arrivals.rate(10.0, until_s=15.0)
    (20.0, 15.0, 15.0)
    """

    times_s: Sequence[float]
    totals: Sequence[float]
    looks: int = 0

    def count_until(self, time_s: float) -> float:
        """Rows that had arrived by then, evenly between two moments."""
        after = bisect_right(self.times_s, time_s)
        if after == 0:
            return self.totals[0]
        if after == len(self.times_s):
            return self.totals[-1]
        begin_s, end_s = self.times_s[after - 1], self.times_s[after]
        before = self.totals[after - 1]
        return before + (self.totals[after] - before) * (time_s - begin_s) / (end_s - begin_s)

    @property
    def covered_s(self) -> float:
        """Seconds between the first moment and the last."""
        return self.times_s[-1] - self.times_s[0] if self.times_s else 0.0

    def rate(self, span_s: float, until_s: float | None = None) -> float:
        """Rows per second in a span of time, as far back as they are known."""
        end_s = self.times_s[-1] if until_s is None else until_s
        begin_s = max(self.times_s[0], end_s - span_s)
        if end_s <= begin_s:
            return 0.0
        return (self.count_until(end_s) - self.count_until(begin_s)) / (end_s - begin_s)

    def find_peak(self, span_s: float, since_s: float) -> float:
        """The highest rate of such spans that ended since then."""
        return max((self.rate(span_s, t) for t in self.times_s[1:] if t >= since_s), default=0.0)

    def is_rising(self, interval_s: float) -> bool:
        """Whether the rate of the last seconds is above that of the look before: a step begins."""
        if self.looks < _MIN_LOOKS:
            return False
        short_s = max(_SHORT_S, _SHORT_PART * interval_s)
        return self.rate(short_s) > _RISES * self.rate(short_s, self.times_s[-2])

    def rate_now(self, interval_s: float) -> float:
        """Rows per second over an interval; of the last seconds, if they exceed it clearly."""
        usual = self.rate(interval_s)
        short_s = max(_SHORT_S, _SHORT_PART * interval_s)
        if self.looks < _MIN_LOOKS or short_s >= interval_s:
            return usual
        short = self.rate(short_s)
        ratio = short / usual if usual else 1.0
        until_s = self.times_s[-1] - 2 * short_s
        before = [t for t in self.times_s[-self.looks :: _EVERY_LOOK] if t <= until_s]
        scatter = [
            self.rate(short_s, t) / level - 1.0
            for t in before
            if (level := self.rate(interval_s, t)) > 0.0
        ]
        usual_s = math.sqrt(fmean(min(0.25, s * s) for s in scatter)) if scatter else 0.0
        return short if ratio > 1.0 + max(_EXCEEDS, 3.0 * usual_s) else usual

    def foresee(self, ahead_s: float, interval_s: float, rate: float) -> Forecast:
        """The rate in so many seconds, by the way that would have lost least so far.

        Args:
            ahead_s: seconds from the last moment on.
            interval_s: over which a rate is taken.
            rate: rows per second now.
        """
        # As if as many trials before the first one had shown a steady rate.
        too_many = (1.0 - LATE_COSTS) * _TRIALS * self.rate(self.covered_s)
        losses = {
            way: too_many * (way[1] - 1.0 + (_TREND_LOSES if way[0] == "by the trend" else 0.0))
            for way in FORECASTS
        }
        end_s = self.times_s[-1] - ahead_s
        step_s = max(interval_s, self.covered_s / _TRIALS)
        span_s = 2.0 * max(_TREND_S, ahead_s + interval_s / 2)
        # Before that, the trend was not known.
        known_s = span_s if self.covered_s > 2.0 * span_s else interval_s
        # As often as that at most: of huge times, a step may be lost in rounding.
        for _ in range(_TRIALS + 1):
            if end_s < self.times_s[0] + known_s:
                break
            came, level = self.rate(interval_s, end_s + ahead_s), self.rate(interval_s, end_s)
            trend = self._follow_trend(end_s, ahead_s + interval_s / 2, level)
            for way in FORECASTS:
                error = came - (level if way[0] == "as now" else trend) * way[1]
                losses[way] += LATE_COSTS * error if error > 0 else (LATE_COSTS - 1.0) * error
            end_s -= step_s
        best = min(FORECASTS, key=lambda way: losses[way])
        trend = self._follow_trend(self.times_s[-1], ahead_s + interval_s / 2, rate)
        ahead = (rate if best[0] == "as now" else trend) * best[1]
        margin = f" and {best[1] - 1:.0%}" if best[1] > 1 else ""
        return Forecast(rate, max(rate, ahead), best[0] + margin)

    def _follow_trend(self, end_s: float, ahead_s: float, level: float) -> float:
        span_s = max(_TREND_S, ahead_s)
        if end_s - 2 * span_s < self.times_s[0]:
            return level
        rise = (self.rate(span_s, end_s) - self.rate(span_s, end_s - span_s)) / span_s
        return max(0.0, min(_MAX_RISE * level, level + rise * ahead_s))


def count_arrivals(
    run: Sequence[BatchSample], sightings: Iterable[Sighting], idle_s: float | None = None
) -> Arrivals:
    """The rows that arrived at the sources of a query.

    What is missing of the batches is taken as if nothing had come then.

    Args:
        run: batches of the query, oldest first.
        sightings: of the query, any order.
        idle_s: when Spark last said that it waits for data; None if it did not.

    >>> run = [BatchSample("q", n, 10.0 * n, 4.0, 50, 10.0, 5.0 * n) for n in (1, 2)]
    >>> look = Sighting("q", 3, begun_s=26.0, at_s=28.0, rows=70.0, waiting_rows=20.0)
    >>> count_arrivals(run, [look])
    Arrivals(times_s=(6.0, 16.0, 28.0), totals=(55.0, 110.0, 190.0), looks=1)
    """
    points: list[tuple[float, float]] = []
    read, known = 0.0, {}
    for batch in run:
        read += batch.input_rows
        known[batch.batch] = read
        points.append((batch.finished_s - batch.duration_s, read + (batch.backlog_rows or 0.0)))
    last = run[-1].batch if run else -1
    seen = []
    for sighting in sightings:
        planned = known.get(sighting.batch)
        if planned is None and sighting.batch > last and sighting.rows is not None:
            planned = read + sighting.rows
        if planned is not None and sighting.waiting_rows is not None:
            seen.append((sighting.at_s, planned + sighting.waiting_rows))
    if idle_s is not None:
        points.append((idle_s, read))
    times_s: list[float] = []
    totals: list[float] = []
    for time_s, total in sorted(points + seen):
        if times_s and time_s - times_s[-1] < 0.01:
            totals[-1] = max(totals[-1], total)
            continue
        times_s.append(time_s)
        totals.append(max(total, totals[-1] if totals else 0.0))
    return Arrivals(tuple(times_s), tuple(totals), len(seen))
