"""The simulation behind `benchmarks/shuffle.py --simulate`: batches without Spark.

The rows of a batch are all there when it begins, and it is over when the last executor is done.
What it cost is known after the batch, and not before. Routing and learning are the very functions
that run on Spark.

An executor runs one partition at a time and takes the next one when it is free, in their order, as
Spark's scheduler has it. Where there are as many partitions as executors, each runs one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Any, Protocol

import numpy as np
from harness import Case
from numpy.typing import NDArray

from balancedstream.core.costs import LearntCosts, MeasuredCosts, learn_costs
from balancedstream.core.grouping import (
    GreedyScheduler,
    InstanceMeter,
    Marker,
    assign_greedily,
    learn_paces,
)
from balancedstream.core.sketches import NUMBER_BYTES, CostSketch
from balancedstream.shuffling.routing import route_rows
from balancedstream.shuffling.sketching import SketchFiller, estimate_costs_s

EXECUTORS = 5
ITEMS = 4096
COST_LEVELS = 64
PARTITIONS_PER_EXECUTOR = (4, 8)
"""Where executors differ in speed: as `shuffle` advises."""

SLOWED_EXECUTOR = 0
SLOWDOWN = 2.0

NEAR_KNOWING, NEAR_ROUND_ROBIN, SMALL_ERROR = 1.05, 1.02, 0.20
"""The targets: batch time over that of the two, and the median relative error of estimates."""

LIGHTEST = 0.1
"""The part of the rows, the cheapest ones, of which no good estimates are asked."""

TINY_S = 1e-12
"""No estimate is as small, but for none."""

NAMES = [item.to_bytes(NUMBER_BYTES, "little") for item in range(ITEMS)]

Items = NDArray[np.int64]
Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What all runs have in common.

    Attributes:
        batches: in a run.
        rows_per_batch: in each of them.
        warm_up_batches: that nobody looks at; what changes in a run does so then.
        map_tasks: that route at once, without knowing of each other.
        epsilon: of the sketches.
        delta: of the sketches.
        window: of the state machine, in rows of an instance.
    """

    batches: int = 16
    rows_per_batch: int = 2048
    warm_up_batches: int = 8
    map_tasks: int = 4
    epsilon: float = 0.001
    delta: float = 0.1
    window: int = 256


SMOKE = Setting(batches=6, rows_per_batch=512, warm_up_batches=3, window=64)


@dataclass(frozen=True)
class Load:
    """The rows of a run, batch by batch.

    Attributes:
        items: of the rows.
        costs_s: what each row costs at full speed.
        slowdowns: how many times longer each executor takes.
        marks: two hashes of each row.
    """

    items: Items
    costs_s: Seconds
    slowdowns: Seconds
    marks: Items


class Router(Protocol):
    """A way to choose the partitions of a batch's rows."""

    partitions: int

    def route(self, batch: int) -> Items:
        """The partition of each row."""

    def learn(self, batch: int, routes: Items, took_s: Seconds) -> None:
        """What each row took, told after the batch."""


class RoundRobin:
    def __init__(self, load: Load, partitions: int = EXECUTORS) -> None:
        self.partitions = partitions
        self._load = load

    def route(self, batch: int) -> Items:
        return np.arange(self._load.items.shape[1]) % self.partitions

    def learn(self, batch: int, routes: Items, took_s: Seconds) -> None: ...


class Chance(RoundRobin):
    def __init__(self, load: Load, seed: int) -> None:
        super().__init__(load)
        self._chance = np.random.default_rng(seed)

    def route(self, batch: int) -> Items:
        return self._chance.integers(self.partitions, size=self._load.items.shape[1:])


class AllKnowing(RoundRobin):
    """Greedy by the true costs and slowdowns, the dearest rows first; it sees the whole batch."""

    def route(self, batch: int) -> Items:
        costs_s = self._load.costs_s[batch]
        slowdowns = self._load.slowdowns[batch].tolist()
        order = np.argsort(-costs_s, kind="stable")
        routes = np.empty(len(order), np.int64)
        if len(set(slowdowns)) == 1:
            routes[order] = assign_greedily(costs_s[order].tolist(), self.partitions)
            return routes
        scheduler = GreedyScheduler[float](self.partitions)
        for instance, slowdown in enumerate(slowdowns):
            scheduler.accept_estimates(instance, ItsOwnCost(), pace=slowdown)
        routes[order] = [scheduler.assign(cost_s).instance for cost_s in costs_s[order].tolist()]
        return routes


class ItsOwnCost:
    """Estimates for items that are their own cost in seconds."""

    def estimate(self, item: float, /) -> float:
        return item


class Ours(RoundRobin):
    """What runs on Spark."""

    def __init__(
        self, load: Load, setting: Setting, seed: int, partitions: int = EXECUTORS
    ) -> None:
        super().__init__(load, partitions)
        self.learnt: LearntCosts | None = None
        self._map_tasks = setting.map_tasks
        self._empty = CostSketch(setting.epsilon, setting.delta, seed=seed)

    def route(self, batch: int) -> Items:
        routes = np.empty(self._load.items.shape[1], np.int64)
        for task in range(self._map_tasks):
            rows = slice(task, None, self._map_tasks)
            first, second = self._load.marks[:, batch, rows]
            items = self._load.items[batch, rows]
            routed = route_rows(self.learnt, items, (first, second), self.partitions, task)
            routes[rows], _ = routed
        return routes

    def learn(self, batch: int, routes: Items, took_s: Seconds) -> None:
        items = self._load.items[batch]
        estimated_s = np.zeros(len(items))
        if self.learnt:
            estimated_s = estimate_costs_s(self.learnt, items)
        filler = SketchFiller(self._empty)
        filler.update(items, took_s, np.ones(len(items), np.int64))
        # Each partition's task scales the estimates to what its rows took.
        sizes, all_took_s, all_estimated_s = (
            np.bincount(routes, weights, self.partitions)[routes]
            for weights in (None, took_s, estimated_s)
        )
        scaled_s = estimated_s * all_took_s / np.maximum(all_estimated_s, TINY_S)
        measured = MeasuredCosts(
            sketch=filler.make_sketch(),
            estimated_s=float(estimated_s.sum()),
            real_s=float(took_s.sum()),
            judged_s=float(took_s.sum()),
            error_s=float(np.abs(scaled_s - took_s).sum()),
            equal_error_s=float(np.abs(all_took_s / sizes - took_s).sum()),
        )
        self.learnt = learn_costs(self.learnt, batch, measured)


class Paced(RoundRobin):
    """One scheduler for the whole batch, one sketch, and what each executor takes longer.

    Spark has no place for it: a partition does not know its executor before it runs.
    """

    def __init__(self, load: Load, setting: Setting, seed: int) -> None:
        super().__init__(load)
        self._sketch = CostSketch(setting.epsilon, setting.delta, seed=seed)
        self._paces: dict[int, float] = {}
        self._loads_s: dict[int, float] = {}

    def route(self, batch: int) -> Items:
        scheduler = GreedyScheduler[bytes](self.partitions)
        if self._sketch.records:
            for instance in range(self.partitions):
                pace = self._paces.get(instance, 1.0)
                scheduler.accept_estimates(instance, self._sketch, pace=pace)
        items = self._load.items[batch]
        routes = np.array([scheduler.assign(NAMES[item]).instance for item in items])
        self._loads_s = scheduler.loads_s
        return routes

    def learn(self, batch: int, routes: Items, took_s: Seconds) -> None:
        busy_s = np.bincount(routes, took_s, self.partitions).tolist()
        self._paces = learn_paces(self._paces, self._loads_s, dict(enumerate(busy_s)))
        for item, cost_s in zip(self._load.items[batch], took_s.tolist(), strict=True):
            self._sketch.update(NAMES[item], cost_s)


class Stream(RoundRobin):
    """The state machine of the authors' code; it may be deaf to answers.

    Attributes:
        drift_s: after each batch, how far the estimated loads of the instances are from the real
            ones: the mean deviation, without what is common to all instances.
    """

    def __init__(self, load: Load, setting: Setting, seed: int, *, deaf: bool = False) -> None:
        super().__init__(load)
        new_sketch = partial(CostSketch, setting.epsilon, setting.delta, seed=seed)
        self.drift_s: list[float] = []
        self._scheduler = GreedyScheduler[bytes](EXECUTORS, window=setting.window)
        self._meters = [InstanceMeter(new_sketch, window=setting.window) for _ in range(EXECUTORS)]
        self._deaf = deaf
        self._markers: list[Marker | None] = []

    def route(self, batch: int) -> Items:
        assignments = [self._scheduler.assign(NAMES[item]) for item in self._load.items[batch]]
        self._markers = [assignment.marker for assignment in assignments]
        return np.array([assignment.instance for assignment in assignments])

    def learn(self, batch: int, routes: Items, took_s: Seconds) -> None:
        sketches, answers = [], []
        rows = zip(self._load.items[batch], routes.tolist(), took_s.tolist(), strict=True)
        for (item, instance, cost_s), marker in zip(rows, self._markers, strict=True):
            meter = self._meters[instance]
            sketch = meter.record(NAMES[item], cost_s)
            if sketch:
                sketches.append((instance, sketch))
            if marker and not self._deaf:
                answers.append(meter.answer(marker))
        for answer in answers:
            self._scheduler.accept_answer(answer)
        loads_s = self._scheduler.loads_s
        off_s = [loads_s[instance] - meter.busy_s for instance, meter in enumerate(self._meters)]
        self.drift_s.append(fmean(abs(each_s - fmean(off_s)) for each_s in off_s))
        for instance, sketch in sketches:
            self._scheduler.accept_estimates(instance, sketch)


def draw_load(case: Case, setting: Setting, seed: int) -> Load:
    """Draws what each item costs, and the items of all rows.

    As many items cost 1 ms as 2 ms, and so on up to 64 ms. Item 0 is the most frequent one. Where
    costs shift, every item has another cost after the warm-up.
    """
    chance = np.random.default_rng(seed)
    cost_s = np.repeat(np.arange(1, COST_LEVELS + 1), ITEMS // COST_LEVELS) / 1000
    match case["costs"]:
        case "independent" | "shifting":
            chance.shuffle(cost_s)
        case "frequent dear":
            cost_s = cost_s[::-1]
        case "constant":
            cost_s = np.full(ITEMS, cost_s.mean())
    weights = np.arange(1, ITEMS + 1) ** -float(case["zipf"])
    shape = setting.batches, setting.rows_per_batch
    items = chance.choice(ITEMS, size=shape, p=weights / weights.sum())
    costs_s = cost_s[items]
    if case["costs"] == "shifting":
        after = slice(setting.warm_up_batches, None)
        costs_s[after] = chance.permutation(cost_s)[items[after]]
    slowdowns = np.ones((setting.batches, EXECUTORS))
    if case["slowed"]:
        slowdowns[setting.warm_up_batches :, SLOWED_EXECUTOR] = SLOWDOWN
    marks = chance.integers(-(2**63), 2**63 - 1, (2, *shape))
    return Load(items, costs_s, slowdowns, marks)


def simulate(case: Case, setting: Setting, seed: int) -> dict[str, dict[str, Any]]:
    """Runs every router on the same rows."""
    load = draw_load(case, setting, seed)
    routers: dict[str, Router] = {
        "round robin": RoundRobin(load),
        "random": Chance(load, seed),
        "all-knowing": AllKnowing(load),
        "ours": Ours(load, setting, seed),
    }
    if case["slowed"]:
        for finer in PARTITIONS_PER_EXECUTOR:
            text, partitions = f"{finer} partitions an executor", finer * EXECUTORS
            routers[f"ours, {text}"] = Ours(load, setting, seed, partitions)
            routers[f"round robin, {text}"] = RoundRobin(load, partitions)
        routers |= {
            "with paces": Paced(load, setting, seed),
            "state machine": Stream(load, setting, seed),
            "state machine without answers": Stream(load, setting, seed, deaf=True),
        }
    return {name: follow(router, load) for name, router in routers.items()}


def follow(router: Router, load: Load) -> dict[str, Any]:
    """Runs one router, batch by batch.

    Returns:
        By batch: `batch_s`, its time; `share`, the slowed executor's part of the work, as it would
        take at full speed; `error`, the median relative error of the estimates, where there are
        any; `drift_s`, as in `Stream`.
    """
    measured: dict[str, Any] = {"batch_s": [], "share": []}
    for batch, (costs_s, slowdowns) in enumerate(zip(load.costs_s, load.slowdowns, strict=True)):
        if isinstance(router, Ours):
            error = measure_error(router.learnt, load.items[batch], costs_s)
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
    """Has whoever is free take the next partition.

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
    dearest_last = np.argsort(costs_s, kind="stable")
    return float(np.median(errors[dearest_last[round(LIGHTEST * len(items)) :]]))


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
        ours_s <= NEAR_KNOWING * knowing_s
        and ours_s <= NEAR_ROUND_ROBIN * batch_s["round robin"]
        and error <= SMALL_ERROR
    )
    return f"{line}: {'met' if is_met else 'NOT MET'}"
