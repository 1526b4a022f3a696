"""What state partitions and hot keys cost, from their series: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from balancedstream.core.samples import KeySample, TaskSample
from balancedstream_operator.observe.series import Interval, Series

TASK_METRICS = (
    "partition_busy_seconds_total",
    "partition_state_load_seconds_total",
    "partition_records_total",
    "partition_state_bytes",
    "partition_executor_info",
    "hot_key_busy_seconds",
)
"""Metrics that the samples are made of."""


def sample_tasks(
    partitions: Mapping[str, Sequence[Series]], intervals_of: Mapping[str, Sequence[Interval]]
) -> Iterable[TaskSample]:
    """One sample per partition and interval: the mean of the batches in it.

    An interval without a sample of each counter, or in which one fell, has none.

    Args:
        partitions: series of `TASK_METRICS` by name.
        intervals_of: query to its intervals.
    """
    executor_at: dict[tuple[str, str, str, float], str] = {}
    for series in partitions.get("partition_executor_info", ()):
        for time_s, _ in series.samples:
            executor_at[(*_partition(series), time_s)] = series.labels["executor"]
    values = {
        (name, *_partition(s)): dict(s.samples)
        for name in (
            "partition_state_load_seconds_total",
            "partition_records_total",
            "partition_state_bytes",
        )
        for s in partitions.get(name, ())
    }
    for series in partitions.get("partition_busy_seconds_total", ()):
        key = _partition(series)
        busy_s = dict(series.samples)
        restore_s = values.get(("partition_state_load_seconds_total", *key), {})
        records = values.get(("partition_records_total", *key), {})
        state_bytes = values.get(("partition_state_bytes", *key), {})
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
    """One sample per hot key and interval: of the last batch in it.

    Args:
        partitions: series of `TASK_METRICS` by name.
        intervals_of: query to its intervals.
    """
    for series in partitions.get("hot_key_busy_seconds", ()):
        query, operator, partition = _partition(series)
        busy_s = dict(series.samples)
        for interval in intervals_of.get(query, ()):
            if interval.after_s in busy_s:
                yield KeySample(
                    query=query,
                    operator=int(operator),
                    key=series.labels["key"],
                    partition=int(partition),
                    batch=interval.last_batch,
                    busy_s=busy_s[interval.after_s],
                )


def _partition(series: Series) -> tuple[str, str, str]:
    labels = series.labels
    return labels["query"], labels["operator"], labels["partition"]
