"""Cost sketches filled and asked many items at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from balancedstream.core.shuffle.costs import LearntCosts
from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.shuffling import sketching
from balancedstream.shuffling.sketching import SketchFiller, estimate_costs_s, locate_items

INT64 = st.integers(0, 20) | st.integers(-(2**63), 2**63 - 1)
SEEN = st.lists(st.tuples(INT64, st.floats(0, 100), st.integers(1, 9)))
EPSILON = st.sampled_from([0.05, 0.5])
"""Few cells, so that many items share one; or more, so that some are empty."""


def array(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def name(item: int) -> bytes:
    return item.to_bytes(8, "little", signed=True)


def fill(sketch: CostSketch, seen: list[tuple[int, float, int]]) -> CostSketch:
    for item, cost_s, records in seen:
        sketch.update(name(item), cost_s, records=records)
    return sketch


@given(
    items=st.lists(INT64),
    epsilon=EPSILON | st.just(1e-5),
    delta=st.sampled_from([0.5, 0.1, 2**-16]),
    seed=st.integers(0, 2**64 - 1),
)
def test_many_items_are_in_the_cells_that_the_core_finds_one_by_one(
    items: list[int], epsilon: float, delta: float, seed: int
) -> None:
    sketch = CostSketch(epsilon, delta, seed=seed)
    located = locate_items(sketch, array(items)).tolist()
    assert [tuple(cells) for cells in located] == [sketch.locate(name(item)) for item in items]


@given(batches=st.lists(SEEN, max_size=3), epsilon=EPSILON, seed=st.integers(0, 9))
def test_a_sketch_filled_with_many_items_at_once_is_that_of_the_core_to_the_last_bit(
    batches: list[list[tuple[int, float, int]]], epsilon: float, seed: int
) -> None:
    filler = SketchFiller(CostSketch(epsilon, 0.3, seed=seed))
    expected = CostSketch(epsilon, 0.3, seed=seed)
    for seen in batches:
        costs_s = np.array([cost_s for _, cost_s, _ in seen], np.float64)
        items, records = array([item for item, _, _ in seen]), array([count for *_, count in seen])
        filler.update(items, costs_s, records)
        fill(expected, seen)
    assert filler.make_sketch().to_bytes() == expected.to_bytes()


@given(
    newer=SEEN,
    older=st.none() | SEEN,
    asked=st.lists(INT64),
    epsilon=EPSILON,
    seed=st.integers(0, 9),
)
def test_many_estimates_at_once_are_those_of_the_core_to_the_last_bit(
    newer: list[tuple[int, float, int]],
    older: list[tuple[int, float, int]] | None,
    asked: list[int],
    epsilon: float,
    seed: int,
) -> None:
    def make(seen: list[tuple[int, float, int]]) -> CostSketch:
        return fill(CostSketch(epsilon, 0.3, seed=seed), seen)

    known = None if older is None else make(older)
    learnt = LearntCosts(0, 1, known, make(newer), trusted=True, reason="")
    items = [*asked, *(item for item, *_ in [*newer, *(older or [])])]
    expected = [learnt.estimates.estimate(name(item)) for item in items]
    assert estimate_costs_s(learnt, array(items)).tolist() == expected


def test_more_items_than_are_looked_up_at_once_are_estimated_as_few_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = fill(CostSketch(0.01, 0.1, seed=7), [(item, 0.1 * item, 2) for item in range(50)])
    learnt = LearntCosts(0, 1, None, known, trusted=True, reason="")
    items = array([item % 90 for item in range(400)])
    at_once = estimate_costs_s(learnt, items).tolist()
    monkeypatch.setattr(sketching, "ITEMS_AT_ONCE", 7)
    assert estimate_costs_s(learnt, items).tolist() == at_once
