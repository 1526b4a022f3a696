"""Which partition each row of a map task goes to, with numpy.

Spark takes a partition that a UDF computes for determined, and a map task is run again where its
output was lost. If the second attempt sent a row elsewhere than the first one, a reduce task that
has run already would have seen it too, or none would. So a route must follow from what both
attempts have in common. The order of rows is not among it: after a shuffle, blocks are read in the
order in which they arrive. Therefore rows are put into an order of their own, by 128 bits of hash
over all their columns. Rows that are equal in all columns may change places; nobody can tell.

What is known of costs is the same for all attempts, see `folders`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql.types import DoubleType, IntegerType, StructType

from balancedstream.core.costs import LearntCosts
from balancedstream.core.grouping import assign_greedily
from balancedstream.shuffling.folders import CostSource
from balancedstream.shuffling.sketching import estimate_costs_s
from balancedstream.workers.garbage import spare_loaded_modules

ROUTED = StructType().add("partition", IntegerType()).add("estimated_s", DoubleType())
"""What the UDF that routes gives for each row. The estimate goes with the row to the function's
task, which judges it, so that only map tasks read what is known."""


def route_rows(
    learnt: LearntCosts | None,
    items: NDArray[np.int64],
    marks: tuple[NDArray[np.int64], NDArray[np.int64]],
    partitions: int,
    map_partition: int,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Choose the partition of each row of a map task, and estimate its cost.

    All rows are there before the first one is routed. So they are assigned greedily with the
    dearest first, which levels better than the order of arrival would. Each map task levels its own
    rows, so that all together are level without knowing of each other: at most by one row for each
    map task. They begin with different partitions, for otherwise the first would get what is over
    from all of them.

    Args:
        learnt: what is known; None for nothing.
        items: the hashed cost key of each row.
        marks: two independent hashes of each row's columns.
        partitions: how many there are; 1 or more.
        map_partition: the map task's own number.

    Returns:
        The partition of each row, and the seconds that it is estimated to cost, 0 where nothing is
        known: functions of the rows, not of their order.
    """
    estimated_s = np.zeros(len(items)) if learnt is None else estimate_costs_s(learnt, items)
    own_order = np.lexsort(marks)
    first = map_partition % partitions
    if learnt is None or not learnt.trusted:
        order = own_order
        assigned: NDArray[np.int64] | list[int] = (first + np.arange(len(order))) % partitions
    else:
        costs_s = estimated_s[own_order]
        dearest_first = np.argsort(-costs_s, kind="stable")
        order = own_order[dearest_first]
        assigned = assign_greedily(costs_s[dearest_first].tolist(), partitions, first=first)
    routes = np.empty(len(items), np.int32)
    routes[order] = assigned
    return routes, estimated_s


def make_router(
    source: CostSource, partitions: int
) -> Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]]:
    """The body of the UDF that routes the rows of a task.

    It reads the whole input before it answers. Spark keeps the rows meanwhile and spills them to
    disk where they are many. Here each takes about 150 bytes while it is routed.

    Args:
        source: finds what is known.
        partitions: how many there are.

    Returns:
        Takes hashed cost keys and the two hashes of rows, batch by batch; gives `ROUTED`.
    """

    def route(batches: Iterator[tuple[pa.Array, pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        spare_loaded_modules()
        columns = [[column.to_numpy() for column in batch] for batch in batches]
        if not columns:
            return
        items, *marks = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        learnt = source.find_costs()
        map_partition = TaskContext.get().partitionId()
        routed = route_rows(learnt, items, (marks[0], marks[1]), partitions, map_partition)
        begin = 0
        for part, *_ in columns:
            cells = [pa.array(column[begin : begin + len(part)]) for column in routed]
            yield pa.StructArray.from_arrays(cells, ROUTED.names)
            begin += len(part)

    return route
