"""What the listener's rows say of the tasks of a batch, and of state that is loaded ahead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from balancedstream.core.samples import TaskSample
from balancedstream.engine.events import Preparation, StatefulOperator


def read_preparation(row: Sequence[Any]) -> Preparation:
    """How far an executor is with the state of one partition."""
    operator, partition, executor, state, load_ms, hand_over_ms, first, failure = row
    load_s, hand_over_s = (None if ms < 0 else ms / 1000 for ms in (load_ms, hand_over_ms))
    return Preparation(operator, partition, executor, state, load_s, hand_over_s, failure, first)


def is_in_rocksdb(operators: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every state store reports the metrics of Spark's `RocksDBStateStoreProvider`."""
    return all(
        any(name.startswith("rocksdb") for name in operator["customMetrics"])
        for operator in operators
    )


def group_operators(
    known: Sequence[dict[str, Any]],
    rows: Sequence[Sequence[Any]],
    before: tuple[StatefulOperator, ...],
) -> tuple[StatefulOperator, ...]:
    """Operators grouped by the tasks that they share; those without tasks stay as they were."""
    tasks: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for operator, stage, index, *_ in rows:
        tasks[operator].add((stage, index))
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
    rows: Sequence[Sequence[Any]],
    operators: Sequence[StatefulOperator],
    ran_on: Mapping[tuple[int, int], str],
) -> tuple[TaskSample, ...]:
    """One sample per operator and partition: a batch may run a stage more than once.

    Spark measures how long a store takes to open in every batch; it is a restore from the
    checkpoint only if the partition ran on another executor before.
    """
    leads = {i: o.id for o in operators for i in o.ids}
    last: dict[tuple[int, int], TaskSample] = {}
    for operator, _, _, partition, executor, busy, records, size, restore, finished in rows:
        key = leads[operator], partition
        own = operator == key[0]
        moved = ran_on.get(key) not in (None, executor)
        sample = TaskSample(
            query,
            key[0],
            partition,
            batch,
            executor,
            # An operator that shares the task adds its state, but no time.
            busy / 1000 if own else 0.0,
            records if own else 0,
            size,
            finished / 1000,
            restore / 1000 if moved else 0.0,
            moved,
        )
        before = last.get(key)
        last[key] = _add_up(before, sample, own=own) if before else sample
    return tuple(last[key] for key in sorted(last))


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
