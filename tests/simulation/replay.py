"""Runs schedules: `replay.py 42` tells what happens in one, `replay.py 1000 --to 2000` runs many.

With `--without 0,3` those faults are left out; `--shrink` finds out which ones are needed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tests" / "common")]

from world.runs import ask_for_partitions, run_seed, shrink  # noqa: E402 - found by the line above
from world.worlds import World  # noqa: E402


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--to", type=int, help="run all seeds up to this one")
    parser.add_argument("--without", default="", help="numbers of faults to leave out")
    parser.add_argument("--shrink", action="store_true", help="leave out all that is not needed")
    parser.add_argument(
        "--partitions", action="store_true", help="somebody asks for other partitions, too"
    )
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    without = {int(number) for number in arguments.without.split(",") if number}
    if arguments.to:
        run_many(
            range(arguments.seed, arguments.to),
            ask_for_partitions if arguments.partitions else run_seed,
        )
        return
    if arguments.shrink:
        without = shrink(arguments.seed, without)
        print(f"without {','.join(map(str, sorted(without)))}")
    if arguments.partitions:
        world = ask_for_partitions(arguments.seed)
    else:
        world = run_seed(arguments.seed, without)
    print(world.schedule)
    print("\n".join(world.oracles.log))
    for what, why in world.oracles.found.items():
        print(f"FOUND {what}: {why}")


def run_many(seeds: range, run: Callable[[int], World]) -> None:
    """Runs many, and counts what was found."""
    began_s = time.monotonic()
    counts: Counter[str] = Counter()
    for seed in seeds:
        if seed % 100 == 0:
            print(f"{seed}, after {time.monotonic() - began_s:.0f} s", flush=True)
        for what, why in run(seed).oracles.found.items():
            counts[what] += 1
            print(f"{seed}: {what}: {why}"[:300], flush=True)
    print(f"{len(seeds)} schedules in {time.monotonic() - began_s:.0f} s: {dict(counts)}")


if __name__ == "__main__":
    main()
