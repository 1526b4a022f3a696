"""What state partitions and hot keys cost, from their series: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from balancedstream.core.samples import KeySample, TaskSample
from balancedstream.core.wire import series as wire
from balancedstream_operator.observe.series import Interval, Series

TASK_METRICS = (
    wire.PARTITION_BUSY,
    wire.PARTITION_STATE_LOAD,
    wire.PARTITION_RECORDS,
    wire.PARTITION_STATE_BYTES,
    wire.PARTITION_EXECUTOR,
    wire.HOT_KEY_BUSY,
)
"""Metrics that the samples are made of."""


def sample_tasks(
    partitions: Mapping[str, Sequence[Series]], intervals_of: Mapping[str, Sequence[Interval]]
) -> Iterable[TaskSample]:
    """One sample per partition and interval: the mean of the batches in it.

    An interval without a sample of each counter, or in which one fell, has none.
    """
    executor_at: dict[tuple[str, str, str, float], str] = {}
    for series in partitions.get(wire.PARTITION_EXECUTOR, ()):
        for time_s, _ in series.samples:
            executor_at[(*_partition(series), time_s)] = series.labels[wire.EXECUTOR]
    values = {
        (name, *_partition(s)): dict(s.samples)
        for name in (
            wire.PARTITION_STATE_LOAD,
            wire.PARTITION_RECORDS,
            wire.PARTITION_STATE_BYTES,
        )
        for s in partitions.get(name, ())
    }
    for series in partitions.get(wire.PARTITION_BUSY, ()):
        key = _partition(series)
        busy_s = dict(series.samples)
        restore_s = values.get((wire.PARTITION_STATE_LOAD, *key), {})
        records = values.get((wire.PARTITION_RECORDS, *key), {})
        state_bytes = values.get((wire.PARTITION_STATE_BYTES, *key), {})
        for interval in intervals_of.get(key[0], ()):
            before, after = interval.before_s, interval.after_s
            executor = executor_at.get((*key, after))
            grown = [restore_s, records, busy_s]
            whole = all(before in of and after in of for of in grown)
            if executor is None or not whole or any(of[after] < of[before] for of in grown):
                continue
            yield TaskSample(
                query=key[0],
                operator=int(key[1]),
                partition=int(key[2]),
                batch=interval.last_batch,
                executor=executor,
                busy_s=(busy_s[after] - busy_s[before]) / interval.batches,
                records=round((records[after] - records[before]) / interval.batches),
                state_bytes=int(state_bytes.get(after, 0.0)),
                finished_s=after,
                restore_s=(restore_s[after] - restore_s[before]) / interval.batches,
                moved=executor_at.get((*key, before)) not in (None, executor),
            )


def sample_keys(
    partitions: Mapping[str, Sequence[Series]], intervals_of: Mapping[str, Sequence[Interval]]
) -> Iterable[KeySample]:
    """One sample per hot key and interval: of the last batch in it."""
    for series in partitions.get(wire.HOT_KEY_BUSY, ()):
        query, operator, partition = _partition(series)
        busy_s = dict(series.samples)
        for interval in intervals_of.get(query, ()):
            if interval.after_s in busy_s:
                yield KeySample(
                    query=query,
                    operator=int(operator),
                    key=series.labels[wire.KEY],
                    partition=int(partition),
                    batch=interval.last_batch,
                    busy_s=busy_s[interval.after_s],
                )


def _partition(series: Series) -> tuple[str, str, str]:
    labels = series.labels
    return labels[wire.QUERY], labels[wire.OPERATOR], labels[wire.PARTITION]
