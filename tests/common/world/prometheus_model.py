"""A Prometheus, or an HA pair of them, in virtual time: it scrapes the driver's real exporter."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from balancedstream.core.policy import Policy
from balancedstream_operator.api.resource import driver_pod_name
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.driver_times import DRIVER_TIMES
from balancedstream_operator.observe.endpoints import Subject
from balancedstream_operator.observe.measurement import (
    PARTITION_METRICS,
    QUERY_METRICS,
    Measurement,
)
from balancedstream_operator.observe.measurer import Source
from balancedstream_operator.observe.prometheus import MAX_SKEW_S, fetch_measurement
from balancedstream_operator.observe.series import Series

if TYPE_CHECKING:
    from world.worlds import World

_NAMES = {*QUERY_METRICS, *PARTITION_METRICS}

_Recorded = tuple[dict[str, str], list[float], list[float]]
"""A series that grows: its labels, and the times and values of its samples."""


class ModelPrometheus(Source):
    """Keeps every sample.

    Args:
        world: whose driver it scrapes.
        chance: of what is lost.
        scrape_s: seconds between two scrapes.
        replicas: how many scrape the driver; without deduplication, each has series of its own.
    """

    def __init__(self, world: World, chance: random.Random, scrape_s: float, replicas: int) -> None:
        self._world = world
        self._chance = chance
        self._scrape_s = scrape_s
        self._series: dict[str, dict[tuple[str, ...], _Recorded]] = defaultdict(dict)
        self._set: dict[tuple[str, tuple[str, ...]], tuple[float | None, float]] = {}
        self.scrapes = 0
        for replica in range(replicas):
            name = f"prometheus-{replica}" if replicas > 1 else ""
            world.call_in(chance.uniform(0.0, scrape_s), partial(self._scrape, name))

    def lose_all(self) -> None:
        """It starts anew, with an empty disk."""
        self._series.clear()

    def _scrape(self, replica: str) -> None:
        world = self._world
        world.call_in(self._scrape_s, lambda: self._scrape(replica))
        driver, weather = world.driver, world.weather
        lost = weather.scrape_loss and self._chance.random() < weather.scrape_loss
        if driver is None or weather.prometheus_down or lost:
            return
        self.scrapes += 1
        target = {
            "namespace": world.stream.namespace,
            "pod": driver_pod_name(world.stream),
            "instance": f"{driver.ip}:9404",
        }
        if replica:
            target["prometheus_replica"] = replica
        where = driver.ip, replica
        for family in driver.exporter.collect():
            for sample in family.samples:
                if sample.name not in _NAMES:
                    continue
                if weather.sample_loss and self._chance.random() < weather.sample_loss:
                    continue
                # All series of a metric have the same labels, in the same order.
                key = (*where, *sample.labels.values())
                known = self._series[sample.name].get(key)
                if known is None:
                    labels = {**sample.labels, **target, "__name__": sample.name}
                    known = self._series[sample.name][key] = labels, [], []
                known[1].append(world.now_s)
                known[2].append(self._tell(sample.name, key, sample.value))

    def _tell(self, name: str, key: tuple[str, ...], value: float) -> float:
        """A value as the driver sets it: times are of its clock, when they were set."""
        if name not in DRIVER_TIMES:
            return value
        true_s, off_s = self._set.get((name, key), (None, 0.0))
        if value != true_s:
            off_s = self._world.weather.driver_clock_off_s
            self._set[name, key] = value, off_s
        return value + off_s

    def observe(self, subject: Subject, policy: Policy, now_s: float) -> Measurement:
        """What was measured, or why nothing was."""
        if self._world.weather.prometheus_down:
            message = "Prometheus at http://prometheus cannot be queried: refused"
            raise MissingMeasurementsError(message)
        if abs(now_s - self._world.now_s) > MAX_SKEW_S:
            message = "the clock of the operator's node is off that of Prometheus"
            raise MissingMeasurementsError(message)

        def fetch(metrics: Sequence[str], look_back_s: float) -> list[Series]:
            return self._select(metrics, now_s, look_back_s)

        return fetch_measurement(fetch, subject, policy, now_s)

    def ask(self, query: str, now_s: float) -> float:
        """The number that the query is; while there are faults, one in five answers is none."""
        if self._world.weather.prometheus_down:
            message = "Prometheus at http://prometheus cannot be queried: refused"
            raise MissingMeasurementsError(message)
        rubbish = not self._world.is_quiet and self._chance.random() < 0.2
        return math.nan if rubbish else float(query)

    def _select(self, metrics: Sequence[str], now_s: float, look_back_s: float) -> list[Series]:
        until_s = now_s - self._world.weather.ingestion_lag_s
        found = []
        for metric in metrics:
            for labels, times, values in self._series[metric].values():
                first = bisect_left(times, now_s - look_back_s)
                last = bisect_right(times, until_s)
                if first < last:
                    samples = zip(times[first:last], values[first:last], strict=True)
                    found.append(Series(labels, tuple(samples)))
        return found
