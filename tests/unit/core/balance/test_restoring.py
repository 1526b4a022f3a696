"""What moves cost is learnt from those that were made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.balance.restoring import (
    RestoreCost,
    fit_keys,
    learn_key_cost,
    learn_restore,
    learn_restore_cost,
)
from balancedstream.core.samples import TaskSample


def test_a_cost_that_stays_is_learnt() -> None:
    cost = RestoreCost(key_s=0.5)
    for _ in range(30):
        cost = learn_key_cost(cost, keys=200, spent_s=0.4)
    assert abs(cost.key_s - 0.002) < 0.0001


def test_what_a_store_of_a_few_rows_takes_says_nothing_of_the_rate() -> None:
    cost = RestoreCost()
    for _ in range(30):
        cost = learn_restore(cost, state_bytes=1_050_720, load_s=0.4)
    assert cost.bytes_per_s == RestoreCost().bytes_per_s
    assert abs(cost.estimate_s(0) - 0.4) < 0.01


def run(
    partition: int, executor: str, busy_s: float, records: int = 10, restore_s: float = 0.0
) -> TaskSample:
    return TaskSample("q", 0, partition, 7, executor, busy_s, records, 100, 0.0, restore_s)


def learn_fixed_s(*tasks: TaskSample) -> float:
    """What one batch teaches of small states, where partition 0 was on a and 1 on b before."""
    before = {0: run(0, "a", 1.0), 1: run(1, "b", 1.0)}
    return learn_restore_cost(RestoreCost(fixed_s=0.0), tasks, before).fixed_s


def test_a_restore_that_spark_does_not_tell_is_seen_by_how_much_longer_the_task_takes() -> None:
    assert learn_fixed_s(run(0, "b", 3.0)) == 0.3 * 2.0
    assert learn_fixed_s(run(0, "b", 3.0, restore_s=0.1)) == 0.3 * 2.0
    assert learn_fixed_s(run(0, "b", 3.0, restore_s=2.5)) == 0.3 * 2.5
    assert learn_fixed_s(run(0, "b", 3.0, records=20)) == 0.3 * 1.0
    assert learn_fixed_s(run(0, "b", 0.5)) == 0.0
    assert learn_fixed_s(run(0, "b", 1.5, restore_s=0.1)) == 0.3 * 0.1, "Spark knows it better"


def test_another_number_of_rows_is_not_taken_for_a_restore() -> None:
    assert learn_fixed_s(run(0, "b", 30.0, records=100)) == 0.0
    assert learn_fixed_s(run(0, "b", 0.9, records=0)) == 0.0
    idle = {0: run(0, "a", 0.2, records=0), 1: run(1, "b", 0.2, records=0)}
    cost = RestoreCost(fixed_s=0.0)
    assert learn_restore_cost(cost, [run(0, "b", 3.0, records=1000)], idle) == cost
    assert learn_restore_cost(cost, [run(0, "b", 0.3, records=0)], idle) == cost


def test_a_task_that_takes_long_for_another_reason_teaches_nothing_of_restores() -> None:
    assert learn_fixed_s(run(0, "a", 3.0)) == 0.0, "it did not move"
    assert learn_fixed_s(run(0, "c", 3.0)) == 0.0, "the first task of an executor"
    assert learn_fixed_s(run(2, "b", 3.0)) == 0.0, "nothing is known of it"


def test_a_batch_without_handoffs_teaches_nothing() -> None:
    assert learn_key_cost(RestoreCost(), keys=0, spent_s=0.0) == RestoreCost()


def test_dear_keys_go_one_by_one_and_cheap_ones_not_without_end() -> None:
    assert fit_keys(RestoreCost(key_s=60.0), budget_s=1.0) == 1
    assert fit_keys(RestoreCost(key_s=0.0), budget_s=1.0) == 10_000


@given(st.floats(1e-5, 1.0), st.floats(0.01, 60.0))
def test_keys_that_come_and_keys_that_go_fit_into_the_budget_together(
    key_s: float, budget_s: float
) -> None:
    keys = fit_keys(RestoreCost(key_s=key_s), budget_s)
    assert keys == 1 or 2 * keys * key_s <= budget_s * 1.0001
