"""Schedules that nobody wrote by hand: what must hold, holds, whatever goes wrong.

`python -m pytest tests/simulation --seed N` runs one, `python tests/simulation/replay.py N` tells
what happens in it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from world.faults import KINDS
from world.runs import ask_for_partitions, run_seed
from world.schedules import Fault, make_schedule
from world.worlds import World

SCHEDULES = 300
"""At a tenth of a second each, they take half a minute."""

REPARTITIONS = 60


def test_what_must_hold_holds_in_schedules_that_nobody_has_seen(
    first_seed: int, pytestconfig: pytest.Config
) -> None:
    given = pytestconfig.getoption("seed")
    seeds = range(first_seed, first_seed + SCHEDULES) if given is None else [given]
    found = {seed: world.oracles.found for seed in seeds if (world := run_seed(seed)).oracles.found}
    assert not found, "\n".join(
        f"python tests/simulation/replay.py {seed}: {what}" for seed, what in found.items()
    )


def test_other_partitions_are_reached_or_refused_and_said_whatever_goes_wrong(
    first_seed: int, pytestconfig: pytest.Config
) -> None:
    given = pytestconfig.getoption("seed")
    seeds = range(first_seed, first_seed + REPARTITIONS) if given is None else [given]
    worlds = {seed: ask_for_partitions(seed) for seed in seeds}
    found = {seed: world.oracles.found for seed, world in worlds.items() if world.oracles.found}
    assert not found, "\n".join(
        f"python tests/simulation/replay.py {seed} --partitions: {what}"
        for seed, what in found.items()
    )
    if given is None:
        assert any(world.jobs.count for world in worlds.values()), "no Job was made"


def test_a_seed_always_makes_the_same_schedule_and_the_same_happens() -> None:
    first, second = run_seed(7), run_seed(7)
    assert first.schedule == second.schedule
    assert first.oracles.log == second.oracles.log


def test_leaving_out_a_fault_changes_nothing_before_it() -> None:
    whole = make_schedule(3, KINDS)
    last = whole.faults[-1]
    logs = [run_seed(3, without).oracles.log for without in ((), (last.number,))]
    begin = next(n for n, line in enumerate(logs[0]) if str(last) in line)
    assert logs[0][:begin] == logs[1][:begin]


@pytest.mark.parametrize("seed", range(8))
def test_a_driver_that_was_replaced_is_kept_when_old_streams_are_listed(seed: int) -> None:
    faults = (
        Fault(0, "restart asked", 200.0, 5.0, 0.5),
        # From a time before somebody asked, when the next driver runs.
        Fault(1, "old list", 300.0, 60.0, 0.9),
    )
    schedule = replace(make_schedule(seed, KINDS), faults=faults, operators=1)
    world = World(schedule)
    world.run()
    assert world.oracles.found == {}
