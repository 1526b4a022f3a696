"""Samples: what is measured of tasks, stages, batches and keys.

A task of a stateful operator runs one state partition for one micro-batch. Operators that share
their tasks (because Spark put them in one stage) count as one, with the lowest operator id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

OperatorId = tuple[str, int]
"""A query, and Spark's operator id within it: (query, operator)."""

StageKind = Literal["source", "stateful", "sink"]
"""What the tasks of a stage do.

`source`: read the input, and map it up to the first shuffle. `stateful`: run state partitions.
`sink`: what follows a shuffle without state, such as mapping and writing.
"""

LossCause = Literal["memory", "heap", "exit", "silence"]
"""Why an executor was lost that nobody wanted to go.

`memory`: it was killed because its container, or pod, used more than it may. `heap`: its JVM ended
after an OutOfMemoryError. `exit`: it ended in another way. `silence`: it did not answer any more.
"""


LARGEST = 1e18
"""What is measured is less: rows, bytes and seconds, also those since the Unix epoch."""


def is_sound(*values: float | None) -> bool:
    """Whether measured values can be reckoned with: numbers from 0 that are not absurd, or unknown.

    >>> is_sound(0, 2.5, None), is_sound(-1), is_sound(float("nan")), is_sound(1e300)
    (True, False, False, False)
    """
    return all(value is None or 0 <= value < LARGEST for value in values)


@dataclass(frozen=True, slots=True)
class TaskSample:
    """One state partition in one micro-batch, as its successful task attempt reported it.

    Attributes:
        query: the query's stable name or id.
        operator: Spark's operator id within the query.
        partition: state partition, 0-based.
        batch: micro-batch number.
        executor: id of the executor that ran the task.
        busy_s: run time of the task in seconds, including the restore of state.
        records: rows the task read from the shuffle.
        state_bytes: size of the partition's state after the batch.
        finished_s: driver's clock, seconds since the Unix epoch.
        restore_s: the part of `busy_s` that the restore of state from the checkpoint took.
        moved: whether the partition ran on another executor before. Such a task may be the first
            of a cold JVM, which takes many times as long.
    """

    query: str
    operator: int
    partition: int
    batch: int
    executor: str
    busy_s: float
    records: int
    state_bytes: int
    finished_s: float
    restore_s: float = 0.0
    moved: bool = False

    @property
    def work_s(self) -> float:
        """`busy_s` without the restore of state, which only a move causes.

        >>> TaskSample("q", 0, 0, 1, "a", 2.0, 9, 0, 0.0, restore_s=0.5).work_s
        1.5
        """
        work_s = self.busy_s - self.restore_s
        return work_s if work_s > 0.0 else 0.0

    def is_sound(self) -> bool:
        """Whether every value can be reckoned with."""
        times_s = self.busy_s, self.restore_s, self.finished_s
        return self.executor != "" and is_sound(self.records, self.state_bytes, *times_s)


@dataclass(frozen=True, slots=True)
class HiddenSample:
    """The partitions of one operator on one executor that a micro-batch has no `TaskSample` of.

    Together with the task samples it covers all work of the operator in the batch.

    Attributes:
        query: the query's stable name or id.
        operator: Spark's operator id within the query.
        batch: micro-batch number.
        executor: id of the executor.
        work_s: run time of all their tasks in seconds, without the restore of state.
        state_bytes: size of their state after the batch.
        finished_s: driver's clock, seconds since the Unix epoch.
    """

    query: str
    operator: int
    batch: int
    executor: str
    work_s: float
    state_bytes: int
    finished_s: float


@dataclass(frozen=True, slots=True)
class BatchSample:
    """One finished micro-batch of one query.

    Attributes:
        query: the query's stable name or id.
        batch: micro-batch number.
        finished_s: driver's clock, seconds since the Unix epoch.
        duration_s: trigger execution, planning and commit included.
        input_rows: rows read from the sources.
        interval_s: seconds between this batch's start and the previous one's; None for the first.
        backlog_rows: rows that wait at the sources; None if no source reports it.
        trigger_s: the query's trigger interval in seconds; None if it has none, or it is unknown.
        offsets_s: seconds of `duration_s` in which the driver asked the sources what is new.
        planning_s: the same for planning the batch.
        commits_s: the same for writing the offset and commit logs.
        gaps_s: the same for all else in which no task ran: the start of jobs and stages, and the
            user's own code on the driver.
    """

    query: str
    batch: int
    finished_s: float
    duration_s: float
    input_rows: int
    interval_s: float | None = None
    backlog_rows: float | None = None
    trigger_s: float | None = None
    offsets_s: float = 0.0
    planning_s: float = 0.0
    commits_s: float = 0.0
    gaps_s: float = 0.0

    @property
    def driver_s(self) -> float:
        """Seconds of the batch in which no task ran.

        >>> BatchSample("q", 1, 9.0, 2.0, 50, planning_s=0.5, gaps_s=0.25).driver_s
        0.75
        """
        return self.offsets_s + self.planning_s + self.commits_s + self.gaps_s

    def is_sound(self) -> bool:
        """Whether every value can be reckoned with."""
        times_s = self.finished_s, self.duration_s, self.interval_s, self.trigger_s
        driver_s = self.offsets_s, self.planning_s, self.commits_s, self.gaps_s
        return is_sound(self.batch, self.input_rows, self.backlog_rows, *times_s, *driver_s)


@dataclass(frozen=True, slots=True)
class StageSample:
    """All tasks of one kind of stage in one micro-batch; failed attempts do not count.

    Attributes:
        query: the query's stable name or id.
        batch: micro-batch number.
        kind: what the tasks do.
        finished_s: end of the last of them, driver's clock, seconds since the Unix epoch.
        tasks: the most tasks that can run at the same time: those of stages that overlap add up.
        longest_s: busy seconds of the longest task.
        executor_busy_s: executor id to the busy seconds of all its tasks. Like `longest_s`, it
            leaves out the restore of state, which only a move causes.
    """

    query: str
    batch: int
    kind: StageKind
    finished_s: float
    tasks: int
    longest_s: float
    executor_busy_s: Mapping[str, float]

    def is_sound(self) -> bool:
        """Whether every value can be reckoned with."""
        times_s = self.finished_s, self.longest_s, *self.executor_busy_s.values()
        return is_sound(self.batch, self.tasks, *times_s)


@dataclass(frozen=True, slots=True)
class KeySample:
    """One hot key in one micro-batch.

    Attributes:
        query: the query's stable name or id.
        operator: Spark's operator id within the query.
        key: the key as text; see `keys.write_key`.
        partition: its state partition, 0-based.
        batch: micro-batch number.
        busy_s: lower bound on the seconds that the partition's task spent on the key.
    """

    query: str
    operator: int
    key: str
    partition: int
    batch: int
    busy_s: float


@dataclass(frozen=True, slots=True)
class ShuffleRecord:
    """A micro-batch that went through a cost-aware shuffle.

    Attributes:
        at_s: end of its last task, seconds since the Unix epoch.
        shuffle: the function's name and the cost key, with a number if several queries share them.
        batch: micro-batch number.
        records: number of rows whose costs were learned.
        by_estimates: whether it was routed by estimated costs; otherwise round robin.
        estimated_s: load of each partition by the estimates; 0 before there are any.
        real_s: time that the function took for the rows of each partition.
        error: of the estimates in this batch, as a fraction of all cost; None if not judged.
        equal_error: the same under the assumption that all rows cost the same.
        trusted: whether the next batch is routed by estimated costs.
        reason: why.
    """

    at_s: float
    shuffle: str
    batch: int
    records: int
    by_estimates: bool
    estimated_s: tuple[float, ...]
    real_s: tuple[float, ...]
    error: float | None
    equal_error: float | None
    trusted: bool
    reason: str

    def imbalance(self) -> float:
        """The real load of the most expensive partition over the mean; 1 is perfect balance."""
        total_s = sum(self.real_s)
        return max(self.real_s) * len(self.real_s) / total_s if total_s else 1.0
