"""A replay is what balancing would have done: it knows the past only, and counts moves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.estimates.replay import Comparison, Replay
from balancedstream.core.policy import Policy
from balancedstream.core.samples import TaskSample

EXECUTORS = {"a": 1, "b": 1}


def batch_of(
    number: int, busy_s: Sequence[float], executors: str, state_bytes: int = 0
) -> list[TaskSample]:
    return [
        TaskSample("q", 0, p, number, e, s, 1000, state_bytes, 10.0 * number)
        for p, (s, e) in enumerate(zip(busy_s, executors, strict=True))
    ]


def replay(replay: Replay, batches: int, busy_s: Sequence[float], on: str) -> list[Comparison]:
    return [replay.take(batch_of(n, busy_s, on), EXECUTORS) for n in range(1, batches + 1)]


def test_the_first_batch_runs_as_it_ran_and_the_next_one_is_balanced() -> None:
    first, second = replay(Replay(Policy()), 2, (2.0, 2.0, 2.0, 2.0), "aaaa")
    assert first.balanced_s == first.hottest_s == 8.0
    assert second.hottest_s == 8.0
    assert second.balanced_s == second.least_s == 4.0
    assert (first.moves, second.moves) == (2, 0)
    assert second.would_last_s < second.lasted_s == 8.0


def test_an_even_placement_stays() -> None:
    found = replay(Replay(Policy()), 3, (2.0, 2.0, 2.0, 2.0), "abab")
    assert [c.moves for c in found] == [0, 0, 0]
    assert all(c.lasted_s == c.would_last_s for c in found)


def test_a_partition_that_exceeds_a_share_is_named_and_bounds_the_gain() -> None:
    *_, last = replay(Replay(Policy()), 3, (9.0, 1.0, 1.0, 1.0), "aabb")
    assert last.unsplittable == 0
    assert [last.least_s, last.balanced_s, last.would_last_s] == pytest.approx([9.0, 9.0, 9.0])


def test_a_batch_after_moves_waits_for_their_restores_unless_state_is_loaded_ahead() -> None:
    size = 50_000_000
    found = {}
    for prepared in (True, False):
        run = Replay(Policy(), prepared)
        for number in (1, 2, 3):
            tasks = batch_of(number, (20.0, 20.0, 20.0, 20.0), "aaab", size)
            found[prepared, number] = run.take(tasks, EXECUTORS)
    assert found[True, 2].would_last_s == found[True, 3].would_last_s
    restore_s = RestoreCost().estimate_s(size)
    # The model's last tasks take longer than an even placement as long as that is even.
    placed_s = found[False, 2].balanced_s + restore_s
    assert found[False, 2].would_last_s == pytest.approx(max(placed_s, found[True, 2].would_last_s))
    assert found[False, 3].would_last_s == found[True, 3].would_last_s


def test_partitions_of_an_executor_that_left_run_where_spark_ran_them() -> None:
    run = Replay(Policy())
    run.take(batch_of(1, (2.0, 2.0), "aa"), EXECUTORS)
    assert set(run.placement.values()) == {"a", "b"}
    after = run.take(batch_of(2, (2.0, 2.0), "aa"), {"a": 1})
    assert after.balanced_s == 4.0


@given(
    st.lists(st.lists(st.floats(0.0, 100.0), min_size=6, max_size=6), min_size=1, max_size=6),
    st.lists(st.sampled_from("abc"), min_size=6, max_size=6),
)
def test_no_placement_is_more_even_than_the_bound(
    batches: list[list[float]], executors: list[str]
) -> None:
    run = Replay(Policy())
    for number, busy_s in enumerate(batches):
        found = run.take(batch_of(number, busy_s, "".join(executors)), {"a": 1, "b": 1, "c": 2})
        slack = 1.0 + 1e-6
        assert found.mean_s <= found.hottest_s * slack + 1e-9
        assert found.least_s <= found.hottest_s * slack + 1e-9
        assert found.least_s <= found.balanced_s * slack + 1e-9
