from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.record.records import BatchRecord, MoveRecord
from balancedstream.report.windows import (
    MIN_AFTER_BATCHES,
    MIN_BEFORE_BATCHES,
    batches_after,
    batches_before,
    describe_too_few,
    find_windows,
)


def batches(count: int, rows: int = 10) -> list[BatchRecord]:
    return [BatchRecord("q", n, 100.0 + n, 500, rows, None, 2) for n in range(count)]


def move(after_batch: int, settled_in: int | None, partition: int = 0) -> MoveRecord:
    """A move decided after one batch and settled in another."""
    return MoveRecord(
        "q", 0, partition, "0", "1", 100.5 + after_batch, "hot", after_batch,
        settled_s=None if settled_in is None else 100.0 + settled_in,
    )  # fmt: skip


def numbers(window: Sequence[BatchRecord]) -> list[int]:
    return [batch.batch for batch in window]


def test_without_moves_both_are_all_batches_but_the_first() -> None:
    run = batches(6)
    assert numbers(batches_before(run, None)) == [1, 2, 3, 4, 5]
    assert batches_after(run, [], None) == batches_before(run, None)


def test_before_ends_with_the_batch_that_the_first_move_was_decided_after() -> None:
    assert numbers(batches_before(batches(10), 4)) == [1, 2, 3, 4]


def test_after_begins_when_the_last_move_has_settled() -> None:
    moves = [move(3, settled_in=4), move(3, settled_in=6, partition=1)]
    assert numbers(batches_after(batches(12), moves, 3)) == [7, 8, 9, 10, 11]


def test_a_move_that_was_dropped_changed_nothing() -> None:
    dropped = replace(move(3, settled_in=None), dropped_s=105.5)
    assert batches_after(batches(12), [dropped], 3) == ()
    moves = [dropped, move(3, settled_in=4, partition=1)]
    assert numbers(batches_after(batches(12), moves, 3)) == [5, 6, 7, 8, 9, 10, 11]


def test_a_move_that_is_still_being_prepared_disturbs_no_batch() -> None:
    moves = [move(3, settled_in=4), move(6, settled_in=None, partition=1)]
    assert numbers(batches_after(batches(12), moves, 3)) == [5, 6, 7, 8, 9, 10, 11]
    moves = [move(3, settled_in=4), move(6, settled_in=9, partition=1)]
    assert numbers(batches_after(batches(15), moves, 3)) == [10, 11, 12, 13, 14]


def test_a_move_that_is_seen_to_have_settled_a_little_later_settled_in_the_same_batch() -> None:
    late = replace(move(3, settled_in=6), settled_s=106.1)
    assert numbers(batches_after(batches(12), [late], 3)) == [7, 8, 9, 10, 11]


def test_four_batches_after_the_last_move_are_too_few_if_there_is_a_longer_stretch() -> None:
    moves = [move(3, settled_in=4), move(9, settled_in=10, partition=1)]
    assert numbers(batches_after(batches(15), moves, 3)) == [5, 6, 7, 8, 9]
    assert numbers(batches_after(batches(16), moves, 3)) == [11, 12, 13, 14, 15]


def test_figures_need_five_batches_on_either_side_of_the_moves() -> None:
    assert MIN_BEFORE_BATCHES == MIN_AFTER_BATCHES == 5
    found = find_windows(batches(12), [move(5, settled_in=6)], 5)
    assert (numbers(found.before), numbers(found.after)) == ([1, 2, 3, 4, 5], [7, 8, 9, 10, 11])
    found = find_windows(batches(11), [move(4, settled_in=6)], 4)
    assert (found.before, found.after) == ((), ())
    assert (found.batches_before, found.batches_after) == (4, 4)


def test_any_number_of_batches_is_enough_where_nothing_moved() -> None:
    found = find_windows(batches(2), [], None)
    assert numbers(found.before) == numbers(found.after) == [1]


def test_too_few_batches_are_said_with_their_number_and_the_side() -> None:
    assert describe_too_few(5, 5) == ()
    assert describe_too_few(1, 4) == (
        "too few batches before the first move (1, at least 5 are needed)",
        "too few batches after the moves (4, at least 5 are needed)",
    )


def test_the_longest_stretch_is_taken_where_all_are_short() -> None:
    moves = [move(1, settled_in=2), move(4, settled_in=5), move(6, settled_in=7)]
    assert numbers(batches_after(batches(9), moves, 1)) == [3, 4]


def test_nothing_that_settled_means_no_figure() -> None:
    assert batches_after(batches(9), [move(1, settled_in=None)], 1) == ()


def test_moves_after_the_first_batch_leave_nothing_to_compare_with() -> None:
    assert batches_before(batches(9), 0) == ()


def test_batches_without_rows_count_in_neither() -> None:
    run = [replace(b, input_rows=0) if b.batch % 2 else b for b in batches(12)]
    assert numbers(batches_before(run, 5)) == [2, 4]
    assert numbers(batches_after(run, [move(5, settled_in=6)], 5)) == [8, 10]


@settings(max_examples=150)
@given(
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 40), st.none() | st.integers(1, 8)), min_size=1, max_size=12),
)
def test_no_window_holds_a_batch_in_which_a_move_settled(
    count: int, plan: list[tuple[int, int | None]]
) -> None:
    moves = [
        move(decided, None if took is None else decided + took, partition)
        for partition, (decided, took) in enumerate(plan)
    ]
    run = batches(count)
    first = min(decided for decided, _ in plan)
    before, after = batches_before(run, first), batches_after(run, moves, first)
    settled = [each.settled_s for each in moves if each.settled_s is not None]
    assert not set(numbers(before)) & set(numbers(after))
    assert not {batch.finished_s for batch in (*before, *after)} & set(settled)
    assert all(batch.finished_s > min(settled) for batch in after)
    assert numbers(after) == list(range(after[0].batch, after[-1].batch + 1)) if after else True
