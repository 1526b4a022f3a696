"""Which queries run, and which of their batches count."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from balancedstream.core.samples import BatchSample

Runs = Mapping[str, Sequence[BatchSample]]
"""The batches of each query, oldest first."""

LATE = 1.5
"""A next batch is late after so many times what passed between the ends of the last two."""

_IDLE_REPORT_S = 60.0
"""Spark reports an idle query every 10 s (`noDataProgressEventInterval`); some may be missing."""


def sort_batches(batches: Iterable[BatchSample]) -> Runs:
    """Batches by query, oldest first; of a batch that ran twice, the last run.

    >>> runs = sort_batches([BatchSample("q", n, float(n), 1.0, 5) for n in (2, 1)])
    >>> [batch.batch for batch in runs["q"]]
    [1, 2]
    """
    last: dict[tuple[str, int], BatchSample] = {}
    for batch in sorted(batches, key=lambda b: (b.finished_s, b.duration_s, b.input_rows)):
        last[batch.query, batch.batch] = batch
    runs: dict[str, list[BatchSample]] = defaultdict(list)
    for batch in sorted(last.values(), key=lambda b: (b.query, b.finished_s, b.batch)):
        runs[batch.query].append(batch)
    return runs


def waits_for_data(query: str, idle_s: Mapping[str, float], now_s: float) -> bool:
    """Whether Spark said lately that a query waits for data.

    >>> waits_for_data("q", {"q": 90.0}, now_s=100.0)
    True
    """
    return now_s - idle_s.get(query, -math.inf) <= _IDLE_REPORT_S


def find_current(
    batches: Iterable[BatchSample],
    now_s: float,
    idle_s: Mapping[str, float],
    running: Collection[str] | None = None,
) -> frozenset[tuple[str, int]]:
    """The last batches, as (query, batch), of the queries whose next one is not late.

    They say what a query does now, however long ago they ended: its next batch may take as long as
    the last one and the pause before it did, and so longer than all windows.

    Args:
        batches: any order.
        now_s: clock of the batches' `finished_s`.
        idle_s: query to the time at which Spark last said that it waits for data.
        running: queries that have not ended; None if none has.

    >>> batches = [BatchSample("q", n, 400.0 * n, 300.0, 5, 400.0) for n in (1, 2)]
    >>> find_current(batches, 1300.0, {}), find_current(batches, 1500.0, {})
    (frozenset({('q', 2)}), frozenset())
    """
    last: dict[str, BatchSample] = {}
    for batch in batches:
        if batch.query not in last or batch.finished_s >= last[batch.query].finished_s:
            last[batch.query] = batch
    return frozenset(
        (query, batch.batch)
        for query, batch in last.items()
        if (running is None or query in running)
        and not waits_for_data(query, idle_s, now_s)
        and now_s - batch.finished_s <= LATE * max(batch.interval_s or 0.0, batch.duration_s)
    )
