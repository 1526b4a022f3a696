"""Greedy assignment: which instance of a stateless operator runs which record."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.shuffle.grouping import assign_greedily
from balancedstream.errors import InvalidInputError


def sum_loads(instances: Sequence[int], costs_s: Sequence[float]) -> dict[int, float]:
    loads_s: dict[int, float] = {}
    for instance, cost_s in zip(instances, costs_s, strict=True):
        loads_s[instance] = loads_s.get(instance, 0.0) + cost_s
    return loads_s


@settings(max_examples=60)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(1, 3), st.integers(0, 9))
def test_a_batch_is_within_2_minus_1_over_k_and_most_expensive_first_within_4_thirds(
    weights: list[int], count: int, first: int
) -> None:
    costs_s = [float(weight) for weight in weights]
    expensive_first_s = sorted(costs_s, reverse=True)
    best_s = min(
        max(sum_loads(choice, costs_s).values())
        for choice in itertools.product(range(count), repeat=len(costs_s))
    )

    def reach(in_order_s: list[float]) -> float:
        assigned = assign_greedily(in_order_s, count, first=first)
        return max(sum_loads(assigned, in_order_s).values())

    assert reach(costs_s) <= (2 - 1 / count) * best_s
    # A little more, because a third is not exact as a float.
    assert reach(expensive_first_s) <= (4 / 3 - 1 / (3 * count)) * best_s + 1e-9


@given(st.lists(st.floats(0, 100), max_size=100), st.integers(1, 12), st.integers(0, 20))
def test_each_record_of_a_batch_goes_to_the_least_loaded_and_of_these_to_the_one_given_the_fewest(
    costs_s: list[float], count: int, first: int
) -> None:
    heap = [[0.0, 0, place] for place in range(count)]
    expected = []
    for cost_s in costs_s:
        least = min(heap)
        least[0] += cost_s
        least[1] += 1
        expected.append((int(least[2]) + first) % count)
    assert assign_greedily(costs_s, count, first=first) == expected


def test_a_batch_for_no_instances_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="instances: must be at least 1"):
        assign_greedily([1.0], 0)
