"""AutoFlow's time-window load measurement, per state partition and per executor.

The paper states that load is measured over time windows without the user's help. The method is our
own design: the mean busy time of a partition over the last few micro-batches that are recent
enough. A window of several batches also dilutes the first batch of a new executor, which includes a
cold JVM and the start of its Python workers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from balancedstream.core.observations import StageSample, TaskSample
from balancedstream.core.policy import WindowPolicy

_Sample = TypeVar("_Sample", TaskSample, StageSample)


@dataclass(frozen=True, slots=True)
class OperatorLoad:
    """The load of one stateful operator in the measuring window.

    Attributes:
        batches: the micro-batches measured, oldest first; never empty.
        busy_s: partition to its mean busy seconds per batch, without the restore of state.
        records: partition to its mean rows per batch.
        state_bytes: partition to the size of its state after the last batch that reported it.
        placement: partition to the executor that ran it last. If that executor is gone, the
            partition has a load but no live executor.
        executor_busy_s: every live executor to the sum of `busy_s` over the partitions that it ran
            last; 0.0 if it ran none. Partitions of lost executors are in no sum.
        hidden_busy_s: executor to the mean busy seconds per batch of the partitions on it that are
            not measured one by one; empty if all are.
    """

    batches: tuple[int, ...]
    busy_s: dict[int, float]
    records: dict[int, float]
    state_bytes: dict[int, int]
    placement: dict[int, str]
    executor_busy_s: dict[str, float]
    hidden_busy_s: dict[str, float] = field(default_factory=dict)


def measure(
    samples: Iterable[TaskSample],
    executors: Mapping[str, int],
    policy: WindowPolicy,
    now_s: float,
) -> dict[tuple[str, int], OperatorLoad]:
    """Measure the load of every partition over the window.

    The mean of a partition is over the batches that reported it: Spark runs every partition in
    every batch, so a missing sample was lost. If a batch ran again after a restart, a partition has
    several samples of it, and the last to finish counts. The time to restore state does not count:
    a move caused it, and balancing would chase its own moves.

    Args:
        samples: tasks in any order; some may be late, repeated or outdated.
        executors: live executors, id to cores.
        policy: number and age of the batches in the window.
        now_s: clock of the samples' `finished_s`.

    Returns:
        (query, operator) to its load; an operator without a sample in the window is left out.

    >>> tasks = [
    ...     TaskSample("q", 0, 0, 7, "a", busy_s=3.0, records=30, state_bytes=9, finished_s=100.0),
    ...     TaskSample("q", 0, 0, 8, "a", busy_s=1.0, records=10, state_bytes=8, finished_s=105.0),
    ...     TaskSample("q", 0, 1, 8, "b", busy_s=1.5, records=5, state_bytes=2, finished_s=105.0,
    ...                restore_s=0.5),
    ... ]
    >>> load = measure(tasks, {"a": 1, "c": 1}, WindowPolicy(), now_s=106.0)["q", 0]
    >>> load.busy_s
    {0: 2.0, 1: 1.0}
    >>> load.placement
    {0: 'a', 1: 'b'}
    >>> load.executor_busy_s
    {'a': 2.0, 'c': 0.0}
    """
    by_partition: dict[tuple[str, int], dict[int, list[TaskSample]]] = {}
    for task in _last_attempts(_in_window(samples, policy, now_s)):
        operator = by_partition.setdefault((task.query, task.operator), defaultdict(list))
        operator[task.partition].append(task)
    return {key: _operator_load(by_partition[key], executors) for key in sorted(by_partition)}


def prune(samples: Iterable[_Sample], policy: WindowPolicy, now_s: float) -> list[_Sample]:
    """Drop the samples that are in neither this window nor a later one; the order stays.

    >>> old, new = (
    ...     TaskSample("q", 0, 0, batch, "a", 1.0, 1, 1, finished_s=float(batch))
    ...     for batch in (1, 2)
    ... )
    >>> prune([old, new], WindowPolicy(batches=1), now_s=3.0) == [new]
    True
    """
    return _in_window(samples, policy, now_s)


def _in_window(samples: Iterable[_Sample], policy: WindowPolicy, now_s: float) -> list[_Sample]:
    recent = [sample for sample in samples if sample.finished_s >= now_s - policy.window_s]
    finished_s: dict[str, dict[int, float]] = defaultdict(dict)
    for sample in recent:
        batches = finished_s[sample.query]
        batches[sample.batch] = max(sample.finished_s, batches.get(sample.batch, sample.finished_s))
    # Ordered by time, not by number: a query that starts again counts its batches from 0.
    window = {
        query: set(sorted(batches, key=lambda n: (batches[n], n))[-policy.batches :])
        for query, batches in finished_s.items()
    }
    return [sample for sample in recent if sample.batch in window[sample.query]]


def _last_attempts(samples: Iterable[TaskSample]) -> list[TaskSample]:
    """Keep one sample per partition and batch, independent of their order."""
    last: dict[tuple[str, int, int, int], TaskSample] = {}
    for task in samples:
        key = (task.query, task.operator, task.partition, task.batch)
        if key not in last or _recency(task) > _recency(last[key]):
            last[key] = task
    return sorted(last.values(), key=lambda task: (task.partition, _recency(task)))


def _recency(task: TaskSample) -> tuple[float, int, str, float, int, int, float]:
    return (
        task.finished_s,
        task.batch,
        task.executor,
        task.busy_s,
        task.records,
        task.state_bytes,
        task.restore_s,
    )


def _operator_load(
    by_partition: Mapping[int, list[TaskSample]], executors: Mapping[str, int]
) -> OperatorLoad:
    """Sum up one operator; `by_partition` is sorted by partition, each list oldest first."""
    busy_s = {
        partition: sum(task.work_s for task in tasks) / len(tasks)
        for partition, tasks in by_partition.items()
    }
    placement = {partition: tasks[-1].executor for partition, tasks in by_partition.items()}
    executor_busy_s = dict.fromkeys(sorted(executors), 0.0)
    for partition, executor in placement.items():
        if executor in executor_busy_s:
            executor_busy_s[executor] += busy_s[partition]
    tasks = [task for tasks in by_partition.values() for task in tasks]
    finished_s = {task.batch: task.finished_s for task in sorted(tasks, key=_recency)}
    return OperatorLoad(
        batches=tuple(sorted(finished_s, key=lambda batch: (finished_s[batch], batch))),
        busy_s=busy_s,
        records={
            partition: sum(task.records for task in tasks) / len(tasks)
            for partition, tasks in by_partition.items()
        },
        state_bytes={partition: tasks[-1].state_bytes for partition, tasks in by_partition.items()},
        placement=placement,
        executor_busy_s=executor_busy_s,
    )
