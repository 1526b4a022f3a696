"""What executors cost in money, beside a fixed size of the most that there may be.

The baseline is our own: a stream without scaling needs its highest number of executors all the time
(`fixed at the peak` in docs/benchmarks/scaling_simulated.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from balancedstream.errors import InvalidInputError

HOURS_A_DAY = 24.0
MAX_EXECUTOR_HOUR = 1_000_000.0
MAX_CURRENCY = 16


@dataclass(frozen=True, slots=True)
class Price:
    """A price of executors.

    Attributes:
        executor_hour: of one executor for an hour, in `currency`; above 0.
        currency: as a person writes it; may be empty.

    Raises:
        InvalidInputError: the price is not a number above 0, or the currency is no short text; the
            message names the field.

    >>> Price(0.12, "EUR").executor_hour
    0.12
    >>> Price(float("nan"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: cost.executor_hour: must be a number above 0 and ...
    """

    executor_hour: float
    currency: str = ""

    def __post_init__(self) -> None:
        hour, currency = self.executor_hour, self.currency
        is_number = isinstance(hour, int | float) and not isinstance(hour, bool)
        if not is_number or not isfinite(hour) or not 0.0 < hour <= MAX_EXECUTOR_HOUR:
            message = (
                f"cost.executor_hour: must be a number above 0 and up to {MAX_EXECUTOR_HOUR:.0f}, "
                f"not {hour!r:.80}"
            )
            raise InvalidInputError(message)
        if not is_currency(currency):
            message = (
                f"cost.currency: must be a printable text of at most {MAX_CURRENCY} characters, "
                f"not {currency!r:.80}"
            )
            raise InvalidInputError(message)


def is_currency(text: object) -> bool:
    r"""Whether a text can name a currency.

    >>> is_currency("EUR"), is_currency(""), is_currency(7), is_currency("E\nUR")
    (True, True, False, False)
    """
    return isinstance(text, str) and len(text) <= MAX_CURRENCY and text.isprintable()


@dataclass(frozen=True, slots=True)
class DailyCost:
    """Money a day.

    Attributes:
        spent: on the executors that there are.
        saved: beside `max_executors` all the time; None without scaling.
        max_executors: of the fixed size that `saved` compares with; 0 without scaling.
        currency: of both.
    """

    spent: float
    saved: float | None
    max_executors: int
    currency: str


def cost_a_day(price: Price, executors: float, max_executors: int) -> DailyCost:
    """What a number of executors costs a day.

    Args:
        price: of an executor-hour.
        executors: that there are, on average; at least 0.
        max_executors: of the fixed size to compare with; 0 for none.

    >>> cost_a_day(Price(0.5, "EUR"), 2.0, 6)
    DailyCost(spent=24.0, saved=48.0, max_executors=6, currency='EUR')
    """
    a_day = HOURS_A_DAY * price.executor_hour
    saved = (max_executors - executors) * a_day if max_executors else None
    return DailyCost(executors * a_day, saved, max_executors, price.currency)


def format_money(amount: float, currency: str) -> str:
    """Writes an amount of money; small ones with three digits that count.

    >>> format_money(1234.5, "EUR"), format_money(0.01234, "USD"), format_money(0.0, "")
    ('1,234.50 EUR', '0.0123 USD', '0.00')
    """
    form = ",.2f" if amount == 0.0 or abs(amount) >= 1.0 else ".3g"
    return f"{amount:{form}} {currency}".rstrip()


def describe_saving(cost: DailyCost) -> str:
    """How the money compares with a fixed size of the most executors; "" without scaling.

    >>> describe_saving(cost_a_day(Price(0.5, "EUR"), 2.0, 6))
    '48.00 EUR less than a fixed size of 6 executors'
    >>> describe_saving(cost_a_day(Price(0.5), 6.0, 6)), describe_saving(cost_a_day(Price(1), 2, 0))
    ('as much as a fixed size of 6 executors', '')
    """
    if cost.saved is None:
        return ""
    size = f"a fixed size of {cost.max_executors} executor{'s' if cost.max_executors != 1 else ''}"
    # Digits beyond those that are shown are rounding.
    if abs(cost.saved) < 1e-9 * max(1.0, cost.spent):
        return f"as much as {size}"
    word = "less" if cost.saved > 0 else "more"
    return f"{format_money(abs(cost.saved), cost.currency)} {word} than {size}"
