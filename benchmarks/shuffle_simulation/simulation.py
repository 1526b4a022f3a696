"""Simulates batches: routes their rows, runs them on executors, and learns what they cost.

All rows of a batch are there when it begins, and it ends when the last executor is done. What it
cost is known after the batch, not before. Routing and learning are the functions that run on Spark.

An executor runs one partition at a time and takes the next one when it is free, in their order, as
Spark's scheduler does. Where there are as many partitions as executors, each runs one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np
from harness.results import Case
from targets import MAX_ESTIMATE_ERROR, MAX_OVER_KNOWING, MAX_OVER_ROUND_ROBIN

from balancedstream.core.shuffle.costs import LearntCosts
from balancedstream.shuffling.sketching import estimate_costs_s
from shuffle_simulation.routers import (
    AllKnowing,
    Chance,
    Ours,
    Paced,
    RoundRobin,
    Router,
    Stream,
)
from shuffle_simulation.rows import (
    EXECUTORS,
    SLOWED_EXECUTOR,
    Items,
    Rows,
    Seconds,
    Setting,
    draw_rows,
)

PARTITIONS_PER_EXECUTOR = (4, 8)
"""Where executors differ in speed: as `shuffle` advises."""

CHEAPEST_PART = 0.1
"""The cheapest rows, this part of them, do not count when estimates are judged."""


def simulate(case: Case, setting: Setting, seed: int) -> dict[str, dict[str, Any]]:
    """Runs every router on the same rows."""
    rows = draw_rows(case, setting, seed)
    routers: dict[str, Router] = {
        "round robin": RoundRobin(rows),
        "random": Chance(rows, seed),
        "all-knowing": AllKnowing(rows),
        "ours": Ours(rows, setting, seed),
    }
    if case["slowed"]:
        for finer in PARTITIONS_PER_EXECUTOR:
            text, partitions = f"{finer} partitions an executor", finer * EXECUTORS
            routers[f"ours, {text}"] = Ours(rows, setting, seed, partitions)
            routers[f"round robin, {text}"] = RoundRobin(rows, partitions)
        routers |= {
            "with paces": Paced(rows, setting, seed),
            "state machine": Stream(rows, setting, seed),
            "state machine without answers": Stream(rows, setting, seed, deaf=True),
        }
    return {name: follow(router, rows) for name, router in routers.items()}


def follow(router: Router, rows: Rows) -> dict[str, Any]:
    """Runs one router, batch by batch.

    Returns:
        By batch: `batch_s`, its time; `share`, the slowed executor's part of the work, as it would
        take at full speed; `error`, the median relative error of the estimates, where there are
        any; `drift_s`, as in `Stream`.
    """
    measured: dict[str, Any] = {"batch_s": [], "share": []}
    for batch, (costs_s, slowdowns) in enumerate(zip(rows.costs_s, rows.slowdowns, strict=True)):
        if isinstance(router, Ours):
            error = measure_error(router.learnt, rows.items[batch], costs_s)
            measured.setdefault("error", []).append(error)
        routes = router.route(batch)
        work_s = np.bincount(routes, costs_s, router.partitions)
        executors, batch_s = run_partitions(work_s.tolist(), slowdowns.tolist())
        on_slowed = executors == SLOWED_EXECUTOR
        measured["batch_s"].append(batch_s)
        measured["share"].append(float(work_s[on_slowed].sum() / work_s.sum()))
        router.learn(batch, routes, costs_s * slowdowns[executors[routes]])
    if isinstance(router, Stream):
        measured["drift_s"] = router.drift_s
    return measured


def run_partitions(work_s: Sequence[float], slowdowns: Sequence[float]) -> tuple[Items, float]:
    """Gives the next partition to the first executor that is free.

    Returns:
        The executor of each partition, and when the last one is done.

    >>> executors, batch_s = run_partitions([1.0, 1.0, 1.0], [3.0, 1.0])
    >>> executors.tolist(), batch_s
    ([0, 1, 1], 3.0)
    """
    free = [(0.0, executor) for executor in range(len(slowdowns))]
    executors = []
    for partition_s in work_s:
        at_s, executor = free[0]
        heapq.heapreplace(free, (at_s + partition_s * slowdowns[executor], executor))
        executors.append(executor)
    return np.array(executors), max(at_s for at_s, _ in free)


def measure_error(learnt: LearntCosts | None, items: Items, costs_s: Seconds) -> float:
    """The median relative error of the estimates of a batch, without the cheapest rows."""
    if learnt is None:
        return 1.0
    errors = np.abs(estimate_costs_s(learnt, items) - costs_s) / costs_s
    cheapest_first = np.argsort(costs_s, kind="stable")
    return float(np.median(errors[cheapest_first[round(CHEAPEST_PART * len(items)) :]]))


def summarize(runs: Sequence[Mapping[str, Mapping[str, Any]]], setting: Setting) -> dict[str, Any]:
    """What is kept of the repetitions of a case, by router.

    Returns:
        `batch_s` and `error`: the mean after the warm-up, of each repetition; `over_knowing`,
        `share` and `drift_s`: by batch, the mean over the repetitions. The first of them is the
        batch time over that of the all-knowing scheduler.
    """
    knowing_s = np.array([run["all-knowing"]["batch_s"] for run in runs])
    summary: dict[str, Any] = {}
    for router in runs[0]:
        measured = [run[router] for run in runs]
        kept: dict[str, Any] = {}
        for figure in measured[0]:
            rows = np.array([of_run[figure] for of_run in measured])
            by_repetition = figure in ("batch_s", "error")
            means = rows[:, setting.warm_up_batches :].mean(1) if by_repetition else rows.mean(0)
            kept[figure] = means.round(5).tolist()
            if figure == "batch_s":
                kept["over_knowing"] = (rows / knowing_s).mean(0).round(4).tolist()
        summary[router] = kept
    return summary


def describe(case: Case, measured: Mapping[str, Mapping[str, Any]]) -> str:
    """A case in a line: batch times over those of the all-knowing scheduler, and the error."""
    batch_s = {router: fmean(figures["batch_s"]) for router, figures in measured.items()}
    ours_s, knowing_s = batch_s["ours"], batch_s["all-knowing"]
    error = median(measured["ours"]["error"])
    parts = [f"{router} {each_s / knowing_s:.3f}" for router, each_s in batch_s.items()]
    line = ", ".join([*parts, f"error {error:.3f}"])
    if case["slowed"]:
        return line
    is_met = (
        ours_s <= MAX_OVER_KNOWING * knowing_s
        and ours_s <= MAX_OVER_ROUND_ROBIN * batch_s["round robin"]
        and error <= MAX_ESTIMATE_ERROR
    )
    return f"{line}: {'met' if is_met else 'NOT MET'}"
