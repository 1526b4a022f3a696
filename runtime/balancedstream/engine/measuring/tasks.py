"""What the listener's rows say of the tasks of a batch, and of state that is loaded ahead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from balancedstream.core.samples import TaskSample
from balancedstream.engine.events import Preparation, StatefulOperator


class TaskColumns(NamedTuple):
    """The tasks of a batch that ran state partitions, as the listener reports them.

    One list a column: the garbage collector would look at one list a task again and again. A task
    that several operators share is in each column once for each of them.
    """

    operator: Sequence[int]
    stage: Sequence[int]
    task: Sequence[int]
    partition: Sequence[int]
    executor: Sequence[str]
    busy_ms: Sequence[int]
    records: Sequence[int]
    state_bytes: Sequence[int]
    restore_ms: Sequence[int]
    finished_ms: Sequence[int]


def read_preparation(row: Sequence[Any]) -> Preparation:
    """How far an executor is with the state of one partition."""
    operator, partition, executor, state, load_ms, hand_over_ms, first, failure = row
    load_s, hand_over_s = (None if ms < 0 else ms / 1000 for ms in (load_ms, hand_over_ms))
    return Preparation(operator, partition, executor, state, load_s, hand_over_s, failure, first)


def is_in_rocksdb(metrics: Sequence[Sequence[str]]) -> bool:
    """Whether the metrics of every operator are those of Spark's `RocksDBStateStoreProvider`."""
    return all(any(name.startswith("rocksdb") for name in names) for names in metrics)


def group_operators(
    known: Sequence[dict[str, Any]],
    ran: TaskColumns,
    before: tuple[StatefulOperator, ...],
) -> tuple[StatefulOperator, ...]:
    """Operators grouped by the tasks that they share; those without tasks stay as they were."""
    tasks: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for operator, place in zip(ran.operator, zip(ran.stage, ran.task, strict=True), strict=True):
        tasks[operator].add(place)
    groups: dict[int, tuple[int, ...]] = {o.id: o.ids for o in before}
    left = sorted(tasks)
    while left:
        first, *others = left
        together = [first, *(i for i in others if not tasks[first].isdisjoint(tasks[i]))]
        groups[first] = tuple(together)
        left = [i for i in left if i not in together]
    shared = {i for ids in groups.values() for i in ids[1:]}
    by_id = {o["id"]: o for o in known}
    return tuple(
        StatefulOperator(groups.get(i, (i,)), by_id[i]["name"], by_id[i]["partitions"])
        for i in sorted(by_id)
        if i not in shared
    )


def sum_tasks(
    query: str,
    batch: int,
    ran: TaskColumns,
    operators: Sequence[StatefulOperator],
    ran_on: Mapping[int, Mapping[int, str]],
) -> tuple[TaskSample, ...]:
    """One sample per operator and partition: a batch may run a stage more than once.

    Spark measures how long a store takes to open in every batch; it is a restore from the
    checkpoint only if the partition ran on another executor before, as `ran_on` says by operator
    and partition.
    """
    leads = {i: o.id for o in operators for i in o.ids}
    last: dict[int, dict[int, TaskSample]] = defaultdict(dict)
    for operator, _, _, partition, executor, busy_ms, records, size, restore_ms, finished_ms in zip(
        *ran, strict=True
    ):
        lead = leads[operator]
        own = operator == lead
        moved = lead in ran_on and ran_on[lead].get(partition, executor) != executor
        sample = TaskSample(
            query,
            lead,
            partition,
            batch,
            executor,
            # An operator that shares the task adds its state, but no time.
            busy_ms / 1000 if own else 0.0,
            records if own else 0,
            size,
            finished_ms / 1000,
            restore_ms / 1000 if moved else 0.0,
            moved,
        )
        before = last[lead].get(partition)
        last[lead][partition] = _add_up(before, sample, own=own) if before else sample
    return tuple(last[lead][partition] for lead in sorted(last) for partition in sorted(last[lead]))


def find_executors(tasks: Iterable[TaskSample]) -> dict[int, dict[int, str]]:
    """By operator and partition, where it ran; the tasks are in the order of operators."""
    return {
        operator: {task.partition: task.executor for task in of_operator}
        for operator, of_operator in groupby(tasks, attrgetter("operator"))
    }


def count_moved(
    before: Mapping[int, Mapping[int, str]], now: Mapping[int, Mapping[int, str]]
) -> int:
    """How many partitions did not run on the same executor before, or not at all.

    >>> count_moved({0: {0: "a", 1: "a"}}, {0: {0: "a", 1: "b"}, 3: {0: "a"}})
    2
    """
    nowhere: dict[int, str] = {}
    return sum(
        executor != before.get(operator, nowhere).get(partition)
        for operator, executors in now.items()
        for partition, executor in executors.items()
    )


def _add_up(before: TaskSample, task: TaskSample, *, own: bool) -> TaskSample:
    """Two tasks of a partition, or two operators of a task: the later row says where it is now."""
    return replace(
        task,
        busy_s=before.busy_s + task.busy_s,
        records=before.records + task.records,
        state_bytes=task.state_bytes + (0 if own else before.state_bytes),
        restore_s=before.restore_s + task.restore_s,
        moved=before.moved or task.moved,
    )
