"""Which partition the rows of a map task go to."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from balancedstream.core.shuffle.costs import LearntCosts
from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.shuffling.routing import route_rows

INT64 = st.integers(-(2**63), 2**63 - 1)


def array(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def learnt_from(costs_s: dict[int, float], *, trusted: bool = True) -> LearntCosts:
    sketch = CostSketch(0.001, 0.1, seed=0)
    for item, cost_s in costs_s.items():
        sketch.update(item.to_bytes(8, "little"), cost_s)
    return LearntCosts(0, 1, None, sketch, trusted, "")


def draw_marks(seed: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    chance = np.random.default_rng(seed)
    first, second = chance.integers(-(2**63), 2**63 - 1, (2, count))
    return first, second


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), INT64, INT64), unique=True),
    partitions=st.integers(1, 7),
    map_partition=st.integers(0, 20),
    trusted=st.booleans(),
    chance=st.randoms(use_true_random=False),
)
def test_a_row_goes_to_the_same_partition_in_whatever_order_the_rows_arrive(
    rows: list[tuple[int, int, int]],
    partitions: int,
    map_partition: int,
    trusted: bool,
    chance: object,
) -> None:
    learnt = learnt_from({item: 0.5 + item for item in range(5)}, trusted=trusted)

    def route(
        order: list[tuple[int, int, int]],
    ) -> dict[tuple[int, int, int], tuple[int, float]]:
        items, *marks = (
            (array(list(part)) for part in zip(*order, strict=True)) if order else (array([]),) * 3
        )
        routed = route_rows(learnt, items, (marks[0], marks[1]), partitions, map_partition)
        routes, estimated_s = (column.tolist() for column in routed)
        assert all(0 <= route < partitions for route in routes)
        return dict(zip(order, zip(routes, estimated_s, strict=True), strict=True))

    shuffled = list(rows)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert route(rows) == route(shuffled)


@pytest.mark.parametrize("learnt", [None, learnt_from({1: 9.0, 2: 1.0}, trusted=False)])
def test_without_trusted_estimates_rows_go_round(learnt: LearntCosts | None) -> None:
    routes, _ = route_rows(learnt, array([1, 2] * 10), draw_marks(1, 20), 4, map_partition=2)
    assert Counter(routes.tolist()) == dict.fromkeys(range(4), 5)


def test_estimated_loads_differ_by_the_dearest_row_at_most() -> None:
    chance = np.random.default_rng(5)
    cost_s = {item: float(2.0 ** (item % 6)) for item in range(60)}
    items = chance.integers(0, 60, 2000)
    routes, _ = route_rows(learnt_from(cost_s), items, draw_marks(5, 2000), 5, map_partition=0)
    loads_s = np.bincount(routes, [cost_s[item] for item in items.tolist()])
    assert np.ptp(loads_s) <= max(cost_s.values())


def test_map_tasks_that_know_nothing_of_each_other_do_not_pile_up_their_dear_rows() -> None:
    learnt = learnt_from({1: 64.0, 2: 1.0})
    dear = []
    for map_partition in range(4):
        items = array([1, 2, 2])
        routes, _ = route_rows(learnt, items, draw_marks(map_partition, 3), 4, map_partition)
        dear.append(int(routes[0]))
    assert sorted(dear) == [0, 1, 2, 3]


@given(
    tasks=st.lists(st.lists(st.integers(0, 7), max_size=30), min_size=1, max_size=12),
    partitions=st.integers(1, 7),
    seed=st.integers(0, 9),
)
def test_with_many_map_tasks_no_partition_gets_more_than_the_mean_and_a_row_of_each(
    tasks: list[list[int]], partitions: int, seed: int
) -> None:
    cost_s = {item: 2.0**item for item in range(8)}
    learnt = learnt_from(cost_s)
    loads_s = np.zeros(partitions)
    bound_s = 0.0
    for map_partition, items in enumerate(tasks):
        marks = draw_marks(seed + map_partition, len(items))
        routes, _ = route_rows(learnt, array(items), marks, partitions, map_partition)
        costs_s = [cost_s[item] for item in items]
        loads_s += np.bincount(routes, costs_s, partitions)
        bound_s += sum(costs_s) / partitions + max(costs_s, default=0.0)
    assert max(loads_s) <= bound_s + 1e-9


@pytest.mark.parametrize("trusted", [True, False])
def test_each_row_is_told_what_it_was_estimated_to_cost_whoever_routes_it(trusted: bool) -> None:
    learnt = learnt_from({1: 9.0, 2: 1.0}, trusted=trusted)
    _, estimated_s = route_rows(learnt, array([1, 2, 1]), draw_marks(1, 3), 4, map_partition=0)
    assert estimated_s.tolist() == [9.0, 1.0, 9.0]


def test_where_nothing_is_known_no_row_is_estimated_to_cost_anything() -> None:
    _, estimated_s = route_rows(None, array([1, 2]), draw_marks(1, 2), 4, map_partition=0)
    assert estimated_s.tolist() == [0.0, 0.0]


def test_rows_of_equal_cost_are_spread_as_round_robin_spreads_them() -> None:
    routes, _ = route_rows(learnt_from({1: 2.0}), array([1] * 11), draw_marks(3, 11), 4, 1)
    assert sorted(Counter(routes.tolist()).values()) == [2, 3, 3, 3]
