"""The least that any way can cost: a lower bound by dynamic programming over executors and time.

It knows the whole trace, and chooses for each batch how many executors run it and how many of the
rows that wait it reads. Among all ways with the fewest late rows it has the fewest executor-hours;
with a price on late rows it is the cheapest. Its assumptions make it cheaper than any way in
`simulation` on the mean of the noise, never dearer:

- Tasks take their mean time. A stage lasts as long as its longest task, or as its work spread
  evenly over the cores. State is always balanced and never restored.
- Executors take the shortest time to start that there is, come exactly when they are to help, and
  leave when a batch ends. Those at the start cost no start.
- Batches start on a grid. What one overruns counts to the last point of the grid before its end.
- Rows that have waited for `OLDEST` objectives need no work any more; they are late.

Two things keep it from being exact: the grid (with half the step it is 1 % higher), and that rows
are left for the next batch in few sizes only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simulation.model import Job, weigh_partitions
from simulation.spark import STARTS
from simulation.traces import Trace

STEPS = 25
"""Points of the grid in an objective."""

LEAST_STEP_S = 0.25
"""Between two points of the grid, at least."""

LEFT = 6
"""In so many parts a batch may leave what arrived within what the objective has to spare."""

OLDEST = (1.0, 2.0)
"""Rows wait for so many objectives at most; for the second one where rows have to be late."""

ONLY_IF_IT_MUST_S = 1e5
"""A price of a late row that is paid only if no way has fewer late rows."""

_Floats = npt.NDArray[np.floating[Any]]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bound:
    """What no way can be below.

    Attributes:
        executor_hours: from the request of each executor to its end.
        late_share: part of the rows that are later than the objective.
    """

    executor_hours: float
    late_share: float


def find_bound(
    job: Job, trace: Trace, seed: int, most: int, late_price_s: float = ONLY_IF_IT_MUST_S
) -> Bound:
    """Finds the least executor-hours.

    Args:
        job: what batches cost.
        trace: the rows.
        seed: of the run; it says which keys are hot.
        most: executors at most.
        late_price_s: executor-seconds that it pays for one late row less.

    >>> job = Job(noise=0.0, task_s=0.0, driver_s=0.0, zipf=0.0, keys=32_000)
    >>> bound = find_bound(job, Trace("flat", (1000.0,) * 60), 1, 8)
    >>> round(3600 * bound.executor_hours / 600, 1), bound.late_share
    (2.0, 0.0)
    """
    for oldest in OLDEST:
        grid = _Grid(job, trace, seed, most, oldest)
        executor_s, late_rows = grid.follow(grid.choose(late_price_s))
        if not late_rows:
            break
    total = trace.count_until(trace.length_s)
    return Bound(float(executor_s) / 3600, float(late_rows / total) if total else 0.0)


@dataclass(frozen=True)
class _Options:
    """Batches that could start in a step, by age of the oldest row, rows left, and executors.

    Attributes:
        charged_s: how long the batch keeps its executors.
        gap_s: from its end to the start of the next one.
        steps: from its start to the start of the next one.
        age: of the oldest row when the next one starts, as a place in `ages`.
        late: rows that are late.
    """

    charged_s: _Floats
    gap_s: _Floats
    steps: _Ints
    age: _Ints
    late: _Floats


class _Grid:
    """All states of a stream when a batch starts: the age of its oldest row, and its executors.

    Executors count from 1, and ages from the shortest time between two starts.
    """

    def __init__(self, job: Job, trace: Trace, seed: int, most: int, oldest: float) -> None:
        self.job = job
        self.step_s = max(LEAST_STEP_S, job.objective_s / STEPS)
        self.every = round(job.trigger_s / self.step_s)
        self.first = max(self.every, 1)
        self.end = math.ceil(trace.length_s / self.step_s)
        self.oldest = round(oldest * job.objective_s / self.step_s)
        self.start_s = STARTS[0] * job.start_s
        self.ages = np.arange(self.first, self.oldest + 1)
        part = round((job.objective_s - job.trigger_s) / self.step_s / LEFT)
        self.left = part * np.arange(LEFT + 1)
        edges_s = [trace.bin_s * n for n in range(len(trace.rates) + 1)]
        self.edges_s = np.array(edges_s)
        self.sums = np.array([trace.count_until(at_s) for at_s in edges_s])
        self.shifts_s = trace.shifts_s
        self.hottest = [
            max(weigh_partitions(job, 1000 * seed + n), default=0.0)
            for n in range(len(trace.shifts_s) + 1)
        ]
        self.n = np.arange(1.0, most + 1)
        self.n = self.n[: self._count_useful()]

    def choose(self, late_price_s: float) -> list[tuple[_Ints, _Ints]]:
        """For each step the best rows to leave and the executors of the next batch, by state."""
        ages, most, gaps = len(self.ages), len(self.n), self.every + 1
        ring = self.oldest + 1
        # The cost to go from the batch that starts in a step, modulo `ring`, if the batch before
        # it had so many executors: when it has as many or more, and when it has fewer.
        more, more_n = np.zeros((ring, ages, most)), np.zeros((ring, ages, most), int)
        fewer = np.zeros((ring, ages, gaps, most))
        fewer_n = np.zeros((ring, ages, gaps, most), int)
        kept_s = np.minimum(np.arange(gaps) * self.step_s, self.start_s)[:, None]
        of_age, of_n = np.arange(ages)[:, None], np.arange(most)[None, :]
        executor = of_n[None]
        choices: list[tuple[_Ints, _Ints]] = []
        for step in range(self.end - 1, self.first - 1, -1):
            batch = self.find_options(step)
            slot = (step + batch.steps) % ring
            wait_s = np.minimum(batch.gap_s, self.start_s)
            if_more = self.n * (batch.charged_s + wait_s) + more[slot, batch.age, executor]
            gap = np.ceil(batch.gap_s / self.step_s - 1e-9).astype(int)
            charged_s = batch.steps * self.step_s - gap * self.step_s
            if_fewer = self.n * charged_s + fewer[slot, batch.age, gap, executor]
            cost = np.minimum(if_more, if_fewer) + late_price_s * batch.late
            cost[self.left[None, :] >= self.ages[:, None]] = math.inf
            left = cost.argmin(axis=1)
            at = (of_age, left, of_n)
            following = np.where(
                if_more[at] <= if_fewer[at],
                more_n[slot[at], batch.age[at], of_n],
                fewer_n[slot[at], batch.age[at], gap[at], of_n],
            )
            choices.append((left, following))
            here = step % ring
            cost_to_go = cost[at]
            started = _find_least((cost_to_go + self.n * self.start_s)[:, ::-1])
            more[here] = started[0][:, ::-1] - self.n * self.start_s
            more_n[here] = most - 1 - started[1][:, ::-1]
            least, which = _find_least(cost_to_go[:, None, :] + self.n * kept_s)
            fewer[here, :, :, 0] = math.inf
            fewer[here, :, :, 1:], fewer_n[here, :, :, 1:] = least[..., :-1], which[..., :-1]
            self._first_n = int((cost_to_go[0] + self.n * self.first * self.step_s).argmin())
        choices.reverse()
        return choices

    def follow(self, choices: list[tuple[_Ints, _Ints]]) -> tuple[float, float]:
        """Executor-seconds and late rows of the best way from the first batch on."""
        step, age, n = self.first, 0, self._first_n
        executor_s, late = (n + 1.0) * self.first * self.step_s, 0.0
        while step < self.end:
            batch = self.find_options(step)
            left, following = choices[step - self.first]
            at = (age, int(left[age, n]), n)
            then = int(following[age, n])
            kept = min(n, then) + 1
            executor_s += (n + 1) * batch.charged_s[at] + max(0, then - n) * self.start_s
            executor_s += kept * min(batch.gap_s[at], self.start_s)
            late += batch.late[at]
            step, age, n = step + int(batch.steps[at]), int(batch.age[at]), then
        return executor_s, late

    def _count_useful(self) -> int:
        """Executors with which any batch is as short as it has to be, so that more only cost."""
        ends_s = np.arange(self.end + 1) * self.step_s
        rows = (self._count(ends_s) - self._count(ends_s - self.oldest * self.step_s)).max()
        longest_s = self._last(np.array([rows]), max(self.hottest))
        enough = longest_s <= self.every * self.step_s
        return int(enough.argmax()) + 1 if enough.any() else len(self.n)

    def find_options(self, step: int) -> _Options:
        """What can be done in a step."""
        job, at_s = self.job, step * self.step_s
        oldest_row = self._count(at_s - self.ages * self.step_s)[:, None]
        last_row = self._count(at_s - self.left * self.step_s)[None, :]
        rows = np.maximum(last_row - oldest_row, 0.0)[..., None]
        hot_set = sum(at_s >= shift_s for shift_s in self.shifts_s)
        duration_s = self._last(rows, self.hottest[hot_set])
        overrun = np.floor(duration_s / self.step_s + 1e-9).astype(int)
        steps = np.minimum(np.maximum(overrun, self.first), self.oldest)
        charged_s = np.minimum(duration_s, steps * self.step_s)
        age = np.minimum(steps + self.left[:, None], self.oldest) - self.first
        in_time = self._count(at_s + duration_s - job.objective_s)
        late = np.minimum(in_time, last_row[..., None]) - oldest_row[..., None]
        forgotten = self._count((step + steps - self.oldest) * self.step_s) - last_row[..., None]
        late = np.maximum(late, 0.0) + np.maximum(forgotten, 0.0)
        return _Options(charged_s, steps * self.step_s - charged_s, steps, age, late)

    def _last(self, rows: _Floats, hottest: float) -> _Floats:
        """How long batches last, by executors in the last dimension.

        Args:
            rows: of each batch.
            hottest: part of the rows that the hottest state partition gets.
        """
        job = self.job
        mean = math.exp(job.noise**2 / 2)
        split_s = job.task_s + rows / job.splits * job.map_row_s
        duration_s = mean * np.maximum(split_s, job.splits * split_s / self.n)
        if job.partitions:
            longest_s = job.task_s + rows * hottest * job.state_row_s
            work_s = job.partitions * job.task_s + rows * job.state_row_s
            duration_s = duration_s + mean * np.maximum(longest_s, work_s / self.n)
        lasting: _Floats = job.driver_s + duration_s
        return lasting

    def _count(self, at_s: _Floats) -> _Floats:
        """Rows that have arrived by then."""
        arrived: _Floats = np.interp(at_s, self.edges_s, self.sums)
        return arrived


def _find_least(values: _Floats) -> tuple[_Floats, _Ints]:
    """The least value up to each place of the last dimension, and where it is."""
    least = np.minimum.accumulate(values, axis=-1)
    places = np.where(values == least, np.arange(values.shape[-1]), 0)
    return least, np.maximum.accumulate(places, axis=-1)
