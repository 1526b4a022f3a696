"""What a batch of a query costs, learned from its batches, and how long one would last.

The busy seconds of a batch are affine: what its tasks take however few rows they get, and the rows.
The stages run one after the other. Each lasts as long as its longest task, or as its work on the
cores that its tasks can fill, and a part of a task for the last ones, which run alone; the driver's
own time stays. DS2 knows the true cost of a row; the rest of the model is our own design.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean, median, stdev

from balancedstream.core.samples import BatchSample, StageKind, StageSample, TaskSample

TAIL = 0.7
"""The part of a mean task for which the last tasks of a stage run on few cores."""

RECENT_BATCHES = 5
"""What a row costs, and how the work is shared among stages, are of so many batches."""

_MAX_BATCHES = 40
"""What is fixed, and the scatter, are of so many batches."""

_LARGEST_FIXED = 0.9
"""The part of a mean batch that can be fixed."""

_SCATTER_AT = 0.8
"""The batch that is foreseen is longer than in this part of the recent ones."""

_CHANCE = 3.0
"""Batches differ from the usual ones if by more than so many standard errors."""

_UNKNOWN_SCATTER = 1.1
_MIN_RATIOS = 10
_LEAST_S = 1e-6
_SAME = 1e-9
_MIN_TASKS = 8

_LEAST_SLOTS = 0.1
"""Of a core: what other queries leave a query at least, so that nothing is divided by 0."""


@dataclass(frozen=True, slots=True)
class StageCost:
    """One kind of stage of a query.

    Attributes:
        share: its part of a batch's busy seconds.
        tasks: how many of its tasks can run at the same time.
        longest: part of the stage's busy seconds that its longest task takes.
    """

    share: float
    tasks: int
    longest: float

    def last(self, busy_s: float, slots: float) -> float:
        """Seconds that the stage lasts in a batch of so many busy seconds, on so many cores.

        >>> stage = StageCost(share=0.5, tasks=4, longest=0.3)
        >>> round(stage.last(8.0, slots=2.0), 2), stage.last(8.0, slots=8.0)
        (2.35, 1.2)
        """
        mine_s = self.share * busy_s
        slots = max(slots, _LEAST_SLOTS)
        alone = max(0.0, 1.0 - 1.0 / slots) if self.tasks > slots else 0.0
        tail_s = TAIL * alone * mine_s / self.tasks
        return max(self.longest * mine_s, mine_s / min(slots, self.tasks) + tail_s)


@dataclass(frozen=True, slots=True)
class QueryCost:
    """What the batches of one query cost.

    Attributes:
        fixed_s: busy seconds of a batch without rows.
        row_s: busy seconds of a row; 0 if no batch had rows.
        driver_s: seconds of a batch without a task, by what the driver does.
        stages: the stages of a batch.
        pace: what tasks take of a batch over what the model says, in a usual batch.
        scatter: how much longer the tasks of a long batch last than those of a usual one with the
            same rows, at least 1; None if too few batches were measured.
        cores: on which all of the batches ran that say what a row costs.

    >>> cost = QueryCost(4.0, 0.01, {"planning": 1.0}, {"source": StageCost(1.0, 64, 0.03)})
    >>> round(cost.last(600, slots=1), 2), round(cost.last(600, slots=5), 2)
    (11.0, 3.09)
    >>> round(cost.rows_in(11.0, slots=1))
    600
    """

    fixed_s: float
    row_s: float
    driver_s: Mapping[str, float]
    stages: Mapping[StageKind, StageCost]
    pace: float = 1.0
    scatter: float | None = None
    cores: float = 0.0

    @property
    def idle_s(self) -> float:
        """Seconds of a batch in which no task runs."""
        return sum(self.driver_s.values())

    def work(self, rows: float) -> float:
        """Busy seconds of a batch of so many rows."""
        return self.fixed_s + self.row_s * rows

    @property
    def long(self) -> float:
        """The tasks of a long batch last so many times as long as those of a usual one."""
        return self.scatter or _UNKNOWN_SCATTER

    def last(self, rows: float, slots: float, *, long: bool = False) -> float:
        """Seconds that a usual batch of so many rows lasts on so many cores, or a long one."""
        busy_s = self.work(rows)
        tasks_s = sum(stage.last(busy_s, slots) for stage in self.stages.values())
        return self.idle_s + (self.long if long else 1.0) * self.pace * tasks_s

    def last_per_row(self, slots: float) -> float:
        """Seconds that one more row makes a batch longer on so many cores."""
        return (self.last(1e6, slots) - self.last(0.0, slots)) / 1e6

    def rows_in(self, seconds: float, slots: float) -> float:
        """Rows of a batch that lasts so long on so many cores; 0 if not even an empty one does."""
        row_s = self.last_per_row(slots)
        return max(0.0, seconds - self.last(0.0, slots)) / row_s if row_s else float("inf")

    def find_longest(self, rows: float, slots: float) -> StageKind | None:
        """The kind of stage that lasts longest; None if the driver takes longer than each."""
        busy_s = self.work(rows)
        kind = max(self.stages, key=lambda kind: self.stages[kind].last(busy_s, slots))
        return kind if self.pace * self.stages[kind].last(busy_s, slots) > self.idle_s else None


@dataclass(frozen=True)
class _Measured:
    """A batch whose tasks were measured."""

    batch: BatchSample
    stages: Mapping[StageKind, StageSample]

    @cached_property
    def busy_s(self) -> float:
        return sum(sum(stage.executor_busy_s.values()) for stage in self.stages.values())

    @cached_property
    def executors(self) -> Set[str]:
        return {executor for stage in self.stages.values() for executor in stage.executor_busy_s}

    def find_pace(self, cores: float) -> float:
        """The time of its tasks over what the model says of its work."""
        return (self.batch.duration_s - self.batch.driver_s) / self._foresee(cores)

    def _foresee(self, cores: float) -> float:
        """Seconds that its tasks last by the model on the executors that ran it, as they shared it.

        How unequally they shared state partitions is what balancing mends.
        """
        lasts_s = 0.0
        for kind, stage in self.stages.items():
            busy_s = sum(stage.executor_busy_s.values())
            shape = StageCost(1.0, max(1, stage.tasks), stage.longest_s / busy_s if busy_s else 0.0)
            stage_s = shape.last(busy_s, len(self.executors) * cores)
            hottest_s = max(stage.executor_busy_s.values(), default=0.0) / cores
            lasts_s += max(stage_s, hottest_s) if kind == "stateful" else stage_s
        return max(lasts_s, _LEAST_S)


def learn(
    run: Sequence[BatchSample],
    stages: Iterable[StageSample],
    tasks: Sequence[TaskSample],
    cores: float,
) -> QueryCost | None:
    """What the batches of a query cost; None if none was measured.

    Those without rows, which timers cause, count if there are no others: all that they cost is
    fixed.

    Batches in which partitions moved, or executors joined or left, count only while there are no
    others. A line through busy seconds by rows says what is fixed. If all batches have about as
    many rows, the tasks with state say it: those with few rows take the fixed part, too.

    Args:
        run: batches of the query, oldest first.
        stages: of the query, any order.
        tasks: of the query, any order.
        cores: of one executor, as a mean.

    >>> run = [BatchSample("q", n, 10.0 * n, 5.0 + n, 100 * n, 10.0) for n in range(1, 5)]
    >>> stages = [StageSample("q", n, "source", 0.0, 64, 0.1, {"a": 4.0 + n}) for n in range(1, 5)]
    >>> cost = learn(run, stages, [], cores=1.0)
    >>> round(cost.fixed_s, 1), round(cost.row_s, 4)
    (2.7, 0.0143)
    """
    by_batch: dict[int, dict[StageKind, StageSample]] = defaultdict(dict)
    for stage in stages:
        by_batch[stage.batch][stage.kind] = stage
    measured = _list_measured(run, by_batch)
    if not measured:
        return None
    moved = {task.batch for task in tasks if task.moved}
    settled = [
        b
        for a, b in pairwise(measured)
        if a.executors == b.executors and b.batch.batch not in moved
    ]
    measured = settled or measured
    recent = measured[-RECENT_BATCHES:]
    if recent[-1].batch.input_rows:
        fixed_s = _fit_fixed(measured, tasks)
        row_s = _estimate_row(measured, fixed_s)
    else:
        fixed_s = max(fmean(m.busy_s for m in batches) for batches in (recent, measured))
        row_s = 0.0
    paced = [(m, pace) for m in measured if (pace := m.find_pace(cores)) > 0.0]
    paces = [pace for _, pace in paced[-RECENT_BATCHES:]] or [1.0]
    scatter = None
    if len(paced) >= _MIN_RATIOS:
        foreseen = [(fixed_s + row_s * m.batch.input_rows) / m.busy_s for m, _ in paced]
        lasted = sorted(pace / part for (_, pace), part in zip(paced, foreseen, strict=True))
        scatter = max(1.0, lasted[int(_SCATTER_AT * len(lasted))] / median(lasted))
    return QueryCost(
        fixed_s,
        row_s,
        {
            "asking the sources what is new": fmean(m.batch.offsets_s for m in recent),
            "planning": fmean(m.batch.planning_s for m in recent),
            "committing": fmean(m.batch.commits_s for m in recent),
            "starting jobs and code on the driver": fmean(m.batch.gaps_s for m in recent),
        },
        {kind: _average_stage(kind, recent) for kind in sorted(recent[-1].stages)},
        min(max(median(paces), 1.0), 2.0),
        scatter,
        min(len(m.executors) for m in recent) * cores,
    )


def _list_measured(
    run: Sequence[BatchSample], stages: Mapping[int, Mapping[StageKind, StageSample]]
) -> list[_Measured]:
    """The last batches whose tasks were measured, oldest first; with rows, if there are some."""
    found: list[_Measured] = []
    empty: list[_Measured] = []
    for batch in reversed(run):
        measured = _Measured(batch, stages.get(batch.batch, {}))
        if measured.busy_s > _LEAST_S:
            (found if batch.input_rows > 0 else empty).append(measured)
        if len(found) == _MAX_BATCHES:
            break
    return (found or empty[:_MAX_BATCHES])[::-1]


def _fit_fixed(measured: Sequence[_Measured], tasks: Iterable[TaskSample]) -> float:
    """Where the line through busy seconds by rows begins, with a point from tasks at 0 rows."""
    points = [(float(m.batch.input_rows), m.busy_s, 1.0) for m in measured]
    # How far a task is from the line grows with its time, so that short tasks say more.
    of_tasks = [(float(t.records), t.work_s, t.work_s**-2) for t in tasks if t.work_s > _LEAST_S]
    task_s = _find_start(of_tasks) if len(of_tasks) >= _MIN_TASKS else None
    count = sum(stage.tasks for stage in measured[-1].stages.values())
    points.append((0.0, 0.0, 0.1) if task_s is None else (0.0, count * task_s, 1.0))
    usual_s = fmean(m.busy_s for m in measured[-RECENT_BATCHES:])
    return min(_find_start(points) or 0.0, _LARGEST_FIXED * usual_s)


def _find_start(points: Sequence[tuple[float, float, float]]) -> float | None:
    """Where a line through (x, y, weight) is at x = 0, from 0 to the mean of y; None without."""
    total = sum(w for _, _, w in points)
    mean_x = sum(w * x for x, _, w in points) / total
    mean_y = sum(w * y for _, y, w in points) / total
    spread = sum(w * (x - mean_x) ** 2 for x, _, w in points)
    if spread <= _SAME * total * mean_x**2:
        return None
    slope = sum(w * (x - mean_x) * (y - mean_y) for x, y, w in points) / spread
    return min(max(0.0, mean_y - slope * mean_x), mean_y)


def _estimate_row(measured: Sequence[_Measured], fixed_s: float) -> float:
    """Busy seconds of a row: of the last batches, if it costs more there than chance explains.

    A decision that is made after each batch would else soon find five batches that cost little.
    """
    recent = measured[-RECENT_BATCHES:]
    lately, usual = (_average_row(batches, fixed_s) for batches in (recent, measured))
    if len(measured) < _MIN_RATIOS:
        return lately
    scatter = stdev(_average_row([m], fixed_s) for m in measured)
    return lately if lately - usual > _CHANCE * scatter / math.sqrt(len(recent)) else usual


def _average_row(batches: Sequence[_Measured], fixed_s: float) -> float:
    busy_s = sum(m.busy_s for m in batches)
    rows_s = max(busy_s - fixed_s * len(batches), 0.1 * busy_s)
    return rows_s / sum(m.batch.input_rows for m in batches)


def _average_stage(kind: StageKind, recent: Sequence[_Measured]) -> StageCost:
    with_it = [m for m in recent if kind in m.stages]
    busy_s = sum(sum(m.stages[kind].executor_busy_s.values()) for m in with_it)
    return StageCost(
        busy_s / sum(m.busy_s for m in with_it),
        max(1, *(m.stages[kind].tasks for m in with_it)),
        sum(m.stages[kind].longest_s for m in with_it) / busy_s if busy_s else 1.0,
    )
