"""The batches between two scrapes of a query: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from balancedstream.core.samples import BatchSample
from balancedstream.core.wire import series as wire
from balancedstream_operator.observe.series import Interval, Series

BATCH_METRICS = (
    wire.BATCHES,
    wire.BATCH_DURATION_SUM,
    wire.INPUT_ROWS,
    wire.LAST_BATCH_ID,
    wire.LAST_BATCH_TIMESTAMP,
    wire.LAST_BATCH_DURATION,
    wire.BACKLOG_ROWS,
    wire.TRIGGER_INTERVAL,
    wire.DRIVER_SECONDS,
)
"""Metrics of batches; where these are slow, they are fetched from further back than others."""


def sample_batches(
    mine: Mapping[str, Sequence[Series]], intervals: Sequence[Interval]
) -> Iterable[BatchSample]:
    """One sample per batch; batches between two scrapes share what changed evenly."""
    values: dict[str, dict[str, dict[float, float]]] = {
        name: {s.labels[wire.QUERY]: dict(s.samples) for s in mine.get(name, ())}
        for name in (
            wire.BATCH_DURATION_SUM,
            wire.INPUT_ROWS,
            wire.LAST_BATCH_TIMESTAMP,
            wire.LAST_BATCH_DURATION,
            wire.BACKLOG_ROWS,
            wire.TRIGGER_INTERVAL,
        )
    }
    for part in wire.DRIVER_PARTS:
        values[part] = {
            s.labels[wire.QUERY]: dict(s.samples)
            for s in mine.get(wire.DRIVER_SECONDS, ())
            if s.labels[wire.PART] == part
        }
    for interval in intervals:
        before, after = (
            {
                name: of_query.get(interval.query, {}).get(time_s)
                for name, of_query in values.items()
            }
            for time_s in (interval.before_s, interval.after_s)
        )
        yield from _split(interval, before, after)


def sample_last(
    mine: Mapping[str, Sequence[Series]], current: Mapping[str, Sequence[Series]]
) -> Iterable[BatchSample]:
    """The last batch, without its rows, of each query that has waited for data.

    A query that has finished no batch since the driver's start gets an empty one at the time when
    it first waited.

    `current` has the samples of the newest scrape only.
    """
    values = {
        name: {s.labels[wire.QUERY]: s.samples[-1][1] for s in current.get(name, ())}
        for name in BATCH_METRICS
        if name != wire.DRIVER_SECONDS
    }
    for waits in mine.get(wire.QUERY_IDLE_TIMESTAMP, ()):
        query = waits.labels[wire.QUERY]
        yield BatchSample(
            query,
            batch=int(values[wire.LAST_BATCH_ID].get(query, 0)),
            finished_s=values[wire.LAST_BATCH_TIMESTAMP].get(query, waits.samples[0][1]),
            duration_s=values[wire.LAST_BATCH_DURATION].get(query, 0.0),
            input_rows=0,
            backlog_rows=values[wire.BACKLOG_ROWS].get(query),
            trigger_s=values[wire.TRIGGER_INTERVAL].get(query),
        )


def find_longest(
    current: Mapping[str, Sequence[Series]], batches: Iterable[BatchSample]
) -> dict[str, float]:
    """How long batches of each query take at most, in seconds.

    Args:
        current: series of one target by name, with the samples of the newest scrape only. They
            also tell of a last batch that is older than all other samples.
        batches: of the target.
    """
    names = (wire.TRIGGER_INTERVAL, wire.LAST_BATCH_DURATION)
    known = [
        (s.labels[wire.QUERY], s.samples[-1][1]) for name in names for s in current.get(name, ())
    ]
    longest_s: dict[str, float] = {}
    for query, seconds in [*known, *((batch.query, batch.duration_s) for batch in batches)]:
        longest_s[query] = max(seconds, longest_s.get(query, 0.0))
    return longest_s


def _split(
    interval: Interval, before: Mapping[str, float | None], after: Mapping[str, float | None]
) -> Iterable[BatchSample]:

    def change(name: str) -> float:
        return (after[name] or 0.0) - (before[name] or 0.0)

    # Prometheus can turn histograms into native ones, which have no series of their sum.
    duration_s = after[wire.LAST_BATCH_DURATION] or 0.0
    if after[wire.BATCH_DURATION_SUM] is not None:
        duration_s = change(wire.BATCH_DURATION_SUM) / interval.batches
    finished_s = after[wire.LAST_BATCH_TIMESTAMP] or interval.after_s
    rows = int(change(wire.INPUT_ROWS))
    # From one start to the next: the difference of the ends, less that of the durations.
    span_s = change(wire.LAST_BATCH_TIMESTAMP) - change(wire.LAST_BATCH_DURATION)
    interval_s = span_s / interval.batches if span_s > 0 else None
    backlog, backlog_before = after[wire.BACKLOG_ROWS], before[wire.BACKLOG_ROWS]
    for number in range(1, interval.batches + 1):
        to_come = interval.batches - number
        waiting = backlog
        if backlog is not None and backlog_before is not None:
            waiting = backlog + (backlog_before - backlog) * to_come / interval.batches
        yield BatchSample(
            query=interval.query,
            batch=interval.last_batch - to_come,
            finished_s=finished_s - to_come * (interval_s or 0.0),
            duration_s=duration_s,
            # Integers that add up to the rows that were read.
            input_rows=rows * number // interval.batches - rows * (number - 1) // interval.batches,
            interval_s=interval_s,
            backlog_rows=waiting,
            trigger_s=after[wire.TRIGGER_INTERVAL],
            offsets_s=change(wire.OFFSETS) / interval.batches,
            planning_s=change(wire.PLANNING) / interval.batches,
            commits_s=change(wire.COMMITS) / interval.batches,
            gaps_s=change(wire.GAPS) / interval.batches,
        )
