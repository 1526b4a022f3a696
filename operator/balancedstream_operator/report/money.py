"""Reports what the executors of a stream cost: pure."""

from __future__ import annotations

from balancedstream.core.money import Price, cost_a_day
from balancedstream_operator.api.job import Executors, find_caps
from balancedstream_operator.api.status import Cost


def describe_cost(price: Price | None, executors: int, limits: Executors) -> Cost | None:
    """What the executors of now cost a day, beside the most that the stream may have.

    >>> describe_cost(Price(0.5, "EUR"), 2, Executors(max=6)).saved_per_day
    48.0
    >>> describe_cost(None, 2, Executors(max=6)) is None
    True
    """
    if price is None:
        return None
    cost = cost_a_day(price, executors, min(find_caps(limits).values()))
    return Cost(
        spent_per_day=round(cost.spent, 6),
        saved_per_day=None if cost.saved is None else round(cost.saved, 6),
        max_executors=cost.max_executors,
        currency=cost.currency,
    )
