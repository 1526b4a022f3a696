"""Online Shuffle Grouping beside round robin, chance, and a scheduler that knows every cost.

`--simulate` does without Spark, and there is no other way yet. The rows of a batch are all there
when it begins, each goes to one of five instances, and the batch is over when the last instance is
done. What the instances have measured is known after the batch, and not before.

Two schedulers of ours run. `batches` is for a micro-batch engine: each batch begins with idle
instances, all instances fill one sketch, and what an instance takes longer than the others is its
pace. `stream` is the state machine of the authors' code: loads are carried over from one batch to
the next, and each instance has sketches of its own. Where an instance becomes slow, both run also
without what tells them so: `batches` without paces, `stream` without answers to its markers.

A line of results is one case with all its repetitions, for a run takes a tenth of a second.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any, Protocol

import numpy as np
from harness import REPOSITORY, Benchmark, Case, describe_code
from numpy.typing import NDArray

from balancedstream.core.grouping import GreedyScheduler, InstanceMeter, Marker, learn_paces
from balancedstream.core.sketches import CostSketch

INSTANCES = 5
ITEMS = 4096
COST_LEVELS = 64
ZIPF = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
COSTS = ("independent", "frequent dear", "frequent cheap", "constant")
SLOWED_ZIPF = (0.0, 1.0, 2.0)
SLOWED_INSTANCE = 0
SLOWDOWN = 2.0
REPETITIONS = 40
FIRST_SEED = 100
"""With those below, the thresholds in `core.grouping` and the size of the sketch were chosen."""

NEAR_KNOWING, NEAR_ROUND_ROBIN, SMALL_ERROR = 1.05, 1.02, 0.20
"""The targets: batch time over that of the two, and the median relative error of estimates."""

LIGHTEST = 0.1
"""The part of the rows, the cheapest ones, of which no good estimates are asked."""

NAMES = [item.to_bytes(2, "little") for item in range(ITEMS)]


@dataclass(frozen=True)
class Setting:
    """What all runs have in common.

    Attributes:
        batches: in a run.
        rows_per_batch: in each of them.
        warm_up_batches: that nobody looks at; where an instance becomes slow, it does so then.
        epsilon: of the sketches.
        delta: of the sketches.
        window: of `stream`, in rows of an instance.
    """

    batches: int = 16
    rows_per_batch: int = 2048
    warm_up_batches: int = 8
    epsilon: float = 0.001
    delta: float = 0.1
    window: int = 256


SMOKE = Setting(batches=4, rows_per_batch=512, warm_up_batches=2, window=64)


@dataclass(frozen=True)
class Load:
    """The rows of a run.

    Attributes:
        cost_s: what each item costs at full speed.
        items: the items of the rows, batch by batch.
        row_cost_s: what each row costs at full speed, batch by batch.
        slowdowns: how many times longer each instance takes, batch by batch.
    """

    cost_s: Mapping[bytes, float]
    items: Sequence[Sequence[bytes]]
    row_cost_s: NDArray[np.float64]
    slowdowns: NDArray[np.float64]


class Router(Protocol):
    """A way to choose the instances of a batch."""

    def route(self, items: Sequence[bytes]) -> list[int]:
        """The instance of each row."""

    def learn(self, items: Sequence[bytes], instances: list[int], took_s: list[float]) -> None:
        """What each row took, told after the batch."""


class RoundRobin:
    def route(self, items: Sequence[bytes]) -> list[int]:
        return [row % INSTANCES for row in range(len(items))]

    def learn(self, items: Sequence[bytes], instances: list[int], took_s: list[float]) -> None: ...


class Chance:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def route(self, items: Sequence[bytes]) -> list[int]:
        return self._chance.choices(range(INSTANCES), k=len(items))

    def learn(self, items: Sequence[bytes], instances: list[int], took_s: list[float]) -> None: ...


class KnownCosts:
    """Estimates that are always right."""

    def __init__(self, cost_s: Mapping[bytes, float]) -> None:
        self.estimate = cost_s.__getitem__


class AllKnowing:
    """Greedy by the true costs and the true slowdowns."""

    def __init__(self, load: Load) -> None:
        self._costs = KnownCosts(load.cost_s)
        self._slowdowns = iter(load.slowdowns.tolist())

    def route(self, items: Sequence[bytes]) -> list[int]:
        scheduler = GreedyScheduler[bytes](INSTANCES)
        for instance, slowdown in enumerate(next(self._slowdowns)):
            scheduler.accept_estimates(instance, self._costs, pace=slowdown)
        return [scheduler.assign(item).instance for item in items]

    def learn(self, items: Sequence[bytes], instances: list[int], took_s: list[float]) -> None: ...


class Batches:
    """A new scheduler for each batch, one sketch, and paces if wanted."""

    def __init__(self, sketch: CostSketch, *, paced: bool = True) -> None:
        self.sketch = sketch
        self._paced = paced
        self._paces: dict[int, float] = {}
        self._loads_s: dict[int, float] = {}

    def route(self, items: Sequence[bytes]) -> list[int]:
        scheduler = GreedyScheduler[bytes](INSTANCES)
        if self.sketch.records:
            for instance in range(INSTANCES):
                pace = self._paces.get(instance, 1.0)
                scheduler.accept_estimates(instance, self.sketch, pace=pace)
        instances = [scheduler.assign(item).instance for item in items]
        self._loads_s = scheduler.loads_s
        return instances

    def learn(self, items: Sequence[bytes], instances: list[int], took_s: list[float]) -> None:
        if self._paced:
            busy_s = np.bincount(instances, took_s, INSTANCES).tolist()
            self._paces = learn_paces(self._paces, self._loads_s, dict(enumerate(busy_s)))
        for item, cost_s in zip(items, took_s, strict=True):
            self.sketch.update(item, cost_s)


class Stream:
    """The state machine of the authors' code; it may be deaf to answers.

    Attributes:
        drift_s: after each batch, how far the estimated loads of the instances are from the real
            ones: the mean deviation, without what is common to all instances.
    """

    def __init__(
        self, new_sketch: Callable[[], CostSketch], window: int, *, deaf: bool = False
    ) -> None:
        self.drift_s: list[float] = []
        self._scheduler = GreedyScheduler[bytes](INSTANCES, window=window)
        self._meters = [InstanceMeter(new_sketch, window=window) for _ in range(INSTANCES)]
        self._deaf = deaf
        self._markers: list[Marker | None] = []

    def route(self, items: Sequence[bytes]) -> list[int]:
        assignments = [self._scheduler.assign(item) for item in items]
        self._markers = [assignment.marker for assignment in assignments]
        return [assignment.instance for assignment in assignments]

    def learn(self, items: Sequence[bytes], instances: list[int], took_s: list[float]) -> None:
        sketches, answers = [], []
        for row, instance in enumerate(instances):
            meter = self._meters[instance]
            sketch, marker = meter.record(items[row], took_s[row]), self._markers[row]
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


class RememberingSketch(CostSketch):
    """A sketch of so few items that it can remember their cells: quicker, and else the same."""

    def __init__(self, setting: Setting, seed: int, cells: dict[bytes, tuple[int, ...]]) -> None:
        super().__init__(setting.epsilon, setting.delta, seed=seed)
        self._cells = cells

    def locate(self, item: bytes) -> tuple[int, ...]:
        cells = self._cells.get(item)
        if cells is None:
            cells = self._cells[item] = super().locate(item)
        return cells


def draw_load(case: Case, setting: Setting, seed: int) -> Load:
    """Draws what each item costs, and the items of all rows.

    As many items cost 1 ms as 2 ms, and so on up to 64 ms. Item 0 is the most frequent one.
    """
    chance = np.random.default_rng(seed)
    cost_s = np.repeat(np.arange(1, COST_LEVELS + 1), ITEMS // COST_LEVELS) / 1000
    match case["costs"]:
        case "independent":
            chance.shuffle(cost_s)
        case "frequent dear":
            cost_s = cost_s[::-1]
        case "constant":
            cost_s = np.full(ITEMS, cost_s.mean())
    weights = np.arange(1, ITEMS + 1) ** -float(case["zipf"])
    shape = setting.batches, setting.rows_per_batch
    rows = chance.choice(ITEMS, size=shape, p=weights / weights.sum())
    slowdowns = np.ones((setting.batches, INSTANCES))
    if case["slowed"]:
        slowdowns[setting.warm_up_batches :, SLOWED_INSTANCE] = SLOWDOWN
    return Load(
        cost_s=dict(zip(NAMES, cost_s.tolist(), strict=True)),
        items=[[NAMES[item] for item in batch] for batch in rows],
        row_cost_s=cost_s[rows],
        slowdowns=slowdowns,
    )


def simulate(case: Case, setting: Setting, seed: int) -> dict[str, dict[str, Any]]:
    """Runs every router on the same rows."""
    load = draw_load(case, setting, seed)
    cells: dict[bytes, tuple[int, ...]] = {}
    new_sketch = partial(RememberingSketch, setting, seed, cells)
    routers: dict[str, Router] = {
        "round robin": RoundRobin(),
        "random": Chance(seed),
        "all-knowing": AllKnowing(load),
        "batches": Batches(new_sketch()),
    }
    if case["slowed"]:
        routers |= {
            "batches without paces": Batches(new_sketch(), paced=False),
            "stream": Stream(new_sketch, setting.window),
            "stream without answers": Stream(new_sketch, setting.window, deaf=True),
        }
    return {name: follow(router, load) for name, router in routers.items()}


def follow(router: Router, load: Load) -> dict[str, Any]:
    """Runs one router, batch by batch.

    Returns:
        By batch: `batch_s`, its time; `share`, the slowed instance's part of the work, as it would
        take at full speed; `error`, the median relative error of the sketch, if there is one;
        `drift_s`, as in `Stream`.
    """
    measured: dict[str, Any] = {"batch_s": [], "share": []}
    for items, cost_s, slowdown in zip(load.items, load.row_cost_s, load.slowdowns, strict=True):
        if isinstance(router, Batches):
            measured.setdefault("error", []).append(measure_error(router.sketch, items, cost_s))
        instances = router.route(items)
        work_s = np.bincount(instances, cost_s, INSTANCES)
        measured["batch_s"].append(float((work_s * slowdown).max()))
        measured["share"].append(float(work_s[SLOWED_INSTANCE] / work_s.sum()))
        router.learn(items, instances, (cost_s * slowdown[instances]).tolist())
    if isinstance(router, Stream):
        measured["drift_s"] = router.drift_s
    return measured


def measure_error(sketch: CostSketch, items: Sequence[bytes], cost_s: NDArray[np.float64]) -> float:
    """The median relative error of the estimates of a batch, without the cheapest rows."""
    estimated_s = np.array([sketch.estimate(item) for item in items])
    errors = np.abs(estimated_s - cost_s) / cost_s
    dearest_last = np.argsort(cost_s, kind="stable")
    return float(np.median(errors[dearest_last[round(LIGHTEST * len(items)) :]]))


def summarize(runs: Sequence[Mapping[str, Mapping[str, Any]]], setting: Setting) -> dict[str, Any]:
    """What is kept of the repetitions of a case, by router.

    Returns:
        `batch_s` and `error`: the mean after the warm-up, of each repetition; `share` and
        `drift_s`: by batch, the mean over the repetitions.
    """
    summary: dict[str, Any] = {}
    for router in runs[0]:
        measured = [run[router] for run in runs]
        kept: dict[str, Any] = {}
        for figure in measured[0]:
            rows = np.array([of_run[figure] for of_run in measured])
            by_repetition = figure in ("batch_s", "error")
            means = rows[:, setting.warm_up_batches :].mean(1) if by_repetition else rows.mean(0)
            kept[figure] = means.round(5).tolist()
        summary[router] = kept
    return summary


def describe(case: Case, measured: Mapping[str, Mapping[str, Any]]) -> str:
    """A case in a line: batch times over those of the all-knowing scheduler, and the error."""
    batch_s = {router: fmean(figures["batch_s"]) for router, figures in measured.items()}
    ours_s, knowing_s = batch_s["batches"], batch_s["all-knowing"]
    error = median(measured["batches"]["error"])
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


def list_cases(*, smoke: bool) -> list[Case]:
    """All combinations; an instance becomes slow in a few of them."""
    if smoke:
        return [{"zipf": 1.0, "costs": "independent", "slowed": slowed} for slowed in (0, 1)]
    cases: list[Case] = [{"zipf": z, "costs": c, "slowed": 0} for z in ZIPF for c in COSTS]
    return cases + [{"zipf": z, "costs": "independent", "slowed": 1} for z in SLOWED_ZIPF]


def measure_cases(
    benchmark: Benchmark, setting: Setting, repetitions: int, workers: Executor
) -> None:
    """Measures the cases that have no result yet."""
    settings = asdict(setting) | {
        "instances": INSTANCES,
        "items": ITEMS,
        "repetitions": repetitions,
        "first_seed": FIRST_SEED,
    }
    seeds = range(FIRST_SEED, FIRST_SEED + repetitions)
    for case in benchmark.find_missing(list_cases(smoke=benchmark.smoke)):
        runs = list(workers.map(partial(simulate, case, setting), seeds))
        measured = summarize(runs, setting)
        benchmark.record(None, case, settings, measured)
        benchmark.tell(describe(case, measured))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--simulate", action="store_true", help="without Spark")
    parser.add_argument(
        "--smoke", action="store_true", help="two small cases, to see that it works"
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="runs of each case")
    parser.add_argument("--out", type=Path, metavar="FILE", help="for the results")
    options = parser.parse_args()
    if not options.simulate:
        sys.exit("only --simulate is there")
    with tempfile.TemporaryDirectory(prefix="shuffle-") as work:
        folder = Path(work) if options.smoke else REPOSITORY / "benchmarks" / "results"
        results = options.out or folder / "shuffle_simulated.jsonl"
        name = "shuffle, simulated"
        benchmark = Benchmark(name, Path(work), results, options.smoke, describe_code())
        setting, repetitions = (SMOKE, 2) if options.smoke else (Setting(), options.repetitions)
        with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as workers:
            measure_cases(benchmark, setting, repetitions, workers)


if __name__ == "__main__":
    main()
