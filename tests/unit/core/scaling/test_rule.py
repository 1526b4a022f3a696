"""DS2's rule: how many executors a rate needs."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.scaling.executors import required_executors
from balancedstream.errors import InvalidRateError

rates = st.floats(1e-3, 1e9)


@given(st.integers(1, 10_000), rates, st.floats(0.05, 1.0))
@settings(max_examples=100)
def test_what_n_executors_just_carry_needs_n(count: int, rate: float, target: float) -> None:
    assert required_executors(count * rate * target, rate, target) == count


@given(st.floats(0, 1e9), rates, st.floats(0.05, 1.0), st.floats(0, 1e9), st.floats(1, 1e6))
@settings(max_examples=200)
def test_the_count_is_enough_and_one_less_is_not(
    arriving: float, rate: float, target: float, backlog: float, catch_up_s: float
) -> None:
    count = required_executors(arriving, rate, target, backlog=backlog, catch_up_s=catch_up_s)
    exact = (
        Fraction(arriving) / Fraction(target) + Fraction(backlog) / Fraction(catch_up_s)
    ) / Fraction(rate)
    noise = 1 + Fraction(1, 10**8)
    assert count >= 1
    assert count * noise >= exact
    assert count == 1 or (count - 1) < exact * noise


@given(st.floats(0, 1e6), st.floats(0, 1e6), rates, st.floats(0, 1e6))
@settings(max_examples=100)
def test_more_input_or_backlog_never_needs_fewer(
    arriving: float, more: float, rate: float, backlog: float
) -> None:
    count = required_executors(arriving, rate, 0.7, backlog=backlog, catch_up_s=60.0)
    for grown in (
        required_executors(arriving + more, rate, 0.7, backlog=backlog, catch_up_s=60.0),
        required_executors(arriving, rate, 0.7, backlog=backlog + more, catch_up_s=60.0),
    ):
        assert grown >= count


def test_nothing_arriving_needs_one_executor() -> None:
    assert required_executors(0, 1000, 0.7) == 1


def test_a_backlog_counts_only_where_it_is_to_be_caught_up() -> None:
    assert required_executors(700, 1000, 0.7, backlog=1e9) == 1
    assert required_executors(700, 1000, 0.7, backlog=600_000, catch_up_s=600) == 2


WRONG = [math.nan, -math.inf, -1.0, None, "7", True]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        (name, wrong)
        for name in ("input_rate", "rate_per_executor", "target_utilization", "backlog")
        for wrong in [*WRONG, math.inf]
    ]
    + [("catch_up_s", wrong) for wrong in [*WRONG, 0]],
)
def test_a_number_from_which_no_count_follows_is_our_error_and_named(
    name: str, wrong: object
) -> None:
    good = {
        "input_rate": 700.0,
        "rate_per_executor": 100.0,
        "target_utilization": 0.7,
        "backlog": 10.0,
        "catch_up_s": 60.0,
    }
    with pytest.raises(InvalidRateError, match=f"^{name}: must be "):
        required_executors(**{**good, name: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [0, 0.0, -0.0, 5e-324])
def test_a_rate_of_nothing_is_our_error_and_no_division_by_zero(rate: float) -> None:
    with pytest.raises(InvalidRateError, match=r"^rate_per_executor: must be "):
        required_executors(1e308, rate, 0.7)


@pytest.mark.parametrize("target", [0, 1.01])
def test_a_target_outside_of_0_to_1_is_our_error(target: float) -> None:
    with pytest.raises(InvalidRateError, match=r"^target_utilization: must be "):
        required_executors(1, 1, target)
