"""The work of the running queries: what a row costs, how fast rows arrive, what the driver adds.

Work is counted in busy seconds per second. The cost of a row in the last batches converts a query's
rows into work, and the work of queries that share executors adds up. It is the work of all tasks:
those that read and map, those that keep state, those that write. The seconds of a batch in which no
task runs are the driver's; more executors do not shorten them.

The measurement is DS2's: rates in rows per second of *busy* time, so that an executor that waits
does not look slow. How it fits micro-batches is our own design.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from balancedstream.core.balance.loads import OperatorLoad
from balancedstream.core.observations import Observation
from balancedstream.core.policy import ScalingPolicy
from balancedstream.core.samples import BatchSample, OperatorId, StageKind, StageSample

Runs = Mapping[str, Sequence[BatchSample]]
"""The batches of each query, oldest first."""

_BACK_TO_BACK = 0.95
"""Batches that take this much of the time between their starts run back to back."""

_GROWTH = 1.02
"""A backlog grows if so many times the rows that were read came."""

_LONG_S = 60.0
"""Batches that lasted so long together are enough, however few."""

LATE = 1.5
"""A next batch is late after so many times what passed between the ends of the last two."""

_SHRINKS = 0.9
"""A last batch of this part of the mean says that batches get shorter."""

_IDLE_REPORT_S = 60.0
"""Spark reports an idle query every 10 s (`noDataProgressEventInterval`); some may be missing."""


@dataclass(frozen=True, slots=True)
class StageWork:
    """One kind of stage of a query.

    Attributes:
        tasks: how many of its tasks can run at the same time.
        work: busy seconds per second of all tasks, at the arriving rate.
        longest: the same of the longest task.
    """

    tasks: int
    work: float
    longest: float

    def last(self, slots: int) -> float:
        """Seconds per second that the stage lasts, on as many cores as `slots`.

        >>> StageWork(tasks=2, work=1.0, longest=0.6).last(8)
        0.6
        """
        return max(self.longest, self.work / min(slots, max(1, self.tasks)))


@dataclass(frozen=True, slots=True)
class QueryWork:
    """What one query does in a batch, as a mean over the measured ones.

    Attributes:
        query: its name or id.
        batch_s: seconds that a batch takes.
        last_s: seconds that the last batch took.
        interval_s: seconds between the starts of two batches.
        trigger_s: the trigger interval; None if there is none or it is unknown.
        rows_per_s: rows processed per second of `batch_s`.
        driver_s: seconds of a batch without a task, by what the driver does.
        stages: the work of each kind of stage.
        rows: rows that a batch reads.
        capped_rows: rows that wait at a source of which each batch reads a limited number, too few
            although batches end before their trigger; 0 if there is no such limit.
    """

    query: str
    batch_s: float
    last_s: float
    interval_s: float
    trigger_s: float | None
    rows_per_s: float
    driver_s: Mapping[str, float]
    stages: Mapping[StageKind, StageWork]
    rows: float = 0.0
    capped_rows: float = 0.0

    @property
    def is_overdue(self) -> bool:
        """Whether batches take (nearly) longer than the trigger interval, and do not get shorter.

        After a slow start, or a batch that stalled, the next ones read what came meanwhile: such a
        stream catches up by itself.
        """
        if self.trigger_s is None or self.last_s <= _SHRINKS * self.batch_s:
            return False
        return self.batch_s >= _BACK_TO_BACK * self.trigger_s

    def share_driver(self, *, late: bool = False) -> float:
        """The part of the time that the driver takes for itself.

        Without a trigger interval it is nothing: batches grow until their fixed costs do not
        matter. Unless the query is late: then its batches do not grow enough.
        """
        period_s = self.trigger_s or (self.interval_s if late else math.inf)
        return sum(self.driver_s.values()) / period_s

    def last(self, slots: int) -> float:
        """Seconds per second that its stages last, one after the other, on `slots` cores."""
        return sum(stage.last(slots) for stage in self.stages.values())


@dataclass(slots=True)
class Work:
    """The work of the measured queries, in busy seconds per second.

    Attributes:
        partitions: (query, operator, partition) to the work now done for it.
        total: the work now done for all tasks.
        executors: executor to the work that it does now.
        stateful: the part of it for state partitions.
        arriving: the work that arrives for each partition, heaviest first; more than the work done
            while a backlog grows, less while it shrinks.
        divisible: the work that arrives and that any number of cores can share.
        peak: highest arriving work over the scale-in delay, all tasks together.
        backlog: work that waits at the sources, in busy seconds.
        back_to_back: whether some query starts each batch as the one before ends.
        blind: whether such a query does not know its backlog.
        grows: whether a backlog has grown in the last few batches.
        covered_s: how far back the batches reach.
        queries: what each query does in a batch.
    """

    partitions: dict[tuple[str, int, int], float] = field(default_factory=dict)
    total: float = 0.0
    executors: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stateful: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    arriving: list[float] = field(default_factory=list)
    divisible: float = 0.0
    peak: float = 0.0
    backlog: float = 0.0
    back_to_back: bool = False
    blind: bool = False
    grows: bool = False
    covered_s: float = 0.0
    queries: list[QueryWork] = field(default_factory=list)

    @property
    def total_arriving(self) -> float:
        """The work that arrives, all tasks together."""
        return self.divisible + sum(self.arriving)

    @property
    def is_overdue(self) -> bool:
        """Whether a query's batches take longer than its trigger interval."""
        return any(query.is_overdue for query in self.queries)

    def find_heaviest(self, query: str) -> tuple[str, int, int] | None:
        """The state partition of a query with the most work; None if it keeps no state."""
        mine = [key for key in self.partitions if key[0] == query]
        return max(mine, key=lambda key: self.partitions[key], default=None)

    def share_driver(self) -> float:
        """The part of its trigger interval that the slowest driver takes for itself."""
        return max((query.share_driver() for query in self.queries), default=0.0)


@dataclass(frozen=True, slots=True)
class _Interval:
    """One batch, and the rows that arrived at the sources since the batch before it began."""

    batch: BatchSample
    length_s: float
    arrived: float


def sort_batches(batches: Iterable[BatchSample]) -> Runs:
    """Batches by query, oldest first; of a batch that ran twice, the last run.

    >>> runs = sort_batches([BatchSample("q", n, float(n), 1.0, 5) for n in (2, 1)])
    >>> [batch.batch for batch in runs["q"]]
    [1, 2]
    """
    last: dict[tuple[str, int], BatchSample] = {}
    for batch in sorted(batches, key=lambda b: (b.finished_s, b.duration_s, b.input_rows)):
        last[batch.query, batch.batch] = batch
    runs: dict[str, list[BatchSample]] = defaultdict(list)
    for batch in sorted(last.values(), key=lambda b: (b.query, b.finished_s, b.batch)):
        runs[batch.query].append(batch)
    return runs


def waits_for_data(query: str, idle_s: Mapping[str, float], now_s: float) -> bool:
    """Whether Spark said lately that a query waits for data.

    >>> waits_for_data("q", {"q": 90.0}, now_s=100.0)
    True
    """
    return now_s - idle_s.get(query, -math.inf) <= _IDLE_REPORT_S


def find_current(
    batches: Iterable[BatchSample],
    now_s: float,
    idle_s: Mapping[str, float],
    running: Collection[str] | None = None,
) -> frozenset[tuple[str, int]]:
    """The last batches, as (query, batch), of the queries whose next one is not late.

    They say what a query does now, however long ago they ended: its next batch may take as long as
    the last one and the pause before it did, and so longer than all windows.

    Args:
        batches: any order.
        now_s: clock of the batches' `finished_s`.
        idle_s: query to the time at which Spark last said that it waits for data.
        running: queries that have not ended; None if none has.

    >>> batches = [BatchSample("q", n, 400.0 * n, 300.0, 5, 400.0) for n in (1, 2)]
    >>> find_current(batches, 1300.0, {}), find_current(batches, 1500.0, {})
    (frozenset({('q', 2)}), frozenset())
    """
    last: dict[str, BatchSample] = {}
    for batch in batches:
        if batch.query not in last or batch.finished_s >= last[batch.query].finished_s:
            last[batch.query] = batch
    return frozenset(
        (query, batch.batch)
        for query, batch in last.items()
        if (running is None or query in running)
        and not waits_for_data(query, idle_s, now_s)
        and now_s - batch.finished_s <= LATE * max(batch.interval_s or 0.0, batch.duration_s)
    )


def measure_work(
    observation: Observation,
    runs: Runs,
    loads: Mapping[OperatorId, OperatorLoad],
    limits: ScalingPolicy,
    current: Set[tuple[str, int]] = frozenset(),
) -> tuple[Work, list[str]]:
    """Adds up the work of all queries.

    The work is the cost of a row, from the batches behind the loads, times the rates of the scaling
    window, or of its part since the last change of the number. These few batches are noisy, so the
    durations of that part give a second cost.
    The lower cost decides about more executors, the higher about fewer.

    Args:
        observation: its stages are all tasks of the batches behind the loads.
        runs: its batches, as `sort_batches` returns them.
        loads: as `loads.measure` returns them.
        limits: window and delays.
        current: as `find_current` returns it.

    Returns:
        The work, and a sentence for each query that could not be measured, or not in full.

    >>> batches = tuple(BatchSample("q", n, 10.0 * n, 6.0, 100, 10.0) for n in range(1, 6))
    >>> stage = StageSample("q", 5, "source", 50.0, 8, 1.0, {"a": 3.0, "b": 3.0})
    >>> seen = Observation(50.0, {"a": 1, "b": 1}, batches=batches, stages=(stage,))
    >>> work, _ = measure_work(seen, sort_batches(batches), {}, ScalingPolicy())
    >>> round(work.total, 3), work.queries[0].stages["source"].tasks
    (0.6, 8)
    """
    now_s, idle_s = observation.now_s, observation.idle_s
    work = Work()
    unmeasured: list[str] = []
    peaks: dict[int, float] = defaultdict(float)
    by_query: dict[str, list[StageSample]] = defaultdict(list)
    for stage in observation.stages:
        by_query[stage.query].append(stage)
    for query, run in runs.items():
        intervals = _list_intervals(run)
        window = _window(intervals, limits, now_s, current)
        work.covered_s = max(work.covered_s, now_s - run[0].finished_s + run[0].duration_s)
        measured = _Measured(
            query,
            run,
            {key: loads[key] for key in sorted(loads) if key[0] == query},
            by_query[query],
        )
        row_s = measured.row_s
        if not measured.rows or not _is_enough(window, limits):
            if waits_for_data(query, idle_s, now_s) and not window:
                quiet_s = now_s - run[-1].finished_s
                if quiet_s < limits.scale_in_delay_s:
                    unmeasured.append(f"query {query} has waited for data for {quiet_s:.0f} s only")
                continue
            unmeasured.append(
                f"query {query}: {len(window)} of {limits.min_batches} recent batches measured, "
                f"{measured.rows} rows in the last of them"
            )
            continue
        age_s = now_s - run[-1].finished_s
        if age_s > limits.window_s:
            unmeasured.append(f"query {query}: its last batch ended {age_s:.0f} s ago")
        if not measured.stages:
            unmeasured.append(
                f"query {query}: its driver does not report the work outside stateful tasks"
            )
        # The cost of a row is that of the last batches. If the load fell, a few rows bear the fixed
        # cost of a batch, and batches from before the last change would count by it for too much.
        steady = _settled(window, observation.last_scaled_s)
        if len(steady) >= limits.min_batches:
            window = steady
        span_s = sum(interval.length_s for interval in window)
        processed = sum(interval.batch.input_rows for interval in window) / span_s
        # The whole window decides whether to act; how far to go follows the latest rate if it rose.
        arriving = max(_arrival_rate(window), _latest_rate(window, limits))
        drift = _drift(measured.loaded, steady)
        measured.add_to(work, min(1.0, drift) * processed, min(1.0, drift) * arriving)
        recent = steady[-limits.min_batches :]
        work.queries.append(measured.describe(recent or window, min(1.0, drift) * arriving))
        work.grows = work.grows or _is_growing(recent)
        backlog_rows = window[-1].batch.backlog_rows
        work.backlog += (backlog_rows or 0.0) * row_s * min(1.0, drift)
        if sum(interval.batch.duration_s for interval in window) >= _BACK_TO_BACK * span_s:
            work.back_to_back = True
            work.blind = work.blind or backlog_rows is None
        highest_row_s = row_s * max(1.0, drift)
        rates = _find_peaks(intervals[: -len(window)], limits, now_s)
        rates[0] = max(rates[0], arriving)
        for age, rate in rates.items():
            peaks[age] += rate * highest_row_s
    work.arriving.sort(reverse=True)
    work.peak = max(peaks.values(), default=0.0)
    return work, unmeasured


class _Measured:
    """What the tasks of one query cost in the last batches, per batch and per row."""

    def __init__(
        self,
        query: str,
        run: Sequence[BatchSample],
        operators: Mapping[OperatorId, OperatorLoad],
        stages: Collection[StageSample],
    ) -> None:
        self.query = query
        self._operators = operators
        numbers = {number for load in operators.values() for number in load.batches}
        numbers = numbers or {stage.batch for stage in stages}
        self.stages = [stage for stage in stages if stage.batch in numbers]
        self.loaded = [batch for batch in run if batch.batch in numbers]
        self.rows = sum(batch.input_rows for batch in self.loaded)
        # Converts seconds per batch to seconds per row.
        self._per_row = len(self.loaded) / self.rows if self.rows else 0.0
        self._batches = len({stage.batch for stage in self.stages})
        self._stateful_s = sum(sum(o.busy_s.values()) for o in operators.values()) + sum(
            sum(o.hidden_busy_s.values()) for o in operators.values()
        )
        self._divisible_s = self._sum_divisible()

    @property
    def row_s(self) -> float:
        """Busy seconds of all tasks per row."""
        return (self._stateful_s + sum(self._divisible_s.values())) * self._per_row

    def _sum_divisible(self) -> dict[str, float]:
        """Busy seconds per batch of the tasks that are no state partition, by executor."""
        found: dict[str, float] = defaultdict(float)
        for stage in self.stages:
            # Without loads, as after keys have moved, the stateful stage is all that is known.
            if stage.kind == "stateful" and self._operators:
                continue
            for executor, busy_s in stage.executor_busy_s.items():
                found[executor] += busy_s / self._batches
        return found

    def add_to(self, work: Work, processed: float, arriving: float) -> None:
        """Adds the work of the query at these rates of rows per second."""
        per_row = self._per_row
        work.total += self.row_s * processed
        for (_, operator), load in self._operators.items():
            for partition, busy_s in load.busy_s.items():
                row_s = busy_s * per_row
                work.partitions[self.query, operator, partition] = row_s * processed
                work.executors[load.placement[partition]] += row_s * processed
                work.stateful[load.placement[partition]] += row_s * processed
                work.arriving.append(row_s * arriving)
            for executor, busy_s in load.hidden_busy_s.items():
                work.executors[executor] += busy_s * per_row * processed
                work.stateful[executor] += busy_s * per_row * processed
                work.divisible += busy_s * per_row * arriving
        for executor, busy_s in self._divisible_s.items():
            work.executors[executor] += busy_s * per_row * processed
            work.divisible += busy_s * per_row * arriving

    def describe(self, window: Sequence[_Interval], arriving: float) -> QueryWork:
        """What a batch consists of, its stages at this rate of rows per second."""
        batches = [interval.batch for interval in window]
        count, total_s = len(batches), sum(batch.duration_s for batch in batches)
        return QueryWork(
            query=self.query,
            batch_s=total_s / count,
            last_s=batches[-1].duration_s,
            interval_s=sum(interval.length_s for interval in window) / count,
            trigger_s=batches[-1].trigger_s,
            rows_per_s=sum(b.input_rows for b in batches) / total_s if total_s else 0.0,
            driver_s={
                "asking the sources what is new": sum(b.offsets_s for b in batches) / count,
                "planning": sum(b.planning_s for b in batches) / count,
                "committing": sum(b.commits_s for b in batches) / count,
                "starting jobs and code on the driver": sum(b.gaps_s for b in batches) / count,
            },
            stages={
                kind: self._describe_stage(
                    [stage for stage in self.stages if stage.kind == kind], arriving
                )
                for kind in sorted({stage.kind for stage in self.stages})
            },
            rows=sum(b.input_rows for b in batches) / count,
            capped_rows=_count_capped(window),
        )

    def _describe_stage(self, stages: Sequence[StageSample], arriving: float) -> StageWork:
        rate = self._per_row * arriving / self._batches
        return StageWork(
            tasks=max(stage.tasks for stage in stages),
            work=sum(sum(stage.executor_busy_s.values()) for stage in stages) * rate,
            longest=sum(stage.longest_s for stage in stages) * rate,
        )


def _drift(loaded: Sequence[BatchSample], steady: Sequence[_Interval]) -> float:
    """Cost of a row in steady batches over its cost in the loaded ones, by their durations."""
    settled = [interval.batch for interval in steady]
    rows = sum(batch.input_rows for batch in settled)
    recent_rows = sum(batch.input_rows for batch in loaded)
    recent_s = sum(batch.duration_s for batch in loaded) / recent_rows if recent_rows else 0.0
    if not rows or recent_s <= 0:
        return 1.0
    return (sum(batch.duration_s for batch in settled) / rows) / recent_s


def _settled(window: Sequence[_Interval], last_change_s: float | None) -> list[_Interval]:
    """Those since the last change: another number of executors ran the batches before."""
    since_s = -math.inf if last_change_s is None else last_change_s
    return [i for i in window if i.batch.finished_s - i.batch.duration_s >= since_s]


def _is_growing(intervals: Sequence[_Interval]) -> bool:
    """Whether more rows came than were read, by more than what is due to the moments of asking."""
    came = sum(interval.arrived for interval in intervals)
    read = sum(interval.batch.input_rows for interval in intervals)
    return came > _GROWTH * read


def _count_capped(intervals: Sequence[_Interval]) -> float:
    """Rows that wait although batches end in time and could have read them; 0 if it is not so.

    Without a limit, a batch reads all that is there when it is planned.
    """
    last = intervals[-1].batch
    waiting = last.backlog_rows or 0.0
    in_time = all(i.batch.duration_s < _BACK_TO_BACK * i.length_s for i in intervals)
    return waiting if in_time and waiting > last.input_rows and _is_growing(intervals) else 0.0


def _list_intervals(run: Sequence[BatchSample]) -> list[_Interval]:
    intervals = []
    for before, batch in zip([None, *run], run, strict=False):
        if batch.interval_s is None or batch.interval_s <= 0:
            continue
        arrived = float(batch.input_rows)
        if (
            before is not None
            and before.batch == batch.batch - 1
            and before.backlog_rows is not None
            and batch.backlog_rows is not None
        ):
            arrived += batch.backlog_rows - before.backlog_rows
        intervals.append(_Interval(batch, batch.interval_s, arrived))
    return intervals


def _window(
    intervals: Sequence[_Interval],
    limits: ScalingPolicy,
    now_s: float,
    current: Set[tuple[str, int]],
) -> Sequence[_Interval]:
    """The batches of the last `window_s`; of a slow stream that still runs, some before it too."""
    recent = [
        interval
        for interval in intervals
        if interval.batch.finished_s >= now_s - limits.window_s
        or (interval.batch.query, interval.batch.batch) in current
    ]
    return recent and max(recent, intervals[-limits.min_batches :], key=len)


def _is_enough(window: Sequence[_Interval], limits: ScalingPolicy) -> bool:
    """Whether a window has enough batches to decide on.

    The batches of a stream that starts with too few executors grow, and the next one always takes
    longer than all before: what lasted for a minute shows as much as many short ones.
    """
    lasted_s = sum(interval.batch.duration_s for interval in window)
    return lasted_s >= _LONG_S or len(window) >= limits.min_batches


def _find_peaks(
    intervals: Sequence[_Interval], limits: ScalingPolicy, now_s: float
) -> dict[int, float]:
    """The highest rates of the batches before the window, as far as the scale-in delay reaches.

    They are kept by their age, in steps of `window_s`. A rate is that of a few batches in a row, as
    it is for adding executors: what was added for it is not given back at once.
    """
    peaks: dict[int, float] = defaultdict(float)
    for end, interval in enumerate(intervals, start=1):
        age_s = now_s - interval.batch.finished_s
        if age_s <= limits.scale_in_delay_s:
            age = int(age_s / limits.window_s)
            few = intervals[max(0, end - limits.min_batches) : end]
            peaks[age] = max(peaks[age], _arrival_rate(few))
    return peaks


def _latest_rate(window: Sequence[_Interval], limits: ScalingPolicy) -> float:
    """The rate of the last few batches; of the last one alone where the next must start late."""
    late = window[-1].batch.duration_s > window[-1].length_s
    rate = _arrival_rate(window[-limits.min_batches :])
    return max(rate, _arrival_rate(window[-1:])) if late else rate


def _arrival_rate(intervals: Sequence[_Interval]) -> float:
    rows = sum(interval.arrived for interval in intervals)
    return max(0.0, rows / sum(interval.length_s for interval in intervals))
