"""Runs schedules, whole or with some of their faults left out."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace

from world.faults import KINDS
from world.schedules import Fault, make_schedule
from world.worlds import World


def run_seed(seed: int, without: Collection[int] = ()) -> World:
    """Runs the schedule of a seed, and returns the world at its end."""
    schedule = make_schedule(seed, KINDS)
    kept = tuple(fault for fault in schedule.faults if fault.number not in without)
    world = World(replace(schedule, faults=kept))
    world.run()
    return world


def ask_for_partitions(seed: int) -> World:
    """Runs the schedule of a seed in which somebody asks for other partitions, too, amid faults."""
    schedule = make_schedule(seed, KINDS)
    chance = random.Random(f"partitions {seed}")
    count = len(schedule.faults)
    asked = Fault(count, "partitions edited", chance.uniform(30.0, 200.0), 60.0, chance.random())
    added = [asked]
    if chance.random() < 0.5:
        kind = chance.choice(("jobs evicted", "jobs refused"))
        added.append(Fault(count + 1, kind, asked.at_s, 240.0, chance.random()))
    faults_s = max(schedule.faults_s, 500.0)
    longer_s = faults_s - schedule.faults_s
    world = World(
        replace(
            schedule,
            faults=(*schedule.faults, *added),
            faults_s=faults_s,
            length_s=schedule.length_s + longer_s,
        )
    )
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
