"""What the user's function takes for each cost key, measured while it runs.

The function is given pieces of its input that hold rows of one cost key each, or single rows. What
passes between being given a piece and asking for the next one, inside the function, is what the
piece cost. Neither reading the input nor what becomes of the output counts.

Waiting counts as much as computing: it keeps the executor's slot. So time is that of the clock.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from balancedstream.core.costs import MeasuredCosts
from balancedstream.core.sketches import CostSketch
from balancedstream.shuffling.sketching import SketchFiller

JUDGED_PIECES = 10_000
"""The estimates are judged by the first pieces of a task: enough, and its memory stays constant."""

Part = TypeVar("Part")
Output = TypeVar("Output")

# Shuffles whose function has run in this Python worker. What it did first, it did for the first
# time: imports, models that are loaded, caches that fill. That is no cost of the row, so the first
# row is a piece of its own and not learnt from.
_warm: set[str] = set()


class Piece(NamedTuple, Generic[Part]):
    """Part of the function's input.

    Attributes:
        item: hashed cost key of all its rows.
        rows: how many.
        estimated_s: what all of them were estimated to cost; 0 where nothing was known.
        part: what the function is given.
    """

    item: int
    rows: int
    estimated_s: float
    part: Part


class HiddenColumns(NamedTuple):
    """Columns that the shuffle adds to the rows, and the function never sees.

    Attributes:
        item: the hashed cost key.
        estimated_s: what the row was estimated to cost.
    """

    item: str
    estimated_s: str


class FunctionMeter(Generic[Part, Output]):
    """Runs the user's function over the input of one task, and measures.

    Args:
        name: of the shuffle.
        empty: a sketch that hashes as the one that is filled.
        clock: seconds that only grow.
    """

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
        # What the function has taken so far of the piece that it has, before the last pause.
        self._taken_s = 0.0
        self._pieces: list[Piece[Part]] = []
        # What each of these pieces took that the function is done with.
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

        Args:
            function: gets the parts of all pieces, one after the other.
            inputs: the pieces, batch by batch.

        Returns:
            What the function gives. An error that it raises passes through as it is.
        """
        self._resume()
        for output in function(self._feed(inputs)):
            self._pause()
            yield output
            self._resume()
        self._pause()
        # It may not have asked for all of its input.
        self._learn()

    def is_cold(self) -> bool:
        """Whether the function has not run in this Python worker before."""
        return self._name not in _warm

    def summarize(self) -> MeasuredCosts:
        """What was measured, once the function has ended."""
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
        # What the function took to prepare itself is nobody's cost.
        self._taken_s = 0.0
        for pieces in inputs:
            self._estimated_s += sum(piece.estimated_s for piece in pieces)
            self._pieces = pieces
            # As little as can be is done between two pieces: the function may wait or compute long,
            # and the processor's caches have lost this code by then.
            for piece in pieces:
                self._resume()
                yield piece.part
                self._pause()
                self._took_s.append(self._taken_s)
                self._taken_s = 0.0
            self._learn()
        self._resume()

    def _learn(self) -> None:
        """Take in what was measured of the pieces of one input."""
        took_s = self._took_s
        # The function may not be done with the last one, or have asked for no more.
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
    """Bring equal items together.

    Args:
        items: of the rows.
        first_alone: whether the first row shall be a run of its own.

    Returns:
        An order of the rows, and where in it each run of equal items begins and ends.

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
    # A new index also makes each piece the function's own: it may change it.
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
    # Rows of one item are estimated alike.
    firsts = [begin for begin, _ in runs]
    described = zip(runs, items[firsts].tolist(), estimated_s[firsts].tolist(), parts, strict=True)
    return [
        Piece(item, end - begin, (end - begin) * each_s, part)
        for (begin, end), item, each_s, part in described
    ]
