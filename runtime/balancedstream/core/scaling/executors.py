"""How many executors a stream needs, and whether more of them would help at all.

The count is DS2's: the arriving rate over the true processing rate (`core.workload`). Everything
around it (band, delays, step limits, holds) is our own design, after the defaults of the Flink
autoscaler, as is the memory of scale-outs that did not help.

DS2 knows operators that run side by side; the stages of a micro-batch run one after the other. So
before executors are added, a model of the batch says what more of them would gain: each stage lasts
as long as its longest task, or as its work on the cores that its tasks can fill, and the driver's
own time stays. If twice the executors gain next to nothing, the verdict names what limits the batch
instead. The model is our own design.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from numbers import Real

from balancedstream.core.balance.loads import OperatorLoad
from balancedstream.core.observations import Observation, ScaleOut
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import OperatorId
from balancedstream.core.scaling.batch_model import BatchModel
from balancedstream.core.scaling.workload import (
    QueryWork,
    Runs,
    StageWork,
    Work,
    measure_work,
    sort_batches,
    waits_for_data,
)
from balancedstream.errors import InvalidRateError

# A quotient this little above an integer is that integer: 2.1 / 0.7 is 3 executors, not 4.
_FLOAT_NOISE = 1e-9

MIN_GAIN = 0.1
"""Twice the executors must make batches faster by this fraction, or something else limits them."""

LEAST_EFFECT = 0.1
"""A scale-out that brings less than this part of its expected gain did not help (Flink's
`scaling.effectiveness.threshold`, FLINK-37411)."""

SCALE_OUT_FACTOR = 8
"""One decision multiplies the executors by this at most."""

SCALE_IN_STEP = 0.5
"""One decision removes this part of the executors at most, or one."""

INEFFECTIVE_HOLD_S = 1800.0
"""A scale-out that did not help is not repeated for so long."""

AS_GOOD = 1.02
"""Batches that last this much longer at most are nearly as fast."""

_LEAST_ROOM = 0.05
"""The part of a trigger interval that is left for tasks in every computation of a count."""


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

    SOURCE_BOUND = "source-bound"
    """The source has too few splits, or a long one, or gives too few rows: neither helps."""

    PARTITION_BOUND = "partition-bound"
    """There are fewer state or shuffle partitions than cores: neither helps."""

    DRIVER_BOUND = "driver-bound"
    """Most of a batch is no task: neither helps."""

    HOLD = "hold"
    """Too little is known to change anything, or the last change is too recent."""


LIMITS = frozenset(
    {Verdict.UNSPLITTABLE, Verdict.SOURCE_BOUND, Verdict.PARTITION_BOUND, Verdict.DRIVER_BOUND}
)
"""The verdicts that name something which more executors do not change."""


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
        scale_out: what executors that are added should bring, decided now; or the last scale-out,
            by what its executors show. Pass it to the next decisions, a new one if it is made.
    """

    executors: int
    verdict: Verdict
    reason: str
    utilization: float | None = None
    hottest: float | None = None
    limited: bool = False
    scale_out: ScaleOut | None = None


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
    observation: Observation,
    loads: Mapping[OperatorId, OperatorLoad],
    policy: Policy,
    current: Set[tuple[str, int]] = frozenset(),
) -> ScalingDecision:
    """Decide how many executors there should be.

    The rules apply in this order. Hold while measurements are too few, or a change is too recent.
    If an executor is hot, the backlog takes too long, or batches take longer than the trigger
    interval: name a partition that alone fills an executor, a source, a partition count or a driver
    that limits the batch, and a hot executor that balancing can relieve; otherwise add executors,
    unless the last ones did not help. If nothing presses, remove some if even at the highest rate
    of the last `scale_in_delay_s` fewer executors are enough. Utilization is the share of the time
    between batch starts that executors are busy with tasks of any kind.

    If batches run back to back and no source reports its backlog, more rows may arrive than are
    seen. Executors busier than the target then count as full, since the driver needs the rest.

    Args:
        observation: its batches are those of the running queries from the last `scale_in_delay_s`
            or longer; with a shorter history no executor is removed. A query without recent batches
            cannot be measured: it may be idle or hung, so it prevents removal too. Its stages are
            those of the batches behind `loads`. Without them the work outside stateful tasks is
            unknown, and no executor is removed.
        loads: as `loads.measure` returns them.
        policy: `scaling`, and `act_above` of `balance`.
        current: as `workload.find_current` returns it.

    Returns:
        The decision. The caller acts on it or only shows it, as `scaling.mode` says.

    >>> from balancedstream.core.policy import ScalingPolicy
    >>> from balancedstream.core.samples import BatchSample
    >>> load = OperatorLoad(
    ...     batches=(1, 2, 3, 4, 5), busy_s=dict.fromkeys(range(8), 2.3),
    ...     records=dict.fromkeys(range(8), 100.0), state_bytes=dict.fromkeys(range(8), 0),
    ...     placement={p: "ab"[p % 2] for p in range(8)}, executor_busy_s={"a": 9.2, "b": 9.2})
    >>> batches = tuple(
    ...     BatchSample("q", n, n * 10.0, duration_s=9.4, input_rows=800, interval_s=10.0)
    ...     for n in range(1, 6))
    >>> decision = decide(
    ...     Observation(50.0, {"a": 1, "b": 1}, batches=batches), {("q", 0): load},
    ...     Policy(scaling=ScalingPolicy(max_executors=4)))
    >>> decision.executors, decision.verdict.value
    (3, 'capacity')
    >>> for part in decision.reason.split("; "):
    ...     print(part)
    2 executors have work for 92% of their time, the hottest for 92%
    3 are needed to be 70% busy
    from 2 to 3
    """
    limits, asked = policy.scaling, observation.asked
    runs = sort_batches(observation.batches)

    def hold(why: str) -> ScalingDecision:
        count, outcome = _bound(asked, asked, limits)
        return ScalingDecision(count, Verdict.HOLD, f"{why}; {outcome}")

    if not observation.executors:
        return hold("no live executor")
    settling = _settling(observation, runs, limits)
    work, unmeasured = measure_work(observation, runs, loads, limits, current)
    if settling or not runs or (unmeasured and not work.queries):
        return hold(settling or "; ".join(unmeasured) or "no batch was measured yet")
    sizing = _Sizing(work, observation, policy)
    if sizing.is_pressed():
        last = sizing.judge(observation.last_scale_out)
        decision = sizing.relieve(last)
        return decision if decision.scale_out else replace(decision, scale_out=last)
    return sizing.give_back(unmeasured)


def _settling(observation: Observation, runs: Runs, limits: ScalingPolicy) -> str:
    """Why it is too soon after a change; empty if it is not too soon."""
    last_change_s, now_s = observation.last_scaled_s, observation.now_s
    if last_change_s is None:
        return ""
    # What was measured may end before the change.
    passed_s = max(0.0, now_s - last_change_s)
    quiet_since_s = max((run[-1].finished_s for run in runs.values()), default=now_s)
    if min(passed_s, now_s - quiet_since_s) >= limits.stabilization_s and all(
        waits_for_data(query, observation.idle_s, now_s) for query in runs
    ):
        # Nobody knows when the next batch comes.
        return ""
    since = [
        [b.duration_s for b in run if b.finished_s - b.duration_s >= last_change_s]
        for run in runs.values()
    ]
    passed = max(map(len, since), default=0)
    # Batches of a stream that falls behind grow: then one of them shows more than three short ones.
    shown = passed >= limits.min_batches or (
        passed > 0 and max(map(sum, since)) >= limits.stabilization_s
    )
    if passed_s >= limits.stabilization_s and shown:
        return ""
    return (
        f"the last change was {passed_s:.0f} s and {passed} batches ago; its effect shows after "
        f"{limits.stabilization_s:.0f} s and {limits.min_batches} batches"
    )


class _Sizing:
    """Executors and their work, and the rules that decide on their number."""

    def __init__(self, work: Work, observation: Observation, policy: Policy) -> None:
        executors = observation.executors
        self.work = work
        self.asked = observation.asked
        self.now_s = observation.now_s
        self.limits = policy.scaling
        self.act_above = policy.balance.act_above
        self.count = len(executors)
        self.cores = sum(executors.values()) / self.count
        self.utilization = work.total / (self.count * self.cores)
        self.hottest = max(
            work.executors.get(executor, 0.0) / cores for executor, cores in executors.items()
        )
        self.executors = executors
        self.full = self.limits.target_utilization if work.blind else self.limits.high_utilization
        self.late = work.back_to_back and self._drain_s() > self.limits.catch_up_s
        self.model = BatchModel(work, self.cores, self.late)
        self.slots = self.model.count_slots(self.count)

    def is_pressed(self) -> bool:
        """Whether an executor is full, a backlog takes too long, or batches miss their trigger."""
        return self.hottest > self.full or self.late or self.work.is_overdue

    def relieve(self, last: ScaleOut | None) -> ScalingDecision:
        """Adds executors, unless something else than their number limits the batches."""
        full = self._find_full_partition()
        if full is not None:
            return self.keep(*full)
        needed = self._needed(self.work.total_arriving)
        if self.work.blind and (self.utilization > self.full or self.work.is_overdue):
            at_least = required_executors(self.count, 1.0, self.limits.target_utilization)
            needed = max(needed, at_least)
        if (
            self.utilization <= self.full
            and self.hottest > self.full
            and self._is_skewed()
            and self._fits(self.count)
        ):
            return self.keep(
                Verdict.SKEW,
                f"balanced, {self.count} executors carry it: move partitions, more executors "
                f"would not help",
                needed,
            )
        bound = self._find_bound()
        if bound is not None:
            return self.keep(*bound, needed)
        top = SCALE_OUT_FACTOR * self.count
        count = self._first_that_fits(max(self.count, needed), top)
        if count == top and not self._fits(top):
            count = self._first_as_good_as(top)
        overdue = self.work.is_overdue
        if count == self.count and (
            (overdue and self.work.blind) or ((overdue or self.late) and self.work.grows)
        ):
            # By the model these executors suffice, and they do not: one more, then look again.
            count += 1
        if count == self.count:
            return self.keep(
                Verdict.STEADY,
                f"{self.count} executors carry what arrives{self._backlog()}",
                needed,
            )
        if last is not None and self._is_repeated(last):
            return self.keep(Verdict.HOLD, self._say_failure(last), needed)
        needed = max(needed, count)
        aim = f"{needed} are needed to be {self.limits.target_utilization:.0%} busy"
        if self.work.backlog:
            aim += f" once the backlog is worked off in {self.limits.catch_up_s:.0f} s"
        return self._add(max(self.asked, min(count, top)), aim, needed)

    def _is_skewed(self) -> bool:
        """Whether one executor has more work than the others, and it can move."""
        return self.hottest > self.act_above * self.utilization and self._is_state_uneven()

    def _is_state_uneven(self) -> bool:
        """Whether state partitions, which can move, make an executor hot; splits cannot."""
        stateful = self.work.stateful
        hottest = max(stateful.get(e, 0.0) / cores for e, cores in self.executors.items())
        return hottest > self.act_above * sum(stateful.values()) / (self.count * self.cores)

    def _find_full_partition(self) -> tuple[Verdict, str] | None:
        """A state partition that alone keeps a core full, or all of them if there are too few."""
        if not self.work.partitions:
            return None
        key, share = max(self.work.partitions.items(), key=lambda item: item[1])
        if share <= self.full:
            return None
        shares = [work for other, work in self.work.partitions.items() if other[:2] == key[:2]]
        if len(shares) < self.slots and sum(shares) > self.full * len(shares):
            return Verdict.PARTITION_BOUND, self._say_partitions(key[0], len(shares))
        return Verdict.UNSPLITTABLE, self._say_heaviest(key)

    def _find_bound(self) -> tuple[Verdict, str] | None:
        """What keeps twice the executors from making batches faster; None if they would."""
        carries = self._fits(self.count) and not self.late and not self.work.is_overdue
        if carries or self.model.gain(self.count, 2 * self.count) >= MIN_GAIN:
            return None
        limit = self.model.find_limit(self.count)
        if limit.kind is None:
            return Verdict.DRIVER_BOUND, self._say_driver(limit.query)
        stage = limit.query.stages.get(limit.kind)
        if limit.kind == "source" and stage is not None:
            return Verdict.SOURCE_BOUND, self._say_source(limit.query.query, stage)
        heaviest = self.work.find_heaviest(limit.query.query)
        if heaviest is not None and (stage is None or stage.longest * stage.tasks > stage.work):
            return Verdict.UNSPLITTABLE, self._say_heaviest(heaviest)
        tasks = stage.tasks if stage else self.slots
        return Verdict.PARTITION_BOUND, self._say_partitions(limit.query.query, tasks)

    def _say_heaviest(self, key: tuple[str, int, int]) -> str:
        query, operator, number = key
        share = self.work.partitions[key]
        full = f" (full at {self.full:.0%})" if share > self.full else " and is its longest task"
        return (
            f"partition {number} of operator {operator} of query {query} alone keeps a core "
            f"{share:.0%} busy{full}: no move and no executor helps, its keys must be split"
        )

    def _say_source(self, query: str, stage: StageWork) -> str:
        longest = stage.longest * stage.tasks / stage.work if stage.work else 1.0
        return (
            f"the source of query {query} has {stage.tasks} splits for {self.slots} cores, the "
            f"longest takes {longest:.1f} x the mean: no executor makes reading and mapping "
            f"faster; more splits do (Kafka: topic partitions or minPartitions), or a repartition "
            f"before the costly step"
        )

    def _say_capped(self, query: QueryWork) -> str:
        return (
            f"query {query.query} reads {query.rows:,.0f} rows a batch and ends before its "
            f"trigger, while {query.capped_rows:,.0f} rows wait and more come: raise the limit of "
            f"its source (maxOffsetsPerTrigger, maxFilesPerTrigger), or shorten the trigger "
            f"interval"
        )

    def _say_partitions(self, query: str, partitions: int) -> str:
        return (
            f"query {query} has {partitions} shuffle partitions for {self.slots} cores: no "
            f"executor and no move helps; a new checkpoint with a higher "
            f"spark.sql.shuffle.partitions does"
        )

    def _say_driver(self, query: QueryWork) -> str:
        part, seconds = max(query.driver_s.items(), key=lambda item: item[1])
        driver_s = sum(query.driver_s.values())
        return (
            f"in {driver_s:.1f} of the {query.batch_s:.1f} s of a batch of query {query.query} no "
            f"task runs, most of it {part} ({seconds:.1f} s): more executors cannot help; larger "
            f"and fewer batches do, or less to do on the driver"
        )

    def judge(self, last: ScaleOut | None) -> ScaleOut | None:
        """The last scale-out by what its executors show now, if they are all there.

        The first batches on new executors are slow, so a failure stands only as long as it shows.
        While one executor has most of the work, the others cannot show what they bring.
        """
        if last is None or self.count < last.after or self._is_skewed():
            return last
        return replace(last, failed=self._gain_since(last) < LEAST_EFFECT * last.gain)

    def _is_repeated(self, last: ScaleOut) -> bool:
        """Whether more executors would repeat a scale-out of late that did not help."""
        recent = self.now_s - last.at_s < INEFFECTIVE_HOLD_S
        return recent and last.failed and self.count >= last.before

    def _gain_since(self, last: ScaleOut) -> float:
        rows_per_s = sum(query.rows_per_s for query in self.work.queries)
        return rows_per_s / last.rows_per_s - 1 if last.rows_per_s else math.inf

    def _say_failure(self, last: ScaleOut) -> str:
        left_s = last.at_s + INEFFECTIVE_HOLD_S - self.now_s
        found = "" if self.count < last.after else f" ({self._gain_since(last):+.0%})"
        return (
            f"the last scale-out, from {last.before} to {last.after}, was expected to make batches "
            f"{last.gain:+.0%} faster and did not{found}: executors are not what is missing; it is "
            f"not repeated for {left_s:.0f} s"
        )

    def give_back(self, unmeasured: Sequence[str]) -> ScalingDecision:
        """Remove executors, unless unmeasured or recent work may need them."""
        limits = self.limits
        capped = max(self.work.queries, key=lambda query: query.capped_rows, default=None)
        if capped is not None and capped.capped_rows:
            return self.keep(Verdict.SOURCE_BOUND, self._say_capped(capped))
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
        rise = self.work.peak / (self.work.total_arriving or 1.0)
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
        least = self.count - max(1, int(self.count * SCALE_IN_STEP))
        return self._decide(
            min(self.asked, max(count, least)),
            Verdict.SURPLUS,
            f"{count} carry the highest rate of the last {limits.scale_in_delay_s:.0f} s",
            count,
        )

    def _add(self, count: int, aim: str, needed: int) -> ScalingDecision:
        decision = self._decide(count, Verdict.CAPACITY, aim, needed)
        if decision.executors <= self.asked:
            return decision
        rows_per_s = sum(query.rows_per_s for query in self.work.queries)
        gain = self.model.gain(self.count, decision.executors)
        return replace(
            decision,
            scale_out=ScaleOut(self.now_s, self.count, decision.executors, rows_per_s, gain),
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
        room = self.limits.target_utilization - self.work.share_driver()
        return required_executors(
            arriving,
            self.cores,
            max(room, _LEAST_ROOM),
            backlog=self.work.backlog,
            catch_up_s=self.limits.catch_up_s,
        )

    def _fits(self, count: int, rise: float = 1.0) -> bool:
        return self.model.fits(count, self.full, rise)

    def _first_that_fits(self, low: int, high: int, rise: float = 1.0) -> int:
        """The lowest count from `low` that fits; `high` if no lower one does."""
        if low >= high:
            return low
        return low + bisect_left(range(low, high), True, key=lambda count: self._fits(count, rise))

    def _first_as_good_as(self, top: int) -> int:
        """The lowest count from the present one on whose batches are nearly as fast as on `top`."""
        good = AS_GOOD * self.model.last(top)
        return next(n for n in range(self.count, top + 1) if self.model.last(n) <= good)

    def _drain_s(self) -> float:
        if not self.work.backlog:
            return 0.0
        spare = self.count * self.cores - self.work.total_arriving
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
