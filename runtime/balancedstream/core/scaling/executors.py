"""How many executors a stream needs, and whether more of them would help at all.

The rule: the fewest executors that meet the latency objective at the rate that is foreseen when
they would be there, and for the rows that wait then. Executors stay for the highest need of a
while, which gets longer with each removal that was regretted. Costs are DS2's true cost of a row,
and a fixed part; the rule, the delays and the memory of scale-outs that did not help are our own.
That memory is what Flink calls ineffective scaling (FLINK-37411).

Before executors are added, the model of a batch says what more of them would gain. If twice the
executors gain next to nothing, the verdict names what limits the batch instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from balancedstream.core.balance.loads import OperatorLoad
from balancedstream.core.memory.fitting import (
    Tightness,
    describe_share,
    find_floor,
    find_tightness,
)
from balancedstream.core.observations import Observation, ScaleOut
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import OperatorId
from balancedstream.core.scaling.demand import OVERLOAD_S, Demand, Load, measure_demands
from balancedstream.core.scaling.limits import find_limit, find_shortage
from balancedstream.core.scaling.slots import SlotNeed, measure_slots
from balancedstream.core.scaling.verdicts import Verdict

HOLD_S = 120.0
"""Executors that were added stay so long, and those that were removed are missed so long."""

TOLERANCE = 1.03
"""The objective is missed when it is exceeded by more than the model can tell."""

AS_GOOD = 1.1
"""If no number of executors meets the objective, the fewest that come so near to the best do."""

FULL = 0.95
"""Executors that are busy for this part of their time are not removed."""

LEAST_SAVING = 1 / 16
"""A removal that saves less than this part of the executors costs more than it saves: state moves,
and they come back with the next noise."""

LEAST_EFFECT = 0.1
"""A scale-out that brings less than this part of its expected gain did not help (Flink's
`scaling.effectiveness.threshold`, FLINK-37411)."""

INEFFECTIVE_HOLD_S = 1800.0
"""A scale-out that did not help is not repeated for so long."""

SCALE_OUT_FACTOR = 8
"""One decision multiplies the executors by this at most."""


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
        scale_out: what executors that are added now should bring; None if none are.
        judged: the last scale-outs, by what their executors show. Pass both to the next decisions,
            the new one if it is made.
        bounds: rows that the next batch of each query should have at most.
        growth: busy seconds of the next batch of each query over those of its last one.
        enough_for: rows per second of each query for which those that stay are enough, if some are
            removed.
        demands: of all queries; empty if one of them was not measured in full.
        tight: why memory is too small for the state; None if it is not.
    """

    executors: int
    verdict: Verdict
    reason: str
    utilization: float | None = None
    hottest: float | None = None
    limited: bool = False
    scale_out: ScaleOut | None = None
    judged: Sequence[ScaleOut] = ()
    bounds: Mapping[str, float] = field(default_factory=dict)
    growth: Mapping[str, float] = field(default_factory=dict)
    enough_for: Mapping[str, float] = field(default_factory=dict)
    demands: Sequence[Demand] = ()
    tight: Tightness | None = None


def decide(
    observation: Observation,
    loads: Mapping[OperatorId, OperatorLoad],
    policy: Policy,
    current: Set[tuple[str, int]] = frozenset(),
) -> ScalingDecision:
    """Decide how many executors there should be.

    Hold while too little is measured. If the objective is not met: name a source, a partition or a
    driver that limits the batch; otherwise add executors, unless the last change removed some just
    now, or the last ones that were added did not help. If it is met, remove what even the highest
    rate of the delay does not need, unless executors were added just now.

    Args:
        observation: its batches and stages are those of the running queries from the last minutes.
            A query without recent batches cannot be measured: it may be idle or hung, so it
            prevents removal.
        loads: as `loads.measure` returns them.
        policy: `scaling`, and `act_above` of `balance`.
        current: as `workload.find_current` returns it.

    Returns:
        The decision. The caller acts on it or only shows it, as `scaling.mode` says.

    >>> from balancedstream.core.policy import ScalingPolicy
    >>> from balancedstream.core.samples import BatchSample, StageSample
    >>> batches = tuple(
    ...     BatchSample("q", n, n * 15.0, 15.0, 1600, 15.0, 0.0, 10.0, gaps_s=0.5)
    ...     for n in range(1, 7))
    >>> stages = tuple(
    ...     StageSample("q", n, "source", n * 15.0, 64, 0.6, {"a": 14.0, "b": 14.0})
    ...     for n in range(1, 7))
    >>> decision = decide(
    ...     Observation(90.0, {"a": 1, "b": 1}, batches=batches, stages=stages),
    ...     {}, Policy(scaling=ScalingPolicy(max_executors=8)))
    >>> decision.executors, decision.verdict.value
    (3, 'capacity')
    """
    limits, asked = policy.scaling, observation.asked
    need = measure_slots(observation)
    if need is not None and (shortage := find_shortage(need)):
        return _fill(need, shortage, observation, limits)

    def hold(why: str) -> ScalingDecision:
        count, outcome = _bound(asked, asked, limits)
        return ScalingDecision(count, Verdict.HOLD, f"{why}; {outcome}")

    if not observation.executors:
        return hold("no live executor")
    if not observation.batches:
        return hold(need.reason if need else "no batch was measured yet")
    load = measure_demands(observation, loads, limits, current)
    if load.unmeasured and not load.demands:
        return hold("; ".join(load.unmeasured))
    return _Sizing(load, observation, loads, policy).decide()


def _fill(
    need: SlotNeed, shortage: str, seen: Observation, limits: ScalingPolicy
) -> ScalingDecision:
    """Adds the executors whose slots are missing, as far as the policy allows."""
    wanted = max(need.executors, seen.asked)
    count, outcome = _bound(wanted, seen.asked, limits)
    return ScalingDecision(count, Verdict.SLOTS, f"{shortage}; {outcome}", limited=count < wanted)


class _Sizing:
    """What is demanded of executors, and the rule that decides on their number."""

    def __init__(
        self,
        load: Load,
        seen: Observation,
        loads: Mapping[OperatorId, OperatorLoad],
        policy: Policy,
    ) -> None:
        executors = seen.executors
        self.load, self.seen, self.limits, self.loads = load, seen, policy.scaling, loads
        self.tight = find_tightness(seen.memory)
        self.act_above = policy.balance.act_above
        self.count, self.asked = len(executors), seen.asked
        self.cores = sum(executors.values()) / self.count
        left = max(self.cores, self.count * self.cores - load.held)
        self.utilization = sum(load.busy.values()) / left
        self.hottest = max(load.busy.get(e, 0.0) / cores for e, cores in executors.items())
        changed_s = -math.inf if seen.last_scaled_s is None else seen.last_scaled_s
        self.passed_s = max(0.0, seen.now_s - changed_s)
        self.working = self._count_cores(self.asked)
        self.top = SCALE_OUT_FACTOR * max(1, self.asked)
        most = self._count_cores(self.top)
        self.allowed = {
            d.query: (
                max(d.objective_s, AS_GOOD * d.steady(most)),
                max(d.objective_s, AS_GOOD * d.after(most)),
            )
            for d in load.demands
        }
        self.scale_outs = {last.query: self._judge(last) for last in seen.scale_outs}

    def decide(self) -> ScalingDecision:
        """Names what limits a query that misses its objective, adds executors, or removes some."""
        decision = self._heed_memory(self._choose())
        missing_s = self.seen.start_s - self.passed_s if self.asked > self.count else 0.0
        there, then = self.count * self.cores, self.asked * self.cores
        demands = self.load.demands
        return replace(
            decision,
            judged=tuple(self.scale_outs.values()),
            bounds={d.query: d.bound(there, max(0.0, missing_s)) for d in demands if d.can_bound},
            growth={d.query: d.foresee_growth(there, then) for d in demands},
            demands=() if self.load.unmeasured else tuple(demands),
            tight=self.tight,
        )

    def _heed_memory(self, decision: ScalingDecision) -> ScalingDecision:
        """The decision, where the state fits into what it leaves; or else what memory needs."""
        tight, memory = self.tight, self.seen.memory
        if tight is None or not tight.of_state or decision.executors > self.asked:
            return decision
        if tight.kind == "near":
            needed = find_floor(memory)
            # State takes its time to move, and memory to be given back.
            if needed > self.asked and self.passed_s >= INEFFECTIVE_HOLD_S:
                aim = f"{tight.said}; on {self.asked}, {describe_share(memory, self.asked)}"
                added = self._decide(needed, Verdict.CAPACITY, f"{aim}; {needed} hold it", needed)
                if added.executors > self.asked:
                    return added
        if decision.verdict is Verdict.STEADY:
            return self._keep(Verdict.MEMORY_BOUND, f"{tight.said}: memory is what is missing")
        return decision

    def _choose(self) -> ScalingDecision:
        if not self.load.demands:
            return self._give_back("no query has rows to work on")
        worst_first = sorted(
            self.load.demands, key=lambda d: self._find_latency(d) / d.objective_s, reverse=True
        )
        missed = [d for d in worst_first if self._find_latency(d) > TOLERANCE * d.objective_s]
        if not missed:
            return self._give_back(self._describe_met(worst_first[0]))
        limits = {d.query: self._find_limit(d) for d in missed}
        # Executors do not help a query that something else limits; they may help the others.
        helped = [
            d
            for d in missed
            if limits[d.query] is None and not self._meets(self.asked, [d], tolerance=TOLERANCE)
        ]
        if helped:
            return self._add(helped)
        worst = missed[0]
        limit = next((limit for limit in limits.values() if limit is not None), None)
        if limit is not None:
            return self._keep(*limit)
        if worst.after(self.working) > TOLERANCE * worst.objective_s:
            why = f"{self._describe_missed(worst)}, but more executors do no better"
            return self._keep(Verdict.STEADY, why)
        return self._give_back(self._describe_met(worst))

    def _find_limit(self, demand: Demand) -> tuple[Verdict, str] | None:
        """What else than executors a query that misses its objective lacks, for people."""
        tight = self.tight
        if tight is not None and tight.kind == "reads" and tight.query == demand.query:
            why = f"{tight.said}: memory is what is missing, and not executors"
            return Verdict.MEMORY_BOUND, f"{self._describe_missed(demand)}, but {why}"
        return find_limit(demand, self.asked * self.cores, self.loads)

    def _add(self, helped: Sequence[Demand]) -> ScalingDecision:
        """Adds executors, unless those of before have not shown yet what they bring.

        Args:
            helped: the queries that need executors, the one that misses its objective most first.
        """
        tried = [d for d in helped if not self._is_repeated(d.query)]
        if not tried:
            needed = self._find_fewest(self.asked + 1, self.top, helped)
            failure = self._describe_failure(self.scale_outs[helped[0].query])
            return self._keep(Verdict.HOLD, failure, needed)
        helped, worst = tried, tried[0]
        needed = self._find_fewest(self.asked + 1, self.top, helped)
        aim = f"{self._describe_missed(worst)}; {needed} are needed"
        why = ""
        if self.passed_s < HOLD_S and self.seen.last_removed:
            why = f"executors were removed {self.passed_s:.0f} s ago"
        elif self._meets_steadily(worst) and self.passed_s < self.seen.start_s + worst.objective_s:
            why = f"executors that were asked for {self.passed_s:.0f} s ago begin to help"
        elif worst.arrivals.is_rising(worst.interval_s):
            why = "the rate still rises"  # How far a step goes shows within seconds.
        if why:
            return self._keep(Verdict.HOLD, f"{aim}, but {why}", needed)
        decision = self._decide(needed, Verdict.CAPACITY, aim, needed)
        if decision.executors <= self.asked or not worst.knows_rows:
            return decision
        before = self._count_rows_per_s(worst, self.count)
        gain = self._count_rows_per_s(worst, decision.executors) / before - 1.0
        at_s, after = self.seen.now_s, decision.executors
        out = ScaleOut(worst.query, at_s, self.count, after, before, gain)
        return replace(decision, scale_out=out)

    def _give_back(self, met: str) -> ScalingDecision:
        """Removes executors, unless unmeasured or recent work may need them.

        Args:
            met: what the present number does, for people.
        """
        if self._is_skewed() and self.hottest > FULL:
            why = f"balanced, {self.count} executors carry it: move partitions"
            return self._keep(Verdict.SKEW, f"{why}, more executors would not help")
        delay_s = self.seen.scale_in_delay_s
        peaks = self._find_peaks(delay_s)
        count = self._find_for(peaks)
        held, fewer = min(find_floor(self.seen.memory), self.asked), count
        count = max(count, held)
        if count >= self.asked:
            if fewer < held:
                met = f"{met}; no removal: {describe_share(self.seen.memory, fewer)}"
            return self._keep(Verdict.STEADY, met, count)
        if self.asked - count < LEAST_SAVING * self.asked:
            return self._keep(Verdict.STEADY, f"{met}; {count} would do, which saves too little")
        if self.utilization >= FULL:
            return self._keep(Verdict.STEADY, "all of them are busy all the time", count)
        if self.load.unmeasured:
            return self._keep(Verdict.HOLD, self.load.unmeasured[0], count)
        would = f"{count} meet the objective at the highest rate of the last {delay_s:.0f} s"
        if fewer < held:
            share = describe_share(self.seen.memory, fewer)
            would = f"{would}, not {fewer} ({share})"
        known_s = min((d.arrivals.covered_s for d in self.load.demands), default=math.inf)
        interval_s = max((d.interval_s for d in self.load.demands), default=0.0)
        why = ""
        if known_s < delay_s - interval_s:
            why = f", but only {known_s:.0f} s were measured"
        elif self.passed_s < max(HOLD_S, delay_s):
            why = f", but the last change was {self.passed_s:.0f} s ago"
        elif max(held, self._find_for(self._find_peaks(delay_s / 2))) < count:
            why = ", and soon fewer will"
        if why:
            return self._keep(Verdict.HOLD, would + why, count)
        decision = self._decide(count, Verdict.SURPLUS, would, count)
        return replace(decision, enough_for=peaks)

    def _judge(self, last: ScaleOut) -> ScaleOut:
        """A scale-out by what its executors show now, if they are all there.

        The first batches on new executors are slow, so a failure stands only as long as it shows.
        While one executor has most of the work, the others cannot show what they bring.
        """
        gain = None if self._is_skewed() else self._find_gain(last)
        return last if gain is None else replace(last, failed=gain < LEAST_EFFECT * last.gain)

    def _find_gain(self, last: ScaleOut) -> float | None:
        """What a scale-out has brought its query; None while too few batches ran on all of it."""
        demand = next((d for d in self.load.demands if d.query == last.query), None)
        if demand is None or not demand.knows_rows or last.rows_per_s <= 0.0:
            return None
        if self.count < last.after or demand.cost.cores < last.after * self.cores:
            return None
        return self._count_rows_per_s(demand, self.count) / last.rows_per_s - 1.0

    def _count_cores(self, executors: int) -> float:
        """Cores of those of so many executors that are not in reserve."""
        return self.limits.count_working(executors) * self.cores

    def _find_latency(self, demand: Demand) -> float:
        return max(demand.steady(self.working), demand.after(self.working))

    def _meets_steadily(self, demand: Demand) -> bool:
        """Whether only rows that wait miss the objective."""
        return demand.steady(self.working) <= TOLERANCE * self.allowed[demand.query][0]

    def _meets(
        self,
        count: int,
        demands: Iterable[Demand],
        rates: Mapping[str, float] | None = None,
        tolerance: float = 1.0,
    ) -> bool:
        """Whether so many executors meet these objectives, or do as well as any number."""
        cores = self._count_cores(count)
        return all(
            d.steady(cores, rates[d.query] if rates else None)
            <= tolerance * self.allowed[d.query][0]
            and d.after(cores) <= tolerance * self.allowed[d.query][1]
            for d in demands
        )

    def _find_fewest(
        self,
        low: int,
        high: int,
        demands: Sequence[Demand],
        rates: Mapping[str, float] | None = None,
    ) -> int:
        """The fewest executors of this range that meet these objectives; `high` if none do."""
        while low < high:
            middle = (low + high) // 2
            if self._meets(middle, demands, rates):
                high = middle
            else:
                low = middle + 1
        return low

    def _find_for(self, rates: Mapping[str, float]) -> int:
        """The fewest executors that may stay and meet the objectives at these rates."""
        fewest = self._find_fewest(1, self.asked, self.load.demands, rates)
        return max(fewest, self.limits.least)

    def _find_peaks(self, delay_s: float) -> dict[str, float]:
        """The highest rate of each query in a time until now, and some room."""
        since_s = self.seen.now_s - delay_s
        return {
            d.query: self.seen.room
            * max(d.foreseen.ahead, d.arrivals.find_peak(d.interval_s, since_s))
            for d in self.load.demands
        }

    def _describe_failure(self, last: ScaleOut) -> str:
        left_s = last.at_s + INEFFECTIVE_HOLD_S - self.seen.now_s
        gain = self._find_gain(last)
        found = "" if gain is None else f" ({gain:+.0%})"
        return (
            f"the last scale-out, from {last.before} to {last.after}, was expected to make batches "
            f"of query {last.query} {last.gain:+.0%} faster and did not{found}: executors are not "
            f"what is missing; it is not repeated for {left_s:.0f} s"
        )

    def _describe_missed(self, worst: Demand) -> str:
        steady_s, objective = worst.steady(self.working), self._describe_objective(worst)
        rate = f"{worst.foreseen.ahead:,.0f} rows/s foreseen ({worst.foreseen.way})"
        if steady_s > self.allowed[worst.query][0] or steady_s >= OVERLOAD_S:
            found = "fall behind" if steady_s >= OVERLOAD_S else f"take {steady_s:.1f} s"
            return f"at {rate}, rows of query {worst.query} {found}, {objective}"
        return (
            f"{worst.then_rows:,.0f} rows of query {worst.query} will wait in "
            f"{self.seen.start_s:.0f} s, those behind them take "
            f"{worst.after(self.working):.1f} s, {objective}"
        )

    def _describe_met(self, worst: Demand) -> str:
        steady_s = worst.steady(self.working)
        return (
            f"at {worst.foreseen.ahead:,.0f} rows/s foreseen ({worst.foreseen.way}), rows of query "
            f"{worst.query} take {steady_s:.1f} s, {self._describe_objective(worst)}"
        )

    def _describe_objective(self, demand: Demand) -> str:
        set_s = self.limits.latency_objective_s
        short = f" ({set_s:g} s are no longer than its trigger interval)"
        is_set = set_s in {0.0, demand.objective_s}
        return f"the objective is {demand.objective_s:.1f} s{'' if is_set else short}"

    def _keep(self, verdict: Verdict, reason: str, needed: int | None = None) -> ScalingDecision:
        return self._decide(self.asked, verdict, reason, needed)

    def _decide(
        self, count: int, verdict: Verdict, reason: str, needed: int | None
    ) -> ScalingDecision:
        count, outcome = _bound(count, self.asked, self.limits)
        reserve = self.asked - self.limits.count_working(self.asked)
        reason = f"with {reserve} in reserve, {reason}" if reserve else reason
        there = f"{self.count} executors"
        if self.asked > self.count:
            there = f"{self.count} of the {self.asked} executors that were asked for are there and"
        text = (
            f"{there} have work for {self.utilization:.0%} of their time, the hottest for "
            f"{self.hottest:.0%}; {reason}; {outcome}"
        )
        return ScalingDecision(
            count,
            verdict,
            text,
            self.utilization,
            self.hottest,
            limited=verdict in {Verdict.CAPACITY, Verdict.SURPLUS} and count != needed,
        )

    def _is_skewed(self) -> bool:
        """Whether one executor has more work than the others, and it can move."""
        if self.hottest <= self.act_above * self.utilization:
            return False
        stateful, executors = self.load.stateful, self.seen.executors
        hottest = max(stateful.get(e, 0.0) / cores for e, cores in executors.items())
        return hottest > self.act_above * sum(stateful.values()) / (self.count * self.cores)

    def _count_rows_per_s(self, demand: Demand, executors: int) -> float:
        """Rows that so many do per second of batch time, the fixed part of a batch aside."""
        return 1.0 / demand.cost.last_per_row(demand.slots(executors * self.cores))

    def _is_repeated(self, query: str) -> bool:
        """Whether more executors would repeat a scale-out of late that did not help a query."""
        last = self.scale_outs.get(query)
        if last is None or self.seen.now_s - last.at_s >= INEFFECTIVE_HOLD_S:
            return False
        return last.failed and self.count >= last.before


def _bound(count: int, asked: int, limits: ScalingPolicy) -> tuple[int, str]:
    """Keep `count` within the policy's bounds, and say the result."""
    if not limits.max_executors:
        kept = asked
        bounds = "" if count == asked else " (scaling.max_executors is not set)"
    else:
        kept = min(max(count, limits.least), limits.max_executors)
        within = f" (bounds are {limits.least} to {limits.max_executors})"
        bounds = "" if kept == count else within
    change = f"{kept} stay" if kept == asked else f"from {asked} to {kept}"
    return kept, change + bounds
