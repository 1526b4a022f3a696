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
    """Decides on the number of executors; it is asked every `every_s`, by its own clock."""

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
        ended = (b.last_row for b in reversed(spark.batches) if b.end_s <= spark.now_s)
        lag = spark.trace.count_until(spark.now_s) - next(ended, 0.0)
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
        busy_s = sum(
            sum(stage.executor_busy_s.values()) for event in batches for stage in event.stages
        )
        span_s = sum(event.sample.interval_s or 0.0 for event in batches)
        if rows and busy_s and span_s:
            self._executors = max(1, math.ceil(busy_s / span_s / TARGET))
        return self._executors

    def finish_batch(self, event: BatchFinished) -> None:
        """Keeps it for the next decision."""
        self._batches.append(event)


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
        begin_s = spark.now_s - self.LOOK_BACK_S
        rates = [
            self._trace.mean_rate(max(0.0, begin_s + n * 10.0), 10.0)
            for n in range(math.ceil((ahead_s + self.LOOK_BACK_S) / 10.0))
        ]
        return count_for(self._job, max(rates), target=0.95)

    def finish_batch(self, event: BatchFinished) -> None:
        """Is not asked for."""
