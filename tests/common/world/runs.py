"""Runs schedules, whole or with some of their faults left out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from world.faults import KINDS
from world.schedules import make_schedule
from world.worlds import World


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
