"""How many rows arrive, and how many will."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.samples import BatchSample, Sighting
from balancedstream.core.scaling.arrivals import Arrivals, count_arrivals


def arrive(rates: list[float], step_s: float = 10.0, looks: int = 0) -> Arrivals:
    """Rows at these rates, each for so long."""
    totals = [0.0]
    for rate in rates:
        totals.append(totals[-1] + rate * step_s)
    return Arrivals(tuple(step_s * n for n in range(len(totals))), tuple(totals), looks)


@given(st.lists(st.floats(0.0, 1e4), min_size=3, max_size=60), st.floats(1.0, 100.0))
def test_what_is_foreseen_is_never_below_what_is_measured(
    rates: list[float], ahead_s: float
) -> None:
    arrivals = arrive(rates)
    now = arrivals.rate_now(10.0)
    assert arrivals.foresee(ahead_s, 10.0, now).ahead >= now >= 0.0


def test_a_steady_load_is_foreseen_as_it_is_and_a_rise_as_it_goes_on() -> None:
    steady = arrive([100.0] * 60).foresee(30.0, 10.0, 100.0)
    assert (steady.ahead, steady.way) == (100.0, "as now")
    ramp = arrive([100.0 + 5.0 * n for n in range(60)])
    foreseen = ramp.foresee(30.0, 10.0, ramp.rate_now(10.0))
    assert foreseen.way.startswith("by the trend")
    assert 405.0 < foreseen.ahead < 435.0


def test_a_load_that_jumps_up_and_down_gets_a_margin() -> None:
    foreseen = arrive([100.0, 100.0, 100.0, 180.0] * 15).foresee(20.0, 10.0, 100.0)
    assert foreseen.ahead > 100.0
    assert foreseen.way == "as now and 60%"


def test_the_last_seconds_count_if_they_are_clearly_above_the_interval() -> None:
    steady = arrive([100.0] * 30, step_s=1.0, looks=30)
    assert steady.rate_now(10.0) == 100.0
    step = arrive([100.0] * 30 + [400.0] * 4, step_s=1.0, looks=34)
    assert step.rate_now(10.0) == 400.0
    unseen = arrive([100.0] * 30 + [400.0] * 4, step_s=1.0)
    assert unseen.rate_now(10.0) < 250.0


def test_a_step_rises_for_as_long_as_the_last_seconds_are_not_full_of_it() -> None:
    rising = [
        arrive([100.0] * 30 + [400.0] * n, step_s=1.0, looks=30 + n).is_rising(10.0)
        for n in range(7)
    ]
    assert rising == [False, True, True, True, True, False, False]


def test_a_source_that_bursts_has_to_exceed_its_bursts() -> None:
    bursts = arrive([50.0, 150.0] * 3 + [40.0, 160.0, 160.0, 40.0] * 6, step_s=1.0, looks=30)
    assert bursts.rate_now(10.0) < 115.0


def test_rows_count_from_batches_and_from_looks_between_them() -> None:
    run = [BatchSample("q", n, 10.0 * n, 4.0, 50, 10.0, 5.0) for n in (1, 2)]
    looks = [
        Sighting("q", 2, 16.0, 18.0, 50.0, 10.0),
        Sighting("q", 3, 26.0, 27.0, 60.0, 8.0),
        Sighting("q", 4, 30.0, 31.0, None, 9.0),
        Sighting("q", 4, 30.0, 32.0, 7.0, None),
    ]
    found = count_arrivals(run, looks)
    assert found.times_s == (6.0, 16.0, 18.0, 27.0)
    assert found.totals == (55.0, 105.0, 110.0, 168.0)
    assert found.looks == 2


def test_while_a_query_waits_for_data_nothing_comes() -> None:
    run = [BatchSample("q", n, 10.0 * n, 4.0, 50, 10.0) for n in range(1, 6)]
    assert count_arrivals(run, [], idle_s=120.0).rate_now(10.0) == 0.0
