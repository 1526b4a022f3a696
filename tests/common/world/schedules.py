"""From a seed to a schedule: what a stream is, how its load goes, and what happens to it; pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from simulation.model import Job
from simulation.traces import BIN_S, Trace

BEFORE_S = 1000.0
"""The load begins after so long, with the stream."""

FAULTS_S = 360.0
"""Faults begin within this time."""

QUIET_S = 1800.0
"""After the last fault, the desired state must be reached and kept within this time..."""

QUIET_BATCHES = 6
"""... and so many batches of the most rows that are read at once, on one executor."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        number: in its schedule.
        kind: one of `faults.KINDS`.
        at_s: when it begins, from the start of the stream.
        length_s: until it ends, if it does.
        size: how bad it is, from 0 to 1.
    """

    number: int
    kind: str
    at_s: float
    length_s: float
    size: float

    def __str__(self) -> str:
        return f"{self.number}: {self.kind} for {self.length_s:.0f} s, size {self.size:.2f}"


@dataclass(frozen=True)
class Schedule:
    """All that chance decides before a world begins.

    Attributes:
        seed: that it came from.
        job: what a batch costs.
        trace: how many rows arrive.
        spec: of the BalancedStream.
        scrape_s: seconds between two scrapes.
        replicas: of Prometheus.
        prepares: whether moves load state ahead.
        operators: that run; of several, one acts, by a Lease.
        cap: the operator's limit of executors over all streams; 0 for none.
        queries: names of the job's queries; each has its part of the rows.
        faults: in the order of their beginning.
        faults_s: when the last one is over.
        length_s: when the world ends at the latest.
    """

    seed: int
    job: Job
    trace: Trace
    spec: dict[str, Any]
    scrape_s: float
    replicas: int
    prepares: bool
    operators: int
    cap: int
    queries: tuple[str, ...]
    faults: tuple[Fault, ...]
    faults_s: float
    length_s: float


def make_schedule(seed: int, kinds: tuple[str, ...]) -> Schedule:
    """The schedule of a seed.

    Args:
        seed: any number.
        kinds: of faults to choose from.
    """
    chance = random.Random(f"schedule {seed}")
    count = chance.choice((1, 2, 3, 4, 5, 6, 8, 10))
    drawn = sorted(
        (chance.uniform(0.0, FAULTS_S), chance.choice(kinds), chance.random(), chance.random())
        for _ in range(count)
    )
    faults = tuple(
        Fault(number, kind, at_s, 5.0 + 235.0 * length**2, size)
        for number, (at_s, kind, length, size) in enumerate(drawn)
    )
    faults_s = max(fault.at_s + fault.length_s for fault in faults) + 60.0
    trigger_s = chance.choice((10.0, 20.0))
    queries = chance.choice((("q",), ("q",), ("q",), ("q", "r")))
    job = Job(
        splits=8,
        partitions=chance.choice((6, 12)),
        keys=60,
        zipf=chance.choice((0.0, 0.4, 0.8)),
        trigger_s=trigger_s,
        start_s=chance.choice((10.0, 30.0)),
        # Without a limit, a batch after an outage takes longer than all that is judged here.
        max_rows=chance.choice((3_000.0, 6_000.0)) * trigger_s / len(queries),
        noise=0.0,
    )
    longest_s = len(queries) * job.max_rows * (job.map_row_s + job.state_row_s)
    length_s = faults_s + QUIET_S + QUIET_BATCHES * longest_s
    return Schedule(
        seed=seed,
        job=job,
        trace=_make_trace(chance, faults_s, length_s, len(queries)),
        spec=_make_spec(chance) | {"schedule": _make_schedule(chance)},
        scrape_s=chance.choice((15.0, 30.0, 30.0)),
        replicas=chance.choice((1, 1, 1, 1, 2)),
        prepares=chance.random() < 0.4,
        operators=chance.choice((1, 1, 2)),
        cap=chance.choice((0, 0, 2, 3)),
        queries=queries,
        faults=faults,
        faults_s=faults_s,
        length_s=length_s,
    )


def _make_trace(chance: random.Random, faults_s: float, length_s: float, queries: int) -> Trace:
    """Levels that change while there are faults, and one that stays after them; of each query."""
    rates = [0.0] * int(BEFORE_S / BIN_S)
    end_s = BEFORE_S + length_s + 600.0
    while len(rates) * BIN_S < BEFORE_S + faults_s:
        rate = chance.choice((0.0, 200.0, 500.0, 900.0, 1400.0)) / queries
        rates += [rate] * chance.randrange(6, 30)
    rates += [rates[-1]] * int((end_s - len(rates) * BIN_S) / BIN_S)
    shifts_s = (BEFORE_S + chance.uniform(0.0, faults_s),) if chance.random() < 0.5 else ()
    return Trace("campaign", tuple(rates), shifts_s)


def _make_schedule(chance: random.Random) -> dict[str, Any]:
    """Periods while there are faults; the stream begins at minute 17 of the clock's first hour."""

    def draw_period() -> dict[str, Any]:
        minute, minutes = chance.randrange(15, 26), chance.randrange(1, 11)
        return {"cron": f"{minute} 0 * * *", "durationSeconds": 60 * minutes}

    schedule: dict[str, Any] = {}
    if chance.random() < 0.4:
        schedule["excluded"] = [draw_period() for _ in range(chance.randrange(1, 3))]
    if chance.random() < 0.3:
        schedule["floors"] = [{**draw_period(), "minExecutors": chance.randrange(1, 6)}]
    return schedule


def _make_executors(chance: random.Random) -> dict[str, Any]:
    least = chance.randrange(1, 3)
    executors: dict[str, Any] = {"min": least, "max": least + chance.randrange(1, 5), "fixed": 0}
    if chance.random() < 0.2:
        executors["maxCores"] = chance.randrange(least, 7)
    if chance.random() < 0.3:
        executors["minQuery"] = str(chance.randrange(7) / 2)
    return executors


def _make_spec(chance: random.Random) -> dict[str, Any]:
    return {
        "image": "clicks:1",
        "application": {"file": "/app/clicks.py"},
        "executors": _make_executors(chance),
        "checkpoints": {"claim": "checkpoints"},
        "balancing": {"mode": chance.choice(("Auto", "Auto", "Auto", "Advise"))},
        # Shorter than by default, so that schedules are short.
        "scaling": {
            "mode": chance.choice(("Auto", "Auto", "Auto", "Advise")),
            "windowSeconds": 90,
        },
        "metrics": {"intervalSeconds": chance.choice((15, 30, 30))},
    }
