"""The ways to choose a partition for each row of a batch, from round robin to all-knowing."""

from __future__ import annotations

from functools import partial
from statistics import fmean
from typing import Protocol

import numpy as np

from balancedstream.core.shuffle.costs import LearntCosts, MeasuredCosts, learn_costs
from balancedstream.core.shuffle.grouping import assign_greedily
from balancedstream.core.shuffle.sketches import NUMBER_BYTES, CostSketch
from balancedstream.shuffling.routing import route_rows
from balancedstream.shuffling.sketching import SketchFiller, estimate_costs_s
from shuffle_simulation.measuring import InstanceMeter, learn_paces
from shuffle_simulation.rows import EXECUTORS, ITEMS, Items, Rows, Seconds, Setting
from shuffle_simulation.scheduling import GreedyScheduler, Marker

TINY_S = 1e-12
"""No estimate is as small, but for none."""

NAMES = [item.to_bytes(NUMBER_BYTES, "little") for item in range(ITEMS)]


class Router(Protocol):
    """A way to choose the partitions of a batch's rows."""

    partitions: int

    def route(self, batch: int) -> Items:
        """The partition of each row."""

    def learn(self, batch: int, routes: Items, took_s: Seconds) -> None:
        """Learns what each row took, after the batch."""


class RoundRobin:
    def __init__(self, rows: Rows, partitions: int = EXECUTORS) -> None:
        self.partitions = partitions
        self._rows = rows

    def route(self, batch: int) -> Items:
        return np.arange(self._rows.items.shape[1]) % self.partitions

    def learn(self, batch: int, routes: Items, took_s: Seconds) -> None: ...


class Chance(RoundRobin):
    def __init__(self, rows: Rows, seed: int) -> None:
        super().__init__(rows)
        self._chance = np.random.default_rng(seed)

    def route(self, batch: int) -> Items:
        return self._chance.integers(self.partitions, size=self._rows.items.shape[1:])


class AllKnowing(RoundRobin):
    """Greedy by true costs and slowdowns, most expensive rows first; it sees the whole batch."""

    def route(self, batch: int) -> Items:
        costs_s = self._rows.costs_s[batch]
        slowdowns = self._rows.slowdowns[batch].tolist()
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
        self, rows: Rows, setting: Setting, seed: int, partitions: int = EXECUTORS
    ) -> None:
        super().__init__(rows, partitions)
        self.learnt: LearntCosts | None = None
        self._map_tasks = setting.map_tasks
        self._empty = CostSketch(setting.epsilon, setting.delta, seed=seed)

    def route(self, batch: int) -> Items:
        routes = np.empty(self._rows.items.shape[1], np.int64)
        for task in range(self._map_tasks):
            rows = slice(task, None, self._map_tasks)
            first, second = self._rows.marks[:, batch, rows]
            items = self._rows.items[batch, rows]
            routed = route_rows(self.learnt, items, (first, second), self.partitions, task)
            routes[rows], _ = routed
        return routes

    def learn(self, batch: int, routes: Items, took_s: Seconds) -> None:
        items = self._rows.items[batch]
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
    """One scheduler for the whole batch, one sketch, and the pace of each executor.

    Spark cannot do this: a partition does not know its executor before it runs.
    """

    def __init__(self, rows: Rows, setting: Setting, seed: int) -> None:
        super().__init__(rows)
        self._sketch = CostSketch(setting.epsilon, setting.delta, seed=seed)
        self._paces: dict[int, float] = {}
        self._loads_s: dict[int, float] = {}

    def route(self, batch: int) -> Items:
        scheduler = GreedyScheduler[bytes](self.partitions)
        if self._sketch.records:
            for instance in range(self.partitions):
                pace = self._paces.get(instance, 1.0)
                scheduler.accept_estimates(instance, self._sketch, pace=pace)
        items = self._rows.items[batch]
        routes = np.array([scheduler.assign(NAMES[item]).instance for item in items])
        self._loads_s = scheduler.loads_s
        return routes

    def learn(self, batch: int, routes: Items, took_s: Seconds) -> None:
        busy_s = np.bincount(routes, took_s, self.partitions).tolist()
        self._paces = learn_paces(self._paces, self._loads_s, dict(enumerate(busy_s)))
        for item, cost_s in zip(self._rows.items[batch], took_s.tolist(), strict=True):
            self._sketch.update(NAMES[item], cost_s)


class Stream(RoundRobin):
    """The state machine of the authors' code; `deaf` drops all answers.

    Attributes:
        drift_s: after each batch, how far the estimated loads of the instances are from the real
            ones: the mean deviation, without what is common to all instances.
    """

    def __init__(self, rows: Rows, setting: Setting, seed: int, *, deaf: bool = False) -> None:
        super().__init__(rows)
        new_sketch = partial(CostSketch, setting.epsilon, setting.delta, seed=seed)
        self.drift_s: list[float] = []
        self._scheduler = GreedyScheduler[bytes](EXECUTORS, window=setting.window)
        self._meters = [InstanceMeter(new_sketch, window=setting.window) for _ in range(EXECUTORS)]
        self._deaf = deaf
        self._markers: list[Marker | None] = []

    def route(self, batch: int) -> Items:
        assignments = [self._scheduler.assign(NAMES[item]) for item in self._rows.items[batch]]
        self._markers = [assignment.marker for assignment in assignments]
        return np.array([assignment.instance for assignment in assignments])

    def learn(self, batch: int, routes: Items, took_s: Seconds) -> None:
        sketches, answers = [], []
        rows = zip(self._rows.items[batch], routes.tolist(), took_s.tolist(), strict=True)
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
