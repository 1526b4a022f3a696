"""Proposes another number of state partitions where that number limits a stream: pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from balancedstream.core.scaling.demand import Demand
from balancedstream.core.scaling.limits import MIN_GAIN
from balancedstream.core.sizing import PARTITIONS_PER_EXECUTOR


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A number of state partitions that would help a query.

    Attributes:
        query: that gains most.
        partitions: of all queries.
        before_s: what a batch of the rows that come would take with all executors now.
        after_s: the same with that number, if the keys spread evenly over it.
    """

    query: str
    partitions: int
    before_s: float
    after_s: float


def choose_count(present: int, cores: int, most: int) -> int:
    """Enough for so many cores, as a whole multiple of the present number, and at least twice it.

    Each present partition then becomes as many.

    >>> choose_count(4, 12, 10_000), choose_count(50, 12, 10_000), choose_count(48, 100, 500)
    (96, 100, 480)
    """
    times = max(2, math.ceil(PARTITIONS_PER_EXECUTOR * cores / present))
    return present * min(times, most // present)


def propose_partitions(
    demands: Iterable[Demand], present: int, cores: int, most: int
) -> MorePartitions | None:
    """A number that would make batches clearly shorter by their model; None if none would.

    Args:
        demands: of all queries.
        present: number of state partitions now.
        cores: of all executors that there may be.
        most: partitions that there may be.
    """
    count = choose_count(present, cores, most) if present else 0
    if count <= present:
        return None
    found = []
    for demand in demands:
        stage = demand.cost.stages.get("stateful")
        if stage is None:
            continue
        longest = stage.longest * present / count
        finer = {**demand.cost.stages, "stateful": replace(stage, tasks=count, longest=longest)}
        rows = max(demand.foreseen.ahead * demand.interval_s, demand.then_rows)
        rows, slots = min(rows, demand.batch_rows), demand.slots(cores)
        before_s = demand.cost.last(rows, slots)
        after_s = replace(demand.cost, stages=finer).last(rows, slots)
        if before_s >= (1.0 + MIN_GAIN) * after_s:
            found.append(MorePartitions(demand.query, count, before_s, after_s))
    return max(found, key=lambda more: more.before_s - more.after_s, default=None)
