"""What the stages of a batch took, and what of the batch was the driver's alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from balancedstream.core.samples import StageKind, StageSample, TaskSample

OFFSETS_MS = ("latestOffset", "getBatch")
PLANNING_MS = ("queryPlanning",)
COMMITS_MS = ("walCommit", "commitOffsets", "commitBatch")
"""Keys of Spark's `durationMs` (`ProgressContext`): what the driver does around the tasks."""


class StageRow(NamedTuple):
    """One stage of a batch, as the listener reports it; times in milliseconds."""

    kind: StageKind
    tasks: int
    longest_ms: int
    first_ms: int
    last_ms: int
    busy_ms: Mapping[str, int]


def sum_stages(
    query: str, batch: int, rows: Iterable[StageRow], tasks: Sequence[TaskSample]
) -> tuple[StageSample, ...]:
    """One sample per kind of stage; the tasks of state partitions say what they restored.

    >>> rows = [StageRow("source", 2, 900, 0, 1000, {"a": 900, "b": 700}),
    ...         StageRow("source", 3, 200, 500, 800, {"a": 600})]
    >>> sum_stages("q", 7, rows, [])[0]  # doctest: +NORMALIZE_WHITESPACE
    StageSample(query='q', batch=7, kind='source', finished_s=1.0, tasks=5, longest_s=0.9,
                executor_busy_s={'a': 1.5, 'b': 0.7})
    """
    by_kind: dict[StageKind, list[StageRow]] = defaultdict(list)
    for row in rows:
        by_kind[row.kind].append(row)
    restored_s: dict[str, float] = defaultdict(float)
    for task in tasks:
        restored_s[task.executor] += task.restore_s
    samples = []
    for kind, of_kind in sorted(by_kind.items()):
        busy_s: dict[str, float] = defaultdict(float)
        for row in of_kind:
            for executor, busy_ms in row.busy_ms.items():
                busy_s[executor] += busy_ms / 1000
        longest_s = max(row.longest_ms for row in of_kind) / 1000
        if kind == "stateful" and tasks:
            busy_s = {e: max(0.0, busy - restored_s[e]) for e, busy in busy_s.items()}
            longest_s = max(task.work_s for task in tasks)
        samples.append(
            StageSample(
                query=query,
                batch=batch,
                kind=kind,
                finished_s=max(row.last_ms for row in of_kind) / 1000,
                tasks=_count_parallel(of_kind),
                longest_s=longest_s,
                executor_busy_s=dict(busy_s),
            )
        )
    return tuple(samples)


def sum_driver_times(durations_ms: Mapping[str, int], rows: Iterable[StageRow]) -> dict[str, float]:
    """What of a batch was no task, as the fields of `BatchSample` in seconds.

    >>> rows = [StageRow("source", 2, 900, 0, 1000, {"a": 900})]
    >>> sum_driver_times({"triggerExecution": 1500, "queryPlanning": 300, "addBatch": 1200}, rows)
    {'offsets_s': 0.0, 'planning_s': 0.3, 'commits_s': 0.0, 'gaps_s': 0.2}
    """
    named = {
        "offsets_s": _sum_ms(durations_ms, OFFSETS_MS),
        "planning_s": _sum_ms(durations_ms, PLANNING_MS),
        "commits_s": _sum_ms(durations_ms, COMMITS_MS),
    }
    rest_ms = durations_ms.get("triggerExecution", 0) - sum(named.values()) - _cover_ms(rows)
    named["gaps_s"] = max(0, rest_ms)
    return {name: ms / 1000 for name, ms in named.items()}


def _sum_ms(durations_ms: Mapping[str, Any], names: Iterable[str]) -> int:
    return sum(durations_ms.get(name, 0) for name in names)


def _cover_ms(rows: Iterable[StageRow]) -> int:
    """Milliseconds in which some stage ran."""
    covered = end = 0
    for row in sorted(rows, key=lambda row: row.first_ms):
        covered += max(0, row.last_ms - max(end, row.first_ms))
        end = max(end, row.last_ms)
    return covered


def _count_parallel(rows: Sequence[StageRow]) -> int:
    """The most tasks that can run at the same time: stages that overlap add up."""
    changes = sorted(
        change for row in rows for change in ((row.first_ms, row.tasks), (row.last_ms, -row.tasks))
    )
    return max(accumulate(change for _, change in changes))
