"""One decision on the number of executors, and which kind of trouble a stream is in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.balance.loads import OperatorLoad
from balancedstream.core.memory.use import (
    GIB,
    ExecutorMemory,
    Memory,
    MemoryLimits,
    StateReads,
)
from balancedstream.core.observations import Observation, ScaleOut
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, Sighting, StageSample
from balancedstream.core.scaling.executors import ScalingDecision, decide
from balancedstream.core.scaling.verdicts import Verdict
from balancedstream.core.scaling.workload import find_current

POLICY = Policy(scaling=ScalingPolicy(max_executors=16))
TRIGGER_S = 10.0


def decide_on(
    busy_s: dict[str, list[float]],
    policy: Policy = POLICY,
    *,
    duration_s: float = 9.0,
    driver_s: float = 0.4,
    backlog_rows: float | None = 0.0,
    batches: int = 200,
    now_s: float | None = None,
    requested: int | None = None,
    last_change_s: float | None = None,
    removed: bool = False,
    delay_s: float = 60.0,
    last: ScaleOut | None = None,
    rows: int = 1000,
    trigger_s: float | None = TRIGGER_S,
    sightings: tuple[Sighting, ...] = (),
    memory: Memory = Memory(),  # noqa: B008 - frozen
) -> ScalingDecision:
    """Decide on a stream whose batches are all alike: executor to its partitions' busy seconds."""
    placement: dict[int, str] = {}
    loads: dict[int, float] = {}
    for executor, partitions in busy_s.items():
        for seconds in partitions:
            placement[len(placement)] = executor
            loads[len(loads)] = seconds
    interval_s = max(duration_s, trigger_s or 0.0)
    samples = [
        BatchSample(
            "q",
            n,
            n * interval_s,
            duration_s,
            rows,
            interval_s,
            backlog_rows,
            trigger_s,
            gaps_s=driver_s,
        )
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
        last_removed=removed,
        scale_in_delay_s=delay_s,
        scale_outs=() if last is None else (last,),
        sightings=sightings,
        memory=memory,
    )
    return decide(observation, {("q", 0): load} if loads else {}, policy)


def even(executors: int, busy_s: float, partitions: int = 16) -> dict[str, list[float]]:
    """Executors that are all busy for so many seconds of a batch."""
    each = [busy_s / partitions] * partitions
    return {str(number): each for number in range(executors)}


def test_while_rows_meet_the_objective_with_these_executors_and_not_with_fewer_they_stay() -> None:
    for busy_s in (7.0, 8.0, 9.0):
        decision = decide_on(even(4, busy_s), duration_s=busy_s + 0.5)
        assert (decision.executors, decision.verdict) == (4, Verdict.STEADY), decision.reason
        assert decision.utilization == pytest.approx(busy_s / TRIGGER_S)


def test_when_rows_would_miss_the_objective_the_fewest_that_meet_it_are_asked_for() -> None:
    decision = decide_on(even(4, 13.0), duration_s=13.9)
    assert (decision.executors, decision.verdict) == (5, Verdict.CAPACITY)
    assert decision.reason.startswith(
        "4 executors have work for 94% of their time, the hottest for 94%; "
    )
    assert "the objective is 25.0 s; 5 are needed; from 4 to 5" in decision.reason


def aim_at(latency_s: float) -> Policy:
    """A policy with another objective."""
    return replace(POLICY, scaling=replace(POLICY.scaling, latency_objective_s=latency_s))


def test_a_tighter_objective_needs_more_executors_and_a_wider_one_fewer() -> None:
    assert decide_on(even(4, 8.0), duration_s=8.6).executors == 4
    assert decide_on(even(4, 8.0), aim_at(14.0), duration_s=8.6).executors > 4
    assert decide_on(even(4, 6.0), aim_at(18.0), duration_s=6.6).executors == 4
    assert decide_on(even(4, 6.0), aim_at(25.0), duration_s=6.6).executors == 3


def see(waiting: list[float], begun_s: float = 1990.0) -> tuple[Sighting, ...]:
    """Looks each second at a stream whose batch 200 has 1,000 rows and began then."""
    return tuple(
        Sighting("q", 200, begun_s, begun_s + n, 1000.0, rows) for n, rows in enumerate(waiting)
    )


def test_rows_that_are_seen_before_a_batch_ends_add_executors_at_once() -> None:
    # 100 rows a second, then 400.
    rises = [0.0, 100.0, *(100.0 + 400.0 * n for n in range(1, 8))]
    decision = decide_on(even(4, 8.0), duration_s=8.6, sightings=see(rises), now_s=1998.0)
    assert (decision.executors > 8, decision.verdict) == (True, Verdict.CAPACITY)
    assert "400 rows/s foreseen" in decision.reason


def test_how_far_a_step_goes_is_waited_for_while_the_rate_still_rises() -> None:
    rises = [0.0, 100.0, 200.0, 300.0, 700.0]
    decision = decide_on(even(4, 8.0), duration_s=8.6, sightings=see(rises), now_s=1994.0)
    assert (decision.executors, decision.verdict) == (4, Verdict.HOLD)
    assert "but the rate still rises" in decision.reason


def test_a_batch_that_takes_longer_than_foreseen_counts_before_it_ends() -> None:
    steady = [100.0 * n for n in range(21)]
    soon = decide_on(even(4, 8.0), duration_s=8.6, sightings=see(steady[:9]), now_s=1998.0)
    assert soon.verdict is Verdict.STEADY
    long = decide_on(even(4, 8.0), duration_s=8.6, sightings=see(steady), now_s=2010.0)
    assert (long.executors > 4, long.verdict) == (True, Verdict.CAPACITY)
    assert "rows of query q will wait" in long.reason
    # Those that came just now begin to help.
    held = decide_on(
        even(4, 8.0), duration_s=8.6, sightings=see(steady), now_s=2010.0, last_change_s=1985.0
    )
    assert (held.executors, held.verdict) == (4, Verdict.HOLD)
    assert "executors that were asked for 25 s ago begin to help" in held.reason


def test_executors_that_are_on_their_way_count() -> None:
    assert decide_on(even(4, 9.0), requested=6, duration_s=9.5, last_change_s=1985.0).executors == 6
    pressed = decide_on(even(4, 13.0), requested=5, duration_s=13.9, last_change_s=2750.0)
    assert pressed.executors >= 5


def test_a_scale_out_is_not_judged_while_one_executor_has_most_of_the_work() -> None:
    last = ScaleOut("q", 1500.0, before=2, after=4, rows_per_s=110.0, gain=0.9)
    skewed = decide_on({"a": [3.0, 3.0, 3.9], "b": [1.0], "c": [1.0], "d": [1.0]}, last=last)
    assert (skewed.verdict, skewed.judged) == (Verdict.SKEW, (last,))
    level = decide_on(even(4, 9.0), last=last, duration_s=9.6)
    assert [found.failed for found in level.judged] == [True], "no more rows than before"


def test_when_one_executor_is_hot_it_is_skew_and_none_is_added() -> None:
    decision = decide_on({"a": [3.0, 3.0, 3.9], "b": [1.0], "c": [1.0], "d": [1.0]})
    assert (decision.executors, decision.verdict) == (4, Verdict.SKEW)
    assert "move partitions, more executors would not help" in decision.reason
    assert "the hottest for 99%" in decision.reason


def test_when_one_partition_is_too_long_neither_helps_and_the_partition_is_named() -> None:
    for others in (0.5, 14.8):
        decision = decide_on({"a": [15.0], "b": [others], "c": [others]}, duration_s=15.5)
        assert (decision.executors, decision.verdict) == (3, Verdict.UNSPLITTABLE)
        assert "partition 0 of operator 0 of query q alone keeps a core 97% busy" in decision.reason
        assert "no move and no executor helps" in decision.reason


def test_partitions_too_coarse_for_the_executors_need_more_of_them_for_good() -> None:
    # Two of three equal partitions share an executor, and balancing cannot help that.
    decision = decide_on({"a": [7.0, 7.0], "b": [7.0]}, aim_at(20.0), duration_s=14.5)
    assert (decision.executors, decision.verdict) == (3, Verdict.CAPACITY)
    decision = decide_on({"a": [7.0], "b": [7.0], "c": [7.0]}, duration_s=7.5)
    assert (decision.executors, decision.verdict) == (3, Verdict.STEADY)


def test_when_executors_are_idle_those_that_the_objective_does_not_need_are_removed() -> None:
    decision = decide_on(even(10, 1.0), duration_s=1.5)
    assert (decision.executors, decision.verdict) == (2, Verdict.SURPLUS)
    assert not decision.limited
    assert (
        "2 meet the objective at the highest rate of the last 60 s; from 10 to 2" in decision.reason
    )


def test_of_two_idle_executors_one_is_removed() -> None:
    assert decide_on(even(2, 1.0), duration_s=1.5).executors == 1


def test_a_removal_that_saves_less_than_a_sixteenth_of_the_executors_is_not_made() -> None:
    roomy = Policy(scaling=ScalingPolicy(max_executors=64))
    decision = decide_on(even(16, 8.0, partitions=64), roomy, duration_s=8.5)
    assert (decision.executors, decision.verdict) == (15, Verdict.SURPLUS)
    decision = decide_on(even(17, 8.0, partitions=68), roomy, duration_s=8.5)
    assert (decision.executors, decision.verdict) == (17, Verdict.STEADY)
    assert "; 16 would do, which saves too little; 17 stay" in decision.reason


def test_one_decision_adds_at_most_seven_times_the_executors() -> None:
    roomy = Policy(scaling=ScalingPolicy(max_executors=64))
    one = decide_on(even(1, 200.0, partitions=160), roomy, duration_s=201.0, backlog_rows=9e4)
    assert (one.executors, one.verdict) == (8, Verdict.CAPACITY)


def test_the_policy_bounds_the_count_and_the_reason_says_so() -> None:
    limited = Policy(scaling=ScalingPolicy(min_executors=3, max_executors=5))
    hot = decide_on(even(4, 20.0), limited, duration_s=21.0)
    assert (hot.executors, hot.limited) == (5, True)
    assert " are needed" in hot.reason
    assert hot.reason.endswith("from 4 to 5 (bounds are 3 to 5)")
    idle = decide_on(even(3, 1.0), limited, duration_s=1.5)
    assert (idle.executors, idle.verdict) == (3, Verdict.STEADY)


def test_at_the_greatest_number_a_stream_that_needs_more_says_so() -> None:
    limited = Policy(scaling=ScalingPolicy(max_executors=4))
    hot = decide_on(even(4, 20.0), limited, duration_s=21.0)
    assert (hot.executors, hot.verdict, hot.limited) == (4, Verdict.CAPACITY, True)


def keep_in_reserve(executors: int, most: int = 16) -> Policy:
    return Policy(scaling=ScalingPolicy(max_executors=most, reserve_executors=executors))


@pytest.mark.parametrize("reserve", [1, 3])
def test_a_reserve_is_there_beside_what_the_load_needs(reserve: int) -> None:
    idle = even(10, 1.0)
    needed = decide_on(idle, duration_s=1.5).executors
    kept = decide_on(idle, keep_in_reserve(reserve), duration_s=1.5)
    assert (kept.executors, kept.verdict) == (needed + reserve, Verdict.SURPLUS)
    assert f"with {reserve} in reserve, " in kept.reason


def test_executors_are_added_when_the_load_needs_the_reserve() -> None:
    busy_s = even(3, 7.0)
    assert decide_on(busy_s, duration_s=7.5).executors == 3
    decision = decide_on(busy_s, keep_in_reserve(1), duration_s=7.5)
    assert (decision.executors, decision.verdict) == (4, Verdict.CAPACITY)


def test_at_the_greatest_number_nothing_is_in_reserve_and_nothing_is_missing() -> None:
    decision = decide_on(even(3, 7.0), keep_in_reserve(1, most=3), duration_s=7.5)
    assert (decision.executors, decision.verdict, decision.limited) == (3, Verdict.STEADY, False)


def test_without_a_greatest_number_the_least_still_holds() -> None:
    decision = decide_on(
        even(5, 1.0), Policy(scaling=ScalingPolicy(min_executors=3)), duration_s=1.5
    )
    assert "3 meet the objective at the highest rate" in decision.reason


def test_a_reserve_is_there_before_anything_is_measured() -> None:
    assert decide_on(even(1, 1.0), keep_in_reserve(2), duration_s=1.5, batches=1).executors == 3


def test_a_count_outside_of_the_bounds_is_brought_back_whatever_is_measured() -> None:
    limited = Policy(scaling=ScalingPolicy(min_executors=3, max_executors=5))
    assert decide_on(even(8, 7.0), limited, duration_s=7.5).executors == 5
    assert decide_on(even(2, 7.0), limited, duration_s=7.5).executors == 3
    assert decide_on(even(2, 7.0), limited, duration_s=7.5, batches=1).executors == 3


def test_without_a_greatest_number_it_is_left_alone() -> None:
    decision = decide_on(even(4, 13.0), Policy(), duration_s=13.9)
    assert (decision.executors, decision.verdict) == (4, Verdict.CAPACITY)
    assert decision.reason.endswith("4 stay (scaling.max_executors is not set)")


@pytest.mark.parametrize("busy_s", [1.0, 13.0])
def test_too_few_batches_are_no_ground_for_a_change(busy_s: float) -> None:
    decision = decide_on(even(4, busy_s), batches=2, duration_s=busy_s + 0.5)
    assert (decision.executors, decision.verdict) == (4, Verdict.HOLD)
    assert "2 of 3 batches measured" in decision.reason


@pytest.mark.parametrize("busy_s", [1.0, 13.0])
def test_a_stream_that_stopped_is_held_for_it_may_be_hung(busy_s: float) -> None:
    decision = decide_on(even(4, busy_s), now_s=1e6)
    assert (decision.executors, decision.verdict) == (4, Verdict.HOLD)


def test_timers_need_executors_though_no_rows_come() -> None:
    assert decide_on(even(4, 9.0), rows=0).verdict == Verdict.STEADY
    missed = decide_on(even(4, 26.0), duration_s=27.0, rows=0)
    assert (missed.executors > 4, missed.verdict) == (True, Verdict.CAPACITY), missed.reason
    assert missed.scale_out is None, "what a row costs is not known, nor whether that got better"
    assert not missed.bounds
    idle = decide_on(even(4, 0.5), duration_s=1.0, rows=0)
    assert (idle.executors, idle.verdict) == (1, Verdict.SURPLUS), idle.reason
    come = decide_on(even(4, 0.5), duration_s=1.0, rows=0, backlog_rows=9e6)
    assert (come.executors, come.verdict) == (4, Verdict.HOLD)
    assert "none of its batches measured had rows" in come.reason


def test_an_objective_that_is_no_longer_than_the_trigger_interval_gives_way() -> None:
    usual = decide_on(even(4, 2.0), duration_s=2.5)
    found = decide_on(even(4, 2.0), aim_at(9.0), duration_s=2.5)
    assert (found.executors, found.verdict) == (usual.executors, Verdict.SURPLUS)
    steady = decide_on(even(1, 2.0), aim_at(9.0), duration_s=2.5)
    assert "the objective is 25.0 s (9 s are no longer than its trigger interval)" in steady.reason
    assert "trigger interval" not in decide_on(even(1, 2.0), aim_at(15.0), duration_s=2.5).reason
    # Without one, batches may be as short as that.
    short = decide_on(even(4, 2.0), aim_at(9.0), duration_s=2.5, trigger_s=None)
    assert "the objective is 9.0 s" in short.reason


def test_executors_that_were_removed_just_now_are_not_added_again() -> None:
    end_s = 199 * 13.9
    for ago_s, verdict in ((100.0, Verdict.HOLD), (130.0, Verdict.CAPACITY)):
        found = decide_on(even(4, 13.0), duration_s=13.9, last_change_s=end_s - ago_s, removed=True)
        assert found.verdict == verdict
    assert (
        "executors were removed 100 s ago"
        in decide_on(
            even(4, 13.0), duration_s=13.9, last_change_s=end_s - 100.0, removed=True
        ).reason
    )


def test_after_executors_were_added_more_may_follow_at_once_and_none_leave() -> None:
    end_s = 199 * 13.9
    more = decide_on(even(4, 13.0), duration_s=13.9, last_change_s=end_s - 30.0)
    assert more.verdict is Verdict.CAPACITY
    for ago_s, verdict in ((100.0, Verdict.HOLD), (130.0, Verdict.SURPLUS)):
        fewer = decide_on(even(4, 1.0), duration_s=1.5, last_change_s=1990.0 - ago_s)
        assert fewer.verdict == verdict


def test_nothing_is_removed_before_the_whole_delay_was_measured() -> None:
    decision = decide_on(even(4, 1.0), duration_s=1.5, batches=20, delay_s=300.0)
    assert (decision.executors, decision.verdict) == (4, Verdict.HOLD)
    assert "only 190 s were measured" in decision.reason


@pytest.mark.parametrize(("before", "removes"), [(24, False), (60, True)])
def test_removal_waits_until_the_highest_rate_is_older_than_the_delay(
    before: int, removes: bool
) -> None:
    quiet = [BatchSample("q", n, n * 10.0, 1.5, 100, 10.0, 0.0, 10.0) for n in range(100)]
    peak = [replace(batch, input_rows=1000) for batch in quiet[-before - 6 : -before]]
    batches = quiet[: -before - 6] + peak + quiet[-before:]
    live = {str(number): 1 for number in range(10)}
    stage = StageSample("q", 99, "stateful", 990.0, 80, 0.1, dict.fromkeys(live, 0.8))
    observation = Observation(
        990.0, live, batches=tuple(batches), stages=(stage,), scale_in_delay_s=300.0
    )
    decision = decide(observation, {}, POLICY)
    assert (decision.executors < 10) is removes, decision.reason


def test_rows_that_wait_too_long_add_executors_and_keep_them() -> None:
    late = decide_on(even(4, 9.0), duration_s=9.5, sightings=see([30_000.0] * 4), now_s=1993.0)
    assert (late.executors > 4, late.verdict) == (True, Verdict.CAPACITY)
    idle = decide_on(even(6, 2.0), duration_s=2.5, sightings=see([30_000.0] * 4), now_s=1993.0)
    assert idle.executors >= 6


def test_a_backlog_that_a_limit_of_the_source_keeps_adds_none() -> None:
    decision = decide_on(even(4, 7.0), duration_s=7.5, backlog_rows=1e9)
    assert (decision.executors, decision.verdict) == (4, Verdict.STEADY), decision.reason


def test_back_to_back_batches_without_a_known_backlog_count_as_full() -> None:
    blind = decide_on(
        even(4, 7.9), duration_s=10.0, driver_s=2.0, backlog_rows=None, trigger_s=None
    )
    assert (blind.executors > 4, blind.verdict) == (True, Verdict.CAPACITY)
    told = decide_on(even(4, 7.9), duration_s=10.0, driver_s=2.0, trigger_s=None)
    assert (told.executors, told.verdict) == (4, Verdict.STEADY), told.reason


def test_back_to_back_batches_of_mostly_the_drivers_work_add_none() -> None:
    decision = decide_on(even(4, 6.0), duration_s=10.0, driver_s=4.0, trigger_s=None)
    assert (decision.executors, decision.verdict) == (4, Verdict.STEADY), decision.reason


def test_without_an_executor_nothing_is_decided() -> None:
    assert decide_on({}, Policy()).reason == "no live executor; 0 stay"


def share(interval_s: dict[str, float], busy_s: float) -> Observation:
    """Two queries that share two executors; each batch keeps both busy for so long."""
    lasts_s = 1.1 * busy_s + 0.4
    batches = [
        BatchSample(query, n, n * pause_s, lasts_s, 100, pause_s, 0.0, pause_s, gaps_s=0.4)
        for query, pause_s in interval_s.items()
        for n in range(int(490 / pause_s) + 1)
    ]
    stages = tuple(
        StageSample(query, b.batch, "stateful", 490.0, 8, busy_s / 4, dict.fromkeys("ab", busy_s))
        for query in interval_s
        for b in batches
        if b.query == query
    )
    return Observation(490.0, {"a": 1, "b": 1}, batches=tuple(batches), stages=stages)


def test_queries_that_share_executors_add_up_and_an_unmeasured_one_prevents_removal() -> None:
    seen = share({"p": 10.0, "q": 20.0}, 2.0)
    both = decide(seen, {}, POLICY)
    assert (both.executors, both.verdict) == (1, Verdict.SURPLUS)
    assert both.utilization == pytest.approx((4 / 10 + 4 / 20) / 2)
    mine = tuple(s for s in seen.stages if s.query == "p")
    one = decide(replace(seen, stages=mine), {}, POLICY)
    assert (one.executors, one.verdict) == (2, Verdict.HOLD)
    assert one.reason.startswith("2 executors have work for 20% of their time")
    assert "query q: its driver does not report the work" in one.reason


def test_a_query_gets_the_cores_that_others_leave_it() -> None:
    # Alone, each would meet its objective on two executors.
    alone = decide(share({"p": 10.0}, 8.0), {}, POLICY)
    assert alone.executors == 2
    assert decide(share({"p": 10.0, "q": 10.0}, 8.0), {}, POLICY).executors > 2


def share_unequally(p_s: float, q_s: float, p_rows: int = 100) -> Observation:
    """Two queries that share two executors, each with busy seconds of its own."""
    p, q = share({"p": 10.0}, p_s), share({"q": 10.0}, q_s)
    mine = tuple(replace(batch, input_rows=p_rows) for batch in p.batches)
    return replace(q, batches=(*mine, *q.batches), stages=(*p.stages, *q.stages))


def limit_by_driver(seen: Observation, query: str) -> Observation:
    """The same, but batches of the query take a minute of the driver's time."""
    batches = [
        replace(b, duration_s=b.duration_s + 60.0, interval_s=61.0, gaps_s=60.0)
        if b.query == query
        else b
        for b in seen.batches
    ]
    return replace(seen, batches=tuple(batches))


def test_a_query_that_something_else_limits_does_not_hide_what_another_one_needs() -> None:
    limited = decide(limit_by_driver(share_unequally(0.05, 1.0), "p"), {}, aim_at(15.0))
    assert (limited.executors, limited.verdict) == (2, Verdict.DRIVER_BOUND), limited.reason
    found = decide(limit_by_driver(share_unequally(0.05, 6.5), "p"), {}, aim_at(15.0))
    assert (found.executors > 2, found.verdict) == (True, Verdict.CAPACITY), found.reason
    assert "rows of query q " in found.reason
    assert found.scale_out is not None
    assert found.scale_out.query == "q"


def test_whether_a_scale_out_helped_is_judged_by_the_query_that_needed_it() -> None:
    # A row of the other query costs next to nothing, so that its rate would be most of the sum.
    seen = share_unequally(1.0, 6.5, p_rows=10**7)
    first = decide(seen, {}, aim_at(15.0)).scale_out
    assert first is not None
    assert (first.query, first.rows_per_s < 100.0) == ("q", True)
    made = replace(first, at_s=300.0, before=1, after=2, gain=0.9)
    for shown, verdict in ((1.9, Verdict.CAPACITY), (1.0, Verdict.HOLD)):
        last = replace(made, rows_per_s=first.rows_per_s / shown)
        found = decide(replace(seen, scale_outs=(last,)), {}, aim_at(15.0))
        assert found.verdict is verdict, found.reason
    # Executors that did not help the one were not added for the other.
    other = replace(made, query="p", failed=True)
    assert decide(replace(seen, scale_outs=(other,)), {}, aim_at(15.0)).verdict is Verdict.CAPACITY


def test_executors_that_helped_neither_query_are_not_added_for_one_after_the_other() -> None:
    seen = share({"p": 10.0, "q": 10.0}, 14.0)
    failed = [
        ScaleOut(q, at_s, 1, 2, 1e6, 0.9, failed=True) for q, at_s in (("p", 200.0), ("q", 300.0))
    ]
    for tried, verdict in ((failed[:1], Verdict.CAPACITY), (failed, Verdict.HOLD)):
        found = decide(replace(seen, scale_outs=tuple(tried)), {}, POLICY)
        assert found.verdict is verdict, found.reason
        assert found.scale_out is None or found.scale_out.query == "q"


def test_reads_that_are_slow_for_one_query_are_no_reason_to_leave_another_one_behind() -> None:
    reads = StateReads("p", 0, 7e-5, 1e-5, 1.5, 4.0, 14.0)
    memory = Memory((ExecutorMemory("a", rocksdb_bytes=GIB), ExecutorMemory("b")), reads=(reads,))
    seen = replace(share_unequally(1.0, 6.5), memory=memory)
    found = decide(seen, {}, aim_at(15.0))
    assert found.verdict is Verdict.CAPACITY, found.reason
    own = replace(seen, memory=replace(memory, reads=(replace(reads, query="q"),)))
    assert decide(own, {}, aim_at(15.0)).verdict is Verdict.MEMORY_BOUND


@pytest.mark.parametrize("queries", ["pq", "pqr", "pqrst"])
def test_no_query_is_limited_because_others_alone_take_more_than_all_cores(queries: str) -> None:
    found = decide(share(dict.fromkeys(queries, 10.0), 14.0), {}, POLICY)
    assert found.verdict == Verdict.CAPACITY, found.reason


def test_queries_whose_batches_take_longer_than_the_window_add_up_as_well() -> None:
    # Batches of 120 s take turns, so within the last 90 s there is one of them at most.
    batches = [
        BatchSample(query, n, end_s + 240.0 * n, 120.0, 60_000, 240.0, 9_000.0 * n)
        for query, end_s in (("p", 0.0), ("q", 120.0))
        for n in range(8)
    ]
    stages = [
        StageSample(query, n, "stateful", end_s, 8, 15.0, {"a": 120.0})
        for query, end_s in (("p", 1680.0), ("q", 1800.0))
        for n in range(8)
    ]
    policy = replace(POLICY, scaling=replace(POLICY.scaling, window_s=90.0))

    def decide_at(now_s: float, idle_s: dict[str, float] | None = None) -> ScalingDecision:
        observation = Observation(
            now_s, {"a": 1}, batches=tuple(batches), stages=tuple(stages), idle_s=idle_s or {}
        )
        return decide(observation, {}, policy, find_current(batches, now_s, idle_s or {}))

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
    batches = [BatchSample("q", n, n * 10.0, 9.0, 10 * n, 10.0, 5.0 * n, 10.0) for n in range(60)]
    stages = [StageSample("q", n, "source", n * 10.0, 8, 1.2, {"a": 8.0}) for n in range(60)]
    decisions = [
        decide(Observation(590.0, {"a": 1}, batches=tuple(b), stages=tuple(s)), {}, POLICY)
        for b, s in ((batches, stages), ([batches[n] for n in order], [stages[n] for n in order]))
    ]
    assert decisions[0] == decisions[1]


def take(
    executors: int,
    rocksdb: float,
    *,
    other: float = 0.5,
    limit: float = 1.5,
    growth: float | None = None,
    reads: tuple[StateReads, ...] = (),
) -> Memory:
    """The memory of so many executors that are all alike, in GiB."""
    use = [
        ExecutorMemory(str(n), other * GIB, rocksdb_bytes=rocksdb * GIB) for n in range(executors)
    ]
    return Memory(tuple(use), MemoryLimits(limit * GIB), reads, growth)


SLOW_READS = StateReads("q", 0, 72e-6, 12e-6, misses=1.5, delay_s=4.0, batch_s=14.0)


def test_none_is_removed_that_holds_state_which_the_others_have_no_room_for() -> None:
    idle = even(4, 2.0)
    assert decide_on(idle, duration_s=2.6).executors < 3
    kept = decide_on(idle, duration_s=2.6, memory=take(4, 0.8))
    assert (kept.executors, kept.verdict) == (4, Verdict.STEADY)
    assert "no removal: state would take 3.20 of 0.85 GiB; 4 stay" in kept.reason
    fewer = decide_on(idle, duration_s=2.6, memory=take(4, 0.6))
    assert (fewer.executors, fewer.verdict) == (3, Verdict.SURPLUS)
    assert "3 meet the objective" in fewer.reason
    assert "not 1 (state would take 2.40 of 0.85 GiB)" in fewer.reason


def test_executors_are_added_for_state_that_is_about_to_exceed_their_limit() -> None:
    calm = even(4, 7.0)
    decision = decide_on(calm, duration_s=7.5, memory=take(4, 0.9))
    assert (decision.executors, decision.verdict) == (5, Verdict.CAPACITY)
    assert "executor 0 takes 1.40 of 1.50 GiB" in decision.reason
    assert "on 4, state would take 0.90 of 0.85 GiB; 5 hold it; from 4 to 5" in decision.reason
    # What they bring takes a while to show.
    again = decide_on(calm, duration_s=7.5, memory=take(4, 0.9), last_change_s=1000.0)
    assert (again.executors, again.verdict) == (4, Verdict.MEMORY_BOUND)


def test_where_the_limit_is_too_low_for_the_state_the_reason_says_so() -> None:
    few = replace(POLICY, scaling=replace(POLICY.scaling, max_executors=4))
    decision = decide_on(even(4, 7.0), few, duration_s=7.5, memory=take(4, 0.9))
    assert (decision.executors, decision.verdict) == (4, Verdict.MEMORY_BOUND)
    some = replace(POLICY, scaling=replace(POLICY.scaling, max_executors=5))
    decision = decide_on(even(4, 7.0), some, duration_s=7.5, memory=take(4, 1.2, limit=1.8))
    assert (decision.executors, decision.limited) == (5, False)
    decision = decide_on(even(4, 7.0), some, duration_s=7.5, memory=take(4, 1.3, limit=1.7))
    assert (decision.executors, decision.limited) == (5, True)
    assert "6 hold it; from 4 to 5 (bounds are 1 to 5)" in decision.reason


def test_the_limit_that_growth_reaches_is_told_hours_before() -> None:
    growing = take(4, 0.5, growth=4 * 0.5 * GIB / (9 * 3600))
    decision = decide_on(even(4, 7.0), duration_s=7.5, memory=growing)
    assert (decision.executors, decision.verdict) == (4, Verdict.MEMORY_BOUND)
    assert "the limit is reached in 9.0 hours: memory is what is missing" in decision.reason
    assert decision.tight is not None
    assert decision.tight.kind == "growing"


def test_none_is_added_for_batches_that_are_long_because_reads_miss_the_cache() -> None:
    overloaded = even(4, 13.0)
    assert decide_on(overloaded, duration_s=13.9).verdict is Verdict.CAPACITY
    memory = take(4, 0.1, reads=(SLOW_READS,))
    decision = decide_on(overloaded, duration_s=13.9, memory=memory)
    assert (decision.executors, decision.verdict) == (4, Verdict.MEMORY_BOUND)
    assert "batches are 4.0 s longer" in decision.reason
    quick = replace(SLOW_READS, get_s=13e-6)
    decision = decide_on(overloaded, duration_s=13.9, memory=take(4, 0.1, reads=(quick,)))
    assert decision.verdict is Verdict.CAPACITY


def test_memory_that_is_full_of_something_else_is_none_of_scaling() -> None:
    decision = decide_on(even(4, 7.0), duration_s=7.5, memory=take(4, 0.05, other=1.4))
    assert (decision.executors, decision.verdict) == (4, Verdict.STEADY)
    assert decision.tight is not None
    assert not decision.tight.of_state
