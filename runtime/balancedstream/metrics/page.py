"""One scrape: counters become samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from balancedstream.metrics.catalogue import (
    BATCH_DURATION,
    BATCH_DURATION_BUCKETS_S,
    BATCH_DURATION_HELP,
    METRICS,
    PREFIX,
    QUERY,
)
from balancedstream.metrics.counters import Query, Shuffle, Work


class Page:
    """The values of one scrape, taken down quickly; samples are made of them without the lock."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._common = dict(labels)
        self._values: dict[str, list[tuple[tuple[str, ...], float]]] = {n: [] for n in METRICS}
        self._batch_durations: list[tuple[str, list[int], float]] = []

    def add(self, name: str, value: float, *labels: str) -> None:
        """Adds one value of a metric of the catalogue."""
        self._values[name].append((labels, value))

    def add_work(self, of: str, work: Work, *labels: str) -> None:
        """Adds the three values of a partition's or an executor's work."""
        self.add(f"{of}_busy_seconds_total", work.busy_s, *labels)
        self.add(f"{of}_state_restore_seconds_total", work.restore_s, *labels)
        self.add(f"{of}_records_total", work.records, *labels)

    def add_batch_durations(self, query: str, counts: Sequence[int], sum_s: float) -> None:
        """Adds a query's histogram: batches per bucket, and their seconds in all."""
        self._batch_durations.append((query, list(accumulate(counts)), sum_s))

    def families(self) -> Iterator[Metric]:
        """Yields every metric of the catalogue with the values added."""
        for name, series in METRICS.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(PREFIX + name, series.help, labels=(*self._common, *series.labels))
            for labels, value in self._values[name]:
                family.add_metric((*self._common.values(), *labels), value)
            yield family
        histogram = HistogramMetricFamily(
            PREFIX + BATCH_DURATION, BATCH_DURATION_HELP, labels=(*self._common, *QUERY)
        )
        bounds = [*map(str, BATCH_DURATION_BUCKETS_S), "+Inf"]
        for query, counts, sum_s in self._batch_durations:
            labels = (*self._common.values(), query)
            histogram.add_metric(labels, list(zip(bounds, counts, strict=True)), sum_s)
        yield histogram


def write_query(page: Page, name: str, query: Query) -> None:
    """Adds the values of one query."""
    page.add("batches_total", sum(query.durations), name)
    page.add_batch_durations(name, query.durations, query.duration_s)
    page.add("input_rows_total", query.input_rows, name)
    page.add("task_failures_total", query.task_failures, name)
    if query.keys_under_way is not None:
        page.add("keys_under_way", query.keys_under_way, name)
    if query.last_key_arrival is not None:
        page.add("last_key_arrival_batch", query.last_key_arrival, name)
    last = query.last
    if last is None:
        return
    page.add("last_batch_id", last.batch, name)
    page.add("last_batch_timestamp_seconds", last.finished_s, name)
    page.add("last_batch_duration_seconds", last.duration_s, name)
    # Spark reports 0 for the first batch's input rate; there is none yet
    if last.interval_s:
        page.add("input_rows_per_second", last.input_rows / last.interval_s, name)
    if last.duration_s:
        page.add("processed_rows_per_second", last.input_rows / last.duration_s, name)
    if last.backlog_rows is not None:
        page.add("backlog_rows", last.backlog_rows, name)


def write_shuffle(page: Page, name: str, shuffle: Shuffle) -> None:
    """Adds the values of one shuffle."""
    for routed in ("estimates", "round robin"):
        page.add("shuffle_batches_total", shuffle.batches[routed], name, routed)
    page.add("shuffle_trusted", shuffle.last.trusted, name)
    page.add("shuffle_untrusted_batches", shuffle.untrusted_batches, name)
    page.add("shuffle_imbalance_ratio", shuffle.last.imbalance(), name)
    if shuffle.errors is not None:
        error, equal_error = shuffle.errors
        page.add("shuffle_estimate_error_ratio", error, name)
        page.add("shuffle_equal_error_ratio", equal_error, name)
    for partition, load_s in shuffle.estimated_s.items():
        page.add("shuffle_estimated_seconds_total", load_s, name, str(partition))
    for partition, load_s in shuffle.real_s.items():
        page.add("shuffle_real_seconds_total", load_s, name, str(partition))
