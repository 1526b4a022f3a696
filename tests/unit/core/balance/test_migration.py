from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.balance.hotspots import Move
from balancedstream.core.balance.migration import (
    AHEAD_BYTES,
    AHEAD_BYTES_OF_ALL,
    choose_at_once,
    pays_at_once,
    steps_ahead,
    steps_within,
)
from balancedstream.errors import InvalidInputError

executors = st.sampled_from(["", "a", "b", "c", "d"])
some_moves = st.lists(st.tuples(executors, st.sampled_from("abcd")), max_size=40).map(
    lambda pairs: [Move(p, source, target) for p, (source, target) in enumerate(pairs)]
)


@given(
    some_moves,
    st.floats(0.1, 10.0),
    st.lists(st.floats(0.0, 20.0), min_size=40, max_size=40),
)
def test_no_executor_loads_longer_in_a_step_than_the_budget_unless_one_move_does(
    moves: list[Move], budget_s: float, costs_s: list[float]
) -> None:
    planned = list(steps_within(moves, budget_s, lambda m: costs_s[m.partition]))
    assert Counter(m for step in planned for m in step) == Counter(moves)
    for step in planned:
        assert step
        of_target: dict[str, list[float]] = {}
        for move in step:
            of_target.setdefault(move.target, []).append(costs_s[move.partition])
        for costs in of_target.values():
            positive = [c for c in costs if c > 0]
            assert sum(costs) <= budget_s * (1 + 1e-9) or len(positive) == 1


def test_the_most_important_moves_come_first_under_a_budget() -> None:
    moves = [Move(p, "a", "b") for p in range(5)]
    planned = steps_within(moves, 1.0, lambda m: 0.5)
    assert [[m.partition for m in step] for step in planned] == [[0, 1], [2, 3], [4]]


def list_ahead(
    moves: list[Move], state_bytes: int, loading_bytes: dict[str, int] | None = None
) -> list[list[int]]:
    """The partitions of each step, where storage is so fast that seconds are no limit."""
    executors = dict.fromkeys({e for move in moves for e in (move.source, move.target)}, 1)
    ahead = steps_ahead(
        moves,
        1.0,
        lambda m: 0.0,
        state_bytes=lambda m: state_bytes,
        loading_bytes=loading_bytes or {},
        busy_s={},
        placement={},
        executors=executors,
        begun=executors,
    )
    return [[move.partition for move in step] for step in ahead]


def test_a_target_holds_no_more_state_twice_than_it_may_however_fast_the_storage_is() -> None:
    moves = [Move(p, "a", "b") for p in range(5)]
    assert list_ahead(moves, 0) == [[0, 1, 2, 3, 4]]
    assert list_ahead(moves, AHEAD_BYTES // 2) == [[0, 1], [2, 3], [4]]
    assert list_ahead(moves, AHEAD_BYTES + 1) == [[0], [1], [2], [3], [4]]


def test_what_executors_load_already_leaves_less_room_in_the_first_step() -> None:
    half = AHEAD_BYTES // 2
    moves = [Move(p, "a", "b") for p in range(3)]
    assert list_ahead(moves, half, {"b": half}) == [[0], [1, 2]]
    assert list_ahead(moves, half, {"b": AHEAD_BYTES}) == [[], [0, 1], [2]]
    assert list_ahead(moves, half, {"c": AHEAD_BYTES_OF_ALL}) == [[], [0, 1], [2]]


def test_all_targets_together_load_no_more_state_at_once_than_the_network_may_carry() -> None:
    moves = [Move(p, "a", f"b{p}") for p in range(6)]
    assert list_ahead(moves, AHEAD_BYTES_OF_ALL // 4) == [[0, 1, 2, 3], [4, 5]]
    assert list_ahead(moves, AHEAD_BYTES_OF_ALL + 1) == [[0], [1], [2], [3], [4], [5]]


@pytest.mark.parametrize("budget_s", [0.0, -1.0, math.nan, math.inf])
def test_a_budget_that_is_no_time_is_refused(budget_s: float) -> None:
    with pytest.raises(InvalidInputError, match="budget_s"):
        steps_within([Move(0, "a", "b")], budget_s, lambda m: 1.0)


@pytest.mark.parametrize("cost_s", [-1.0, math.nan, math.inf])
def test_a_cost_that_is_no_time_is_refused_by_its_partition(cost_s: float) -> None:
    with pytest.raises(InvalidInputError, match="partition 3"):
        list(steps_within([Move(3, "a", "b")], 1.0, lambda m: cost_s))


@given(
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=8),
    st.floats(0.0, 5.0),
    st.randoms(use_true_random=False),
)
def test_moves_at_once_never_make_the_next_batch_longer_if_restores_take_what_is_expected(
    loads_s: list[float], restore_s: float, chance: random.Random
) -> None:
    busy_s = dict(enumerate(loads_s))
    cores = {"a": 1, "b": 2, "c": 1}
    placement = {p: chance.choice("abc") for p in busy_s}
    moves = [Move(p, placement[p], chance.choice("abc")) for p in busy_s if chance.random() < 0.5]
    if not pays_at_once(moves, busy_s, placement, cores, lambda move: restore_s):
        return
    before_s = find_longest_s(busy_s, placement, [], cores, restore_s)
    assert find_longest_s(busy_s, placement, moves, cores, restore_s) < before_s


def find_longest_s(
    busy_s: dict[int, float],
    placement: dict[int, str],
    moves: Sequence[Move],
    cores: dict[str, int],
    restore_s: float,
) -> float:
    """The busy seconds per core of the hottest executor in the batch that makes the moves."""
    spent_s = dict.fromkeys(cores, 0.0)
    moved = {move.partition: move.target for move in moves}
    for p, executor in (placement | moved).items():
        seconds = busy_s[p] + (restore_s if p in moved else 0.0)
        spent_s[executor] += seconds / cores[executor]
    return max(spent_s.values())


@given(
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=12),
    st.floats(0.0, 5.0),
    st.randoms(use_true_random=False),
)
def test_moves_that_are_chosen_never_make_the_next_batch_longer_if_restores_take_what_is_expected(
    loads_s: list[float], restore_s: float, chance: random.Random
) -> None:
    busy_s = dict(enumerate(loads_s))
    cores = {"a": 1, "b": 2, "c": 1, "new": 1}
    placement = {p: chance.choice("abc") for p in busy_s}
    moves = [Move(p, placement[p], chance.choice(sorted(cores))) for p in busy_s]
    moves = [move for move in moves if move.source != move.target]
    chosen = choose_at_once(moves, busy_s, placement, cores, lambda move: restore_s)
    assert set(chosen) <= set(moves)
    if chosen:
        before_s = find_longest_s(busy_s, placement, (), cores, restore_s)
        assert find_longest_s(busy_s, placement, chosen, cores, restore_s) < before_s


def test_executors_that_joined_get_most_of_their_share_at_once_if_batches_are_long() -> None:
    busy_s = dict.fromkeys(range(16), 4.0)
    placement = {p: "ab"[p % 2] for p in busy_s}
    executors = dict.fromkeys(["a", "b", "c", "d"], 1)
    moves = [Move(p, placement[p], "cd"[p % 2]) for p in range(8)]
    chosen = choose_at_once(moves, busy_s, placement, executors, lambda move: 0.5)
    assert len(chosen) == 6
    short_s = dict.fromkeys(range(16), 0.4)
    assert not choose_at_once(moves, short_s, placement, executors, lambda move: 0.5)


def test_what_runs_on_an_executor_that_leaves_waits_for_its_step() -> None:
    busy_s = dict.fromkeys(range(4), 10.0)
    placement = {0: "a", 1: "a", 2: "a", 3: "gone"}
    moves = [Move(2, "a", "b"), Move(3, "gone", "b")]
    executors = {"a": 1, "b": 1}
    assert choose_at_once(moves, busy_s, placement, executors, lambda move: 0.1) == (moves[0],)
