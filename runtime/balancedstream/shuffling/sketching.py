"""Cost sketches for many items at a time, with numpy; bit for bit as in the core.

Items are hashed cost keys here: 64-bit numbers. Their eight bytes, least first, are the item of
`CostSketch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancedstream.core.shuffle.costs import LearntCosts
from balancedstream.core.shuffle.sketches import MIXING, CostSketch

ITEMS_AT_ONCE = 1 << 16
"""Number of items looked up at once; each takes about 160 bytes meanwhile."""

_NS_PER_S = 1e9


def locate_items(sketch: CostSketch, items: NDArray[np.int64]) -> NDArray[np.int64]:
    """`CostSketch.locate` for many items.

    Returns:
        A row for each item, with a cell for each row of the sketch.

    >>> sketch = CostSketch(0.05, 0.1, seed=7)
    >>> cells = locate_items(sketch, np.array([-2, 3]))
    >>> [tuple(row) for row in cells.tolist()] == [
    ...     sketch.locate(item.to_bytes(8, "little", signed=True)) for item in (-2, 3)
    ... ]
    True
    """
    bits = items.view(np.uint64)[:, None] ^ np.array(sketch.row_keys, np.uint64)
    for shift, factor in MIXING:
        bits = (bits ^ bits >> np.uint64(shift)) * np.uint64(factor)
    columns = (bits >> np.uint64(32)) * np.uint64(sketch.columns) >> np.uint64(32)
    return columns.view(np.int64) + np.arange(sketch.rows) * sketch.columns


def estimate_costs_s(learnt: LearntCosts, items: NDArray[np.int64]) -> NDArray[np.float64]:
    """`learnt.estimates.estimate` for many items.

    The two sketches are added up only in the cells that are read, because a task reads few.
    """
    distinct, places = np.unique(items, return_inverse=True)
    sketches = [sketch for sketch in (learnt.newer, learnt.older) if sketch]
    counts = [np.frombuffer(sketch.counts, np.int64) for sketch in sketches]
    costs_ns = [np.frombuffer(sketch.costs_ns, np.int64) for sketch in sketches]
    estimated_s = np.empty(len(distinct))
    is_unseen = np.empty(len(distinct), np.bool_)
    for begin in range(0, len(distinct), ITEMS_AT_ONCE):
        block = slice(begin, begin + ITEMS_AT_ONCE)
        cells = locate_items(learnt.newer, distinct[block])
        found = _add_up(counts, cells)
        rows, least = np.arange(len(cells)), found.argmin(axis=1)
        count, cost_ns = found[rows, least], _add_up(costs_ns, cells[rows, least])
        estimated_s[block] = cost_ns.astype(np.float64) / np.maximum(count, 1) / _NS_PER_S
        is_unseen[block] = count == 0
    if is_unseen.any():
        once_ns = _add_up(costs_ns, _add_up(counts, slice(None)) == 1).tolist()
        # As a sketch estimates items that it never saw.
        estimated_s[is_unseen] = (
            float(sum(once_ns)) / len(once_ns) / _NS_PER_S
            if once_ns
            else learnt.estimates.mean_cost_s
        )
    return np.asarray(estimated_s[places])


def _add_up(matrices: Sequence[NDArray[np.int64]], at: Any) -> NDArray[np.int64]:
    first, *others = (matrix[at] for matrix in matrices)
    return reduce(np.add, others, first)


class SketchFiller:
    """Fills a sketch that hashes as an empty one does."""

    def __init__(self, empty: CostSketch) -> None:
        self._empty = empty
        cells = empty.rows * empty.columns
        self._counts = np.zeros(cells, np.int64)
        self._costs_ns = np.zeros(cells, np.int64)

    def update(
        self,
        items: NDArray[np.int64],
        costs_s: NDArray[np.float64],
        records: NDArray[np.int64],
    ) -> None:
        """`CostSketch.update` for many items.

        Args:
            items: hashed cost keys.
            costs_s: the seconds that all records of each item took; 0 or more and finite.
            records: number of records of each item.
        """
        cells = locate_items(self._empty, items).ravel()
        costs_ns = np.rint(costs_s * _NS_PER_S).astype(np.int64)
        for matrix, values in ((self._counts, records), (self._costs_ns, costs_ns)):
            np.add.at(matrix, cells, np.repeat(values, self._empty.rows))

    def make_sketch(self) -> CostSketch:
        """A sketch of all records so far."""
        return self._empty.with_cells(self._counts.tobytes(), self._costs_ns.tobytes())
