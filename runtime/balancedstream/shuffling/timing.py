"""The time that the user's function takes for each cost key, measured while it runs.

The function gets pieces of its input with rows of one cost key each, or single rows. The cost of a
piece is the time inside the function from getting the piece to asking for the next one. The time to
read the input and to process the output does not count.

Waiting counts like computing, because it keeps the executor's slot. So this is wall-clock time.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from balancedstream.core.shuffle.costs import MeasuredCosts
from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.shuffling.sketching import SketchFiller

JUDGED_PIECES = 10_000
"""Estimates are judged by this many first pieces of a task: enough, in constant memory."""

Part = TypeVar("Part")
Output = TypeVar("Output")

# Shuffles whose function ran in this Python worker before. Its first call also imports modules,
# loads models and fills caches. That is no cost of the row, so the first row is a piece of its own
# and is not learned from.
_warm: set[str] = set()


class Piece(NamedTuple, Generic[Part]):
    """Part of the function's input.

    Attributes:
        item: hashed cost key of all its rows.
        rows: number of rows.
        estimated_s: estimated cost of all of them; 0 if nothing was known.
        part: the input of the function.
    """

    item: int
    rows: int
    estimated_s: float
    part: Part


class HiddenColumns(NamedTuple):
    """Columns that the shuffle adds to the rows, hidden from the function."""

    item: str
    estimated_s: str


class FunctionMeter(Generic[Part, Output]):
    """Runs the user's function over the input of one task, and measures its time."""

    def __init__(
        self,
        name: str,
        empty: CostSketch,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._name = name
        self._filler = SketchFiller(empty)
        self._clock = clock
        self._began_s = 0.0
        # Time that the function spent on its current piece until the last pause.
        self._taken_s = 0.0
        self._pieces: list[Piece[Part]] = []
        # Time of each of these pieces that the function finished.
        self._took_s = array("d")
        self._estimated_s = 0.0
        self._real_s = 0.0
        self._judged_rows = array("q")
        self._judged_estimated_s = array("d")
        self._judged_s = array("d")

    def run(
        self,
        function: Callable[[Iterator[Part]], Iterable[Output]],
        inputs: Iterable[list[Piece[Part]]],
    ) -> Iterator[Output]:
        """Run the function.

        Returns:
            The outputs of the function. Its errors pass through unchanged.
        """
        self._resume()
        for output in function(self._feed(inputs)):
            self._pause()
            yield output
            self._resume()
        self._pause()
        # It may not have read all of its input.
        self._learn()

    def is_cold(self) -> bool:
        """Whether the function has not run in this Python worker before."""
        return self._name not in _warm

    def summarize(self) -> MeasuredCosts:
        """The measurements, after the function ended."""
        took_s = np.array(self._judged_s)
        rows = np.array(self._judged_rows)
        judged_s = float(took_s.sum())
        estimated_s = np.array(self._judged_estimated_s)
        total_s = estimated_s.sum()
        scaled_s = estimated_s * (judged_s / total_s) if total_s else estimated_s
        equal_s = rows * (judged_s / max(rows.sum(), 1))
        return MeasuredCosts(
            sketch=self._filler.make_sketch(),
            estimated_s=self._estimated_s,
            real_s=self._real_s,
            unattributed_s=self._taken_s,
            judged_s=judged_s,
            error_s=float(np.abs(scaled_s - took_s).sum()),
            equal_error_s=float(np.abs(equal_s - took_s).sum()),
        )

    def _feed(self, inputs: Iterable[list[Piece[Part]]]) -> Iterator[Part]:
        self._pause()
        # The time before the first piece belongs to no row.
        self._taken_s = 0.0
        for pieces in inputs:
            self._estimated_s += sum(piece.estimated_s for piece in pieces)
            self._pieces = pieces
            # Little happens between two pieces: after a long call of the function, this code is no
            # longer in the processor's caches.
            for piece in pieces:
                self._resume()
                yield piece.part
                self._pause()
                self._took_s.append(self._taken_s)
                self._taken_s = 0.0
            self._learn()
        self._resume()

    def _learn(self) -> None:
        """Add the measurements of the pieces of one input."""
        took_s = self._took_s
        # The function may not have finished the last piece, or may have stopped reading.
        finished = self._pieces[: len(took_s)]
        self._pieces, self._took_s = [], array("d")
        self._real_s += sum(took_s)
        if finished and self.is_cold():
            _warm.add(self._name)
            del finished[0], took_s[0]
        if not finished:
            return
        items, rows, estimated_s, _ = zip(*finished, strict=True)
        self._filler.update(np.array(items, np.int64), np.array(took_s), np.array(rows))
        left = JUDGED_PIECES - len(self._judged_s)
        self._judged_rows.extend(rows[:left])
        self._judged_estimated_s.extend(estimated_s[:left])
        self._judged_s.extend(took_s[:left])

    def _pause(self) -> None:
        self._taken_s += self._clock() - self._began_s

    def _resume(self) -> None:
        self._began_s = self._clock()


def find_runs(
    items: NDArray[np.int64], *, first_alone: bool = False
) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
    """Group equal items.

    Args:
        items: of the rows.
        first_alone: whether the first row is a run of its own.

    Returns:
        An order of the rows, and the start and end of each run of equal items in it.

    >>> order, runs = find_runs(np.array([7, 5, 7]))
    >>> order.tolist(), runs
    ([1, 0, 2], [(0, 1), (1, 3)])
    >>> find_runs(np.array([7, 7, 7]), first_alone=True)[1]
    [(0, 1), (1, 3)]
    """
    order = np.argsort(items, kind="stable")
    changes = set((np.flatnonzero(np.diff(items[order])) + 1).tolist())
    edges = sorted({0, len(items)} | changes | ({1} if first_alone and len(items) else set()))
    return order, list(pairwise(edges))


def cut_pandas(frame: Any, hidden: HiddenColumns, *, first_alone: bool = False) -> list[Piece[Any]]:
    """Cut a pandas DataFrame into DataFrames of one item each, without the hidden columns."""
    items, estimated_s = (frame[column].to_numpy() for column in hidden)
    order, runs = find_runs(items, first_alone=first_alone)
    rows = frame.drop(columns=[*hidden])
    if len(runs) > 1:
        rows = rows.iloc[order]
    # With a new index, each piece is a copy that the function may change.
    parts = (rows.iloc[begin:end].reset_index(drop=True) for begin, end in runs)
    return _describe_pieces(items[order], estimated_s[order], runs, parts)


def cut_arrow(batch: Any, hidden: HiddenColumns, *, first_alone: bool = False) -> list[Piece[Any]]:
    """Cut an Arrow RecordBatch into RecordBatches of one item each, without the hidden columns."""
    items, estimated_s = (batch.column(column).to_numpy() for column in hidden)
    order, runs = find_runs(items, first_alone=first_alone)
    rows = batch.drop_columns([*hidden])
    if len(runs) > 1:
        rows = rows.take(order)
    parts = (rows.slice(begin, end - begin) for begin, end in runs)
    return _describe_pieces(items[order], estimated_s[order], runs, parts)


def _describe_pieces(
    items: NDArray[np.int64],
    estimated_s: NDArray[np.float64],
    runs: list[tuple[int, int]],
    parts: Iterable[Part],
) -> list[Piece[Part]]:
    # Rows of one item have the same estimate.
    firsts = [begin for begin, _ in runs]
    described = zip(runs, items[firsts].tolist(), estimated_s[firsts].tolist(), parts, strict=True)
    return [
        Piece(item, end - begin, (end - begin) * each_s, part)
        for (begin, end), item, each_s, part in described
    ]
