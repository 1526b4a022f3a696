"""How many executors would have carried what arrived.

The rule is that of scaling (`scaling.executors`): the fewest that meet the latency objective. Here
they meet it at the highest rate that came, not at one that is foreseen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from balancedstream.core.observations import MIN_ROOM
from balancedstream.core.samples import BatchSample
from balancedstream.core.scaling.demand import Demand
from balancedstream.core.scaling.executors import AS_GOOD, SCALE_OUT_FACTOR

_MIN_INTERVALS = 4
_WAITS = 0.9
_FULL = 0.7
_AT_TICK_S = 0.25
_TICKS = 0.8


def find_needed(
    demands: Sequence[Demand], executors: Mapping[str, int], since_s: float
) -> int | None:
    """The fewest executors that meet the objectives; None if the log does not tell.

    Nobody knows what waited for a query whose batches follow one another, if its source does not
    say.

    Args:
        demands: of all queries.
        executors: that were there, id to cores.
        since_s: the highest rate after this time counts, in seconds since the Unix epoch, and the
            last one that is known: batches may be longer than what is asked about.

    >>> find_needed([], {"a": 1}, 0.0) is None
    True
    """
    if not demands or not executors or any(_is_blind(demand) for demand in demands):
        return None
    cores = sum(executors.values()) / len(executors)
    most = SCALE_OUT_FACTOR * len(executors)
    rates = {
        d.query: MIN_ROOM
        * max(d.arrivals.rate(d.interval_s), d.arrivals.find_peak(d.interval_s, since_s))
        for d in demands
    }
    allowed = {
        d.query: max(d.objective_s, AS_GOOD * d.steady(most * cores, rates[d.query]))
        for d in demands
    }

    def carries(count: int) -> bool:
        return all(d.steady(count * cores, rates[d.query]) <= allowed[d.query] for d in demands)

    return 1 + bisect_left(range(1, most), True, key=carries)


def _is_blind(demand: Demand) -> bool:
    """Whether batches follow one another, and nobody knows what waited for them."""
    untold = all(batch.backlog_rows is None for batch in demand.recent)
    pairs = [(before, after) for before, after in pairwise(demand.recent) if after.interval_s]
    busy_s = sum(before.duration_s for before, _ in pairs)
    span_s = sum(after.interval_s or 0.0 for _, after in pairs)
    return untold and not demand.trigger_s and busy_s >= _FULL * span_s


def find_trigger(run: Sequence[BatchSample]) -> float | None:
    """The trigger interval in seconds by when batches began; None if none shows.

    An event log does not say it. Spark begins batches at multiples of the interval since the Unix
    epoch (`ProcessingTimeExecutor`), and batches that wait for the next one end before it.

    >>> run = [BatchSample("q", n, 1000.0 + 10.0 * n + 4.0, 3.98, 5, 10.0) for n in range(6)]
    >>> find_trigger(run)
    10.0
    """
    intervals = [b.interval_s for b in run if b.interval_s and b.duration_s < _WAITS * b.interval_s]
    if len(intervals) < max(_MIN_INTERVALS, len(run) / 2):
        return None
    interval_s = float(round(median(intervals)))
    if interval_s < 1.0:
        return None
    late_s = [(b.finished_s - b.duration_s) % interval_s for b in run]
    at_tick = sum(late < _AT_TICK_S for late in late_s)
    return interval_s if at_tick >= _TICKS * len(run) else None


def with_trigger(run: Sequence[BatchSample]) -> list[BatchSample]:
    """The batches of a query with the trigger interval that they show.

    >>> with_trigger([BatchSample("q", 1, 9.0, 2.0, 5)])[0].trigger_s is None
    True
    """
    trigger_s = find_trigger(run)
    return [replace(batch, trigger_s=trigger_s) for batch in run]
