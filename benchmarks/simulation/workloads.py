"""What a policy is judged on: the five traces on one job, and kinds that nobody tuned it for.

The held-out kinds differ in one thing each: trigger, start of executors, cost of rows, number of
tasks, noise, hot keys. Their loads are steps, seasons and bursts of other sizes than those of
`traces`, with noise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from simulation.model import Job
from simulation.traces import BIN_S, MAKERS, Trace

MEAN_RATE = 1500.0
"""Rows per second about which the traces move: some three executors' worth."""

HOURS = 4.0
"""How long each trace is."""

HELD_OUT_SEED = 48_000
"""Seeds of held-out kinds count from here, so that none is that of one of the five traces."""


@dataclass(frozen=True)
class Workload:
    """A job and the rows that arrive for it.

    Attributes:
        kind: name of the trace, or of the held-out kind.
        seed: of the trace, the executors' starts and the noise.
        job: what it costs.
        trace: its rows.
    """

    kind: str
    seed: int
    job: Job
    trace: Trace


def make_workload(kind: str, number: int, hours: float = HOURS) -> Workload:
    """The workload of a kind with this number, from 1; the same each time."""
    if kind in MAKERS:
        return Workload(kind, number, Job(), MAKERS[kind](MEAN_RATE, number, hours))
    seed = HELD_OUT_SEED + number
    chance = random.Random(f"{kind} {seed}")
    job = replace(Job(), start_s=chance.uniform(20.0, 40.0))
    job = HELD_OUT[kind](job, chance)
    # Rows that cost more are fewer, so that a trace is worth three executors on the mean.
    rate = MEAN_RATE * Job().row_s / job.row_s
    make = LOADS[number % len(LOADS)]
    shifts = 6 if kind == "hot keys" else 2
    shifts_s = sorted(chance.uniform(0.1, 0.9) * hours * 3600 for _ in range(shifts))
    spread = 0.2 if kind == "noise" else 0.05
    rates = _disturb(make(chance, int(hours * 3600 / BIN_S)), spread, chance)
    trace = Trace(kind, tuple(rate * each for each in rates), tuple(shifts_s))
    return Workload(kind, seed, job, trace)


HELD_OUT: dict[str, Callable[[Job, random.Random], Job]] = {
    "base": lambda job, _: job,
    "slow start": lambda job, chance: replace(job, start_s=chance.uniform(60.0, 120.0)),
    # Tasks of a stream with so short batches are few and quick.
    "trigger 1 s": lambda job, _: replace(
        job, trigger_s=1.0, splits=16, partitions=16, task_s=0.03, driver_s=0.15
    ),
    "trigger 60 s": lambda job, _: replace(job, trigger_s=60.0),
    "no trigger": lambda job, _: replace(job, trigger_s=0.0),
    "noise": lambda job, _: replace(job, noise=0.5),
    "hot keys": lambda job, _: replace(job, zipf=1.0),
    "heavy rows": lambda job, _: replace(job, map_row_s=0.005, state_row_s=0.015),
    "wide": lambda job, _: replace(job, splits=96, partitions=96),
    "stateless": lambda job, _: replace(job, partitions=0, map_row_s=job.row_s, state_row_s=0.0),
}
"""What sets each held-out kind apart."""

KINDS = (*MAKERS, *HELD_OUT)


def _make_stairs(chance: random.Random, bins: int) -> list[float]:
    """Levels of a fifth to twice the mean for 5 to 60 minutes."""
    rates: list[float] = []
    while len(rates) < bins:
        length = int(chance.uniform(300.0, 3600.0) / BIN_S)
        rates += [math.exp(chance.uniform(math.log(0.2), math.log(2.2)))] * length
    return rates[:bins]


def _make_seasons(chance: random.Random, bins: int) -> list[float]:
    """A wave of 20 to 90 minutes with a second one of half its length on it, on a slow trend."""
    period = chance.uniform(1200.0, 5400.0) / BIN_S
    high, second = chance.uniform(0.4, 0.8), chance.uniform(0.1, 0.35)
    phases = [chance.uniform(0.0, 2 * math.pi) for _ in range(3)]
    return [
        max(
            0.1,
            1.0
            + high * math.sin(2 * math.pi * n / period + phases[0])
            + second * math.sin(4 * math.pi * n / period + phases[1])
            + 0.2 * math.sin(2 * math.pi * n / bins + phases[2]),
        )
        for n in range(bins)
    ]


def _make_bursts(chance: random.Random, bins: int) -> list[float]:
    """A level with bursts that come at any time and fade within 1 to 10 minutes."""
    rates = [0.5] * bins
    at = 0.0
    while (at := at + chance.expovariate(BIN_S / 1200.0)) < bins:
        height, fade = chance.uniform(0.5, 2.0), chance.uniform(60.0, 600.0) / BIN_S
        for n in range(int(at), bins):
            rates[n] += height * math.exp(-(n - int(at)) / fade)
    return [min(rate, 3.0) for rate in rates]


LOADS = (_make_stairs, _make_seasons, _make_bursts)
"""Loads about 1, one after the other by number."""


def _disturb(rates: list[float], spread: float, chance: random.Random) -> list[float]:
    """Noise from bin to bin that lasts for about a minute."""
    kept, drift = math.exp(-BIN_S / 60.0), 0.0
    disturbed = []
    for rate in rates:
        drift = kept * drift + math.sqrt(1 - kept**2) * chance.gauss(0.0, spread)
        disturbed.append(rate * math.exp(drift))
    return disturbed
