"""What all tasks of a query cost between two scrapes, by kind of stage; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from balancedstream.core.samples import StageKind, StageSample
from balancedstream.core.wire import series as wire
from balancedstream_operator.observe.series import Interval, Series

STAGE_METRICS = (
    wire.STAGE_TASKS,
    wire.STAGE_LONGEST_TASK,
    wire.STAGE_BUSY,
)

_KINDS: dict[str, StageKind] = {kind: kind for kind in get_args(StageKind)}


def sample_stages(
    partitions: Mapping[str, Sequence[Series]], intervals: Sequence[Interval]
) -> Iterable[StageSample]:
    """One sample per kind of stage and interval: the mean of the batches in it."""
    of_kind: dict[tuple[str, StageKind], dict[str, list[Series]]] = {}
    for name in STAGE_METRICS:
        for series in partitions.get(name, ()):
            kind = _KINDS.get(series.labels[wire.KIND])
            if kind is not None:
                found = of_kind.setdefault((series.labels[wire.QUERY], kind), defaultdict(list))
                found[name].append(series)
    times = [s.samples[0][0] for found in of_kind.values() for ss in found.values() for s in ss]
    fetched_s = min(times, default=0.0)
    for (query, kind), found in sorted(of_kind.items()):
        for interval in intervals:
            if interval.query != query or interval.before_s < fetched_s:
                continue
            # Of an executor that has left since, nobody knows what it did in the last batches.
            if _lost_any(of_kind, interval):
                continue
            busy_s = {
                s.labels[wire.EXECUTOR]: change
                for s in found[wire.STAGE_BUSY]
                if (change := _change(s, interval)) is not None
            }
            tasks, longest_s = (
                sum(_change(s, interval) or 0.0 for s in found[name])
                for name in (wire.STAGE_TASKS, wire.STAGE_LONGEST_TASK)
            )
            if busy_s and tasks:
                yield StageSample(
                    query=query,
                    batch=interval.last_batch,
                    kind=kind,
                    finished_s=interval.after_s,
                    tasks=round(tasks / interval.batches),
                    longest_s=longest_s / interval.batches,
                    executor_busy_s={e: s / interval.batches for e, s in busy_s.items()},
                )


def _lost_any(
    of_kind: Mapping[tuple[str, StageKind], Mapping[str, Sequence[Series]]], interval: Interval
) -> bool:
    return any(
        interval.before_s in times and interval.after_s not in times
        for (query, _), found in of_kind.items()
        if query == interval.query
        for series in found[wire.STAGE_BUSY]
        for times in [{time_s for time_s, _ in series.samples}]
    )


def _change(series: Series, interval: Interval) -> float | None:
    """What a counter grew by in an interval; None if it is gone at its end.

    A counter that is not there at the start began within the interval, from 0.
    """
    values = dict(series.samples)
    if interval.after_s not in values:
        return None
    return max(0.0, values[interval.after_s] - values.get(interval.before_s, 0.0))
