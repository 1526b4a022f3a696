"""What the user's function takes for each cost key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

import pandas as pd
import pyarrow as pa
import pytest

from balancedstream.core.shuffle.costs import MeasuredCosts
from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.shuffling.timing import (
    FunctionMeter,
    HiddenColumns,
    Piece,
    cut_arrow,
    cut_pandas,
)

_names = count()

HIDDEN = HiddenColumns("item", "estimated_s")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


class Pieces:
    """Input whose reading takes time too; each part is what it costs."""

    def __init__(
        self,
        clock: Clock,
        costs_s: Iterable[tuple[int, int, float]],
        known_s: Mapping[int, float] | None = None,
    ) -> None:
        self._clock = clock
        self._costs_s = costs_s
        self._known_s = known_s or {}

    def __iter__(self) -> Iterator[list[Piece[float]]]:
        for item, rows, cost_s in self._costs_s:
            self._clock.pass_s(1000.0)
            yield [Piece(item, rows, rows * self._known_s.get(item, 0.0), cost_s)]
        self._clock.pass_s(1000.0)


def sketch() -> CostSketch:
    return CostSketch(0.001, 0.1, seed=0)


def name(item: int) -> bytes:
    return item.to_bytes(8, "little")


def warm_up(shuffle: str) -> None:
    list(FunctionMeter[float, float](shuffle, sketch()).run(iter, [[Piece(0, 1, 0.0, 0.0)]]))


def measure(
    costs_s: list[tuple[int, int, float]], known_s: Mapping[int, float] | None = None
) -> MeasuredCosts:
    """Runs a function that takes what each part says, for one output each; its worker is warm."""
    clock = Clock()
    shuffle = f"shuffle {next(_names)}"
    warm_up(shuffle)
    meter = FunctionMeter[float, float](shuffle, sketch(), clock)

    def work(parts: Iterator[float]) -> Iterator[float]:
        clock.pass_s(50.0)
        for part in parts:
            clock.pass_s(part / 2)
            yield part
            clock.pass_s(part / 2)

    for _ in meter.run(work, Pieces(clock, costs_s, known_s)):
        clock.pass_s(1000.0)
    return meter.summarize()


def test_each_item_costs_what_the_function_takes_for_it_and_nothing_else() -> None:
    task = measure([(1, 1, 4.0), (2, 3, 6.0), (1, 1, 2.0)])
    assert task.sketch.estimate(name(1)) == 3.0
    assert task.sketch.estimate(name(2)) == 2.0
    assert (task.real_s, task.sketch.records) == (12.0, 5)


def test_what_was_estimated_for_the_rows_is_summed_up() -> None:
    task = measure([(1, 2, 4.0), (2, 1, 6.0)], {1: 3.0, 2: 5.0})
    assert task.estimated_s == 11.0


def test_estimates_are_judged_by_how_they_share_out_the_tasks_time() -> None:
    # Everything takes twice as long as estimated: a slow executor, and no error.
    task = measure([(1, 1, 2.0), (2, 1, 6.0)], {1: 1.0, 2: 3.0})
    assert (task.judged_s, task.error_s, task.equal_error_s) == (8.0, 0.0, 4.0)


def test_wrong_estimates_are_worse_than_equal_ones() -> None:
    task = measure([(1, 1, 2.0), (2, 1, 6.0)], {1: 3.0, 2: 1.0})
    assert task.error_s == 8.0


def test_what_a_function_takes_after_it_has_read_everything_is_told_apart() -> None:
    clock = Clock()
    meter = FunctionMeter[float, float]("greedy reader", sketch(), clock)

    def work(parts: Iterator[float]) -> Iterator[float]:
        everything = list(parts)
        clock.pass_s(30.0)
        yield from everything

    assert list(meter.run(work, Pieces(clock, [(1, 1, 4.0), (2, 1, 6.0)]))) == [4.0, 6.0]
    task = meter.summarize()
    assert (task.real_s, task.unattributed_s) == (0.0, 30.0)


def test_a_cold_workers_first_row_is_cut_off_to_be_a_piece_of_its_own() -> None:
    columns = {"item": [7, 7, 7], "estimated_s": [0.5] * 3, "text": ["a", "b", "c"]}
    batch = pa.RecordBatch.from_pydict(columns)
    for cut, whole in ((cut_arrow, batch), (cut_pandas, batch.to_pandas())):
        pieces = cut(whole, HIDDEN, first_alone=True)
        assert [(piece.rows, piece.estimated_s) for piece in pieces] == [(1, 0.5), (2, 1.0)]


def test_the_first_piece_of_a_python_worker_pays_for_imports_and_is_not_learnt_from() -> None:
    clock = Clock()
    shuffle = f"shuffle {next(_names)}"

    def work(parts: Iterator[float]) -> Iterator[float]:
        for part in parts:
            clock.pass_s(part)
            yield part

    learnt = []
    for _ in range(2):
        meter = FunctionMeter[float, float](shuffle, sketch(), clock)
        list(meter.run(work, Pieces(clock, [(1, 1, 4.0), (2, 1, 6.0)])))
        learnt.append(meter.summarize().sketch.records)
    assert learnt == [1, 2]


def test_of_several_pieces_in_the_first_input_only_the_first_pays_for_imports() -> None:
    clock = Clock()
    meter = FunctionMeter[float, float](f"shuffle {next(_names)}", sketch(), clock)

    def work(parts: Iterator[float]) -> Iterator[float]:
        for part in parts:
            clock.pass_s(part)
            yield part

    list(meter.run(work, [[Piece(1, 1, 0.0, 4.0), Piece(2, 1, 0.0, 6.0)], [Piece(1, 1, 0.0, 8.0)]]))
    task = meter.summarize()
    assert (task.real_s, task.sketch.records) == (18.0, 2)
    assert [task.sketch.estimate(name(item)) for item in (1, 2)] == [8.0, 6.0]


def test_of_a_function_that_stops_early_what_it_was_done_with_is_learnt() -> None:
    clock = Clock()
    shuffle = f"shuffle {next(_names)}"
    warm_up(shuffle)
    meter = FunctionMeter[float, float](shuffle, sketch(), clock)

    def work(parts: Iterator[float]) -> Iterator[float]:
        for part in parts:
            clock.pass_s(part)
            yield part
            if part == 6.0:
                return

    pieces = [Piece(1, 1, 0.0, 4.0), Piece(2, 1, 0.0, 6.0), Piece(3, 1, 0.0, 9.0)]
    assert list(meter.run(work, [pieces])) == [4.0, 6.0]
    task = meter.summarize()
    assert (task.real_s, task.unattributed_s, task.judged_s) == (4.0, 6.0, 4.0)
    assert (task.sketch.records, task.sketch.estimate(name(1))) == (1, 4.0)


def test_an_error_of_the_function_passes_through_as_it_is() -> None:
    meter = FunctionMeter[float, float]("failing", sketch(), Clock())

    def work(parts: Iterator[float]) -> Iterator[float]:
        for part in parts:
            yield 1 / part

    with pytest.raises(ZeroDivisionError):
        list(meter.run(work, Pieces(Clock(), [(1, 1, 0.0)])))


def test_a_task_without_rows_has_measured_nothing() -> None:
    task = measure([])
    assert (task.real_s, task.judged_s, task.sketch.records) == (0.0, 0.0, 0)


def test_a_pandas_frame_is_cut_into_frames_of_one_item_that_are_the_functions_own() -> None:
    columns = {"item": [7, 5, 7], "text": ["a", "b", "c"], "estimated_s": [0.5, 2.0, 0.5]}
    frame = pd.DataFrame(columns)
    pieces = cut_pandas(frame, HIDDEN)
    assert [piece[:3] for piece in pieces] == [(5, 1, 2.0), (7, 2, 1.0)]
    assert [piece.part["text"].tolist() for piece in pieces] == [["b"], ["a", "c"]]
    for piece in pieces:
        assert piece.part.index.tolist() == list(range(piece.rows))
        piece.part["new"] = 1
    assert list(frame.columns) == list(columns)


def test_an_arrow_batch_is_cut_into_batches_of_one_item() -> None:
    columns = {"item": [7, 5, 7], "text": ["a", "b", "c"], "estimated_s": [0.5, 2.0, 0.5]}
    pieces = cut_arrow(pa.RecordBatch.from_pydict(columns), HIDDEN)
    assert [piece[:3] for piece in pieces] == [(5, 1, 2.0), (7, 2, 1.0)]
    assert [piece.part.to_pydict() for piece in pieces] == [{"text": ["b"]}, {"text": ["a", "c"]}]


def test_nothing_is_cut_from_an_empty_batch() -> None:
    columns = {"item": pa.array([], "int64"), "estimated_s": pa.array([], "double"), "a": []}
    batch = pa.RecordBatch.from_pydict(columns)
    assert cut_arrow(batch, HIDDEN) == cut_pandas(batch.to_pandas(), HIDDEN) == []
