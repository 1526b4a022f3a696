"""What the queries of an application demand of its executors.

Our own design. The latency of a row is the time from its arrival to the end of its batch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from balancedstream.core.balance.loads import OperatorLoad
from balancedstream.core.observations import Observation
from balancedstream.core.policy import ScalingPolicy
from balancedstream.core.samples import BatchSample, OperatorId, StageSample
from balancedstream.core.scaling.arrivals import Arrivals, Forecast, count_arrivals
from balancedstream.core.scaling.costs import RECENT_BATCHES, QueryCost, learn
from balancedstream.core.scaling.workload import LATE, sort_batches, waits_for_data
from balancedstream.core.wire.plan import StandingStep

OBJECTIVE_INTERVALS = 2.5
"""A row waits for one trigger interval, its batch takes another, and a half is for what varies."""

INTERVAL_S = 10.0
"""Taken for the trigger interval of a query without one."""

MIN_BATCHES = 3
LONG_S = 60.0
"""Nothing changes before so many batches were measured; fewer are enough if they lasted so long."""

OVERLOAD_S = 10_000.0
"""The latency of a query that falls behind is at least this, and grows with its load."""

_OVERLOAD = 0.98
"""Batches back to back that spend this part of their time on new rows grow without end."""

_BOUND_PART = 0.5
"""A bounded batch takes this part of the objective; the rows behind it wait as long again."""

_BLIND_FULL = 0.7
"""If batches run back to back and no source tells what waits, busier executors count as full."""

_BACK_TO_BACK = 0.95
_GROWTH = 1.02
_MAX_BATCHES = 200
_MOST = 1e15


@dataclass(frozen=True, slots=True)
class Demand:
    """One query, its load, and what is known of the batch that runs.

    Attributes:
        query: its name or id.
        cost: of its batches.
        arrivals: of its rows.
        foreseen: their rate when executors that are asked for now can help.
        trigger_s: its trigger interval; 0 if it has none.
        objective_s: latency that its rows should have at most.
        recent: its last batches, oldest first.
        begun_s: when its last batch began, seconds since the Unix epoch.
        running_rows: rows of the batch that runs; None if none does, or nobody knows.
        waiting_rows: rows that have arrived and that no planned batch reads.
        seen_s: when it was seen that they wait, seconds since the Unix epoch.
        bounded: whether we bound its batches.
        batch_rows: the most rows that its source gives a batch, if it is seen to limit them.
        others: cores that other queries hold, or keep busy on the mean.
        then_rows: rows that wait when executors that are asked for now can help.
    """

    query: str
    cost: QueryCost
    arrivals: Arrivals
    foreseen: Forecast
    trigger_s: float
    objective_s: float
    recent: Sequence[BatchSample]
    begun_s: float
    running_rows: float | None
    waiting_rows: float
    seen_s: float
    bounded: bool = False
    batch_rows: float = math.inf
    others: float = 0.0
    then_rows: float = 0.0

    @property
    def interval_s(self) -> float:
        """The time over which a rate is taken."""
        return self.trigger_s or INTERVAL_S

    @property
    def knows_rows(self) -> bool:
        """Whether it is known what a row costs; it is not if only timers caused batches."""
        return self.cost.row_s > 0.0

    @property
    def can_bound(self) -> bool:
        """Whether a bound for its batches means something: a time, and what a row costs."""
        return self.trigger_s > 0.0 and self.knows_rows

    @property
    def is_capped(self) -> bool:
        """Whether more rows come than limited batches read, although these end in time."""
        in_time = all(b.duration_s < _BACK_TO_BACK * (b.interval_s or 0.0) for b in self.recent)
        return in_time and self.foreseen.rate * self.interval_s > _GROWTH * self.batch_rows

    @property
    def is_blind(self) -> bool:
        """Whether batches run back to back, and the source does not tell what waits."""
        return all(
            b.backlog_rows is None and b.duration_s >= _BACK_TO_BACK * (b.interval_s or math.inf)
            for b in self.recent
        )

    def slots(self, cores: float) -> float:
        """The cores that other queries leave it on the mean."""
        return cores - self.others

    def steady(self, cores: float, rate: float | None = None) -> float:
        """Latency at a steady rate: a row waits for its trigger, or for the batch before its own.

        Args:
            cores: of all executors.
            rate: rows per second; None for what is foreseen.
        """
        rate = self.foreseen.ahead if rate is None else rate
        slots, noise = self.slots(cores), self.cost.scatter or 1.0
        if self.trigger_s:
            usual_s = self.cost.last(rate * self.trigger_s, slots)
            if noise * usual_s <= self.trigger_s:
                # A long one is made up for by the next.
                long_s = self.cost.last(rate * self.trigger_s, slots, long=True)
                return max(self.trigger_s, long_s) + long_s
        empty_s, filled = self.cost.last(0.0, slots), rate * self.cost.last_per_row(slots)
        if self.batch_rows < math.inf:
            full_s = max(self.cost.last(self.batch_rows, slots), self.trigger_s)
            filled = max(filled, rate * full_s / self.batch_rows)
        if noise * filled >= _OVERLOAD:
            return OVERLOAD_S * (1.0 + filled)
        return self.cost.long * 2.0 * empty_s / (1.0 - filled)

    def after(self, cores: float) -> float:
        """Latency of the rows that arrive while the rows that will wait are worked off."""
        slots = self.slots(cores)
        batch_rows = min(self.then_rows, self.batch_rows)
        batches = self.then_rows / batch_rows if batch_rows else 1.0
        lasts_s = batches * max(self.cost.last(batch_rows, slots, long=True), self.trigger_s)
        next_rows = min(self.foreseen.rate * lasts_s, self.batch_rows)
        return lasts_s + self.cost.last(next_rows, slots, long=True)

    def prepare(
        self, executors: int, cores: float, working: float, *, bounds: bool
    ) -> StandingStep:
        """Until when so many executors are enough.

        Args:
            executors: of the application.
            cores: of all of them.
            working: cores of those that are not in reserve.
            bounds: whether its batches are to be bounded.
        """
        return StandingStep(
            self.query,
            executors,
            _find_largest(lambda rate: self.steady(working, rate) <= self.objective_s),
            _find_largest(
                lambda rows: replace(self, then_rows=rows).after(working) <= self.objective_s
            ),
            float(int(self.bound(cores))) if bounds and self.can_bound else None,
        )

    def bound(self, cores: float, joined_in_s: float = 0.0) -> float:
        """Rows that the next batch should have at most: half the objective's, or until a join.

        Never so few that batches of them would fall behind what comes, where larger ones would not:
        the larger a batch, the less of it is fixed.

        Args:
            cores: of the executors that are there.
            joined_in_s: when those that were asked for are there; 0 if none is missing.
        """
        slots, rate = self.slots(cores), self.foreseen.rate
        empty_s, filled = self.cost.last(0.0, slots), rate * self.cost.last_per_row(slots)
        seconds = max(_BOUND_PART * self.objective_s, joined_in_s, 2.0 * empty_s)
        keeps_up = 0.0
        if (self.cost.scatter or 1.0) * filled < _OVERLOAD:
            keeps_up = rate * max(self.trigger_s, empty_s / (1.0 - filled))
        return max(self.cost.rows_in(seconds, slots), keeps_up)

    def foresee_growth(self, cores: float, then: float) -> float:
        """Busy seconds of the next batch over those of the last one.

        Args:
            cores: of the executors that are there.
            then: cores of those that were asked for, too.
        """
        come = self.foreseen.rate * (self._find_next_s(cores) - self.seen_s)
        rows = min(self.waiting_rows + come, self.batch_rows)
        rows = min(rows, self.bound(then)) if self.bounded else rows
        return self.cost.work(rows) / max(self.cost.work(self.recent[-1].input_rows), 1e-9)

    def _find_next_s(self, cores: float) -> float:
        """When the next batch begins."""
        free_s, now_s = self.begun_s, self.seen_s
        if self.running_rows is not None:
            ends_s = self.begun_s + self.cost.last(self.running_rows, self.slots(cores))
            # One that takes longer than foreseen is not about to end.
            free_s = max(ends_s, now_s + 0.05 * (now_s - self.begun_s))
        return max(free_s, self.begun_s + self.trigger_s, now_s)

    def wait_then(self, then_s: float, cores: float, join: tuple[float, float]) -> float:
        """Rows that wait when the first batch begins in which executors asked for now can help.

        Args:
            then_s: when executors that are asked for now are there.
            cores: of the executors that are there.
            join: when those that were asked for before are there, and their cores.
        """
        rate, waiting, (join_s, more) = self.foreseen.rate, self.waiting_rows, join
        at_s, seen_s = self._find_next_s(cores), self.seen_s
        for _ in range(_MAX_BATCHES):
            waiting, seen_s = waiting + rate * (at_s - seen_s), at_s
            if at_s >= then_s:
                break
            there = cores + (more if join_s <= at_s else 0.0)
            rows = min(waiting, self.batch_rows)
            if self.bounded:
                rows = min(rows, self.bound(there, max(0.0, join_s - at_s) if more else 0.0))
            waiting -= rows
            at_s += max(self.cost.last(rows, self.slots(there)), self.trigger_s, 0.2)
        return waiting


def _find_largest(fits: Callable[[float], bool]) -> float:
    """The largest number that fits, to three digits; 0 if not even 1 does."""
    low, high = 0.0, 1.0
    while high < _MOST and fits(high):
        low, high = high, 8.0 * high
    while high - low > 1.0 and low < 0.999 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if fits(middle) else (low, middle)
    return float(int(low))


@dataclass(slots=True)
class Load:
    """What all queries demand and do.

    Attributes:
        demands: of the measured queries.
        unmeasured: a sentence for each query that could not be measured, or not in full.
        busy: executor to the cores that it is busy on the mean.
        stateful: the part of it for state partitions.
        held: slots that queries hold which are not measured.
    """

    demands: list[Demand] = field(default_factory=list)
    unmeasured: list[str] = field(default_factory=list)
    busy: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stateful: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    held: int = 0


def measure_demands(
    seen: Observation,
    loads: Mapping[OperatorId, OperatorLoad],
    limits: ScalingPolicy,
    current: Set[tuple[str, int]],
) -> Load:
    """What each running query demands, then what the others leave it.

    Args:
        seen: with at least one executor.
        loads: of the operators, for queries whose driver does not report the work of stages.
        limits: of the policy.
        current: as `workload.find_current` returns it.
    """
    load = Load(held=sum(holder.slots or 0 for holder in seen.holders))
    used: dict[str, float] = {}
    cores = sum(seen.executors.values()) / len(seen.executors)
    by_query: dict[str, list[StageSample]] = defaultdict(list)
    for stage in seen.stages:
        by_query[stage.query].append(stage)
    for query, run in sort_batches(seen.batches).items():
        age_s = seen.now_s - run[-1].finished_s
        waits = waits_for_data(query, seen.idle_s, seen.now_s)
        # Until then a batch may still be due.
        usual_s = max(limits.window_s, LATE * (run[-1].trigger_s or 0.0))
        if age_s > usual_s and not any(s.query == query for s in seen.sightings):
            if not waits:
                load.unmeasured.append(f"query {query}: its last batch ended {age_s:.0f} s ago")
            elif age_s < seen.scale_in_delay_s:
                load.unmeasured.append(f"query {query} has waited for data for {age_s:.0f} s only")
            if (query, run[-1].batch) not in current:
                continue
        stages = by_query[query] or list(_list_stages(query, loads))
        if not by_query[query]:
            load.unmeasured.append(
                f"query {query}: its driver does not report the work outside stateful tasks"
            )
        cost = learn(run, stages, [t for t in seen.tasks if t.query == query], cores)
        measured = [b for b in run if b.interval_s]
        long = sum(b.duration_s for b in measured) >= LONG_S
        if cost is None or not (long or len(measured) >= MIN_BATCHES):
            load.unmeasured.append(
                f"query {query}: {len(measured)} of {MIN_BATCHES} batches measured"
                + ("" if cost else ", none of them with tasks")
            )
            continue
        waits = waits and seen.idle_s[query] > run[-1].finished_s
        idle_s = seen.idle_s[query] if waits else None
        demand = _measure_demand(seen, cost, run, limits, idle_s)
        if not demand.knows_rows and (demand.waiting_rows or demand.running_rows):
            load.unmeasured.append(f"query {query}: none of its batches measured had rows")
            continue
        load.demands.append(demand)
        recent = {b.batch: b.interval_s or 0.0 for b in demand.recent}
        span_s = sum(recent[n] for n in {stage.batch for stage in stages} & recent.keys())
        for stage in stages if span_s and not waits else ():
            for executor, busy_s in stage.executor_busy_s.items() if stage.batch in recent else ():
                load.busy[executor] += busy_s / span_s
                load.stateful[executor] += busy_s / span_s if stage.kind == "stateful" else 0.0
        pause_s = sum(recent.values()) / len(recent)
        per_s = cost.fixed_s / (demand.trigger_s or pause_s)
        used[query] = demand.foreseen.rate * cost.row_s + per_s
    load.demands = [
        _complete(d, seen, load, load.held + sum(used.values()) - used[d.query])
        for d in load.demands
    ]
    return load


def _complete(demand: Demand, seen: Observation, load: Load, others: float) -> Demand:
    """What a query demands beside the others, and which rows of it will wait."""
    there = sum(seen.executors.values())
    if demand.is_blind:
        more = max(1.0, sum(load.busy.values()) / there / _BLIND_FULL)
        foreseen = replace(demand.foreseen, ahead=more * demand.foreseen.ahead)
        demand = replace(demand, foreseen=foreseen)
    demand = replace(demand, others=others)
    asked_s = -math.inf if seen.last_scaled_s is None else seen.last_scaled_s
    missing = max(0, seen.asked - len(seen.executors)) * there / len(seen.executors)
    join = (max(asked_s + seen.start_s, seen.now_s + 1.0), missing)
    then_rows = demand.wait_then(seen.now_s + seen.start_s, there, join)
    return replace(demand, then_rows=then_rows)


def _measure_demand(
    seen: Observation,
    cost: QueryCost,
    run: Sequence[BatchSample],
    limits: ScalingPolicy,
    idle_s: float | None,
) -> Demand:
    """What one query demands, as if it were the only one."""
    last = run[-1]
    sightings = [s for s in seen.sightings if s.query == last.query]
    arrivals = count_arrivals(run, sightings, idle_s)
    interval_s = last.trigger_s or INTERVAL_S
    rate = arrivals.rate_now(interval_s)
    begun_s, running = last.finished_s - last.duration_s, None
    read = float(sum(batch.input_rows for batch in run))
    if sightings and sightings[-1].batch > last.batch:
        begun_s, running = sightings[-1].begun_s, sightings[-1].rows
        read += running or 0.0
    # If nothing was seen since the last batch, others have followed it as before.
    seen_s = seen.now_s if sightings or idle_s else min(seen.now_s, last.finished_s)
    unseen = rate * max(0.0, seen_s - arrivals.times_s[-1])
    recent = [b for b in run if b.interval_s][-RECENT_BATCHES:]
    bounded = last.query in seen.bounded
    return Demand(
        last.query,
        cost,
        arrivals,
        arrivals.foresee(seen.start_s + interval_s, interval_s, rate),
        last.trigger_s or 0.0,
        _choose_objective(limits.latency_objective_s, last.trigger_s),
        recent,
        begun_s,
        running,
        max(0.0, arrivals.totals[-1] + unseen - read),
        seen_s,
        bounded=bounded,
        batch_rows=math.inf if bounded else _find_most_rows(recent),
    )


def _choose_objective(set_s: float, trigger_s: float | None) -> float:
    """The objective that counts: no row is done sooner than the trigger lets its batch begin.

    >>> _choose_objective(15.0, 10.0), _choose_objective(5.0, 10.0), _choose_objective(5.0, None)
    (15.0, 25.0, 5.0)
    """
    can_meet = set_s > (trigger_s or 0.0)
    return set_s if can_meet else OBJECTIVE_INTERVALS * (trigger_s or INTERVAL_S)


def _find_most_rows(recent: Sequence[BatchSample]) -> float:
    """Rows of a batch at most; infinite unless each batch left behind as many as it read.

    Without a limit, a batch reads all that is there when it is planned.
    """
    left = all((b.backlog_rows or 0.0) > b.input_rows > 0 for b in recent)
    return max(b.input_rows for b in recent) if left else math.inf


def _list_stages(query: str, loads: Mapping[OperatorId, OperatorLoad]) -> list[StageSample]:
    """The stages of a query whose driver reports none, as far as its state partitions tell."""
    return [
        StageSample(
            query,
            load.batches[-1],
            "stateful",
            0.0,
            len(load.busy_s),
            max(load.busy_s.values(), default=0.0),
            load.executor_busy_s,
        )
        for (of_query, _), load in loads.items()
        if of_query == query
    ]
