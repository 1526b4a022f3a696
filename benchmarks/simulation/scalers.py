"""How many executors users get today: the alternatives, by their documented rules."""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

from balancedstream.engine.events import BatchFinished
from simulation.model import Job
from simulation.spark import VirtualSpark
from simulation.traces import Trace

TARGET = 0.7
"""How busy executors should be, where a rule asks for it: Flink's autoscaler's default."""


class Scaler(Protocol):
    """Decides on the number of executors, every `every_s` by its own clock.

    Infinite is once, at the start; 0 is whenever a batch ends.
    """

    every_s: float

    def decide(self, spark: VirtualSpark) -> int:
        """The number of executors that there should be."""

    def finish_batch(self, event: BatchFinished) -> None:
        """A batch ended."""


def count_for(job: Job, rows_per_s: float, target: float = TARGET) -> int:
    """Executors of one core that carry a rate, their tasks' fixed times included."""
    work = rows_per_s * job.row_s + job.fixed_s / max(job.trigger_s, 1.0)
    room = target - job.driver_s / job.trigger_s if job.trigger_s else target
    return max(1, math.ceil(work / max(0.05, room)))


def is_running(spark: VirtualSpark) -> bool:
    """Whether a batch runs now."""
    return bool(spark.batches) and spark.batches[-1].end_s > spark.now_s


def measure_lag(spark: VirtualSpark) -> float:
    """Rows that have arrived and are not committed."""
    ended = (b.last_row for b in reversed(spark.batches) if b.end_s <= spark.now_s)
    return spark.trace.count_until(spark.now_s) - next(ended, 0.0)


def sum_busy_s(event: BatchFinished) -> float:
    """Busy seconds of all tasks of a batch."""
    return sum(sum(stage.executor_busy_s.values()) for stage in event.stages)


class Fixed:
    """Always the same number."""

    every_s = math.inf

    def __init__(self, executors: int) -> None:
        self._executors = executors

    def decide(self, spark: VirtualSpark) -> int:
        """The number it was made with."""
        return self._executors

    def finish_batch(self, event: BatchFinished) -> None:
        """Does not matter."""


class DynamicAllocation:
    """Spark's `ExecutorAllocationManager` with its defaults, one core an executor.

    While tasks wait for a core for more than a second (`schedulerBacklogTimeout`), executors are
    added each second, 1, 2, 4 and so on, to one for each task of the stage. An executor that ran no
    task for 60 s (`executorIdleTimeout`) is removed; with a trigger of less than that, none is.
    """

    every_s = 10.0
    BACKLOG_S = 1.0
    IDLE_S = 60.0

    def __init__(self, executors: int) -> None:
        self._wanted = executors
        self._used_s = 0.0

    def decide(self, spark: VirtualSpark) -> int:
        """The number after the last batch, or 1 when nothing ran for the idle time."""
        if is_running(spark):
            self._used_s = spark.now_s
        elif spark.now_s - self._used_s > self.IDLE_S:
            self._wanted = 1
        return self._wanted

    def finish_batch(self, event: BatchFinished) -> None:
        """Adds what was added while the stages of the batch had waiting tasks."""
        self._used_s = event.sample.finished_s
        for stage in event.stages:
            slots = len(stage.executor_busy_s)
            if stage.tasks <= slots:
                continue
            # The last of the tasks starts when about one round of tasks is left.
            rounds = math.ceil(stage.tasks / slots)
            waiting_s = sum(stage.executor_busy_s.values()) / slots * (rounds - 1) / rounds
            step = 1
            while waiting_s >= self.BACKLOG_S and self._wanted < stage.tasks:
                self._wanted = min(stage.tasks, self._wanted + step)
                step, waiting_s = 2 * step, waiting_s - self.BACKLOG_S


class LagThreshold:
    """KEDA's Kafka scaler under the rules of the HorizontalPodAutoscaler.

    Every 15 s: the lag over the threshold, rounded up, if it differs from the present number by
    more than 10 %. At most twice the pods, or four more, in 15 s; down to the highest number of the
    last 300 s. The lag is what is not committed, so the rows of the running batch belong to it.
    """

    every_s = 15.0
    TOLERANCE = 0.1
    DOWN_S = 300.0

    def __init__(self, job: Job, executors: int) -> None:
        self._executors = executors
        # The autoscaler counts the number that it finds as its first recommendation.
        self._recent = deque([(0.0, executors)])
        # What a tuned user would set: what one executor reads in a trigger interval at its target.
        self._threshold = TARGET * max(job.trigger_s, 1.0) / job.row_s
        self._most = job.splits

    def decide(self, spark: VirtualSpark) -> int:
        """The number that the lag asks for, within the steps that are allowed."""
        lag = measure_lag(spark)
        ratio = lag / (self._threshold * self._executors)
        wanted = self._executors
        if abs(ratio - 1) > self.TOLERANCE:
            wanted = min(self._most, max(1, math.ceil(lag / self._threshold)))
        self._recent.append((spark.now_s, wanted))
        while self._recent[0][0] < spark.now_s - self.DOWN_S:
            self._recent.popleft()
        if wanted < self._executors:
            wanted = min(self._executors, max(count for _, count in self._recent))
        most = max(2 * self._executors, self._executors + 4)
        self._executors = min(wanted, most)
        return self._executors

    def finish_batch(self, event: BatchFinished) -> None:
        """Is not asked for."""


class Ds2:
    """DS2 without balancing: the true processing rate of the last minute decides.

    State stays where Spark placed it, so the hottest executor may be full long before.
    """

    every_s = 60.0

    def __init__(self, executors: int) -> None:
        self._executors = executors
        self._batches: list[BatchFinished] = []

    def decide(self, spark: VirtualSpark) -> int:
        """The arriving rate over the true processing rate of one executor."""
        batches, self._batches = self._batches, []
        rows = sum(event.sample.input_rows for event in batches)
        busy_s = sum(map(sum_busy_s, batches))
        span_s = sum(event.sample.interval_s or 0.0 for event in batches)
        if rows and busy_s and span_s:
            self._executors = max(1, math.ceil(busy_s / span_s / TARGET))
        return self._executors

    def finish_batch(self, event: BatchFinished) -> None:
        """Keeps it for the next decision."""
        self._batches.append(event)


class ManagedFlink:
    """AWS' autoscaling of its Managed Service for Apache Flink, as its documentation has it.

    CPU usage of 75 % or more in 15 minutes in a row doubles the parallelism; less than 10 % in
    360 minutes in a row halves it, rounded up, but never below the number at the start.
    """

    every_s = 60.0
    BUSY, BUSY_MINUTES = 0.75, 15
    IDLE, IDLE_MINUTES = 0.10, 360

    def __init__(self, executors: int) -> None:
        self._least = self._executors = executors
        self._usage: deque[float] = deque(maxlen=self.IDLE_MINUTES)
        self._batches: deque[BatchFinished] = deque(maxlen=100)

    def decide(self, spark: VirtualSpark) -> int:
        """Twice or half the number, if the last minutes were all busy or all idle."""
        self._usage.append(self._measure_usage(spark))
        minutes = list(self._usage)
        busy, idle = minutes[-self.BUSY_MINUTES :], minutes[-self.IDLE_MINUTES :]
        if len(busy) == self.BUSY_MINUTES and min(busy) >= self.BUSY:
            self._executors *= 2
            self._usage.clear()
        elif len(idle) == self.IDLE_MINUTES and max(idle) < self.IDLE:
            self._executors = max(self._least, math.ceil(self._executors / 2))
            self._usage.clear()
        return self._executors

    def finish_batch(self, event: BatchFinished) -> None:
        """Keeps it: its tasks used the CPU evenly while it ran."""
        self._batches.append(event)

    def _measure_usage(self, spark: VirtualSpark) -> float:
        """The busy part of the last minute; the batch that runs is as busy as the one before."""
        from_s, busy_s, per_s = spark.now_s - self.every_s, 0.0, 0.0
        for event in self._batches:
            sample = event.sample
            per_s = sum_busy_s(event) / sample.duration_s
            begin_s = max(from_s, sample.finished_s - sample.duration_s)
            busy_s += max(0.0, sample.finished_s - begin_s) * per_s
        if is_running(spark):
            busy_s += (spark.now_s - max(from_s, spark.batches[-1].start_s)) * per_s
        return busy_s / self.every_s / max(1, len(spark.executors()))


class DruidCosts:
    """Apache Druid's cost-based autoscaler of its supervisors (`WeightedCostFunction`).

    The cost of a count is the seconds in which it works off the lag, plus the idle seconds of all
    its tasks in a task's duration, weighted. Counts come from up to two partitions a task fewer
    (more than that where much waits) and up to four more. It adds every ten minutes, and removes
    only when tasks roll over, each hour. All defaults; a task is an executor here, and a split of
    the source a partition.
    """

    every_s = 600.0
    LAG_WEIGHT, IDLE_WEIGHT = 0.25, 0.75
    TASK_S = 3600.0
    MUCH_LAG, MORE_LAG = 50_000, 100_000
    EXTRA_PARTITIONS = 5

    def __init__(self, job: Job, executors: int, most: int) -> None:
        self._executors, self._most, self._partitions = executors, most, job.splits
        self._batches: deque[BatchFinished] = deque()
        self._rolled_s = 0.0

    def decide(self, spark: VirtualSpark) -> int:
        """The cheapest count, if it is more, or if tasks roll over."""
        now_s = spark.now_s
        recent = [e for e in self._batches if e.sample.finished_s > now_s - self.every_s]
        if not recent:
            return self._executors
        rate = sum(e.sample.input_rows for e in recent) / self.every_s / self._executors
        busy = sum(map(sum_busy_s, recent)) / self.every_s / self._executors
        self._batches.clear()
        lag = measure_lag(spark)
        if rate <= 0:
            return self._executors
        best = min(
            self._list_counts(lag), key=lambda n: self._find_cost(n, lag, rate, min(1.0, busy))
        )
        rolls = now_s - self._rolled_s >= self.TASK_S
        self._rolled_s = now_s if rolls else self._rolled_s
        if best > self._executors or rolls:
            self._executors = best
        return self._executors

    def finish_batch(self, event: BatchFinished) -> None:
        """Keeps it for the rates."""
        self._batches.append(event)

    def _list_counts(self, lag: float) -> list[int]:
        a_task, extra = self._partitions // self._executors, 0
        of_partition = lag / self._partitions
        if of_partition >= self.MUCH_LAG:
            extra = self.EXTRA_PARTITIONS + int(max(0.0, of_partition / self.MORE_LAG - 1))
            extra = int(extra * max(0.0, 1.0 - self._executors / self._most))
        sizes = range(max(1, a_task - 2 - extra), min(self._partitions, a_task + 4) + 1)
        counts = {math.ceil(self._partitions / size) for size in sizes}
        return sorted(n for n in counts if n <= self._most) or [self._executors]

    def _find_cost(self, n: int, lag: float, rate: float, busy: float) -> float:
        idle = max(0.0, 1.0 - busy * self._executors / n)
        if n != self._executors:
            idle *= math.exp(-lag / n / self.MORE_LAG)
        return self.LAG_WEIGHT * lag / (n * rate) + self.IDLE_WEIGHT * n * self.TASK_S * idle


class ElasticScaling:
    """Amadeus' Elastic-Scaling for Structured Streaming, with its defaults.

    When a batch ends: the duration of batches over the trigger interval, smoothed. Above 1, and
    below three quarters, there are to be as many executors as there are times that. Nothing is
    asked for while executors come.
    """

    every_s = 0.0
    LOW, HIGH = 0.75, 1.0
    SMOOTHING = 0.6

    def __init__(self, job: Job, executors: int) -> None:
        self._executors = executors
        self._trigger_s = job.trigger_s or job.objective_s / 2
        self._sum = self._weights = 1.0

    def decide(self, spark: VirtualSpark) -> int:
        """The number by the smoothed ratio."""
        ratio = self._sum / self._weights
        if (ratio > self.HIGH or ratio < self.LOW) and len(spark.executors()) == spark.asked:
            self._executors = max(1, math.ceil(len(spark.executors()) * ratio))
        return self._executors

    def finish_batch(self, event: BatchFinished) -> None:
        """Adds the batch to the ratio."""
        self._sum = self.SMOOTHING * self._sum + event.sample.duration_s / self._trigger_s
        self._weights = self.SMOOTHING * self._weights + 1.0


class Oracle:
    """Knows the trace: the fewest executors that keep each batch within its trigger interval.

    It asks for executors as early as they take to start, and its state is always balanced.
    """

    every_s = 10.0
    LOOK_BACK_S = 10.0

    def __init__(self, job: Job, trace: Trace) -> None:
        self._job, self._trace = job, trace

    def decide(self, spark: VirtualSpark) -> int:
        """What the highest rate until new executors would be there needs."""
        ahead_s = 1.2 * self._job.start_s + 2 * max(self._job.trigger_s, 1.0)
        return self._count_for(spark.now_s - self.LOOK_BACK_S, spark.now_s + ahead_s)

    def _count_for(self, begin_s: float, end_s: float) -> int:
        rates = [
            self._trace.mean_rate(max(0.0, begin_s + n * 10.0), 10.0)
            for n in range(math.ceil((end_s - begin_s) / 10.0))
        ]
        return count_for(self._job, max(rates), target=0.95)

    def finish_batch(self, event: BatchFinished) -> None:
        """Is not asked for."""


class Follower(Oracle):
    """Knows the rate of now, with no error, and nothing of what comes.

    Executors stay for the highest rate of a minute. A rule without foresight can hardly do better.
    """

    LOOK_BACK_S = 60.0

    def decide(self, spark: VirtualSpark) -> int:
        """What the highest rate of the last minute needs."""
        return self._count_for(spark.now_s - self.LOOK_BACK_S, spark.now_s)
