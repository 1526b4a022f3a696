"""What a batch costs is learned from batches: a fixed part, and a part for each row."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.samples import BatchSample, StageSample, TaskSample
from balancedstream.core.scaling.costs import QueryCost, StageCost, learn

FIXED_S, ROW_S, TASKS, DRIVER_S = 8.0, 0.002, 32, 0.5


def run(rows: list[int], executors: int = 4, noise: Random | None = None) -> QueryCost:
    """What is learned of batches of so many rows."""
    batches, stages = [], []
    truth = QueryCost(FIXED_S, ROW_S, {"gaps": DRIVER_S}, {"source": StageCost(1.0, TASKS, 0.04)})
    for number, count in enumerate(rows):
        factor = noise.uniform(0.95, 1.05) if noise else 1.0
        busy_s = truth.work(count) * factor
        lasts_s = DRIVER_S + truth.stages["source"].last(busy_s, executors)
        end_s = 10.0 * number
        batches.append(
            BatchSample("q", number, end_s, lasts_s, count, 10.0, 0.0, 10.0, gaps_s=DRIVER_S)
        )
        shares = {str(e): busy_s / executors for e in range(executors)}
        stages.append(StageSample("q", number, "source", end_s, TASKS, 0.04 * busy_s, shares))
    found = learn(batches, stages, [], 1.0)
    assert found is not None
    return found


def test_batches_of_different_sizes_tell_the_fixed_part_from_the_rows() -> None:
    cost = run([1000, 2000, 3000, 4000, 3000, 2000] * 5)
    assert cost.fixed_s == pytest.approx(FIXED_S, rel=0.05)
    assert cost.row_s == pytest.approx(ROW_S, rel=0.05)
    assert cost.pace == pytest.approx(1.0, abs=0.02)


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_noise_leaves_them_near_and_shows_as_scatter(seed: int) -> None:
    cost = run([1000, 2000, 3000, 4000, 3000, 2000] * 5, noise=Random(seed))
    assert cost.work(6000) == pytest.approx(FIXED_S + 6000 * ROW_S, rel=0.15), f"seed {seed}"
    assert cost.scatter is not None
    assert 1.0 <= cost.scatter < 1.1


def test_if_all_batches_are_alike_tasks_with_few_rows_tell_the_fixed_part() -> None:
    task_s = FIXED_S / TASKS
    rows = [10 * p for p in range(TASKS)]
    tasks = [
        TaskSample("q", 0, p, 5, "a", task_s + ROW_S * n, n, 0, 50.0) for p, n in enumerate(rows)
    ]
    busy_s = FIXED_S + ROW_S * sum(rows)
    batches = [BatchSample("q", n, 10.0 * n, 5.0, sum(rows), 10.0) for n in range(6)]
    stages = [
        StageSample("q", n, "stateful", 10.0 * n, TASKS, 1.0, {"a": busy_s}) for n in range(6)
    ]
    cost = learn(batches, stages, tasks, 1.0)
    assert cost is not None
    assert cost.fixed_s == pytest.approx(FIXED_S, rel=0.01)


def test_a_batch_without_tasks_teaches_nothing() -> None:
    assert learn([BatchSample("q", 1, 10.0, 5.0, 9, 10.0)], [], [], 1.0) is None


def test_batches_without_rows_count_only_where_there_are_no_others() -> None:
    def learn_of(rows: list[int], busy_s: list[float]) -> QueryCost:
        batches = [BatchSample("q", n, 10.0 * n, 5.0, each, 10.0) for n, each in enumerate(rows)]
        stages = [
            StageSample("q", n, "stateful", 10.0 * n, 4, each / 4, {"a": each})
            for n, each in enumerate(busy_s)
        ]
        found = learn(batches, stages, [], 1.0)
        assert found is not None
        return found

    timers = learn_of([0] * 12, [4.0] * 12)
    assert (timers.fixed_s, timers.row_s, timers.last_per_row(2.0)) == (4.0, 0.0, 0.0)
    # One batch of many timers is not what they usually take, and a few cheap ones are not either.
    assert learn_of([0] * 12, [4.0] * 7 + [1.0] * 5).fixed_s == pytest.approx(29 / 11)
    assert learn_of([0, 900, 0, 900, 0], [1.0, 9.0, 1.0, 9.0, 1.0]).row_s > 0.0


def test_as_many_batches_teach_the_same_however_many_came_before() -> None:
    noise = Random(7)
    rows = [noise.randrange(1000, 4000) for _ in range(45)]
    assert run([5] * 300 + rows) == run([5] * 30 + rows)


@given(st.floats(1.0, 1e5), st.integers(1, 63))
def test_more_executors_never_make_a_batch_longer(rows: float, executors: int) -> None:
    cost = QueryCost(FIXED_S, ROW_S, {"gaps": DRIVER_S}, {"source": StageCost(1.0, TASKS, 0.04)})
    assert cost.last(rows, executors + 1) <= cost.last(rows, executors) + 1e-9
    assert cost.last(rows, executors) >= DRIVER_S + 0.04 * cost.work(rows)


@given(st.floats(1.0, 1e3), st.integers(1, 40))
def test_the_rows_of_a_time_are_those_that_take_it(seconds: float, executors: int) -> None:
    cost = QueryCost(FIXED_S, ROW_S, {"gaps": DRIVER_S}, {"source": StageCost(1.0, TASKS, 0.04)})
    rows = cost.rows_in(seconds, executors)
    assert rows == 0.0 or cost.last(rows, executors) == pytest.approx(seconds, rel=1e-6)


@given(st.lists(st.floats(0.01, 10.0), min_size=8, max_size=40), st.integers(1, 1000))
def test_tasks_that_all_have_as_many_rows_tell_nothing_of_the_fixed_part(
    work_s: list[float], rows: int
) -> None:
    batches = [BatchSample("q", n, 10.0 * n, 5.0, 1000, 10.0) for n in range(4)]
    stages = [StageSample("q", n, "stateful", 10.0 * n, 8, 1.0, {"a": 4.0}) for n in range(4)]
    tasks = [TaskSample("q", 0, p, 3, "a", s, rows, 0, 30.0) for p, s in enumerate(work_s)]
    told, untold = (learn(batches, stages, of_batch, 1.0) for of_batch in (tasks, []))
    assert told is not None
    assert untold is not None
    assert told.fixed_s == pytest.approx(untold.fixed_s, abs=1e-6)


def test_batches_in_which_partitions_moved_do_not_count_while_there_are_others() -> None:
    batches = [BatchSample("q", n, 10.0 * n, 5.0, 1000, 10.0, gaps_s=1.0) for n in range(6)]
    stages = [
        StageSample("q", n, "source", 10.0 * n, 8, 0.5, {"a": 4.0 if n != 4 else 40.0})
        for n in range(6)
    ]
    moved = [TaskSample("q", 0, 0, 4, "a", 36.0, 10, 0, 40.0, moved=True)]
    cost = learn(batches, stages, moved, 1.0)
    assert cost is not None
    assert cost.work(1000) == pytest.approx(4.0)
    only = learn(batches[4:5], stages, moved, 1.0)
    assert only is not None
    assert only.work(1000) == pytest.approx(40.0)


def test_batches_that_are_long_because_one_executor_has_most_of_the_state_are_not_slower() -> None:
    batches = [BatchSample("q", n, 10.0 * n, 10.0, 1000, 10.0, gaps_s=1.0) for n in range(4)]
    stages = [
        StageSample("q", n, "stateful", 10.0 * n, 32, 0.4, {"a": 9.0, "b": 1.0}) for n in range(4)
    ]
    cost = learn(batches, stages, [], 1.0)
    assert cost is not None
    assert cost.pace == pytest.approx(1.0)
    assert cost.last(1000, 2) < 7.0, "balanced, they end in time"
