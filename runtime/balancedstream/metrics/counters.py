"""What has been counted so far, by query, operator, executor, partition and shuffle."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import get_args

from balancedstream.core.decisions import DecisionKind
from balancedstream.core.observations import BatchSample, KeySample, ShuffleRecord, TaskSample
from balancedstream.metrics.catalogue import BATCH_DURATION_BUCKETS_S

_HEAT_WEIGHT = 0.2
"""Weight of the latest batch in a partition's heat: one slow task makes no hot partition."""


@dataclass(slots=True)
class Work:
    """What the tasks of a partition, or of an operator on an executor, added up to."""

    busy_s: float = 0.0
    restore_s: float = 0.0
    records: int = 0

    def add(self, task: TaskSample) -> None:
        """Adds a task."""
        self.busy_s += task.busy_s
        self.restore_s += task.restore_s
        self.records += task.records


@dataclass(slots=True)
class Partition:
    """One state partition; `heat` is its busy seconds per second, smoothed."""

    heat: float
    executor: str = ""
    state_bytes: int = 0
    shown: bool = False
    work: Work = field(default_factory=Work)


_NO_DECISIONS: dict[str, int] = dict.fromkeys(get_args(DecisionKind), 0)


@dataclass(slots=True)
class Operator:
    """One stateful operator.

    Attributes:
        partitions: every partition that ran so far.
        executors: what ran where.
        decisions: how many there were of each kind.
        balance: the last imbalance and its bound.
        under_way: partitions that are not yet where they shall be.
        hot_keys: of the last batch.
    """

    partitions: dict[int, Partition] = field(default_factory=dict)
    executors: dict[str, Work] = field(default_factory=dict)
    decisions: Counter[str] = field(default_factory=lambda: Counter(_NO_DECISIONS))
    balance: tuple[float, float] | None = None
    under_way: int = 0
    hot_keys: tuple[KeySample, ...] = ()

    def add(self, task: TaskSample, heat: float) -> None:
        """Adds a task; `heat` is its busy seconds per second."""
        partition = self.partitions.get(task.partition)
        if partition is None:
            partition = self.partitions[task.partition] = Partition(heat)
        partition.heat += _HEAT_WEIGHT * (heat - partition.heat)
        partition.executor = task.executor
        partition.state_bytes = task.state_bytes
        partition.work.add(task)
        self.executors.setdefault(task.executor, Work()).add(task)


@dataclass(slots=True)
class Query:
    """One running query; `durations` counts batches per histogram bucket, +Inf the last."""

    last: BatchSample | None = None
    input_rows: int = 0
    duration_s: float = 0.0
    durations: list[int] = field(default_factory=lambda: [0] * (len(BATCH_DURATION_BUCKETS_S) + 1))
    task_failures: int = 0
    keys_under_way: int | None = None
    last_key_arrival: int | None = None
    operators: dict[int, Operator] = field(default_factory=dict)


@dataclass(slots=True)
class Shuffle:
    """One cost-aware shuffle.

    Attributes:
        last: its last batch.
        errors: of the estimates and of equal costs, in the last batch that judged them.
        untrusted_batches: that judged the estimates, since these were trusted.
        batches: by how they were routed.
        estimated_s: load by the estimates, by partition.
        real_s: what the function took, by partition.
    """

    last: ShuffleRecord
    errors: tuple[float, float] | None = None
    untrusted_batches: int = 0
    batches: Counter[str] = field(default_factory=Counter)
    estimated_s: dict[int, float] = field(default_factory=dict)
    real_s: dict[int, float] = field(default_factory=dict)
