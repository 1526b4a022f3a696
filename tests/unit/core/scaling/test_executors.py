"""One decision on the number of executors, and which kind of trouble a stream is in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.balance.loads import OperatorLoad
from balancedstream.core.observations import Observation, ScaleOut
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, StageSample
from balancedstream.core.scaling.executors import ScalingDecision, Verdict, decide
from balancedstream.core.scaling.workload import find_current

POLICY = Policy(scaling=ScalingPolicy(max_executors=16, scale_in_delay_s=900.0))


def decide_on(
    busy_s: dict[str, list[float]],
    policy: Policy = POLICY,
    *,
    interval_s: float = 10.0,
    duration_s: float = 9.0,
    backlog_rows: float | None = None,
    batches: int = 200,
    now_s: float | None = None,
    requested: int | None = None,
    last_change_s: float | None = None,
    last: ScaleOut | None = None,
    rows: int = 1000,
) -> ScalingDecision:
    """Decide on a stream whose batches are all alike: executor to its partitions' busy seconds."""
    placement: dict[int, str] = {}
    loads: dict[int, float] = {}
    for executor, partitions in busy_s.items():
        for seconds in partitions:
            placement[len(placement)] = executor
            loads[len(loads)] = seconds
    samples = [
        BatchSample("q", n, n * interval_s, duration_s, rows, interval_s, backlog_rows)
        for n in range(batches)
    ]
    load = OperatorLoad(
        batches=tuple(range(batches))[-3:],
        busy_s=loads,
        records=dict.fromkeys(loads, 1.0),
        state_bytes=dict.fromkeys(loads, 0),
        placement=placement,
        executor_busy_s={executor: sum(partitions) for executor, partitions in busy_s.items()},
    )
    stage = StageSample(
        "q",
        batches - 1,
        "stateful",
        0.0,
        len(loads),
        max(loads.values(), default=0.0),
        load.executor_busy_s,
    )
    observation = Observation(
        (batches - 1) * interval_s if now_s is None else now_s,
        dict.fromkeys(busy_s, 1),
        batches=tuple(samples),
        stages=(stage,) if loads else (),
        requested=requested,
        last_scaled_s=last_change_s,
        last_scale_out=last,
    )
    return decide(observation, {("q", 0): load} if loads else {}, policy)


def even(executors: int, utilization: float, partitions: int = 8) -> dict[str, list[float]]:
    """Executors that are all busy for the same part of a batch of 10 s."""
    each = [10.0 * utilization / partitions] * partitions
    return {str(number): each for number in range(executors)}


def test_within_the_band_nothing_changes() -> None:
    for utilization in (0.5, 0.6, 0.7, 0.85):
        decision = decide_on(even(4, utilization), duration_s=8.5)
        assert (decision.executors, decision.verdict) == (4, Verdict.STEADY)
        assert decision.utilization == pytest.approx(utilization)


def test_when_all_executors_are_hot_more_are_added() -> None:
    decision = decide_on(even(4, 0.9))
    assert (decision.executors, decision.verdict) == (6, Verdict.CAPACITY)
    assert decision.reason == (
        "4 executors have work for 90% of their time, the hottest for 90%; "
        "6 are needed to be 70% busy; from 4 to 6"
    )


def test_a_scale_out_is_not_judged_while_one_executor_has_most_of_the_work() -> None:
    last = ScaleOut(1500.0, before=2, after=4, rows_per_s=110.0, gain=0.9)
    skewed = decide_on({"a": [3.0, 3.0, 3.0], "b": [1.0], "c": [1.0], "d": [1.0]}, last=last)
    assert (skewed.verdict, skewed.scale_out) == (Verdict.SKEW, last)
    level = decide_on(even(4, 0.9), last=last)
    assert level.scale_out is not None
    assert level.scale_out.failed, "no more rows than before"


def test_when_one_executor_is_hot_it_is_skew_and_none_is_added() -> None:
    decision = decide_on({"a": [3.0, 3.0, 3.0], "b": [1.0], "c": [1.0], "d": [1.0]})
    assert (decision.executors, decision.verdict) == (4, Verdict.SKEW)
    assert "move partitions, more executors would not help" in decision.reason
    assert "the hottest for 90%" in decision.reason


def test_when_one_partition_fills_an_executor_neither_helps_and_the_partition_is_named() -> None:
    for others in (0.5, 8.8):
        decision = decide_on({"a": [9.0], "b": [others], "c": [others]})
        assert (decision.executors, decision.verdict) == (3, Verdict.UNSPLITTABLE)
        assert "partition 0 of operator 0 of query q alone keeps a core 90% busy" in decision.reason
        assert "no move and no executor helps" in decision.reason


def test_partitions_too_coarse_for_the_executors_need_more_of_them_for_good() -> None:
    # Two of three equal partitions share an executor, and balancing cannot help that.
    decision = decide_on({"a": [4.5, 4.5], "b": [4.5]})
    assert (decision.executors, decision.verdict) == (3, Verdict.CAPACITY)
    decision = decide_on({"a": [4.5], "b": [4.5], "c": [4.5]}, duration_s=4.5)
    assert (decision.executors, decision.verdict) == (3, Verdict.STEADY)


def test_when_executors_are_idle_at_most_half_of_them_are_removed() -> None:
    decision = decide_on(even(10, 0.1), duration_s=1.0)
    assert (decision.executors, decision.verdict) == (5, Verdict.SURPLUS)
    assert decision.limited
    assert "2 carry the highest rate of the last 900 s; from 10 to 5" in decision.reason


def test_of_two_idle_executors_one_is_removed() -> None:
    assert decide_on(even(2, 0.1), duration_s=1.0).executors == 1


def test_one_decision_adds_at_most_seven_times_the_executors() -> None:
    roomy = Policy(scaling=ScalingPolicy(max_executors=64))
    one = decide_on(even(1, 9.0, partitions=160), roomy, interval_s=10.0, duration_s=90.0)
    assert (one.executors, one.limited) == (8, True)
    two = decide_on(even(2, 9.0, partitions=160), roomy, interval_s=10.0, duration_s=90.0)
    assert (two.executors, two.limited) == (16, True)
    assert "; 13 are needed to be 70% busy" in one.reason


def test_the_policy_bounds_the_count_and_the_reason_says_so() -> None:
    limited = Policy(scaling=ScalingPolicy(min_executors=3, max_executors=5))
    hot = decide_on(even(4, 0.9), limited)
    assert (hot.executors, hot.limited) == (5, True)
    assert "; 6 are needed to be 70% busy" in hot.reason
    assert hot.reason.endswith("from 4 to 5 (bounds are 3 to 5)")
    idle = decide_on(even(3, 0.1), limited, duration_s=1.0)
    assert (idle.executors, idle.verdict) == (3, Verdict.STEADY)


def test_a_count_outside_of_the_bounds_is_brought_back_whatever_is_measured() -> None:
    limited = Policy(scaling=ScalingPolicy(min_executors=3, max_executors=5))
    assert decide_on(even(8, 0.7), limited).executors == 5
    assert decide_on(even(2, 0.7), limited).executors == 3
    assert decide_on(even(2, 0.7), limited, batches=1).executors == 3


def test_without_a_greatest_number_it_is_left_alone() -> None:
    decision = decide_on(even(4, 0.9), Policy())
    assert (decision.executors, decision.verdict) == (4, Verdict.CAPACITY)
    assert decision.reason.endswith("4 stay (scaling.max_executors is not set)")


@pytest.mark.parametrize("utilization", [0.1, 0.95])
def test_too_few_batches_are_no_ground_for_a_change(utilization: float) -> None:
    decision = decide_on(even(4, utilization), batches=4)
    assert (decision.executors, decision.verdict) == (4, Verdict.HOLD)
    assert "4 of 5 recent batches measured" in decision.reason


@pytest.mark.parametrize("utilization", [0.1, 0.95])
def test_a_stream_that_stopped_is_held_for_it_may_be_hung(utilization: float) -> None:
    decision = decide_on(even(4, utilization), now_s=1e6)
    assert (decision.executors, decision.verdict) == (4, Verdict.HOLD)


def test_batches_without_rows_have_no_rate_and_are_held() -> None:
    assert decide_on(even(4, 0.95), rows=0).verdict == Verdict.HOLD


@pytest.mark.parametrize(
    ("ago_s", "interval_s", "verdict"),
    [(100.0, 10.0, Verdict.HOLD), (130.0, 10.0, Verdict.CAPACITY), (130.0, 60.0, Verdict.HOLD)],
)
def test_after_a_change_time_and_batches_must_pass(
    ago_s: float, interval_s: float, verdict: Verdict
) -> None:
    now_s = 199 * interval_s
    busy_s = even(4, 0.09 * interval_s)
    duration_s = 0.9 * interval_s
    decision = decide_on(
        busy_s, interval_s=interval_s, duration_s=duration_s, last_change_s=now_s - ago_s
    )
    assert decision.verdict == verdict


def test_nothing_is_removed_before_the_whole_delay_was_measured() -> None:
    decision = decide_on(even(4, 0.1), duration_s=1.0, batches=60)
    assert (decision.executors, decision.verdict) == (4, Verdict.HOLD)
    assert "only 591 of 900 s were measured" in decision.reason


@pytest.mark.parametrize(("before", "executors"), [(89, 10), (200, 5)])
def test_removal_waits_until_the_highest_rate_is_older_than_the_delay(
    before: int, executors: int
) -> None:
    quiet = [BatchSample("q", n, n * 10.0, 1.0, 100, 10.0) for n in range(200)]
    peak = [replace(batch, input_rows=700) for batch in quiet[-before - 6 : -before]]
    batches = quiet[: -before - 6] + peak + quiet[-before:]
    load = OperatorLoad((199,), dict.fromkeys(range(80), 0.1), {}, {}, {}, {})
    load = replace(load, placement={p: str(p % 10) for p in range(80)})
    policy = replace(POLICY, scaling=replace(POLICY.scaling, window_s=60.0))
    live = {str(number): 1 for number in range(10)}
    stage = StageSample("q", 199, "stateful", 1990.0, 80, 0.1, dict.fromkeys(live, 0.8))
    observation = Observation(1990.0, live, batches=tuple(batches), stages=(stage,))
    decision = decide(observation, {("q", 0): load}, policy)
    assert decision.executors == executors


def test_a_backlog_that_takes_too_long_adds_executors_and_keeps_them() -> None:
    late = decide_on(even(4, 0.8), duration_s=10.0, backlog_rows=30_000)
    assert (late.executors, late.verdict) == (7, Verdict.CAPACITY)
    assert "7 are needed to be 70% busy once the backlog is worked off in 600 s" in late.reason
    idle = decide_on(even(6, 0.2), duration_s=2.0, backlog_rows=130_000)
    assert (idle.executors, idle.verdict) == (6, Verdict.HOLD)
    assert "no removal now" in idle.reason


def test_a_backlog_that_executors_do_not_cause_adds_none() -> None:
    decision = decide_on(even(4, 0.6), duration_s=6.0, backlog_rows=1e9)
    assert (decision.executors, decision.verdict) == (4, Verdict.STEADY)
    assert "batches take too little of it" in decision.reason


def test_back_to_back_batches_without_a_known_backlog_count_as_full() -> None:
    blind = decide_on(even(4, 0.8), duration_s=10.0)
    assert (blind.executors, blind.verdict) == (6, Verdict.CAPACITY)
    told = decide_on(even(4, 0.8), duration_s=10.0, backlog_rows=0.0)
    assert (told.executors, told.verdict) == (4, Verdict.STEADY)


def test_back_to_back_batches_of_mostly_the_drivers_work_add_none() -> None:
    decision = decide_on(even(4, 0.6), duration_s=10.0)
    assert (decision.executors, decision.verdict) == (4, Verdict.STEADY)


def test_executors_that_have_not_come_yet_stay_asked_for() -> None:
    assert decide_on(even(4, 0.7), requested=6).executors == 6
    assert decide_on(even(4, 0.9), requested=8).executors == 8
    assert decide_on(even(4, 0.1), duration_s=1.0, requested=6).executors == 2


def test_without_an_executor_nothing_is_decided() -> None:
    assert decide_on({}, Policy()).reason == "no live executor; 0 stay"


def test_queries_that_share_executors_add_up_and_an_unmeasured_one_prevents_removal() -> None:
    batches = [
        BatchSample(query, n, n * interval_s, 5.0, 100, interval_s, 0.0)
        for query, interval_s in (("p", 10.0), ("q", 20.0))
        for n in range(int(490 / interval_s) + 1)
    ]
    placement = {p: "ab"[p % 2] for p in range(8)}
    load = OperatorLoad((24,), dict.fromkeys(range(8), 0.5), {}, {}, placement, {})
    policy = replace(POLICY, scaling=replace(POLICY.scaling, scale_in_delay_s=300.0))
    live = {"a": 1, "b": 1}
    p, q = (
        StageSample(query, 24, "stateful", 490.0, 8, 0.5, {"a": 2.0, "b": 2.0}) for query in "pq"
    )
    observation = Observation(490.0, live, batches=tuple(batches), stages=(p, q))
    both = decide(observation, {("p", 0): load, ("q", 0): load}, policy)
    assert (both.executors, both.verdict) == (1, Verdict.SURPLUS)
    assert both.utilization == pytest.approx((4 / 10 + 4 / 20) / 2)
    one = decide(replace(observation, stages=(p,)), {("p", 0): load}, policy)
    assert (one.executors, one.verdict) == (2, Verdict.HOLD)
    assert one.reason.startswith("2 executors have work for 20% of their time")
    assert "query q: 9 of 5 recent batches measured, 0 rows in the last of them" in one.reason


def test_queries_whose_batches_take_longer_than_the_window_add_up_as_well() -> None:
    # Batches of 120 s take turns, so within the last 90 s there is one of them at most.
    batches = [
        BatchSample(query, n, end_s + 240.0 * n, 120.0, 60_000, 240.0, 9_000.0 * n)
        for query, end_s in (("p", 0.0), ("q", 120.0))
        for n in range(8)
    ]
    load = OperatorLoad((7,), {0: 60.0, 1: 60.0}, {}, {}, {0: "a", 1: "a"}, {})
    loads = {("p", 0): load, ("q", 0): load}
    stages = [
        StageSample(query, 7, "stateful", end_s, 2, 60.0, {"a": 120.0})
        for query, end_s in (("p", 1680.0), ("q", 1800.0))
    ]
    policy = replace(POLICY, scaling=replace(POLICY.scaling, window_s=90.0))

    def decide_at(now_s: float, idle_s: dict[str, float] | None = None) -> ScalingDecision:
        observation = Observation(
            now_s, {"a": 1}, batches=tuple(batches), stages=tuple(stages), idle_s=idle_s or {}
        )
        return decide(observation, loads, policy, find_current(batches, now_s, idle_s or {}))

    for now_s in (1815.0, 1860.0, 1905.0):
        found = decide_at(now_s)
        assert found.utilization == pytest.approx(1.0)
        assert (found.executors > 1, found.verdict) == (True, Verdict.CAPACITY)
    # Far too late, what they were is not known to be so any more.
    assert decide_at(2400.0).verdict == Verdict.HOLD
    waiting = decide_at(1905.0, {"p": 1900.0})
    assert waiting.utilization == pytest.approx(0.5), "p has come to its end"


@given(st.permutations(range(60)))
@settings(max_examples=10)
def test_the_order_of_the_batches_does_not_matter(order: list[int]) -> None:
    batches = [BatchSample("q", n, n * 10.0, 9.0, 10 * n, 10.0, 5.0 * n) for n in range(60)]
    load = OperatorLoad((59,), {0: 3.0, 1: 2.0}, {}, {}, {0: "a", 1: "a"}, {})
    decisions = [
        decide(Observation(590.0, {"a": 1}, batches=tuple(given)), {("q", 0): load}, POLICY)
        for given in (batches, [batches[n] for n in order])
    ]
    assert decisions[0] == decisions[1]
