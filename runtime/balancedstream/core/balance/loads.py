"""AutoFlow's time-window load measurement, per state partition and per executor.

The paper states that load is measured over time windows without the user's help. The method is our
own design: the load of a partition is its mean busy time over the last few recent micro-batches.
Two kinds of batches do not count:

- The first batch of a partition on another executor, unless there is no other batch: its task may
  be the first of a cold JVM, which takes many times as long.
- Batches before the rows shifted to other partitions, because their loads are outdated.

In an application with very many partitions, only some partitions have samples of their own. The
work of the others, the hidden partitions, is known as one sum for each executor. It counts as a
load that cannot move.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, TypeVar

from balancedstream.core.policy import Policy
from balancedstream.core.samples import HiddenSample, OperatorId, StageSample, TaskSample

SHIFT = 0.1
"""The rows have shifted when more than this fraction of them goes to other partitions than in the
batch before, on top of what chance explains."""


@dataclass(frozen=True, slots=True)
class OperatorLoad:
    """The load of one stateful operator in the measuring window.

    Attributes:
        batches: numbers of the measured micro-batches, oldest first; never empty.
        busy_s: partition to its mean busy seconds per batch, without the restore of state.
        records: partition to its mean rows per batch.
        state_bytes: partition to the size of its state after the last batch that reported it.
        placement: partition to the executor that ran it last, live or lost.
        executor_busy_s: each live executor to the sum of `busy_s` over the partitions that it ran
            last, plus its hidden ones; 0.0 if it ran none. Partitions of lost executors are in no
            sum.
        hidden_busy_s: each live executor to the mean busy seconds per batch of its hidden
            partitions; empty if there are none. The live executors share the hidden work of lost
            executors.
        hidden_state_bytes: live executor to the state size of its hidden partitions.
        scatter: standard error of an executor's load per core, divided by the mean of all
            executors, from how far its partitions are from their means in each batch. 0.0 if only
            one batch was measured.
    """

    batches: tuple[int, ...]
    busy_s: dict[int, float]
    records: dict[int, float]
    state_bytes: dict[int, int]
    placement: dict[int, str]
    executor_busy_s: dict[str, float]
    hidden_busy_s: dict[str, float] = field(default_factory=dict)
    hidden_state_bytes: dict[str, int] = field(default_factory=dict)
    scatter: float = 0.0


_Sample = TypeVar("_Sample", bound=TaskSample | HiddenSample | StageSample)


def measure(
    samples: Iterable[TaskSample],
    executors: Mapping[str, int],
    policy: Policy,
    now_s: float,
    hidden: Iterable[HiddenSample] = (),
    *,
    current: Set[tuple[str, int]] = frozenset(),
) -> dict[OperatorId, OperatorLoad]:
    """Measure the load of every partition over the window.

    The mean of a partition is over the batches that reported it: Spark runs every partition in
    every batch, so a missing sample was lost. Batches before a shift of the rows do not count. A
    batch that ran again after a restart has several samples of a partition; the sample that
    finished last counts. The time to restore state does not count: a move caused it, and balancing
    would chase its own moves.

    If there are hidden partitions, a missing sample was not lost: the sums of the hidden partitions
    contain it. A partition then has a load of its own if the newest batch has a sample of it. Its
    mean is taken out of the sums of batches without such a sample. So all work counts exactly once,
    also while partitions become hidden.

    Args:
        samples: tasks in any order; some may be late, repeated or outdated.
        executors: live executors, id to cores.
        policy: `window.batches` is the number of batches that count, `scaling.window_s` their age.
        now_s: current time on the clock of the samples' `finished_s`.
        hidden: sums over the hidden partitions, in any order.
        current: batches that count at any age, as (query, batch).

    Returns:
        (query, operator) to its load; an operator without a sample in the window is left out.

    >>> tasks = [
    ...     TaskSample("q", 0, 0, 7, "a", busy_s=3.0, records=30, state_bytes=9, finished_s=100.0),
    ...     TaskSample("q", 0, 0, 8, "a", busy_s=1.0, records=10, state_bytes=8, finished_s=105.0),
    ...     TaskSample("q", 0, 1, 8, "b", busy_s=1.5, records=5, state_bytes=2, finished_s=105.0,
    ...                restore_s=0.5),
    ... ]
    >>> load = measure(tasks, {"a": 1, "c": 1}, Policy(), now_s=106.0)["q", 0]
    >>> load.busy_s
    {0: 2.0, 1: 1.0}
    >>> load.placement
    {0: 'a', 1: 'b'}
    >>> load.executor_busy_s
    {'a': 2.0, 'c': 0.0}
    >>> rest = HiddenSample("q", 0, 8, "a", work_s=6.0, state_bytes=5, finished_s=105.0)
    >>> measure(tasks, {"a": 1, "c": 1}, Policy(), now_s=106.0, hidden=[rest])["q", 0]
    ... # doctest: +NORMALIZE_WHITESPACE
    OperatorLoad(batches=(7, 8), busy_s={0: 2.0, 1: 1.0}, records={0: 20.0, 1: 5.0},
        state_bytes={0: 8, 1: 2}, placement={0: 'a', 1: 'b'},
        executor_busy_s={'a': 5.0, 'c': 0.0}, hidden_busy_s={'a': 3.0, 'c': 0.0},
        hidden_state_bytes={'a': 5}, scatter=0.0)
    """
    tasks, rests = list(samples), list(hidden)
    window = _find_window([*tasks, *rests], policy, now_s, current)
    by_partition = _group_by_partition(_in_window(tasks, window))
    by_executor: dict[OperatorId, dict[OperatorId, HiddenSample]] = defaultdict(dict)
    for rest in sorted(_in_window(rests, window), key=lambda rest: (rest.finished_s, rest.work_s)):
        by_executor[rest.query, rest.operator][rest.executor, rest.batch] = rest
    return {
        key: _operator_load(
            by_partition.get(key, {}), list(by_executor.get(key, {}).values()), executors
        )
        for key in sorted(by_partition.keys() | by_executor.keys())
    }


def share_out(work_s: float, shares: Mapping[str, float]) -> dict[str, float]:
    """Share out work in proportion; equally if no share is above 0.

    >>> share_out(6.0, {"a": 2.0, "b": 1.0, "c": -0.5})
    {'a': 4.0, 'b': 2.0, 'c': 0.0}
    """
    positive = {executor: max(0.0, share) for executor, share in shares.items()}
    total = sum(positive.values())
    if not total:
        return {executor: work_s / len(shares) for executor in shares}
    return {executor: work_s * share / total for executor, share in positive.items()}


def prune(
    samples: Iterable[_Sample],
    policy: Policy,
    now_s: float,
    current: Set[tuple[str, int]] = frozenset(),
) -> list[_Sample]:
    """Keep the samples that this window or a later one can need; arguments are as for `measure`.

    >>> from balancedstream.core.policy import WindowPolicy
    >>> old, new = (
    ...     TaskSample("q", 0, 0, batch, "a", 1.0, 1, 1, finished_s=float(batch))
    ...     for batch in (1, 2)
    ... )
    >>> prune([old, new], Policy(window=WindowPolicy(batches=1)), now_s=3.0) == [new]
    True
    """
    tasks = list(samples)
    return _in_window(tasks, _find_window(tasks, policy, now_s, current))


_batch_of: Callable[[Any], tuple[str, int]] = attrgetter("query", "batch")
_operator_of: Callable[[Any], OperatorId] = attrgetter("query", "operator")
_finished_s: Callable[[Any], float] = attrgetter("finished_s")


def _find_window(
    samples: Iterable[TaskSample | HiddenSample | StageSample],
    policy: Policy,
    now_s: float,
    current: Set[tuple[str, int]],
) -> set[tuple[str, int]]:
    """The batches that count, as (query, batch).

    A batch is as old as its last task, so a batch that takes longer than the window still counts
    with all of its tasks.
    """
    finished_s: dict[OperatorId, float] = {}
    # Grouping is fast, because the samples of a batch mostly follow one another.
    for place, neighbours in groupby(samples, _batch_of):
        last_s = max(map(_finished_s, neighbours))
        finished_s[place] = max(last_s, finished_s.get(place, last_s))
    since_s = now_s - policy.scaling.window_s
    recent: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for (query, batch), last_s in finished_s.items():
        if last_s >= since_s or (query, batch) in current:
            recent[query].append((last_s, batch))
    # The order is by time, because a query with a new checkpoint counts its batches from 0 again.
    return {
        (query, batch)
        for query, batches in recent.items()
        for _, batch in sorted(batches)[-policy.window.batches :]
    }


def _in_window(samples: Iterable[_Sample], window: Set[tuple[str, int]]) -> list[_Sample]:
    kept: list[_Sample] = []
    for place, neighbours in groupby(samples, _batch_of):
        if place in window:
            kept.extend(neighbours)
    return kept


_recency: Callable[[TaskSample], Any] = attrgetter(
    "finished_s", "batch", "executor", "busy_s", "records", "state_bytes", "restore_s", "moved"
)
"""Orders the samples of a partition, whatever the order in which they arrived."""


def _group_by_partition(
    samples: Iterable[TaskSample],
) -> dict[OperatorId, dict[int, list[TaskSample]]]:
    """One sample per partition and batch, oldest first; the order of `samples` does not matter."""
    grouped: dict[OperatorId, dict[int, list[TaskSample]]] = defaultdict(dict)
    for operator, neighbours in groupby(samples, _operator_of):
        found = grouped[operator]
        for sample in neighbours:
            found.setdefault(sample.partition, []).append(sample)
    return {
        operator: {partition: _last_attempts(found[partition]) for partition in sorted(found)}
        for operator, found in grouped.items()
    }


def _last_attempts(samples: list[TaskSample]) -> list[TaskSample]:
    """The samples of a partition, oldest first; the last run counts if a batch ran twice."""
    for before, after in pairwise(samples):
        if before.batch >= after.batch or before.finished_s >= after.finished_s:
            samples.sort(key=_recency)
            return sorted({sample.batch: sample for sample in samples}.values(), key=_recency)
    return samples


def _operator_load(
    by_partition: Mapping[int, list[TaskSample]],
    hidden: Sequence[HiddenSample],
    executors: Mapping[str, int],
) -> OperatorLoad:
    """The load of one operator; `by_partition` is sorted by partition, each list oldest first."""
    batches = _order_batches([*hidden, *(t for tasks in by_partition.values() for t in tasks)])
    if not hidden and (shifted := _find_shift(by_partition, batches)):
        batches = batches[shifted:]
        by_partition = _keep_batches(by_partition, set(batches))
    shown = by_partition
    if hidden:
        shown = {p: tasks for p, tasks in by_partition.items() if tasks[-1].batch == batches[-1]}
    busy_s = {partition: _mean_work_s(tasks) for partition, tasks in shown.items()}
    placement = {partition: tasks[-1].executor for partition, tasks in shown.items()}
    hidden_busy_s: dict[str, float] = {}
    if hidden and executors:
        done_s = _add_up_hidden(by_partition, busy_s, hidden)
        mean_s = max(0.0, sum(done_s.values())) / len(batches)
        hidden_busy_s = share_out(mean_s, {e: done_s.get(e, 0.0) for e in sorted(executors)})
    executor_busy_s = {e: hidden_busy_s.get(e, 0.0) for e in sorted(executors)}
    for partition, executor in placement.items():
        if executor in executor_busy_s:
            executor_busy_s[executor] += busy_s[partition]
    return OperatorLoad(
        batches=batches,
        busy_s=busy_s,
        records={
            partition: sum([task.records for task in tasks]) / len(tasks)
            for partition, tasks in shown.items()
        },
        state_bytes={partition: tasks[-1].state_bytes for partition, tasks in shown.items()},
        placement=placement,
        executor_busy_s=executor_busy_s,
        hidden_busy_s=hidden_busy_s,
        hidden_state_bytes={
            rest.executor: rest.state_bytes
            for rest in hidden
            if rest.batch == batches[-1] and rest.executor in executors
        },
        scatter=_measure_scatter(shown, batches, busy_s, executors),
    )


def _find_shift(by_partition: Mapping[int, Sequence[TaskSample]], batches: Sequence[int]) -> int:
    """The index in `batches` of the first batch after a shift of the rows; 0 without a shift.

    A shift is a change from one batch to the next that exceeds what chance explains by more than
    `SHIFT`, and is more than twice any other change. A stream whose rows go to other partitions in
    each batch has no shift, because its load is the mean of all batches.
    """
    if len(batches) < 3:
        # Two batches have one change, and no other to compare it with.
        return 0
    rows: dict[int, dict[int, int]] = {batch: {} for batch in batches}
    for partition, tasks in by_partition.items():
        for task in tasks:
            rows[task.batch][partition] = task.records
    changes = [_find_change(rows[before], rows[after]) for before, after in pairwise(batches)]
    (usual, _), (most, by_chance) = sorted(changes)[-2:]
    if most <= by_chance + SHIFT or most <= 2 * usual:
        return 0
    return changes.index((most, by_chance)) + 1


def _find_change(before: Mapping[int, int], after: Mapping[int, int]) -> tuple[float, float]:
    """The fraction of rows that goes to other partitions, and how much of it chance explains.

    The first is the total variation distance of the partitions' shares. The second is the mean
    distance of two samples of the same even distribution; an uneven distribution has less.
    """
    total, total_after = sum(before.values()), sum(after.values())
    if not total or not total_after:
        return 0.0, 0.0
    partitions = before.keys() | after.keys()
    apart = sum([abs(before.get(p, 0) / total - after.get(p, 0) / total_after) for p in partitions])
    chance = math.sqrt(len(partitions) * (1 / total + 1 / total_after) / (2 * math.pi))
    return apart / 2, chance


def _keep_batches(
    by_partition: Mapping[int, list[TaskSample]], batches: Set[int]
) -> dict[int, list[TaskSample]]:
    """The samples of these batches; a partition without one keeps all of its samples."""
    kept = {p: [t for t in tasks if t.batch in batches] for p, tasks in by_partition.items()}
    return {partition: tasks or by_partition[partition] for partition, tasks in kept.items()}


def _mean_work_s(tasks: Sequence[TaskSample]) -> float:
    """Mean busy seconds of a partition in a batch.

    The first batch after a move counts only if there is no other batch.
    """
    work_s = [task.work_s for task in tasks if not task.moved] or [t.work_s for t in tasks]
    return sum(work_s) / len(work_s)


def _measure_scatter(
    by_partition: Mapping[int, Sequence[TaskSample]],
    batches: Sequence[int],
    busy_s: Mapping[int, float],
    executors: Mapping[str, int],
) -> float:
    """`OperatorLoad.scatter`.

    Each batch is scaled to what its partitions usually take together, because a batch that takes
    longer on all executors does not change where the load is.
    """
    overall_s = sum(busy_s.values()) / max(1, sum(executors.values()))
    freedom = (len(batches) - 1) * (len(executors) - 1)
    if not overall_s or freedom < 1:
        return 0.0
    place_of = {batch: place for place, batch in enumerate(batches)}
    done_s = {executor: [0.0] * len(batches) for executor in executors}
    usual_s = {executor: [0.0] * len(batches) for executor in executors}
    for partition, tasks in by_partition.items():
        executor, mean_s = tasks[-1].executor, busy_s[partition]
        if executor in executors:
            done, usual = done_s[executor], usual_s[executor]
            for task in tasks:
                if not task.moved and task.batch in place_of:
                    place = place_of[task.batch]
                    done[place] += task.work_s
                    usual[place] += mean_s
    squares = 0.0
    for place in range(len(batches)):
        done_in_all_s = sum(done[place] for done in done_s.values())
        scale = sum(usual[place] for usual in usual_s.values()) / max(done_in_all_s, 1e-9)
        squares += sum(
            ((done_s[executor][place] * scale - usual_s[executor][place]) / cores) ** 2
            for executor, cores in executors.items()
        )
    return math.sqrt(squares / freedom / len(batches)) / overall_s


def _order_batches(samples: Sequence[TaskSample | HiddenSample]) -> tuple[int, ...]:
    """The batches of some samples, in the order in which they ended."""
    finished_s: dict[int, float] = {}
    for sample in samples:
        if sample.finished_s > finished_s.get(sample.batch, -math.inf):
            finished_s[sample.batch] = sample.finished_s
    return tuple(sorted(finished_s, key=lambda batch: (finished_s[batch], batch)))


def _add_up_hidden(
    by_partition: Mapping[int, Sequence[TaskSample]],
    busy_s: Mapping[int, float],
    hidden: Sequence[HiddenSample],
) -> dict[str, float]:
    """Busy seconds of the hidden partitions on each executor, summed over all batches.

    The partitions of `busy_s` are not hidden. If a batch has no sample of one of them, the sums of
    that batch contain its work: its mean is taken out.
    """
    done_s: dict[str, float] = defaultdict(float)
    for rest in hidden:
        done_s[rest.executor] += rest.work_s
    summed = {rest.batch for rest in hidden}
    for partition, tasks in by_partition.items():
        if partition in busy_s:
            missing = len(summed.difference(task.batch for task in tasks))
            done_s[tasks[-1].executor] -= missing * busy_s[partition]
        else:
            for task in tasks:
                done_s[task.executor] += task.work_s
    return done_s
