"""The partition of each row of a map task, with numpy.

Spark assumes that a UDF always computes the same partition, and runs a map task again if its output
was lost. If the second attempt sent a row to another partition, two reduce tasks could process the
row, or none. So the partition must depend only on what both attempts have in common. The order of
rows is not: after a shuffle, blocks are read in the order in which they arrive. Therefore rows are
sorted by a 128-bit hash over all columns. Rows that are equal in all columns may swap places, which
makes no difference.

The learned costs are the same for all attempts, see `folders`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql.types import DoubleType, IntegerType, StructType

from balancedstream.core.shuffle.costs import LearntCosts
from balancedstream.core.shuffle.grouping import assign_greedily
from balancedstream.shuffling.folders import FindCosts
from balancedstream.shuffling.sketching import estimate_costs_s
from balancedstream.workers.garbage import spare_loaded_modules

ROUTED = StructType().add("partition", IntegerType()).add("estimated_s", DoubleType())
"""What the routing UDF returns for each row. The estimate goes with the row to the function's task,
which judges it, so that only map tasks read the learned costs."""


def route_rows(
    learnt: LearntCosts | None,
    items: NDArray[np.int64],
    marks: tuple[NDArray[np.int64], NDArray[np.int64]],
    partitions: int,
    map_partition: int,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Choose the partition of each row of a map task, and estimate its cost.

    All rows are read before the first one is routed. So they are assigned greedily, the most
    expensive first, which balances better than the order of arrival. Each map task balances its own
    rows, so all rows together are balanced too, up to one row for each map task. Map tasks start
    with different partitions; otherwise the first partition would get the surplus of all of them.

    Args:
        learnt: the learned costs; None if nothing is known.
        items: the hashed cost key of each row.
        marks: two independent hashes of each row's columns.
        partitions: number of partitions, 1 or more.
        map_partition: the map task's own number.

    Returns:
        The partition of each row, and its estimated cost in seconds, 0 if nothing is known. Both
        depend on the rows, not on their order.
    """
    estimated_s = np.zeros(len(items)) if learnt is None else estimate_costs_s(learnt, items)
    own_order = np.lexsort(marks)
    first = map_partition % partitions
    if learnt is None or not learnt.trusted:
        order = own_order
        assigned: NDArray[np.int64] | list[int] = (first + np.arange(len(order))) % partitions
    else:
        costs_s = estimated_s[own_order]
        expensive_first = np.argsort(-costs_s, kind="stable")
        order = own_order[expensive_first]
        assigned = assign_greedily(costs_s[expensive_first].tolist(), partitions, first=first)
    routes = np.empty(len(items), np.int32)
    routes[order] = assigned
    return routes, estimated_s


def make_router(
    find_costs: FindCosts, partitions: int
) -> Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]]:
    """The body of the UDF that routes the rows of a task.

    It reads the whole input before it returns anything. Meanwhile Spark keeps the rows, and spills
    them to disk if there are many. Here each row takes about 150 bytes while it is routed.

    Returns:
        A function that takes the hashed cost keys and the two hashes of rows, batch by batch, and
        returns `ROUTED`.
    """

    def route(batches: Iterator[tuple[pa.Array, pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        spare_loaded_modules()
        columns = [[column.to_numpy() for column in batch] for batch in batches]
        if not columns:
            return
        items, *marks = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        learnt = find_costs()
        map_partition = TaskContext.get().partitionId()
        routed = route_rows(learnt, items, (marks[0], marks[1]), partitions, map_partition)
        begin = 0
        for part, *_ in columns:
            cells = [pa.array(column[begin : begin + len(part)]) for column in routed]
            yield pa.StructArray.from_arrays(cells, ROUTED.names)
            begin += len(part)

    return route
