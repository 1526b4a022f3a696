"""Observations: the input of every decision.

A task of a stateful operator runs one state partition for one micro-batch. Operators that share
their tasks (because Spark put them in one stage) count as one, with the lowest operator id.
"""

from __future__ import annotations

from dataclasses import dataclass


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

    @property
    def work_s(self) -> float:
        """`busy_s` without the restore of state, which only a move causes.

        >>> TaskSample("q", 0, 0, 1, "a", 2.0, 9, 0, 0.0, restore_s=0.5).work_s
        1.5
        """
        return max(0.0, self.busy_s - self.restore_s)


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
    """

    query: str
    batch: int
    finished_s: float
    duration_s: float
    input_rows: int
    interval_s: float | None = None
    backlog_rows: float | None = None


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
