"""Corrects times of a driver's clock by the clock of Prometheus, which scraped it: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from balancedstream.core.wire import series as wire
from balancedstream_operator.observe.series import Series

SLACK_S = 60.0
"""A driver's clock that is off by less is believed: differences of its times are exact."""

DRIVER_TIMES = (wire.LAST_BATCH_TIMESTAMP, wire.QUERY_IDLE_TIMESTAMP)
"""Metrics whose values are times of the driver's clock."""


def settle_times(mine: Mapping[str, Sequence[Series]]) -> dict[str, list[Series]]:
    """Series of one target by name, with the driver's times by the clock of Prometheus.

    A value that differs between two scrapes changed between them. If the driver's time is far
    outside, the driver's clock is wrong, and the time of the later scrape replaces it.

    >>> labels = {"__name__": DRIVER_TIMES[0]}
    >>> late = Series(labels, ((100.0, 7290.0), (115.0, 7290.0), (130.0, 7325.0)))
    >>> settle_times({DRIVER_TIMES[0]: [late]})[DRIVER_TIMES[0]][0].samples
    ((100.0, 100.0), (115.0, 100.0), (130.0, 130.0))
    """
    return {
        name: [_settle(s) for s in series] if name in DRIVER_TIMES else list(series)
        for name, series in mine.items()
    }


def _settle(series: Series) -> Series:
    samples = series.samples
    # Nobody knows when the first value began.
    settled = [(time_s, _bound(said_s, -SLACK_S, time_s)) for time_s, said_s in samples[:1]]
    for (before_s, old_s), (time_s, said_s) in pairwise(samples):
        changed = said_s != old_s
        known_s = _bound(said_s, before_s, time_s) if changed else settled[-1][1]
        settled.append((time_s, known_s))
    return replace(series, samples=tuple(settled))


def _bound(said_s: float, after_s: float, until_s: float) -> float:
    return said_s if after_s - SLACK_S <= said_s <= until_s + SLACK_S else until_s
