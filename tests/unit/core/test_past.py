"""What one decision remembers for the next."""

from __future__ import annotations

from dataclasses import replace

from balancedstream.core.decisions import Decision
from balancedstream.core.observations import (
    MAX_DELAY_S,
    MAX_ROOM,
    MIN_DELAY_S,
    MIN_ROOM,
    START_S,
    ScaleOut,
)
from balancedstream.core.past import Past
from balancedstream.core.scaling.arrivals import Arrivals, Forecast
from balancedstream.core.scaling.costs import QueryCost
from balancedstream.core.scaling.demand import Demand
from balancedstream.core.scaling.executors import INEFFECTIVE_HOLD_S, ScalingDecision
from balancedstream.core.scaling.verdicts import Verdict
from balancedstream.core.wire.plan import Plan

KNOWN = ScaleOut("q", 50.0, 1, 2, 100.0, 0.5)
NEW = ScaleOut("q", 90.0, 2, 3, 100.0, 0.4)
PAST = Past(2, 50.0, (KNOWN,), {"q": 3}, moved=True)
BATCHES = {"q": 9}


def decide(count: int, made: ScaleOut | None = None, *judged: ScaleOut) -> Decision:
    scaling = ScalingDecision(count, Verdict.CAPACITY, "because", scale_out=made, judged=judged)
    return Decision({}, {}, scaling, tuple("abcdef"[:count]), {})


def plan(count: int) -> Plan:
    return Plan(4, tuple("abcdef"[:count]), {})


def test_a_scale_out_that_no_plan_makes_is_forgotten() -> None:
    assert PAST.after(decide(3, NEW), None, 92.0, BATCHES) == PAST
    made = PAST.after(decide(3, NEW), plan(3), 92.0, BATCHES)
    assert made == Past(3, 92.0, (NEW,), BATCHES, moved=True, starting=True)


def test_the_last_scale_out_of_each_query_is_remembered_while_it_counts() -> None:
    other = replace(NEW, query="p")
    both = PAST.after(decide(3, other), plan(3), 92.0, BATCHES)
    assert both.scale_outs == (KNOWN, other)
    failed = replace(KNOWN, failed=True)
    again = replace(NEW, at_s=95.0)
    assert both.after(decide(4, again, failed), plan(4), 95.0, BATCHES).scale_outs == (other, again)
    late = replace(NEW, query="r", at_s=50.0 + INEFFECTIVE_HOLD_S)
    assert both.after(decide(4, late), plan(4), late.at_s, BATCHES).scale_outs == (other, late)


def test_what_is_found_of_a_scale_out_is_remembered_without_a_plan_too() -> None:
    failed = replace(KNOWN, failed=True)
    found = replace(PAST, scale_outs=(failed,))
    assert PAST.after(decide(2, None, failed), None, 92.0, BATCHES) == found
    fewer = PAST.after(decide(1, None, failed), plan(1), 92.0, BATCHES)
    assert fewer == Past(1, 92.0, (failed,), BATCHES, moved=True, removed=True)


def test_a_plan_that_changes_nothing_keeps_the_time_of_the_last_change() -> None:
    assert PAST.after(decide(2, None), plan(2), 92.0, BATCHES) == Past(2, 50.0, (KNOWN,), BATCHES)


def change(past: Past, count: int, at_s: float) -> Past:
    """The past after the number of executors was changed then."""
    return past.after(decide(count, None), plan(count), at_s, BATCHES)


def test_a_removal_that_is_regretted_doubles_how_long_the_highest_need_counts() -> None:
    removed = change(PAST, 1, 500.0)
    assert removed.delay_s == MIN_DELAY_S
    regretted = change(removed, 2, 650.0)
    assert regretted.delay_s == 2 * MIN_DELAY_S
    again = change(change(regretted, 1, 900.0), 2, 1000.0)
    assert again.delay_s == 4 * MIN_DELAY_S
    assert change(change(again, 1, 1200.0), 2, 1300.0).delay_s == MAX_DELAY_S


def test_a_removal_that_was_not_regretted_shortens_it_again() -> None:
    removed = change(replace(PAST, delay_s=200.0), 1, 500.0)
    assert change(removed, 2, 5000.0).delay_s == 160.0
    assert change(replace(removed, requested=3), 2, 700.0).delay_s == 160.0
    assert change(replace(removed, requested=3, delay_s=MIN_DELAY_S), 2, 700.0).delay_s == (
        MIN_DELAY_S
    )


def foresee(rate: float) -> Demand:
    """What a query demands whose rows come at this rate."""
    cost = QueryCost(0.0, 0.001, {}, {})
    forecast = Forecast(rate, 2.0 * rate, "as now and 100%")
    return Demand("q", cost, Arrivals((), ()), forecast, 10.0, 25.0, (), 0.0, None, 0.0, 0.0)


def add_after_promise(rate: float, at_s: float) -> Past:
    """The past after those that stayed were to be enough for 110 rows/s, and were not."""
    fewer = replace(decide(1, None).scaling, enough_for={"q": 110.0})
    removed = PAST.after(replace(decide(1, None), scaling=fewer), plan(1), 500.0, BATCHES)
    assert removed.promised == {"q": 110.0}
    more = replace(decide(2, None).scaling, demands=(foresee(rate),))
    return removed.after(replace(decide(2, None), scaling=more), plan(2), at_s, BATCHES)


def test_executors_that_were_not_enough_for_what_was_promised_leave_more_room_next_time() -> None:
    broken = add_after_promise(100.0, at_s=5000.0)
    assert (broken.room, broken.delay_s) == (MIN_ROOM + 0.1, MIN_DELAY_S)
    assert not broken.promised
    kept = add_after_promise(120.0, at_s=600.0)
    assert (kept.room, kept.delay_s) == (MIN_ROOM, 2 * MIN_DELAY_S)


def test_the_room_has_an_end_and_shrinks_after_removals_that_were_enough() -> None:
    most = replace(PAST, removed=True, promised={"q": 110.0}, room=MAX_ROOM)
    more = replace(decide(3, None).scaling, demands=(foresee(100.0),))
    assert most.after(replace(decide(3, None), scaling=more), plan(3), 900.0, {}).room == MAX_ROOM
    assert change(most, 1, 900.0).room == 1.0 + 0.8 * (MAX_ROOM - 1.0)
    assert change(replace(most, room=MIN_ROOM), 1, 900.0).room == MIN_ROOM


def test_a_floor_that_begins_teaches_nothing_of_the_removal_before_it() -> None:
    removed = change(PAST, 1, 500.0)
    floor = replace(decide(3, None).scaling, verdict=Verdict.STEADY)
    begun = removed.after(replace(decide(3, None), scaling=floor), plan(3), 600.0, BATCHES)
    assert (begun.requested, begun.room, begun.delay_s) == (3, removed.room, removed.delay_s)


def test_how_long_a_start_takes_is_learnt_once_all_executors_are_there() -> None:
    asked = PAST.after(decide(3, NEW), plan(3), 100.0, BATCHES, joined=True)
    waits = asked.after(decide(3, None), None, 120.0, BATCHES, joined=False)
    assert waits.start_s == START_S
    there = waits.after(decide(3, None), None, 160.0, BATCHES, joined=True)
    assert START_S < there.start_s < 60.0
    assert there.after(decide(3, None), None, 900.0, BATCHES, joined=True) == there
