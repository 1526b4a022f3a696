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


_Counter = Mapping[float, float]
"""Time of a sample to its value."""


def sample_stages(
    partitions: Mapping[str, Sequence[Series]], intervals: Sequence[Interval]
) -> Iterable[StageSample]:
    """One sample per kind of stage and interval: the mean of the batches in it."""
    of_kind: dict[tuple[str, StageKind], dict[str, list[tuple[str, _Counter]]]] = {}
    for name in STAGE_METRICS:
        for series in partitions.get(name, ()):
            kind = _KINDS.get(series.labels[wire.KIND])
            if kind is not None:
                query, executor = series.labels[wire.QUERY], series.labels.get(wire.EXECUTOR, "")
                found = of_kind.setdefault((query, kind), defaultdict(list))
                found[name].append((executor, dict(series.samples)))
    counters = [c for found in of_kind.values() for each in found.values() for _, c in each]
    fetched_s = min((next(iter(counter)) for counter in counters), default=0.0)
    busy: dict[str, list[_Counter]] = defaultdict(list)
    for (query, _), found in of_kind.items():
        busy[query] += (counter for _, counter in found[wire.STAGE_BUSY])
    # Of an executor that has left since, nobody knows what it did in the last batches.
    known = [
        interval
        for interval in intervals
        if interval.before_s >= fetched_s
        and not any(
            interval.before_s in c and interval.after_s not in c for c in busy[interval.query]
        )
    ]
    for (query, kind), found in sorted(of_kind.items()):
        for interval in known:
            if interval.query != query:
                continue
            busy_s = {
                executor: change
                for executor, counter in found[wire.STAGE_BUSY]
                if (change := _change(counter, interval)) is not None
            }
            tasks, longest_s = (
                sum(_change(counter, interval) or 0.0 for _, counter in found[name])
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


def _change(counter: _Counter, interval: Interval) -> float | None:
    """What a counter grew by in an interval; None if it is gone at its end.

    A counter that is not there at the start began within the interval, from 0.
    """
    if interval.after_s not in counter:
        return None
    return max(0.0, counter[interval.after_s] - counter.get(interval.before_s, 0.0))
