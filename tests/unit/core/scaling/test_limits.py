"""Scaling counts the work of all tasks, and names what else than executors limits a stream."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.balance.loads import OperatorLoad
from balancedstream.core.observations import Observation, ScaleOut
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, StageKind, StageSample
from balancedstream.core.scaling.executors import ScalingDecision, decide
from balancedstream.core.scaling.verdicts import Verdict

POLICY = Policy(scaling=ScalingPolicy(max_executors=64))


@dataclass(frozen=True)
class Stream:
    """A stream whose batches are all alike.

    Attributes:
        executors: of one core each.
        stages: kind of stage to its tasks, the busy seconds of all, and those of the longest.
        duration_s: of a batch; the stages take what their tasks need, the driver the rest.
        partitions: whether the stateful tasks are measured one by one.
    """

    executors: int
    stages: dict[StageKind, tuple[int, float, float]]
    duration_s: float
    interval_s: float
    trigger_s: float | None = None
    backlog_rows: float | None = None
    growth_rows: float = 0.0
    batches: int = 200
    driver_s: dict[str, float] = field(default_factory=dict)
    partitions: bool = True
    rows: int = 1000

    def decide(
        self,
        policy: Policy = POLICY,
        *,
        last: ScaleOut | None = None,
        idle_for_s: float | None = None,
        last_change_s: float | None = None,
        stages_known: bool = True,
        delay_s: float = 300.0,
    ) -> ScalingDecision:
        now_s = (self.batches - 1) * self.interval_s + (idle_for_s or 0.0)
        live = {str(number): 1 for number in range(self.executors)}
        samples = []
        for number in range(self.batches):
            waiting = self.backlog_rows
            if waiting is not None:
                waiting += number * self.growth_rows
            sample = BatchSample(
                "q",
                number,
                number * self.interval_s,
                self.duration_s,
                self.rows,
                self.interval_s,
                waiting,
                self.trigger_s,
            )
            samples.append(replace(sample, **cast(Any, self.driver_s)))
        last_batch = self.batches - 1
        stages = [
            StageSample("q", last_batch, kind, now_s, tasks, longest_s, self._spread(tasks, busy_s))
            for kind, (tasks, busy_s, longest_s) in self.stages.items()
        ]
        observation = Observation(
            now_s,
            live,
            batches=tuple(samples),
            stages=tuple(stages) if stages_known else (),
            last_scaled_s=last_change_s,
            last_removed=last_change_s is not None,
            scale_in_delay_s=delay_s,
            scale_outs=() if last is None else (last,),
            idle_s={} if idle_for_s is None else {"q": now_s},
        )
        return decide(observation, self._loads(last_batch), policy)

    def _spread(self, tasks: int, busy_s: float) -> dict[str, float]:
        """Tasks that are too few leave executors without any."""
        used = min(tasks, self.executors)
        return {str(number): busy_s / used for number in range(used)}

    def _loads(self, batch: int) -> dict[tuple[str, int], OperatorLoad]:
        if "stateful" not in self.stages or not self.partitions:
            return {}
        tasks, total_s, longest_s = self.stages["stateful"]
        busy_s = dict.fromkeys(range(tasks), (total_s - longest_s) / max(1, tasks - 1))
        busy_s[0] = longest_s
        placement = {p: str(p % self.executors) for p in busy_s}
        return {("q", 0): OperatorLoad((batch,), busy_s, {}, {}, placement, {})}


# --- all the work ---


def test_a_heavy_map_stage_counts_and_its_stream_is_not_scaled_in() -> None:
    # 8 executors, 23 of 25 s in the map stage, 2 s stateful, batches back to back.
    stream = Stream(
        executors=8,
        stages={"source": (32, 8 * 23.0, 6.0), "stateful": (32, 8 * 2.0, 0.6)},
        duration_s=25.0,
        interval_s=25.0,
    )
    decision = stream.decide()
    assert decision.utilization is not None
    assert round(decision.utilization, 2) == 1.0
    assert (decision.verdict, decision.executors > 8) == (Verdict.CAPACITY, True)


def test_a_stateless_stream_scales_out_and_in() -> None:
    busy = Stream(2, {"source": (16, 26.0, 1.8)}, duration_s=13.5, interval_s=13.5, trigger_s=10.0)
    assert (busy.decide().executors, busy.decide().verdict) == (3, Verdict.CAPACITY)
    quiet = replace(
        busy, executors=4, stages={"source": (16, 14.0, 1.0)}, duration_s=3.8, interval_s=10.0
    )
    assert (quiet.decide().executors, quiet.decide().verdict) == (2, Verdict.SURPLUS)


def test_batches_at_three_times_their_trigger_add_executors_for_what_the_trigger_needs() -> None:
    # 110 rows a second at 8 ms each in mapInPandas, a trigger of 5 s, one executor: 15 s a batch.
    stream = Stream(
        executors=1,
        stages={"source": (4, 13.2, 3.4), "stateful": (5, 1.0, 0.25)},
        duration_s=15.0,
        interval_s=15.0,
        trigger_s=5.0,
        rows=1650,
        driver_s={"planning_s": 0.2},
    )
    decision = stream.decide()
    assert (decision.verdict, decision.executors) == (Verdict.CAPACITY, 3)
    assert decision.scale_out is not None
    assert decision.scale_out.gain > 0.5


def test_without_a_word_on_other_stages_nothing_is_removed() -> None:
    stream = Stream(4, {"stateful": (16, 4.0, 0.3)}, duration_s=9.5, interval_s=10.0)
    decision = stream.decide(stages_known=False)
    assert (decision.executors, decision.verdict) == (4, Verdict.HOLD)
    assert "its driver does not report the work outside stateful tasks" in decision.reason


@given(
    executors=st.integers(1, 40),
    parts=st.dictionaries(
        st.sampled_from(["source", "stateful", "sink"]), st.floats(0.05, 1.0), min_size=1
    ),
    tasks=st.integers(1, 200),
    trigger_s=st.sampled_from([None, 5.0, 10.0]),
    backlog_rows=st.sampled_from([None, 0.0, 1e6]),
    partitions=st.booleans(),
)
@settings(max_examples=200)
def test_a_stream_whose_executors_are_all_busy_is_never_scaled_in(
    executors: int,
    parts: dict[StageKind, float],
    tasks: int,
    trigger_s: float | None,
    backlog_rows: float | None,
    partitions: bool,
) -> None:
    # All cores work all the time: each kind of stage has a part of it.
    whole = sum(parts.values())
    stages: dict[StageKind, tuple[int, float, float]] = {}
    count = max(tasks, executors)
    for kind, part in parts.items():
        total_s = 10.0 * executors * part / whole
        stages[kind] = (count, total_s, total_s / count)
    stream = Stream(executors, stages, 10.0, 10.0, trigger_s, backlog_rows, partitions=partitions)
    decision = stream.decide()
    assert decision.executors >= executors, decision.reason


# --- what limits ---


def test_fewer_splits_than_cores_are_named_and_add_no_executor() -> None:
    # Two Kafka partitions for four executors, a backlog that grows.
    stream = Stream(
        executors=4,
        stages={"source": (2, 18.0, 9.6), "stateful": (16, 1.6, 0.1)},
        duration_s=10.0,
        interval_s=10.0,
        backlog_rows=10_000.0,
        growth_rows=200.0,
    )
    decision = stream.decide()
    assert (decision.executors, decision.verdict) == (4, Verdict.SOURCE_BOUND)
    assert "has 2 splits for 4 cores, the longest takes 1.1 x the mean" in decision.reason


def test_as_many_splits_as_cores_limit_too_before_an_executor_is_added_for_nothing() -> None:
    stream = Stream(4, {"source": (4, 39.0, 9.8)}, duration_s=10.0, interval_s=10.0, trigger_s=5.0)
    assert stream.decide().verdict is Verdict.SOURCE_BOUND


def test_one_long_split_limits_however_many_there_are() -> None:
    stream = Stream(4, {"source": (64, 15.0, 9.5)}, duration_s=10.0, interval_s=10.0, trigger_s=5.0)
    decision = stream.decide()
    assert decision.verdict is Verdict.SOURCE_BOUND
    assert "the longest takes 40.5 x the mean" in decision.reason


def capped(rows: int, growth_rows: float, executors: int = 4) -> Stream:
    """Batches of 3 s every 10 s; before the last one, 200 batches left this growth behind."""
    return Stream(
        executors,
        {"source": (8, 3.0, 0.4), "stateful": (16, 5.0, 0.4)},
        duration_s=3.0,
        interval_s=10.0,
        trigger_s=10.0,
        backlog_rows=2000.0,
        growth_rows=growth_rows,
        rows=rows,
    )


def test_a_limit_of_rows_a_batch_below_what_arrives_is_named_and_changes_no_executor() -> None:
    decision = capped(rows=1000, growth_rows=300.0).decide()
    assert (decision.executors, decision.verdict) == (4, Verdict.SOURCE_BOUND)
    assert (
        "query q reads 1,000 rows a batch and ends before its trigger, while 61,700 rows wait and "
        "more come: raise the limit of its source (maxOffsetsPerTrigger" in decision.reason
    )


def test_a_backlog_that_the_limited_batches_work_off_is_no_limit() -> None:
    assert capped(rows=1000, growth_rows=-9.0).decide().verdict is not Verdict.SOURCE_BOUND


def test_batches_that_read_all_that_is_there_are_not_limited_by_their_source() -> None:
    stream = replace(capped(rows=1000, growth_rows=0.5), backlog_rows=0.0)
    assert stream.decide().verdict is not Verdict.SOURCE_BOUND


def test_fewer_state_partitions_than_cores_are_named_and_add_no_executor() -> None:
    stream = Stream(8, {"stateful": (4, 38.0, 9.5)}, duration_s=10.0, interval_s=10.0)
    decision = stream.decide()
    assert (decision.executors, decision.verdict) == (8, Verdict.PARTITION_BOUND)
    assert "4 shuffle partitions for 8 cores" in decision.reason
    assert "balancedstream repartition" in decision.reason


def test_few_partitions_one_of_which_is_hot_are_unsplittable_not_few() -> None:
    stream = Stream(8, {"stateful": (4, 11.0, 9.5)}, duration_s=10.0, interval_s=10.0)
    assert stream.decide().verdict is Verdict.UNSPLITTABLE


def test_a_driver_that_takes_most_of_a_batch_is_named_with_its_longest_part() -> None:
    stream = Stream(
        executors=4,
        stages={"source": (8, 4.0, 0.6)},
        duration_s=8.5,
        interval_s=8.5,
        trigger_s=5.0,
        driver_s={"planning_s": 0.5, "gaps_s": 6.7},
    )
    decision = stream.decide()
    assert (decision.executors, decision.verdict) == (4, Verdict.DRIVER_BOUND)
    assert (
        "in 7.2 of the 8.5 s of a batch of query q no task runs, most of it starting jobs and code "
        "on the driver (6.7 s)"
    ) in decision.reason


def test_a_driver_without_a_trigger_interval_limits_only_a_stream_that_falls_behind() -> None:
    behind = Stream(
        executors=4,
        stages={"source": (8, 0.4, 0.06)},
        duration_s=1.0,
        interval_s=1.0,
        backlog_rows=1e7,
        growth_rows=50.0,
        driver_s={"commits_s": 0.85},
        batches=1000,
    )
    assert behind.decide().verdict is Verdict.DRIVER_BOUND
    keeps_up = replace(behind, backlog_rows=0.0, growth_rows=0.0)
    assert keeps_up.decide().verdict in {Verdict.STEADY, Verdict.SURPLUS}


def test_the_time_of_the_driver_is_left_out_of_what_a_trigger_leaves_for_tasks() -> None:
    without = Stream(4, {"source": (64, 38.0, 0.7)}, 9.9, 10.0, trigger_s=10.0)
    with_driver = replace(without, duration_s=12.9, driver_s={"planning_s": 3.0})
    assert with_driver.decide().executors > without.decide().executors


# --- memory ---


def press(executors: int = 4) -> Stream:
    """Executors that are hot, and splits enough for more of them; 100 rows a second."""
    return Stream(
        executors, {"source": (256, 9.5 * executors, 0.2)}, duration_s=10.0, interval_s=10.0
    )


def test_a_scale_out_that_did_not_help_is_not_repeated_for_a_while() -> None:
    # The batches are as slow as they were: something that is not measured limits them.
    now_s = 1990.0
    failed = ScaleOut("q", now_s - 300.0, before=2, after=4, rows_per_s=99.0, gain=0.9)
    decision = press().decide(last=failed)
    assert (decision.executors, decision.verdict) == (4, Verdict.HOLD)
    assert (
        "the last scale-out, from 2 to 4, was expected to make batches of query q +90% faster and "
        "did not (+1%)"
    ) in decision.reason
    assert "not repeated for 1500 s" in decision.reason
    assert decision.judged == (replace(failed, failed=True),)


def test_a_size_that_did_not_help_is_remembered_also_after_executors_were_given_back() -> None:
    failed = ScaleOut("q", 1690.0, before=4, after=8, rows_per_s=60.0, gain=0.9, failed=True)
    decision = press().decide(last=failed)
    assert (decision.executors, decision.verdict) == (4, Verdict.HOLD)
    assert press(executors=2).decide(last=failed).executors > 2, "from 2 to 3 is another step"


def test_a_scale_out_that_seemed_to_fail_is_judged_anew_once_its_executors_are_warm() -> None:
    # Their first batches, in which they started, were no faster.
    cold = ScaleOut("q", 1690.0, before=2, after=4, rows_per_s=60.0, gain=0.9, failed=True)
    decision = press().decide(last=cold)
    assert decision.verdict is Verdict.CAPACITY
    full = press().decide(Policy(scaling=replace(POLICY.scaling, max_executors=4)), last=cold)
    assert full.judged == (replace(cold, failed=False),)


def test_a_scale_out_that_helped_or_is_long_ago_does_not_hold_up_the_next() -> None:
    helped = ScaleOut("q", 1690.0, before=2, after=4, rows_per_s=60.0, gain=0.9)
    old = ScaleOut("q", 100.0, before=2, after=4, rows_per_s=99.0, gain=0.9)
    for last in (helped, old, None):
        assert press().decide(last=last).verdict is Verdict.CAPACITY


def test_a_scale_out_to_more_than_there_are_now_says_nothing_about_this_one() -> None:
    failed = ScaleOut("q", 1690.0, before=4, after=8, rows_per_s=99.0, gain=0.9)
    assert press().decide(last=failed).verdict is Verdict.CAPACITY


# --- without data ---


def test_a_stream_that_waits_for_data_for_the_whole_delay_gives_executors_back() -> None:
    stream = Stream(4, {"source": (8, 20.0, 3.0)}, duration_s=6.0, interval_s=10.0)
    soon = stream.decide(idle_for_s=200.0)
    assert (soon.executors, soon.verdict) == (4, Verdict.HOLD)
    assert "query q has waited for data for 200 s only" in soon.reason
    late = stream.decide(idle_for_s=400.0)
    assert (late.executors, late.verdict) == (1, Verdict.SURPLUS)


def test_a_stream_that_waits_for_data_gives_back_what_was_not_changed_just_now() -> None:
    stream = Stream(3, {"source": (8, 20.0, 3.0)}, duration_s=6.0, interval_s=10.0)
    last_batch_s = 1990.0
    soon = stream.decide(idle_for_s=1000.0, last_change_s=last_batch_s + 900.0)
    assert (soon.executors, soon.verdict) == (3, Verdict.HOLD)
    assert "the last change was 100 s ago" in soon.reason
    late = stream.decide(idle_for_s=1000.0, last_change_s=last_batch_s + 600.0)
    assert (late.executors, late.verdict) == (1, Verdict.SURPLUS), "no batch shows the effect"
    early = stream.decide(idle_for_s=1000.0, last_change_s=last_batch_s - 5.0)
    assert early.verdict is Verdict.SURPLUS, "nor do the few that ran before the data ended"


def test_a_stream_that_is_silent_and_does_not_say_that_it_waits_keeps_its_executors() -> None:
    stream = Stream(4, {"source": (8, 20.0, 3.0)}, duration_s=6.0, interval_s=10.0)
    silent = replace(stream, batches=1)
    assert silent.decide().verdict is Verdict.HOLD


def decide_after(durations_s: list[float], trigger_s: float = 8.0) -> ScalingDecision:
    """One executor that 30 rows a second keep 63 % busy; the driver takes 0.8 s of each batch."""
    samples, stages = [], []
    start_s = interval_s = 0.0
    for number, duration_s in enumerate(durations_s):
        rows, end_s = int(30 * (interval_s or trigger_s)), start_s + duration_s
        sample = BatchSample("q", number, end_s, duration_s, rows, interval_s, 0.0, trigger_s)
        samples.append(replace(sample, planning_s=0.8))
        if number:  # The first batch is no measurement.
            stages.append(StageSample("q", number, "source", end_s, 12, 0.5, {"a": 0.021 * rows}))
        interval_s = max(trigger_s, duration_s)
        start_s += interval_s
    observation = Observation(end_s, {"a": 1}, batches=tuple(samples), stages=tuple(stages))
    return decide(observation, {}, POLICY)


def test_batches_that_get_shorter_after_a_slow_start_add_no_executor() -> None:
    assert decide_after([34.0, 14.3, 12.0, 10.0, 8.5, 8.0]).verdict is Verdict.STEADY


def test_batches_that_stay_too_long_or_grow_add_executors() -> None:
    assert decide_after([12.0, 12.1, 12.0, 11.9, 12.0, 12.0]).verdict is Verdict.CAPACITY
    assert decide_after([8.0, 9.1, 11.0, 13.0, 16.0, 18.0]).verdict is Verdict.CAPACITY


def test_a_load_that_fell_is_not_multiplied_by_what_small_batches_cost_a_row() -> None:
    # Most of a batch's work are its tasks, however few rows they have: 9 s of 30 s.
    executors = {"a": 1, "b": 1, "c": 1}
    samples = [
        BatchSample("q", number, 10.0 * number, duration_s, rows, 10.0, 0.0, 10.0)
        for number, (rows, duration_s) in enumerate([(3900, 5.0)] * 13 + [(300, 3.7)] * 13)
    ]
    stages = [
        StageSample("q", number, "source", 10.0 * number, 32, 0.3, dict.fromkeys(executors, 3.0))
        for number in range(21, 26)
    ]
    # An executor was given back when the load had fallen.
    observation = Observation(
        250.0,
        executors,
        batches=tuple(samples),
        stages=tuple(stages),
        last_scaled_s=121.0,
        scale_in_delay_s=300.0,
    )
    decision = decide(observation, {}, POLICY)
    assert decision.utilization is not None
    assert round(decision.utilization, 2) == 0.3
    assert decision.executors == 3
