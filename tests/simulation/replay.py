"""Runs schedules: `replay.py 42` tells what happens in one, `replay.py 1000 --to 2000` runs many.

With `--without 0,3` those faults are left out; `--shrink` finds out which ones are needed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tests" / "simulation")]

from faults import KINDS  # noqa: E402 - found by the line above
from schedules import make_schedule  # noqa: E402
from worlds import World  # noqa: E402


def run_seed(seed: int, without: Collection[int] = ()) -> World:
    """Runs the schedule of a seed, and returns the world at its end."""
    schedule = make_schedule(seed, KINDS)
    kept = tuple(fault for fault in schedule.faults if fault.number not in without)
    world = World(replace(schedule, faults=kept))
    world.run()
    return world


def shrink(seed: int, without: set[int]) -> set[int]:
    """Leaves out every fault that the first finding does not need."""
    what = next(iter(run_seed(seed, without).oracles.found))
    for fault in make_schedule(seed, KINDS).faults:
        fewer = without | {fault.number}
        if what in run_seed(seed, fewer).oracles.found:
            without = fewer
    return without


def main() -> None:
    """Runs what the command line asks for."""
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--to", type=int, help="run all seeds up to this one")
    parser.add_argument("--without", default="", help="numbers of faults to leave out")
    parser.add_argument("--shrink", action="store_true", help="leave out all that is not needed")
    arguments = parser.parse_args()
    without = {int(number) for number in arguments.without.split(",") if number}
    if arguments.to:
        run_many(range(arguments.seed, arguments.to))
        return
    if arguments.shrink:
        without = shrink(arguments.seed, without)
        print(f"without {','.join(map(str, sorted(without)))}")
    world = run_seed(arguments.seed, without)
    print(world.schedule)
    print("\n".join(world.oracles.log))
    for what, why in world.oracles.found.items():
        print(f"FOUND {what}: {why}")


def run_many(seeds: range) -> None:
    """Runs many, and counts what was found."""
    began_s = time.monotonic()
    counts: Counter[str] = Counter()
    for seed in seeds:
        if seed % 100 == 0:
            print(f"{seed}, after {time.monotonic() - began_s:.0f} s", flush=True)
        for what, why in run_seed(seed).oracles.found.items():
            counts[what] += 1
            print(f"{seed}: {what}: {why}"[:300], flush=True)
    print(f"{len(seeds)} schedules in {time.monotonic() - began_s:.0f} s: {dict(counts)}")


if __name__ == "__main__":
    main()
