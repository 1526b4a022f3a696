"""Partitions are balanced around work that stays where it is."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.balance.hotspots import Move, Thresholds, diminish, place_orphans
from balancedstream.core.balance.imbalance import measure_imbalance
from balancedstream.errors import InvalidInputError

NO_THRESHOLDS = Thresholds(act_above=0.0, stop_at=0.0, min_gain=0.0)
EXECUTORS = {"a": 1, "b": 2, "c": 1}

seconds = st.integers(0, 100_000).map(lambda number: number / 1000)
loads_of_partitions = st.dictionaries(st.integers(0, 30), seconds, max_size=30)
bases = st.dictionaries(st.sampled_from(["a", "b", "c", "gone"]), seconds.map(lambda s: 3 * s))


def imbalance(
    loads: dict[int, float], placement: dict[int, str], base_s: dict[str, float]
) -> float:
    busy_s = {e: base_s.get(e, 0.0) for e in EXECUTORS}
    for partition, load_s in loads.items():
        busy_s[placement[partition]] += load_s
    mean_s = sum(busy_s.values()) / sum(EXECUTORS.values())
    return max(busy_s[e] / cores for e, cores in EXECUTORS.items()) / mean_s if mean_s else 1.0


def test_partitions_leave_an_executor_with_much_other_work() -> None:
    loads, placement = {0: 1.0, 1: 1.0}, {0: "a", 1: "b"}
    assert diminish(loads, placement, {"a": 1, "b": 1}).moves == ()
    decision = diminish(loads, placement, {"a": 1, "b": 1}, base_s={"a": 3.0, "b": 1.0})
    assert decision.moves == (Move(0, "a", "b"),)
    assert decision.imbalance_before == pytest.approx(4 / 3)
    assert decision.imbalance_after == pytest.approx(1.0)


def test_where_other_work_alone_makes_an_executor_hot_the_bound_says_so() -> None:
    placement = {0: "a", 1: "b"}
    decision = diminish({0: 1.0, 1: 1.0}, placement, {"a": 1, "b": 1}, base_s={"b": 8.0})
    assert decision.moves == (Move(1, "b", "a"),)
    assert decision.bound == pytest.approx(1.6)
    assert decision.imbalance_after == pytest.approx(1.6)


def test_orphans_go_where_the_least_other_work_is() -> None:
    placed = place_orphans({0: 1.0}, {0: "gone"}, {"a": 1, "b": 1}, {"a": 1.5, "b": 1.0})
    assert placed == (Move(0, "gone", "b"),)


def test_a_partition_is_not_too_much_where_other_work_makes_the_mean_high() -> None:
    loads, placement = {0: 4.0, 1: 1.0}, {0: "a", 1: "b"}
    assert diminish(loads, placement, {"a": 1, "b": 1}).unsplittable == 0
    base_s = {"a": 2.0, "b": 5.0}
    assert diminish(loads, placement, {"a": 1, "b": 1}, base_s=base_s).unsplittable is None


def test_other_work_alone_can_be_measured() -> None:
    found = measure_imbalance({}, {}, {"a": 1, "b": 1}, {"a": 3.0, "b": 1.0})
    assert (found.imbalance, found.bound) == pytest.approx((1.5, 1.5))


def test_other_work_that_is_no_time_is_refused_by_its_executor() -> None:
    with pytest.raises(InvalidInputError, match="base_s: executor 'a'"):
        diminish({0: 1.0}, {0: "a"}, {"a": 1}, base_s={"a": -1.0})


@settings(max_examples=60)
@given(loads_of_partitions, bases, st.integers(0, 1000))
def test_the_imbalance_counts_all_work_and_never_rises_or_falls_below_the_bound(
    loads: dict[int, float], base_s: dict[str, float], seed: int
) -> None:
    chance = random.Random(seed)
    placement = {p: chance.choice(sorted(EXECUTORS)) for p in loads}
    for thresholds in (Thresholds(), NO_THRESHOLDS):
        decision = diminish(loads, placement, EXECUTORS, thresholds, base_s=base_s)
        then = placement | {move.partition: move.target for move in decision.moves}
        before, after = (imbalance(loads, where, base_s) for where in (placement, then))
        assert decision.imbalance_before == pytest.approx(before, abs=1e-6)
        assert decision.imbalance_after == pytest.approx(after, abs=1e-6)
        assert after <= before * (1 + 1e-6)
        assert after >= decision.bound * (1 - 1e-6)
        assert diminish(loads, then, EXECUTORS, thresholds, base_s=base_s).moves == ()


@settings(max_examples=30)
@given(st.lists(st.integers(0, 1000), max_size=6), bases)
def test_it_is_near_what_trying_everything_finds(
    weights: list[int], base_s: dict[str, float]
) -> None:
    loads = {p: float(weight) for p, weight in enumerate(weights)}
    best = min(
        imbalance(loads, dict(enumerate(choice)), base_s)
        for choice in itertools.product(EXECUTORS, repeat=len(loads))
    )
    placement = dict.fromkeys(loads, "a")
    decision = diminish(loads, placement, EXECUTORS, NO_THRESHOLDS, base_s=base_s)
    assert decision.bound <= best * (1 + 1e-6), "the bound bounds every placement"
    assert decision.imbalance_after <= 1.12 * best


@settings(max_examples=30)
@given(loads_of_partitions, bases, st.integers(0, 1000))
def test_the_order_of_other_work_does_not_matter(
    loads: dict[int, float], base_s: dict[str, float], seed: int
) -> None:
    chance = random.Random(seed)
    placement = {p: chance.choice([*sorted(EXECUTORS), "gone"]) for p in loads}
    backwards = dict(reversed(base_s.items()))
    assert diminish(loads, placement, EXECUTORS, base_s=base_s) == diminish(
        loads, placement, EXECUTORS, base_s=backwards
    )
