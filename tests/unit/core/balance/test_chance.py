"""Loads that differ from batch to batch for no reason move nothing; those that stay uneven do."""

from __future__ import annotations

import random

import pytest

from balancedstream.core.balance.hotspots import diminish
from balancedstream.core.balance.imbalance import estimate_chance
from balancedstream.core.balance.loads import measure
from balancedstream.core.decisions import decide
from balancedstream.core.keys.assignments import KeyLoad, assign
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy
from balancedstream.core.samples import TaskSample

EXECUTORS = {"a": 1, "b": 1, "c": 1, "d": 1}
WINDOWS = 200


def draw_batch(
    batch: int, usual_s: list[float], noise: float, chance: random.Random
) -> list[TaskSample]:
    """A task of each partition, placed in turn on the executors."""
    return [
        TaskSample(
            "q", 0, partition, batch, "abcd"[partition % 4],
            seconds * chance.lognormvariate(0.0, noise), 100, 0, float(batch),
        )
        for partition, seconds in enumerate(usual_s)
    ]  # fmt: skip


def count_plans(usual_s: list[float], noise: float) -> int:
    """In how many of many windows of three batches something would move."""
    chance = random.Random(20)
    plans = 0
    for _ in range(WINDOWS):
        tasks = [task for batch in range(3) for task in draw_batch(batch, usual_s, noise, chance)]
        decision = decide(Observation(3.0, EXECUTORS, tuple(tasks)), Policy())
        plans += bool(decision.moving)
    return plans


@pytest.mark.parametrize("noise", [0.03, 0.1, 0.3])
def test_even_loads_with_noise_are_left_alone(noise: float) -> None:
    assert count_plans([1.0] * 8, noise) < 0.05 * WINDOWS


@pytest.mark.parametrize("noise", [0.03, 0.1, 0.3])
def test_one_executor_with_twice_the_load_is_relieved_in_spite_of_noise(noise: float) -> None:
    assert count_plans([2.0, 1.0, 1.0, 1.0] * 2, noise) > 0.75 * WINDOWS


def test_what_may_be_chance_is_said() -> None:
    loads, placement = {0: 1.3, 1: 0.1, 2: 1.0}, {0: "a", 1: "a", 2: "b"}
    exact = diminish(loads, placement, {"a": 1, "b": 1})
    assert [move.partition for move in exact.moves] == [1]
    unsure = diminish(loads, placement, {"a": 1, "b": 1}, scatter=0.1)
    assert unsure.moves == ()
    assert unsure.reason.startswith(
        "no change: imbalance 1.17 (bound 1.08) may be chance: "
        "chance alone makes loads differ by up to 0.26 x the mean"
    )


def test_a_plan_whose_gain_may_be_chance_is_none() -> None:
    # The bound is far below, and what exchanges can do is not.
    loads = {0: 3.0, 1: 3.0, 2: 2.0, 3: 2.0, 4: 2.0}
    placement = {0: "a", 1: "b", 2: "a", 3: "b", 4: "b"}
    exact = diminish(loads, placement, {"a": 1, "b": 1})
    gain = exact.imbalance_before - exact.imbalance_after
    possible = exact.imbalance_before - exact.bound
    assert 0.0 < gain <= possible
    unsure = diminish(
        loads, placement, {"a": 1, "b": 1}, scatter=1.01 * gain / estimate_chance(1.0, 2)
    )
    assert unsure.moves == ()
    assert "may be chance" in unsure.reason


def test_partitions_without_an_executor_are_placed_whatever_chance_explains() -> None:
    decision = diminish({0: 1.0, 1: 1.0}, {0: "gone", 1: "a"}, {"a": 1, "b": 1}, scatter=9.0)
    assert [(move.partition, move.target) for move in decision.moves] == [(0, "b")]


def test_no_key_moves_for_an_imbalance_that_may_be_chance() -> None:
    hot = [KeyLoad("de", 0, busy_s=4.0), KeyLoad("fr", 0, busy_s=3.0)]
    loads, placement = {0: 7.0, 1: 0.5, 2: 0.5}, {0: "a", 1: "b", 2: "b"}
    assert assign(hot, loads, placement, {"a": 1, "b": 1}).moves
    unsure = assign(hot, loads, placement, {"a": 1, "b": 1}, scatter=0.5)
    assert not unsure.moves
    assert "may be chance" in unsure.reason


def measure_scatter(batches: list[dict[str, float]]) -> float:
    """Of one partition an executor, with these seconds in each batch."""
    tasks = [
        TaskSample("q", 0, partition, batch, executor, seconds, 10, 0, float(batch))
        for batch, done in enumerate(batches)
        for partition, (executor, seconds) in enumerate(done.items())
    ]
    executors = dict.fromkeys(batches[0], 1)
    return measure(tasks, executors, Policy(), float(len(batches)))["q", 0].scatter


def test_the_scatter_of_two_batches_that_change_places() -> None:
    # Each is 1 s from its mean of 2 s in each of two batches: variance 4, of the mean 2.
    found = measure_scatter([{"a": 1.0, "b": 3.0}, {"a": 3.0, "b": 1.0}])
    assert found == pytest.approx(2**0.5 / 2)


def test_a_batch_that_takes_twice_as_long_everywhere_is_no_scatter() -> None:
    assert measure_scatter([{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 6.0}]) == pytest.approx(0.0)


def test_one_batch_has_no_scatter() -> None:
    assert measure_scatter([{"a": 1.0, "b": 3.0}]) == 0.0
