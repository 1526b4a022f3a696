"""Samples: measurements of tasks, stages, batches and keys.

A task of a stateful operator runs one state partition for one micro-batch. Operators that share
their tasks, because Spark put them in one stage, count as one operator with the lowest id.

In all samples, `query` is the query's stable name or id, `operator` is Spark's operator id within
the query, and `batch` is the number of the micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

OperatorId = tuple[str, int]
"""A query, and Spark's operator id within it: (query, operator)."""

StageKind = Literal["source", "stateful", "sink"]
"""The work of a stage's tasks.

`source`: read the input, and map it up to the first shuffle. `stateful`: run state partitions.
`sink`: run everything after a shuffle without state, such as mapping and writing.
"""

Trigger = Literal["micro-batch", "real-time", "continuous"]
"""How a query is triggered.

`micro-batch`: by an interval, or at once; its tasks wait for a free core. `real-time`: in Spark's
Real-Time Mode, where all tasks of a batch run at once, for as long as the batch lasts.
`continuous`: by continuous processing, where tasks run as long as the query.
"""

LossCause = Literal["memory", "heap", "exit", "silence"]
"""Why an executor was lost that was not asked to stop.

`memory`: it was killed because its container or pod exceeded its memory limit. `heap`: its JVM
ended after an OutOfMemoryError. `exit`: it ended in another way. `silence`: it stopped answering.
"""


LARGEST = 1e18
"""Upper limit of measured rows, bytes and seconds, also of seconds since the Unix epoch."""


def is_sound(*values: float | None) -> bool:
    """Whether all measured values are usable: from 0 to `LARGEST`, or None for unknown.

    >>> is_sound(0, 2.5, None), is_sound(-1), is_sound(float("nan")), is_sound(1e300)
    (True, False, False, False)
    """
    return all(value is None or 0 <= value < LARGEST for value in values)


@dataclass(frozen=True, slots=True)
class TaskSample:
    """One state partition in one micro-batch, as its successful task attempt reported it.

    Attributes:
        partition: state partition, 0-based.
        executor: id of the executor that ran the task.
        busy_s: run time of the task in seconds, including the restore of state.
        records: number of rows that the task read from the shuffle.
        state_bytes: size of the partition's state after the batch.
        finished_s: end of the task by the driver's clock, in seconds since the Unix epoch.
        restore_s: seconds of `busy_s` that restored state from the checkpoint.
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
        """Whether all values are usable, see the function `is_sound`."""
        times_s = self.busy_s, self.restore_s, self.finished_s
        return self.executor != "" and is_sound(self.records, self.state_bytes, *times_s)


@dataclass(frozen=True, slots=True)
class StoreSample:
    """RocksDB in one micro-batch, of an operator's partitions on one executor.

    Attributes:
        executor: id of the executor that ran the tasks.
        memory_bytes: memtables, block caches and indexes after the batch.
        pinned_bytes: the part of it that blocks take which nothing can evict.
        gets: number of reads of a key.
        get_s: seconds that they took together.
        hits: number of blocks that reads found in the block cache.
        misses: number of blocks that they had to read from a file.
        stall_s: seconds that writes waited for a flush or a compaction.
    """

    query: str
    operator: int
    batch: int
    executor: str
    memory_bytes: int
    pinned_bytes: int = 0
    gets: int = 0
    get_s: float = 0.0
    hits: int = 0
    misses: int = 0
    stall_s: float = 0.0

    def is_sound(self) -> bool:
        """Whether all values are usable, see the function `is_sound`."""
        counts = self.memory_bytes, self.pinned_bytes, self.gets, self.hits, self.misses
        return self.executor != "" and is_sound(*counts, self.get_s, self.stall_s)


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """What the processes of one executor take of memory, in bytes, as its heartbeat said.

    Attributes:
        heap_bytes: what objects take of the JVM's heap.
        off_heap_bytes: what the JVM itself takes beside it: classes, compiled code.
        python_bytes: resident memory of Python workers; 0 where processes are not measured.
        resident_bytes: resident memory of all its processes, RocksDB's included; 0 likewise, and in
            a heartbeat during which one of them ended (`ProcfsMetricsGetter`).

    >>> ended = ProcessSample("1", heap_bytes=4, off_heap_bytes=1)
    >>> ended.fill_in(ProcessSample("1", 3, 1, python_bytes=2, resident_bytes=9))
    ProcessSample(executor='1', heap_bytes=4, off_heap_bytes=1, python_bytes=2, resident_bytes=9)
    """

    executor: str
    heap_bytes: int
    off_heap_bytes: int
    python_bytes: int = 0
    resident_bytes: int = 0

    def fill_in(self, before: ProcessSample | None) -> ProcessSample:
        """With the processes as they were before, where this heartbeat could not measure them."""
        if self.resident_bytes or before is None:
            return self
        return replace(self, python_bytes=before.python_bytes, resident_bytes=before.resident_bytes)

    def is_sound(self) -> bool:
        """Whether all values are usable, see the function `is_sound`."""
        return self.executor != "" and is_sound(
            self.heap_bytes, self.off_heap_bytes, self.python_bytes, self.resident_bytes
        )


@dataclass(frozen=True, slots=True)
class HiddenSample:
    """The sum over the partitions without a `TaskSample`, of one operator on one executor.

    Hidden and task samples together cover all work of the operator in the batch.

    Attributes:
        executor: id of the executor.
        work_s: run time of the partitions' tasks in seconds, without the restore of state.
        state_bytes: size of the partitions' state after the batch.
        finished_s: end of the tasks by the driver's clock, in seconds since the Unix epoch.
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
        finished_s: end of the batch by the driver's clock, in seconds since the Unix epoch.
        duration_s: seconds of the trigger's execution, planning and commit included.
        input_rows: number of rows read from the sources.
        interval_s: seconds between this batch's start and the previous one's; None for the first.
        backlog_rows: rows that wait at the sources; None if no source reports it.
        trigger_s: the query's trigger interval in seconds; None if it has none, or it is unknown.
        offsets_s: seconds of `duration_s` in which the driver asked the sources for new rows.
        planning_s: seconds of `duration_s` in which the driver planned the batch.
        commits_s: seconds of `duration_s` in which the driver wrote the offset and commit logs.
        gaps_s: other seconds of `duration_s` in which no task ran: the start of jobs and stages,
            and the user's own code on the driver.
        bound_rows: rows to which BalancedStream bounded the batch when it was planned; None if the
            limits alone that the user has set may have held.
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
    bound_rows: float | None = None

    @property
    def driver_s(self) -> float:
        """Seconds of the batch in which no task ran.

        >>> BatchSample("q", 1, 9.0, 2.0, 50, planning_s=0.5, gaps_s=0.25).driver_s
        0.75
        """
        return self.offsets_s + self.planning_s + self.commits_s + self.gaps_s

    def is_sound(self) -> bool:
        """Whether all values are usable, see the function `is_sound`."""
        times_s = self.finished_s, self.duration_s, self.interval_s, self.trigger_s
        driver_s = self.offsets_s, self.planning_s, self.commits_s, self.gaps_s
        rows = self.input_rows, self.backlog_rows, self.bound_rows
        return is_sound(self.batch, *rows, *times_s, *driver_s)


@dataclass(frozen=True, slots=True)
class Sighting:
    """What waited at the sources of a query at a moment, between the ends of two batches.

    Attributes:
        query: the query's stable name or id.
        batch: the micro-batch that ran then, or that ran last.
        begun_s: when that batch began, in seconds since the Unix epoch.
        at_s: the moment, in seconds since the Unix epoch.
        rows: number of rows that the batch reads; None if its sources do not say.
        waiting_rows: rows that had arrived and that no planned batch reads; None if its sources do
            not say.
    """

    query: str
    batch: int
    begun_s: float
    at_s: float
    rows: float | None
    waiting_rows: float | None


@dataclass(frozen=True, slots=True)
class StageSample:
    """All tasks of one kind of stage in one micro-batch; failed attempts do not count.

    Attributes:
        kind: the work of the tasks.
        finished_s: end of the last task by the driver's clock, in seconds since the Unix epoch.
        tasks: maximum number of tasks that can run at the same time; tasks of overlapping stages
            add up.
        longest_s: busy seconds of the longest task, without the restore of state, which only a move
            causes.
        executor_busy_s: executor id to the busy seconds of all its tasks, without the restore of
            state.
    """

    query: str
    batch: int
    kind: StageKind
    finished_s: float
    tasks: int
    longest_s: float
    executor_busy_s: Mapping[str, float]

    def is_sound(self) -> bool:
        """Whether all values are usable, see the function `is_sound`."""
        times_s = self.finished_s, self.longest_s, *self.executor_busy_s.values()
        return is_sound(self.batch, self.tasks, *times_s)


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """A query whose tasks all run at once, so that it holds their slots.

    Attributes:
        query: the query's stable name or id.
        trigger: of the query; never `micro-batch`.
        slots: number of slots that it needs at once; None as long as none of its batches was seen
            to begin.
        held: executor id to the number of its slots that the query holds now.
    """

    query: str
    trigger: Trigger
    slots: int | None
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeySample:
    """One hot key in one micro-batch.

    Attributes:
        key: the key as text; see `keys.write_key`.
        partition: the key's state partition, 0-based.
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
        at_s: end of the batch's last task, in seconds since the Unix epoch.
        shuffle: the function's name and the cost key, with a number if several queries share them.
        records: number of rows with learned costs.
        by_estimates: whether estimated costs routed the batch; otherwise round robin did.
        estimated_s: estimated load of each partition in seconds; 0 before there are estimates.
        real_s: seconds that the function took for the rows of each partition.
        error: error of the estimates in this batch, as a fraction of all cost; None if the batch
            did not judge them.
        equal_error: the same under the assumption that all rows cost the same.
        trusted: whether estimated costs route the next batch.
        reason: why the estimates are trusted or not.
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
        """The highest real load of a partition, divided by the mean; 1 is perfect balance."""
        total_s = sum(self.real_s)
        return max(self.real_s) * len(self.real_s) / total_s if total_s else 1.0
