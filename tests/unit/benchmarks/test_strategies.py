"""Megaphone's strategies, which the benchmark of migration compares."""

from __future__ import annotations

from collections import Counter

import pytest
from harness.strategies import STRATEGIES, steps
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.balance.hotspots import Move
from balancedstream.errors import InvalidInputError

executors = st.sampled_from(["", "a", "b", "c", "d"])
some_moves = st.lists(st.tuples(executors, st.sampled_from("abcd")), max_size=40).map(
    lambda pairs: [Move(p, source, target) for p, (source, target) in enumerate(pairs)]
)


@given(some_moves, st.sampled_from(STRATEGIES), st.integers(1, 10))
def test_every_move_is_in_exactly_one_step(
    moves: list[Move], strategy: str, batch_size: int
) -> None:
    done = [m for step in steps(moves, strategy, batch_size=batch_size) for m in step]
    assert Counter(done) == Counter(moves)


@given(some_moves)
def test_no_step_is_empty_and_each_strategy_has_its_size(moves: list[Move]) -> None:
    assert len(list(steps(moves, "all-at-once"))) == min(1, len(moves))
    assert [len(s) for s in steps(moves, "fluid")] == [1] * len(moves)
    assert all(1 <= len(s) <= 8 for s in steps(moves, "batched"))


@given(some_moves)
def test_an_optimized_step_uses_no_sender_or_receiver_twice(moves: list[Move]) -> None:
    for step in steps(moves, "optimized"):
        senders = [m.source for m in step if m.source]
        receivers = [m.target for m in step]
        assert len(set(senders)) == len(senders)
        assert len(set(receivers)) == len(receivers)


@given(some_moves)
def test_an_optimized_step_is_a_maximum_matching(moves: list[Move]) -> None:
    for i, step in enumerate(steps(moves, "optimized")):
        left = [m for later in list(steps(moves, "optimized"))[i:] for m in later]
        assert len(step) == largest_matching(left)


def largest_matching(moves: list[Move]) -> int:
    """By augmenting paths, one sender after the other (Kuhn)."""
    edges: dict[str, set[str]] = {}
    for index, move in enumerate(moves):
        edges.setdefault(move.source or f"orphan {index}", set()).add(move.target)
    holder: dict[str, str] = {}

    def place(sender: str, tried: set[str]) -> bool:
        for target in edges[sender] - tried:
            tried.add(target)
            if target not in holder or place(holder[target], tried):
                holder[target] = sender
                return True
        return False

    return sum(place(sender, set()) for sender in edges)


def test_an_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"strategy: must be one of all-at-once.*'lazy'"):
        steps([], "lazy")


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="batch_size"):
        steps([Move(0, "a", "b")], "batched", batch_size=0)
