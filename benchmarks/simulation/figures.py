"""What a run cost, and how late its rows were."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from simulation.spark import BatchRun
from simulation.traces import Trace

POINTS = 20
"""Rows of a batch at which latency is taken, evenly spread."""

STEP_SHOWS_BATCHES = 12
"""Batches after a step within which its rows are late, if they are; later it is something else."""


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
        batches_to_absorb: from a step up of the load to the first batch after it that has no late
            rows again: the mean of all steps up; 0 for one that made none late, None without any.
        most_actions_a_step: the most actions between two steps, or before the first; None without
            steps.
    """

    executor_hours: float
    late_share: float
    p95_latency_s: float
    worst_backlog_rows: float
    actions: int
    reversals: int
    batches_to_absorb: float | None
    most_actions_a_step: int | None

    def to_json(self) -> dict[str, Any]:
        """For a file of results."""
        return {
            name: None if value is None else round(value, 5) for name, value in asdict(self).items()
        }


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
    steps = trace.find_steps()
    absorbed = [
        _count_until_absorbed(trace, batches, from_s, until_s, objective_s)
        for (from_s, up), (until_s, _) in pairwise([*steps, (math.inf, False)])
        if up
    ]
    bounds_s = [0.0, *(at_s for at_s, _ in steps), math.inf]
    actions = [sum(a <= at_s < b for at_s, _, _ in changes) for a, b in pairwise(bounds_s)]
    return Figures(
        executor_s / 3600,
        late / total if total else 0.0,
        p95_s,
        worst,
        len(changes),
        reversals,
        fmean(absorbed) if absorbed else None,
        max(actions) if steps else None,
    )


def _count_until_absorbed(
    trace: Trace, batches: Sequence[BatchRun], from_s: float, until_s: float, objective_s: float
) -> int:
    """Batches from a step until none of their rows is late again; all, if that does not come."""
    after = [batch for batch in batches if from_s <= batch.start_s < until_s]
    late = [b.end_s - trace.find_arrival(b.first_row) > objective_s for b in after]
    if True not in late[:STEP_SHOWS_BATCHES]:
        return 0
    first = late.index(True)
    return late.index(False, first) if False in late[first:] else len(late)
