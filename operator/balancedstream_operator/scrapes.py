"""Time series of a stream's driver, and the intervals between two scrapes of it: pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

PREFIX = "balancedstream_"


@dataclass(frozen=True, slots=True)
class Series:
    """One time series: its labels with `__name__`, and its samples (time, value), oldest first."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """Two scrapes of a query between which batches finished, and the number of the last one."""

    query: str
    before_s: float
    after_s: float
    batches: int
    last_batch: int


def group_by_name(all_series: Iterable[Series]) -> dict[str, list[Series]]:
    """Series by the name of their metric, without the prefix."""
    found: dict[str, list[Series]] = defaultdict(list)
    for series in all_series:
        found[series.labels["__name__"].removeprefix(PREFIX)].append(series)
    return found


def find_intervals(mine: Mapping[str, Sequence[Series]]) -> list[Interval]:
    """Every interval in which batches of one run of a query finished; a reset starts a new run."""
    intervals = []
    numbers = {s.labels["query"]: dict(s.samples) for s in mine.get("last_batch_id", ())}
    for series in mine.get("batches_total", ()):
        query = series.labels["query"]
        kept: list[Interval] = []
        before_s, before = series.samples[0]
        for time_s, count in series.samples[1:]:
            if count < before:
                kept.clear()
            elif count > before:
                last_batch = int(numbers[query][time_s])
                kept.append(Interval(query, before_s, time_s, int(count - before), last_batch))
            before_s, before = time_s, count
        intervals += kept
    return intervals
