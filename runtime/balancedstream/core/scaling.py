"""How many executors a stream needs, and whether more of them would help at all.

This file is longer than 400 lines: it is one algorithm, best read whole.

The count is DS2's: the arriving rate over the true processing rate, in rows per second of *busy*
time, so that an executor that waits does not look slow. Everything around it (band, delays, step
limits, holds) is our own design, after the defaults of the Flink autoscaler.

Work is counted in busy seconds per second. The cost of a row in the last batches converts a query's
rows into work, and the work of several queries that share executors adds up. Two costs are known
only as measured: a stream that runs tiny batches back to back shows the cost of empty tasks as
work, and the driver's planning and commits not at all.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real

from balancedstream.core.loads import OperatorLoad
from balancedstream.core.observations import BatchSample
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.errors import InvalidRateError

# A quotient this little above an integer is that integer: 2.1 / 0.7 is 3 executors, not 4.
_FLOAT_NOISE = 1e-9

# Batches that take this much of the time between their starts run back to back.
_BACK_TO_BACK = 0.95


class Verdict(StrEnum):
    """What the load shows; status and logs show the values of the members."""

    STEADY = "steady"
    """Nothing is wrong, or too little to act on."""

    CAPACITY = "capacity"
    """All executors are hot: more executors help."""

    SURPLUS = "surplus"
    """Fewer executors are enough."""

    SKEW = "skew"
    """One executor is hot: balancing helps, more executors do not."""

    UNSPLITTABLE = "unsplittable"
    """One partition alone fills an executor: neither helps."""

    HOLD = "hold"
    """Too little is known to change anything, or the last change is too recent."""


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """What to do about the number of executors, and why.

    Attributes:
        executors: how many there should be; the number requested before, if nothing changes.
        verdict: what the load shows.
        reason: the same for a person, with the numbers.
        utilization: fraction of their time that executors are busy with arriving work; None if
            unknown.
        hottest: the same for the hottest executor; None if unknown.
        limited: whether a bound or a step limit kept `executors` from the number that is needed.
    """

    executors: int
    verdict: Verdict
    reason: str
    utilization: float | None = None
    hottest: float | None = None
    limited: bool = False


def required_executors(
    input_rate: float,
    rate_per_executor: float,
    target_utilization: float,
    *,
    backlog: float = 0.0,
    catch_up_s: float = math.inf,
) -> int:
    """Compute how many executors keep up with the input and work off the backlog: DS2's rule.

    `(input_rate / target_utilization + backlog / catch_up_s) / rate_per_executor`, rounded up.

    Args:
        input_rate: arriving rows per second (or work, in busy seconds per second).
        rate_per_executor: the true processing rate of one executor, in the same unit.
        target_utilization: fraction of its time that an executor should be busy, above 0 to 1.
        backlog: rows (or work) that wait at the source.
        catch_up_s: seconds in which the backlog should be processed.

    Returns:
        The number of executors, at least 1.

    Raises:
        InvalidRateError: an argument is not a finite number in its range (`catch_up_s` may be
            infinite), or too extreme for an executor count; the message names it.

    >>> required_executors(2100.0, 1000.0, 0.7)
    3
    >>> required_executors(2100.0, 1000.0, 0.7, backlog=600_000.0, catch_up_s=600.0)
    4
    """
    _check("input_rate", input_rate, "a finite number from 0", lambda v: v >= 0)
    _check("rate_per_executor", rate_per_executor, "a finite number above 0", lambda v: v > 0)
    _check("target_utilization", target_utilization, "above 0, at most 1", lambda v: 0 < v <= 1)
    _check("backlog", backlog, "a finite number from 0", lambda v: v >= 0)
    if catch_up_s != math.inf:
        _check("catch_up_s", catch_up_s, "above 0", lambda v: v > 0)
    executors = (input_rate / target_utilization + backlog / catch_up_s) / rate_per_executor
    _check("rate_per_executor", rate_per_executor, "less small", lambda _: executors < math.inf)
    return max(1, math.ceil(executors * (1 - _FLOAT_NOISE)))


def _check(name: str, value: float, allowed: str, fits: Callable[[float], bool]) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not fits(value):
        message = f"{name}: must be {allowed}, not {value!r}; no executor count follows from it"
        raise InvalidRateError(message)


def decide(
    batches: Iterable[BatchSample],
    loads: Mapping[tuple[str, int], OperatorLoad],
    executors: Mapping[str, int],
    policy: Policy,
    *,
    now_s: float,
    requested: int | None = None,
    last_change_s: float | None = None,
    missing: int = 0,
) -> ScalingDecision:
    """Decide how many executors there should be.

    The rules apply in this order. Hold while measurements are missing or too few, or a change is
    too recent. Name a partition that alone fills an executor, and a hot executor that balancing can
    relieve. Add executors if they are hot, or if the backlog takes too long. Remove some if even at
    the highest rate of the last `scale_in_delay_s` fewer executors are enough. Utilization is the
    share of the time between batch starts that executors are busy.

    If batches run back to back and no source reports its backlog, more rows may arrive than are
    seen. Executors busier than the target then count as full, since the driver needs the rest.

    Args:
        batches: micro-batches of the running queries, any order, from the last `scale_in_delay_s`
            or longer; with a shorter history no executor is removed. A query without recent batches
            cannot be measured: it may be idle or hung, so it prevents removal too.
        loads: as `loads.measure` returns them.
        executors: live executors, id to cores.
        policy: `scaling`, and `act_above` of `balance`.
        now_s: clock of the batches' `finished_s`.
        requested: executors requested last; None for the live ones.
        last_change_s: time of the last change of that number; None for never.
        missing: number of measurements in a row that failed, up to now.

    Returns:
        The decision. The caller acts on it or only shows it, as `scaling.mode` says.

    >>> from balancedstream.core.policy import ScalingPolicy
    >>> load = OperatorLoad(
    ...     batches=(1, 2, 3, 4, 5), busy_s=dict.fromkeys(range(8), 2.3),
    ...     records=dict.fromkeys(range(8), 100.0), state_bytes=dict.fromkeys(range(8), 0),
    ...     placement={p: "ab"[p % 2] for p in range(8)}, executor_busy_s={"a": 9.2, "b": 9.2})
    >>> batches = [
    ...     BatchSample("q", n, n * 10.0, duration_s=9.4, input_rows=800, interval_s=10.0)
    ...     for n in range(1, 6)]
    >>> decision = decide(
    ...     batches, {("q", 0): load}, {"a": 1, "b": 1},
    ...     Policy(scaling=ScalingPolicy(max_executors=4)), now_s=50.0)
    >>> decision.executors, decision.verdict.value
    (3, 'capacity')
    >>> for part in decision.reason.split("; "):
    ...     print(part)
    2 executors have work for 92% of their time, the hottest for 92%
    3 are needed to be 70% busy
    from 2 to 3
    """
    limits = policy.scaling
    asked = len(executors) if requested is None else requested
    runs = _runs(batches)

    def hold(why: str) -> ScalingDecision:
        count, outcome = _bound(asked, asked, limits)
        return ScalingDecision(count, Verdict.HOLD, f"{why}; {outcome}")

    if not executors:
        return hold("no live executor")
    if missing >= limits.metric_failures:
        return hold(f"measurements failed {missing} times in a row")
    settling = _settling(runs, limits, now_s, last_change_s)
    work, unmeasured = _measure(runs, loads, limits, now_s, last_change_s)
    if settling or not work.partitions:
        return hold(settling or "; ".join(unmeasured) or "no batch was measured yet")
    sizing = _Sizing(work, executors, policy, asked)
    if sizing.is_pressed():
        return sizing.relieve()
    if missing:
        unmeasured.append(f"measurements failed {missing} times in a row")
    return sizing.give_back(unmeasured)


@dataclass(slots=True)
class _Work:
    """The work of the measured queries, in busy seconds per second.

    Attributes:
        partitions: (query, operator, partition) to the work now done for it.
        executors: executor to the work that it does now.
        arriving: the work that arrives for each partition, heaviest first; more than the work done
            while a backlog grows, less while it shrinks.
        peak: highest arriving work over the scale-in delay, all partitions together.
        backlog: work that waits at the sources, in busy seconds.
        back_to_back: whether some query starts each batch as the one before ends.
        blind: whether such a query does not know its backlog.
        covered_s: how far back the batches reach.
    """

    partitions: dict[tuple[str, int, int], float]
    executors: dict[str, float]
    arriving: list[float]
    peak: float = 0.0
    backlog: float = 0.0
    back_to_back: bool = False
    blind: bool = False
    covered_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Interval:
    """One batch, and the rows that arrived at the sources since the batch before it began."""

    batch: BatchSample
    length_s: float
    arrived: float


def _runs(batches: Iterable[BatchSample]) -> dict[str, list[BatchSample]]:
    """Batches by query, oldest first; of a batch that ran twice, the last run."""
    last: dict[tuple[str, int], BatchSample] = {}
    for batch in sorted(batches, key=lambda b: (b.finished_s, b.duration_s, b.input_rows)):
        last[batch.query, batch.batch] = batch
    runs: dict[str, list[BatchSample]] = defaultdict(list)
    for batch in sorted(last.values(), key=lambda b: (b.query, b.finished_s, b.batch)):
        runs[batch.query].append(batch)
    return runs


def _settling(
    runs: Mapping[str, Sequence[BatchSample]],
    limits: ScalingPolicy,
    now_s: float,
    last_change_s: float | None,
) -> str:
    """Why it is too soon after a change; empty if it is not too soon."""
    if last_change_s is None:
        return ""
    passed_s = now_s - last_change_s
    passed = max(
        (sum(b.finished_s - b.duration_s >= last_change_s for b in run) for run in runs.values()),
        default=0,
    )
    if passed_s >= limits.stabilization_s and passed >= limits.stabilization_batches:
        return ""
    return (
        f"the last change was {passed_s:.0f} s and {passed} batches ago; its effect shows after "
        f"{limits.stabilization_s:.0f} s and {limits.stabilization_batches} batches"
    )


def _measure(
    runs: Mapping[str, Sequence[BatchSample]],
    loads: Mapping[tuple[str, int], OperatorLoad],
    limits: ScalingPolicy,
    now_s: float,
    last_change_s: float | None,
) -> tuple[_Work, list[str]]:
    """Add up the work of all queries; the second value says which could not be measured, and why.

    The work is the cost of a row, from the batches behind the loads, times the rates of the scaling
    window. These few batches are noisy, so the durations of the whole window give a second cost.
    The lower cost decides about more executors, the higher about fewer.
    """
    work = _Work({}, defaultdict(float), [])
    unmeasured: list[str] = []
    peaks: dict[int, float] = defaultdict(float)
    for query, run in runs.items():
        operators = {key: loads[key] for key in sorted(loads) if key[0] == query}
        numbers = {number for load in operators.values() for number in load.batches}
        loaded = [batch for batch in run if batch.batch in numbers]
        rows = sum(batch.input_rows for batch in loaded)
        intervals = _list_intervals(run)
        window = _window(intervals, limits, now_s)
        if not rows or len(window) < limits.min_batches:
            unmeasured.append(
                f"query {query}: {len(window)} of {limits.min_batches} recent batches measured, "
                f"{rows} rows in the last of them"
            )
            continue
        span_s = sum(interval.length_s for interval in window)
        processed = sum(interval.batch.input_rows for interval in window) / span_s
        # The whole window decides whether to act; how far to go follows the latest rate if it rose.
        arriving = max(_arrival_rate(window), _arrival_rate(window[-limits.min_batches :]))
        drift = _drift(loaded, [interval.batch for interval in window], last_change_s)
        row_s = 0.0
        for (_, operator), load in operators.items():
            for partition, busy_s in load.busy_s.items():
                share_s = min(1.0, drift) * busy_s * len(loaded) / rows
                row_s += share_s
                work.partitions[query, operator, partition] = share_s * processed
                work.executors[load.placement[partition]] += share_s * processed
                work.arriving.append(share_s * arriving)
        backlog_rows = window[-1].batch.backlog_rows
        work.backlog += (backlog_rows or 0.0) * row_s
        if sum(interval.batch.duration_s for interval in window) >= _BACK_TO_BACK * span_s:
            work.back_to_back = True
            work.blind = work.blind or backlog_rows is None
        work.covered_s = max(work.covered_s, now_s - run[0].finished_s + run[0].duration_s)
        highest_row_s = row_s * max(1.0, drift) / min(1.0, drift)
        peaks[0] += arriving * highest_row_s
        for age, old in _by_age(intervals, limits, now_s).items():
            peaks[age] += _arrival_rate(old) * highest_row_s
    work.arriving.sort(reverse=True)
    work.peak = max(peaks.values(), default=0.0)
    return work, unmeasured


def _drift(
    loaded: Sequence[BatchSample], window: Sequence[BatchSample], last_change_s: float | None
) -> float:
    """Cost of a row in the window over its cost in the loaded batches, by their durations.

    Batches before the last change do not count: another number of executors ran them.
    """
    since_s = -math.inf if last_change_s is None else last_change_s
    settled = [batch for batch in window if batch.finished_s - batch.duration_s >= since_s]
    rows = sum(batch.input_rows for batch in settled)
    recent_s = sum(batch.duration_s for batch in loaded)
    if not rows or recent_s <= 0:
        return 1.0
    recent_rows = sum(batch.input_rows for batch in loaded)
    return (sum(batch.duration_s for batch in settled) / rows) / (recent_s / recent_rows)


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
    intervals: Sequence[_Interval], limits: ScalingPolicy, now_s: float
) -> Sequence[_Interval]:
    """The batches of the last `window_s`; of a slow stream that still runs, some before it too."""
    recent = [
        interval for interval in intervals if interval.batch.finished_s >= now_s - limits.window_s
    ]
    return recent and max(recent, intervals[-limits.min_batches :], key=len)


def _by_age(
    intervals: Sequence[_Interval], limits: ScalingPolicy, now_s: float
) -> dict[int, list[_Interval]]:
    """Older batches within the scale-in delay, in groups as long as the window."""
    groups: dict[int, list[_Interval]] = defaultdict(list)
    for interval in intervals:
        age_s = now_s - interval.batch.finished_s
        if limits.window_s < age_s <= limits.scale_in_delay_s:
            groups[int(age_s / limits.window_s)].append(interval)
    return groups


def _arrival_rate(intervals: Sequence[_Interval]) -> float:
    rows = sum(interval.arrived for interval in intervals)
    return max(0.0, rows / sum(interval.length_s for interval in intervals))


class _Sizing:
    """Executors and their work, and the rules that decide on their number."""

    def __init__(
        self, work: _Work, executors: Mapping[str, int], policy: Policy, asked: int
    ) -> None:
        self.work = work
        self.asked = asked
        self.limits = policy.scaling
        self.act_above = policy.balance.act_above
        self.count = len(executors)
        self.cores = sum(executors.values()) / self.count
        self.utilization = sum(work.partitions.values()) / (self.count * self.cores)
        self.hottest = max(
            work.executors.get(executor, 0.0) / cores for executor, cores in executors.items()
        )
        self.full = self.limits.target_utilization if work.blind else self.limits.high_utilization

    def is_pressed(self) -> bool:
        """Whether an executor is full, or executors take too long to process the backlog."""
        late = self.work.back_to_back and self._drain_s() > self.limits.catch_up_s
        return self.hottest > self.full or late

    def relieve(self) -> ScalingDecision:
        """Add executors, unless the cause is skew, which balancing can remove."""
        partition, share = max(self.work.partitions.items(), key=lambda item: item[1])
        if share > self.full:
            query, operator, number = partition
            return self.keep(
                Verdict.UNSPLITTABLE,
                f"partition {number} of operator {operator} of query {query} alone keeps a core "
                f"{share:.0%} busy (full at {self.full:.0%}): no move and no executor helps, its "
                f"keys must be split",
            )
        needed = self._needed(sum(self.work.arriving))
        if self.work.blind and self.utilization > self.full:
            at_least = required_executors(self.count, 1.0, self.limits.target_utilization)
            needed = max(needed, at_least)
        if (
            self.utilization <= self.full
            and self.hottest > self.act_above * self.utilization
            and self._fits(self.count)
        ):
            return self.keep(
                Verdict.SKEW,
                f"balanced, {self.count} executors carry it: move partitions, more executors "
                f"would not help",
                needed,
            )
        top = max(self.count + 1, int(self.count * self.limits.scale_out_factor))
        count = self._first_that_fits(max(self.count, needed), top)
        if count == self.count:
            return self.keep(
                Verdict.STEADY,
                f"{self.count} executors carry what arrives{self._backlog()}",
                needed,
            )
        needed = max(needed, count)
        aim = f"{needed} are needed to be {self.limits.target_utilization:.0%} busy"
        if self.work.backlog:
            aim += f" once the backlog is worked off in {self.limits.catch_up_s:.0f} s"
        return self._decide(max(self.asked, min(count, top)), Verdict.CAPACITY, aim, needed)

    def give_back(self, unmeasured: Sequence[str]) -> ScalingDecision:
        """Remove executors, unless unmeasured or recent work may need them."""
        limits = self.limits
        if self.utilization >= limits.low_utilization:
            return self.keep(Verdict.STEADY, f"the band is {self._band()}{self._backlog()}")
        busiest = self.work.peak / (self.count * self.cores)
        if busiest >= limits.low_utilization:
            return self.keep(
                Verdict.STEADY,
                f"in the last {limits.scale_in_delay_s:.0f} s it was up to {busiest:.0%}, the band "
                f"is {self._band()}",
            )
        needed = max(self._needed(self.work.peak), limits.min_executors)
        rise = self.work.peak / (sum(self.work.arriving) or 1.0)
        count = self._first_that_fits(needed, self.count, rise)
        if count >= self.count:
            return self.keep(Verdict.STEADY, f"{count} are needed at the highest rate", needed)
        if unmeasured:
            return self.keep(Verdict.HOLD, unmeasured[0], needed)
        if self._drain_s() > limits.backlog_hold_s:
            return self.keep(Verdict.HOLD, f"no removal now{self._backlog()}", needed)
        if self.work.covered_s < limits.scale_in_delay_s:
            return self.keep(
                Verdict.HOLD,
                f"{count} would do, but only {self.work.covered_s:.0f} of "
                f"{limits.scale_in_delay_s:.0f} s were measured",
                needed,
            )
        least = self.count - max(1, int(self.count * limits.scale_in_step))
        return self._decide(
            min(self.asked, max(count, least)),
            Verdict.SURPLUS,
            f"{count} carry the highest rate of the last {limits.scale_in_delay_s:.0f} s",
            count,
        )

    def keep(self, verdict: Verdict, reason: str, needed: int | None = None) -> ScalingDecision:
        """Leave the number as it is."""
        return self._decide(self.asked, verdict, reason, needed)

    def _decide(
        self, count: int, verdict: Verdict, reason: str, needed: int | None
    ) -> ScalingDecision:
        count, outcome = _bound(count, self.asked, self.limits)
        text = (
            f"{self.count} executors have work for {self.utilization:.0%} of their time, the "
            f"hottest for {self.hottest:.0%}; {reason}; {outcome}"
        )
        return ScalingDecision(
            count,
            verdict,
            text,
            self.utilization,
            self.hottest,
            limited=verdict in {Verdict.CAPACITY, Verdict.SURPLUS} and count != needed,
        )

    def _needed(self, arriving: float) -> int:
        return required_executors(
            arriving,
            self.cores,
            self.limits.target_utilization,
            backlog=self.work.backlog,
            catch_up_s=self.limits.catch_up_s,
        )

    def _fits(self, count: int, rise: float = 1.0) -> bool:
        """Whether `count` balanced executors stay below full at `rise` times the arriving work."""
        slots = [0.0] * max(1, int(count * self.cores))
        for work in self.work.arriving:
            heapq.heapreplace(slots, slots[0] + work * rise)
        return max(slots) <= self.full

    def _first_that_fits(self, low: int, high: int, rise: float = 1.0) -> int:
        """The lowest count from `low` that fits; `high` if no lower one does."""
        if low >= high:
            return low
        return low + bisect_left(range(low, high), True, key=lambda count: self._fits(count, rise))

    def _drain_s(self) -> float:
        if not self.work.backlog:
            return 0.0
        spare = self.count * self.cores - sum(self.work.arriving)
        return self.work.backlog / spare if spare > 0 else math.inf

    def _band(self) -> str:
        return f"{self.limits.low_utilization:.0%} to {self.full:.0%}"

    def _backlog(self) -> str:
        """The backlog in words, as an addition to a reason."""
        drain_s = self._drain_s()
        if drain_s <= self.limits.backlog_hold_s:
            return ""
        if not self.work.back_to_back:
            return ", and a backlog stays because batches take too little of it, not too long"
        if drain_s == math.inf:
            return ", and a backlog grows"
        return f", and a backlog takes {drain_s:.0f} s"


def _bound(count: int, asked: int, limits: ScalingPolicy) -> tuple[int, str]:
    """Keep `count` within the policy's bounds, and say the result."""
    if not limits.max_executors:
        kept = asked
        bounds = "" if count == asked else " (scaling.max_executors is not set)"
    else:
        kept = min(max(count, limits.min_executors), limits.max_executors)
        within = f" (bounds are {limits.min_executors} to {limits.max_executors})"
        bounds = "" if kept == count else within
    change = f"{kept} stay" if kept == asked else f"from {asked} to {kept}"
    return kept, change + bounds
