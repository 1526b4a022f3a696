"""The command `benchmarks/shuffle.py --simulate`: its cases, and their runs side by side."""

from __future__ import annotations

import argparse
import os
import tempfile
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from harness.benchmark import Benchmark, describe_code
from harness.results import RESULTS, Case

from shuffle_simulation import simulation
from shuffle_simulation.rows import EXECUTORS, ITEMS, SMOKE, Setting
from shuffle_simulation.simulation import simulate

ZIPF = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
COSTS = ("independent", "frequent dear", "frequent cheap", "constant")
CHANGED_ZIPF = (0.0, 1.0, 2.0)
"""Where an executor becomes slow, or costs shift."""

LONG_WARM_UP: Case = {"zipf": 1.5, "costs": "frequent cheap", "slowed": 0, "warm_up_batches": 128}
"""Where expensive items are rare, it takes long until most of them have been seen."""

REPETITIONS = 60
FIRST_SEED = 100
"""Smaller seeds were used to choose the thresholds and the size of the sketch."""


def list_simulated(*, smoke: bool) -> list[Case]:
    """All combinations; something changes in a few of them."""
    if smoke:
        return [{"zipf": 1.0, "costs": "independent", "slowed": slowed} for slowed in (0, 1)]
    cases: list[Case] = [{"zipf": z, "costs": c, "slowed": 0} for z in ZIPF for c in COSTS]
    cases += [{"zipf": z, "costs": "shifting", "slowed": 0} for z in CHANGED_ZIPF]
    cases += [{"zipf": z, "costs": "independent", "slowed": 1} for z in CHANGED_ZIPF]
    return [*cases, LONG_WARM_UP]


def simulate_cases(
    benchmark: Benchmark, setting: Setting, repetitions: int, workers: Executor
) -> None:
    """Simulates the cases that have no result yet."""
    settings = {
        "executors": EXECUTORS,
        "items": ITEMS,
        "repetitions": repetitions,
        "first_seed": FIRST_SEED,
    }
    seeds = range(FIRST_SEED, FIRST_SEED + repetitions)
    for case in benchmark.find_missing(list_simulated(smoke=benchmark.smoke)):
        warm_up = int(case.get("warm_up_batches", setting.warm_up_batches))
        batches = setting.batches - setting.warm_up_batches + warm_up
        own = replace(setting, warm_up_batches=warm_up, batches=batches)
        runs = list(workers.map(partial(simulate, case, own), seeds))
        measured = simulation.summarize(runs, own)
        benchmark.record(None, case, asdict(own) | settings, measured)
        benchmark.tell(simulation.describe(case, measured))


def simulate_all() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--simulate", action="store_true", help="without Spark")
    parser.add_argument(
        "--smoke", action="store_true", help="two small cases, to see that it works"
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="runs of each case")
    parser.add_argument("--out", type=Path, metavar="FILE", help="for the results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shuffle-") as work:
        folder = Path(work) if options.smoke else RESULTS
        results = options.out or folder / "shuffle_simulated.jsonl"
        name = "shuffle, simulated"
        benchmark = Benchmark(name, Path(work), results, options.smoke, describe_code())
        setting, repetitions = (SMOKE, 2) if options.smoke else (Setting(), options.repetitions)
        with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as workers:
            simulate_cases(benchmark, setting, repetitions, workers)
