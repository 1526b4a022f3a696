"""A model of Spark's micro-batches: what a batch takes on given executors."""

from __future__ import annotations

import heapq
import json
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from balancedstream.core.samples import StageSample, TaskSample

CALIBRATION = Path(__file__).with_name("calibration.json")
"""What `benchmarks/calibrate.py` found: costs, and how far the model is from a real run."""


@dataclass(frozen=True)
class Costs:
    """The times of a batch that do not depend on its query; `Job` says what each is."""

    task_s: float
    driver_s: float
    restore_s: float
    noise: float


COSTS = Costs(**json.loads(CALIBRATION.read_text())["costs"])
"""Of the last calibration."""

STATE_BYTES = 1_000_000
"""Of each state partition."""


@dataclass(frozen=True)
class Job:
    """What one streaming query costs.

    Spark's own times are calibrated. What a row takes is chosen, and so is the start of an
    executor: of a pod whose image is on its node.

    Attributes:
        splits: of the source.
        partitions: state partitions; 0 for a query without state.
        map_row_s: seconds that reading and mapping a row take.
        state_row_s: seconds that a row takes in its state partition.
        zipf: exponent of the keys' weights; more is more skew.
        keys: distinct keys.
        task_s: seconds that a task takes besides its rows.
        driver_s: seconds of each batch in which no task runs.
        restore_s: seconds that a moved partition takes more, once.
        start_s: seconds until an executor that was asked for takes work.
        trigger_s: trigger interval; 0 for as soon as there are rows.
        max_rows: rows of a batch at most.
        noise: standard deviation of the logarithm of a task's time.
    """

    splits: int = 32
    partitions: int = 32
    map_row_s: float = 0.0005
    state_row_s: float = 0.0015
    zipf: float = 0.6
    keys: int = 500
    task_s: float = COSTS.task_s
    driver_s: float = COSTS.driver_s
    restore_s: float = COSTS.restore_s
    start_s: float = 20.0
    trigger_s: float = 10.0
    max_rows: float = 1e6
    noise: float = COSTS.noise

    @property
    def objective_s(self) -> float:
        """Latency that rows should not exceed: two and a half trigger intervals.

        A row waits for one, and its batch takes another; 10 s without a trigger interval.
        """
        return 2.5 * self.trigger_s if self.trigger_s else 10.0

    @property
    def row_s(self) -> float:
        """Busy seconds of a row, in all stages."""
        return self.map_row_s + self.state_row_s

    @property
    def fixed_s(self) -> float:
        """Busy seconds of a batch without rows."""
        return self.task_s * (self.splits + self.partitions)


@dataclass(frozen=True)
class BatchTimes:
    """What a batch took: its stages one after the other, and each of its tasks with state."""

    duration_s: float
    stages: tuple[StageSample, ...]
    tasks: tuple[TaskSample, ...]


@dataclass(frozen=True)
class Batch:
    """What a batch is run with.

    Attributes:
        number: of the batch.
        rows: that it reads.
        start_s: when it starts.
        executors: id to cores.
        placement: state partition to the executor that it prefers.
        ran_on: state partition to the executor that ran it last; missing in the first batch.
        weights: as `weigh_partitions` returns them.
        locality_wait_s: for how long a task waits for the executor that it prefers.
    """

    number: int
    rows: float
    start_s: float
    executors: Mapping[str, int]
    placement: Mapping[int, str]
    ran_on: Mapping[int, str]
    weights: Sequence[float]
    locality_wait_s: float


@lru_cache(maxsize=64)
def weigh_partitions(job: Job, hot_set: int) -> tuple[float, ...]:
    """The part of the rows that each state partition gets; `hot_set` says which keys are hot.

    >>> round(sum(weigh_partitions(Job(), 1)), 6)
    1.0
    >>> weigh_partitions(Job(partitions=0), 1)
    ()
    """
    if not job.partitions:
        return ()
    chance = random.Random(hot_set)
    weights = [0.0] * job.partitions
    for rank in range(1, job.keys + 1):
        weights[chance.randrange(job.partitions)] += rank**-job.zipf
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def run_batch(job: Job, batch: Batch, chance: random.Random) -> BatchTimes:
    """Runs a batch: the source's tasks on any core, those with state where they prefer to."""
    at_s = batch.start_s + job.driver_s
    split_s = [
        _vary(job.task_s + batch.rows / job.splits * job.map_row_s, job, chance)
        for _ in range(job.splits)
    ]
    source_s, source_busy_s = _spread(split_s, batch.executors)
    at_s += source_s
    source = StageSample("q", batch.number, "source", at_s, job.splits, max(split_s), source_busy_s)
    if not job.partitions:
        return BatchTimes(at_s - batch.start_s, (source,), ())
    stateful, tasks = _run_stateful(job, batch, at_s, chance)
    return BatchTimes(stateful.finished_s - batch.start_s, (source, stateful), tasks)


def _run_stateful(
    job: Job, batch: Batch, begin_s: float, chance: random.Random
) -> tuple[StageSample, tuple[TaskSample, ...]]:
    """Runs the stage with a task for each state partition."""
    work_s = [
        _vary(job.task_s + batch.rows * weight * job.state_row_s, job, chance)
        for weight in batch.weights
    ]
    stateful_s, ran_on = _run_placed(job, batch, work_s)
    at_s = begin_s + stateful_s
    of_executor = dict.fromkeys(batch.executors, 0.0)
    for partition, executor in ran_on.items():
        of_executor[executor] += work_s[partition]
    stateful = StageSample(
        "q", batch.number, "stateful", at_s, job.partitions, max(work_s), of_executor
    )
    tasks = []
    for partition, executor in ran_on.items():
        restore_s = _restore_s(job, batch, partition, executor)
        tasks.append(
            TaskSample(
                "q",
                0,
                partition,
                batch.number,
                executor,
                work_s[partition] + restore_s,
                int(batch.rows * batch.weights[partition]),
                STATE_BYTES,
                at_s,
                restore_s,
                moved=batch.ran_on.get(partition, executor) != executor,
            )
        )
    return stateful, tuple(tasks)


def _run_placed(job: Job, batch: Batch, work_s: Sequence[float]) -> tuple[float, dict[int, str]]:
    """Runs tasks that prefer an executor; how long it takes, and where each ran.

    A core without a task of its own takes another's after the locality wait, and restores its
    state: Spark's delay scheduling (`TaskSetManager`).
    """
    waiting: dict[str, deque[int]] = {executor: deque() for executor in batch.executors}
    for partition in range(job.partitions):
        waiting[batch.placement[partition]].append(partition)
    free = [(0.0, e) for e, cores in sorted(batch.executors.items()) for _ in range(cores)]
    ran_on: dict[int, str] = {}
    end_s, left = 0.0, job.partitions
    while left:
        at_s, executor = heapq.heappop(free)
        if waiting[executor]:
            partition = waiting[executor].popleft()
        elif at_s < batch.locality_wait_s:
            heapq.heappush(free, (batch.locality_wait_s, executor))
            continue
        else:
            owner = max(waiting, key=lambda e: len(waiting[e]))
            partition = waiting[owner].popleft()
        ran_on[partition] = executor
        left -= 1
        done_s = at_s + work_s[partition] + _restore_s(job, batch, partition, executor)
        end_s = max(end_s, done_s)
        heapq.heappush(free, (done_s, executor))
    return end_s, dict(sorted(ran_on.items()))


def _restore_s(job: Job, batch: Batch, partition: int, executor: str) -> float:
    return job.restore_s if batch.ran_on.get(partition, executor) != executor else 0.0


def _spread(
    task_s: Sequence[float], executors: Mapping[str, int]
) -> tuple[float, dict[str, float]]:
    """Runs tasks in their order on the next free core; how long it takes, and who did how much."""
    busy_s = dict.fromkeys(executors, 0.0)
    free = [(0.0, executor) for executor, cores in sorted(executors.items()) for _ in range(cores)]
    for seconds in task_s:
        at_s, executor = free[0]
        busy_s[executor] += seconds
        heapq.heapreplace(free, (at_s + seconds, executor))
    return max(at_s for at_s, _ in free), busy_s


def _vary(seconds: float, job: Job, chance: random.Random) -> float:
    return seconds * chance.lognormvariate(0.0, job.noise)
