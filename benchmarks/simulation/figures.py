"""What a run cost, and how late its rows were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from simulation.spark import BatchRun
from simulation.traces import Trace

POINTS = 20
"""Rows of a batch at which latency is taken, evenly spread."""


@dataclass(frozen=True)
class Figures:
    """The figures of a run.

    Attributes:
        executor_hours: from the request of each executor to its end.
        late_share: part of the rows whose latency was above the objective.
        p95_latency_s: 95th percentile of rows' latencies, from arrival to the end of their batch.
        worst_backlog_rows: the most rows that waited when a batch started.
        actions: changes of the number of executors.
        reversals: changes against the direction of the one before, within the stabilization time.
    """

    executor_hours: float
    late_share: float
    p95_latency_s: float
    worst_backlog_rows: float
    actions: int
    reversals: int

    def to_json(self) -> dict[str, Any]:
        """For a file of results."""
        return {name: round(value, 5) for name, value in asdict(self).items()}


def compute_figures(
    trace: Trace,
    batches: Sequence[BatchRun],
    changes: Sequence[tuple[float, int, int]],
    *,
    executor_s: float,
    left_rows: float,
    objective_s: float,
    stabilization_s: float,
) -> Figures:
    """Computes the figures of a run.

    Args:
        trace: the rows that arrived.
        batches: of the run, in the trace's time.
        changes: time, executors before and after of each scale action.
        executor_s: executor-seconds.
        left_rows: rows that arrived and were never read.
        objective_s: latency that rows should not exceed.
        stabilization_s: within which a reversal counts.
    """
    latencies: list[tuple[float, float]] = []
    worst = left_rows
    for batch in batches:
        rows = batch.last_row - batch.first_row
        worst = max(worst, trace.count_until(batch.start_s) - batch.first_row)
        for point in range(POINTS):
            row = batch.first_row + rows * (point + 0.5) / POINTS
            latencies.append((batch.end_s - trace.find_arrival(row), rows / POINTS))
    latencies.sort()
    total = sum(weight for _, weight in latencies)
    late = sum(weight for latency_s, weight in latencies if latency_s > objective_s)
    seen, p95_s = 0.0, 0.0
    for latency_s, weight in latencies:
        seen += weight
        if seen >= 0.95 * total:
            p95_s = latency_s
            break
    reversals = sum(
        (a[2] > a[1]) != (b[2] > b[1]) and b[0] - a[0] < stabilization_s
        for a, b in pairwise(changes)
    )
    return Figures(
        executor_s / 3600,
        late / total if total else 0.0,
        p95_s,
        worst,
        len(changes),
        reversals,
    )
