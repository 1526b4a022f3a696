"""The events that the engine reports, in Spark's order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Literal

from balancedstream.core.samples import (
    BatchSample,
    LossCause,
    ProcessSample,
    StageSample,
    StoreSample,
    TaskSample,
    Trigger,
    is_sound,
)


@dataclass(frozen=True, slots=True)
class StatefulOperator:
    """A stateful operator of a running query; those that share their tasks count as one.

    Attributes:
        ids: Spark's operator ids, lowest first; the first one is the id of the group.
        name: Spark's name of the first one, such as `StateStoreSave`.
        partitions: number of state partitions.
    """

    ids: tuple[int, ...]
    name: str
    partitions: int

    @property
    def id(self) -> int:
        """The id that samples and placements use."""
        return self.ids[0]


@dataclass(frozen=True, slots=True)
class QueryStarted:
    """A streaming query began.

    Attributes:
        query: what it is called (`engine.labels`); no other query of the application is.
        named: whether it has a name.
        trigger: how it is triggered.
    """

    query: str
    named: bool = True
    trigger: Trigger = "micro-batch"


@dataclass(frozen=True, slots=True)
class BatchPlanned:
    """Spark has planned a batch: the rows that it reads are settled before one of its tasks ends.

    Attributes:
        query: what the query is called.
        batch: its number.
        at_s: when its first job began, in seconds since the Unix epoch.
        rows: that it reads; None if its sources do not say.
        waiting_rows: that wait behind it at its sources; None if they do not say.
        trigger_s: the query's trigger interval in seconds; None if it has none.
    """

    query: str
    batch: int
    at_s: float
    rows: float | None
    waiting_rows: float | None
    trigger_s: float | None


@dataclass(frozen=True, slots=True)
class RowsWaiting:
    """A query's sources were asked between two of its events; they are asked at most each second.

    Attributes:
        query: what the query is called.
        at_s: when they were asked, in seconds since the Unix epoch.
        rows: that have arrived, and that no planned batch reads.
    """

    query: str
    at_s: float
    rows: float


PreparationState = Literal["loading", "loaded", "due", "failed", "impossible"]
"""How far an executor is with the state of a partition that is to move there.

`loading`: it loads the state, or what changed since, or waits for the load of the partition's
partner. `loaded`: it has the state of an earlier batch. `due`: it was told to bring it up to date,
and the next task may run there. `failed`: something went wrong; the task loads the state itself.
`impossible`: the stores of this operator cannot be opened ahead.
"""


@dataclass(frozen=True, slots=True)
class Preparation:
    """The state of one partition on the executor that is to run it.

    Attributes:
        operator: the operator's `StatefulOperator.id`.
        partition: state partition, 0-based.
        executor: where the partition is to run.
        state: how far it is.
        load_s: seconds that the load took there, beside the batch; None until it is done.
        hand_over_s: the same for bringing it up to date.
        failure: what went wrong; "" if nothing did.
        first: whether the executor had loaded no state before, so that it loaded classes, too.
    """

    operator: int
    partition: int
    executor: str
    state: PreparationState
    load_s: float | None = None
    hand_over_s: float | None = None
    failure: str = ""
    first: bool = False


@dataclass(frozen=True, slots=True)
class BatchFinished:
    """A micro-batch was committed.

    Attributes:
        query: what the query is called.
        sample: the batch as a whole.
        tasks: one sample per operator and state partition.
        operators: every stateful operator seen in the query so far.
        moved_partitions: partitions that ran on another executor than in the batch before.
        in_rocksdb: whether the checkpoint keeps state in RocksDB. Spark fixes the kind of store
            when it creates a checkpoint; later settings of the session do not change it.
        stages: one sample per kind of stage that ran, stateless ones included.
        merged: names of the operators whose tasks run several state partitions each, as before a
            `coalesce`: no partition can be measured or placed, so they have no samples.
        preparations: of all partitions that `Engine.prepare` asked for last.
        has_state: whether Spark says that the query keeps state. The first batch that is seen may
            have begun before, and then has no tasks here.
        run_id: Spark's id of this run of the query, which no other run has.
        trigger: how the query is triggered.
        stores: of each operator that keeps its state in RocksDB, on each executor.
        processes: of each executor whose heartbeat has told of its memory.
    """

    query: str
    sample: BatchSample
    tasks: tuple[TaskSample, ...]
    operators: tuple[StatefulOperator, ...]
    moved_partitions: int
    in_rocksdb: bool = True
    stages: tuple[StageSample, ...] = ()
    merged: tuple[str, ...] = ()
    preparations: tuple[Preparation, ...] = ()
    has_state: bool = False
    run_id: str = ""
    trigger: Trigger = "micro-batch"
    stores: tuple[StoreSample, ...] = ()
    processes: tuple[ProcessSample, ...] = ()

    def by_operator(self) -> dict[int, dict[int, TaskSample]]:
        """The tasks by operator and partition."""
        found: dict[int, dict[int, TaskSample]] = {}
        for operator, tasks in groupby(self.tasks, attrgetter("operator")):
            found.setdefault(operator, {}).update((task.partition, task) for task in tasks)
        return found

    def is_sound(self) -> bool:
        """Whether every value that was measured can be reckoned with."""
        loads_s = (s for each in self.preparations for s in (each.load_s, each.hand_over_s))
        samples: tuple[BatchSample | TaskSample | StageSample, ...]
        samples = (self.sample, *self.tasks, *self.stages)
        return all(sample.is_sound() for sample in samples) and is_sound(*loads_s)


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """A query stopped; `error` is Spark's message, or None if it was stopped on purpose."""

    query: str
    error: str | None


@dataclass(frozen=True, slots=True)
class QueryIdle:
    """A query runs and waits for data; Spark says so every 10 s."""

    query: str


@dataclass(frozen=True, slots=True)
class ExecutorAdded:
    """An executor joined."""

    executor: str
    cores: int


@dataclass(frozen=True, slots=True)
class ExecutorRemoved:
    """An executor left or was lost.

    Attributes:
        executor: its id.
        reason: in Spark's words.
        loss: what it was lost by; None if it was to go.
    """

    executor: str
    reason: str
    loss: LossCause | None = None


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """An attempt of a task failed; Spark tries it again elsewhere."""

    query: str
    executor: str


@dataclass(frozen=True, slots=True)
class EventsDropped:
    """Events that waited too long were dropped: batches, failed tasks, and word of idle queries."""

    count: int


@dataclass(frozen=True, slots=True)
class ApplicationEnded:
    """The Spark session ended; no more events follow."""


Event = (
    QueryStarted
    | BatchPlanned
    | RowsWaiting
    | BatchFinished
    | QueryEnded
    | QueryIdle
    | ExecutorAdded
    | ExecutorRemoved
    | TaskFailed
    | EventsDropped
    | ApplicationEnded
)
