"""What executors cost in money, beside a fixed size."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.money import (
    MAX_EXECUTOR_HOUR,
    Price,
    cost_a_day,
    describe_saving,
    format_money,
)
from balancedstream.core.policy import parse
from balancedstream.errors import InvalidInputError

prices = st.floats(1e-6, MAX_EXECUTOR_HOUR)


@given(prices, st.floats(0.0, 1e4), st.integers(1, 10_000))
def test_what_is_spent_and_what_is_saved_is_what_the_fixed_size_costs(
    hour: float, executors: float, most: int
) -> None:
    price = Price(hour, "EUR")
    cost = cost_a_day(price, executors, most)
    assert cost.saved is not None
    fixed = cost_a_day(price, most, most)
    assert cost.spent + cost.saved == pytest.approx(fixed.spent)
    assert fixed.saved == 0.0


@given(prices, st.floats(0.0, 1e4), st.floats(0.0, 1e4))
def test_more_executors_cost_more_and_save_less(hour: float, one: float, other: float) -> None:
    few, many = (cost_a_day(Price(hour), count, 10_000) for count in sorted((one, other)))
    assert few.spent <= many.spent
    assert few.saved is not None
    assert many.saved is not None
    assert few.saved >= many.saved


def test_without_scaling_there_is_nothing_to_compare_with() -> None:
    cost = cost_a_day(Price(0.5), 3.0, 0)
    assert (cost.spent, cost.saved) == (36.0, None)
    assert describe_saving(cost) == ""


@pytest.mark.parametrize(
    ("executors", "said"),
    [
        (1.0, "24.00 EUR less than a fixed size of 2 executors"),
        (2.0, "as much as a fixed size of 2 executors"),
        (3.0, "24.00 EUR more than a fixed size of 2 executors"),
    ],
)
def test_the_text_names_the_baseline_and_the_direction(executors: float, said: str) -> None:
    assert describe_saving(cost_a_day(Price(1.0, "EUR"), executors, 2)) == said


@given(prices, st.integers(0, 10_000))
def test_an_amount_is_never_written_as_nothing_unless_it_is(hour: float, executors: int) -> None:
    amount = cost_a_day(Price(hour), executors, 0).spent
    assert (float(format_money(amount, "").replace(",", "")) == 0.0) is (amount == 0.0)


@pytest.mark.parametrize(
    "wrong", [-0.01, math.nan, math.inf, -math.inf, 2 * MAX_EXECUTOR_HOUR, "0.12", None, True]
)
def test_a_price_that_is_none_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^cost\.executor_hour: must be "):
        Price(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"^cost\.executor_hour: must be "):
        parse({"cost": {"executor_hour": wrong}})


@pytest.mark.parametrize("wrong", [7, None, True, "x" * 17, "E\nUR", "\x1b[31m"])
def test_a_currency_that_is_no_short_text_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^cost\.currency: must be "):
        Price(1.0, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"^cost\.currency: must be "):
        parse({"cost": {"currency": wrong}})


def test_a_policy_without_a_price_has_none() -> None:
    assert parse({}).cost.price is None
    assert parse({"cost": {"currency": "EUR"}}).cost.price is None
    priced = parse({"cost": {"executor_hour": 0.12, "currency": "EUR"}})
    assert priced.cost.price == Price(0.12, "EUR")
