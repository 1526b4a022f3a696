"""A Prometheus in memory, which scrapes a real exporter."""

from __future__ import annotations

from collections import defaultdict

from balancedstream.metrics.exporter import Exporter
from balancedstream_operator.observe.measurement import (
    PARTITION_METRICS,
    QUERY_METRICS,
    Measurement,
    measure,
)
from balancedstream_operator.observe.series import Series
from balancedstream_operator.observe.stages import STAGE_METRICS


class Scrapes:
    """A Prometheus that keeps everything."""

    def __init__(self) -> None:
        self._kept: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = defaultdict(list)

    def scrape(self, exporter: Exporter, at_s: float, instance: str = "10.0.0.7:9404") -> None:
        for family in exporter.collect():
            for sample in family.samples:
                labels = {"__name__": sample.name, "instance": instance, **sample.labels}
                self._kept[tuple(sorted(labels.items()))].append((at_s, sample.value))

    def select(self, metrics: tuple[str, ...], since_s: float = 0.0) -> list[Series]:
        return [
            Series(dict(key), tuple(s for s in samples if s[0] >= since_s))
            for key, samples in self._kept.items()
            if dict(key)["__name__"] in metrics
        ]

    def measure(
        self,
        now_s: float,
        since_s: float = 0.0,
        *,
        stages_since_s: float = 0.0,
        newest: int | None = None,
    ) -> Measurement:
        others = tuple(metric for metric in QUERY_METRICS if metric not in STAGE_METRICS)
        return measure(
            self.select(others, since_s) + self.select(STAGE_METRICS, max(since_s, stages_since_s)),
            self.select(PARTITION_METRICS, max(since_s, stages_since_s)),
            now_s,
            newest=newest,
        )
