"""Queries that hold slots keep them, and others are sized and placed in what they leave."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.decisions import decide
from balancedstream.core.observations import Observation, parse_observation
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, SlotHolder, StageSample, TaskSample
from balancedstream.core.scaling.executors import LEAST_SAVING
from balancedstream.core.scaling.slots import leave_room, measure_slots
from balancedstream.core.scaling.verdicts import Verdict

POLICY = Policy(scaling=ScalingPolicy(min_executors=1, max_executors=8))


def hold(slots: int | None, **held: int) -> SlotHolder:
    return SlotHolder("live", "real-time", slots, held)


def observe(executors: int, *holders: SlotHolder, busy_s: float = 0.2) -> Observation:
    """Executors of two cores each, and a query beside the holders that keeps four tasks busy."""
    live = {chr(ord("a") + n): 2 for n in range(executors)}
    batches = [BatchSample("q", n, 10.0 * n, 1.0, 100, 10.0, 0.0, 10.0) for n in range(80)]
    stages = [
        StageSample(
            "q", n, "source", 10.0 * n, 4, busy_s / 4, dict.fromkeys(live, busy_s / executors)
        )
        for n in range(80)
    ]
    return Observation(
        790.0,
        live,
        batches=tuple(batches),
        stages=tuple(stages),
        last_scaled_s=0.0,
        holders=holders,
    )


def test_executors_that_the_slots_need_stay_and_others_go() -> None:
    assert decide(observe(8), POLICY).scaling.executors == 1
    kept = decide(observe(8, hold(6)), POLICY).scaling
    assert (kept.executors, kept.verdict) == (5, Verdict.SURPLUS), "6 slots, and 4 tasks beside"
    assert LEAST_SAVING * 8 < 8 - 5


def test_slots_that_are_missing_are_a_verdict_with_both_numbers_and_executors_come() -> None:
    short = decide(observe(2, hold(5)), POLICY).scaling
    assert (short.executors, short.verdict, short.limited) == (5, Verdict.SLOTS, False)
    assert short.reason.startswith(
        "query live in Real-Time Mode needs 5 slots at once, beside up to 4 tasks of others; there "
        "are 4: Spark ends it"
    )


def test_no_more_executors_come_than_the_policy_allows_and_that_is_said() -> None:
    few = replace(POLICY, scaling=ScalingPolicy(min_executors=1, max_executors=3))
    short = decide(observe(2, hold(5)), few).scaling
    assert (short.executors, short.verdict, short.limited) == (3, Verdict.SLOTS, True)
    assert short.reason.endswith("from 2 to 3 (bounds are 1 to 3)")


def test_an_application_of_real_time_queries_alone_is_not_short_of_batches() -> None:
    alone = replace(observe(2, hold(4)), batches=(), stages=())
    kept = decide(alone, POLICY).scaling
    assert (kept.executors, kept.verdict) == (2, Verdict.HOLD)
    assert kept.reason.startswith("query live in Real-Time Mode needs 4 slots at once; 2 stay")


def test_the_others_are_sized_by_the_cores_that_are_left() -> None:
    busy = decide(observe(4, busy_s=20.0), POLICY).scaling
    beside = decide(observe(4, hold(4), busy_s=20.0), POLICY).scaling
    assert beside.executors == busy.executors + 2, "as many as the four slots are"


def test_a_query_under_continuous_processing_keeps_its_slots_and_counts_no_others() -> None:
    need = measure_slots(observe(8, SlotHolder("flow", "continuous", 3)))
    assert need is not None
    assert (need.slots, need.executors) == (3, 2)
    assert need.reason == "query flow under continuous processing needs 3 slots at once"


def test_executors_go_first_of_which_nobody_holds_slots() -> None:
    spread = SlotHolder("flow", "continuous", 4, {"a": 2, "b": 1, "c": 1})
    decision = decide(observe(8, spread), POLICY)
    assert decision.executors[:3] == ("a", "b", "c"), "tasks that do not end keep all three"
    assert len(decision.executors) == decision.scaling.executors < 8


def test_nothing_goes_while_the_need_of_one_of_them_is_unknown() -> None:
    some = observe(8, hold(2), SlotHolder("other", "real-time", None))
    assert decide(some, POLICY).scaling.executors == 8


def test_partitions_of_others_go_where_slots_are_left() -> None:
    tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
    seen = Observation(10.0, {"a": 2, "b": 2, "c": 2}, tasks, holders=(hold(3, b=2, c=1),))
    moves = decide(seen, Policy()).balance["q", 0].moves
    assert {move.target for move in moves} == {"c"}


def test_holders_are_part_of_what_is_written_of_an_observation() -> None:
    seen = observe(1, hold(2, a=1), SlotHolder("flow", "continuous", None))
    assert parse_observation(seen.to_json()) == seen


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 4), min_size=1),
    st.dictionaries(st.sampled_from("abcde"), st.integers(1, 5)),
)
def test_room_is_never_negative_and_somewhere_the_others_always_run(
    executors: dict[str, int], held: dict[str, int]
) -> None:
    room = leave_room(executors, [hold(9, **held)])
    assert room
    assert all(0 < cores <= executors[e] for e, cores in room.items())


@pytest.mark.parametrize("executors", [1, 3])
def test_without_holders_nothing_is_different(executors: int) -> None:
    assert measure_slots(observe(executors)) is None
