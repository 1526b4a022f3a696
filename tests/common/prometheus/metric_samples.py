"""Samples of `/metrics` as a test reads them, and the batches it tells an exporter of."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families as parse_text

from balancedstream.core.samples import (
    BatchSample,
    ShuffleRecord,
    StageKind,
    StageSample,
    TaskSample,
)
from balancedstream.metrics.exporter import Exporter

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

Labels = frozenset[tuple[str, str]]

Samples = dict[tuple[str, Labels], float]


def fetch(exporter: Exporter, path: str = "/metrics", accept: str = "text/plain") -> str:
    assert exporter.port is not None
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        assert response.status == 200
        return response.read().decode()
    finally:
        connection.close()


def read_samples(page: str, parse: Callable[[str], Any] = parse_text) -> Samples:
    samples: Samples = {}
    for family in parse(page):
        for sample in family.samples:
            key = sample.name.removeprefix("balancedstream_"), frozenset(sample.labels.items())
            assert key not in samples, f"{key} is there twice"
            samples[key] = sample.value
    return samples


def scrape(exporter: Exporter) -> Samples:
    return read_samples(fetch(exporter))


def collect(exporter: Exporter) -> Samples:
    """The same without HTTP, for tests that need many."""
    return {
        (
            sample.name.removeprefix("balancedstream_"),
            frozenset(sample.labels.items()),
        ): sample.value
        for family in exporter.collect()
        for sample in family.samples
    }


def select(samples: Samples, name: str) -> dict[tuple[str, ...], float]:
    """Values of one metric by its label values, in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(labels)): value
        for (found, labels), value in samples.items()
        if found == name
    }


def without_build_info(samples: Samples) -> Samples:
    return {key: value for key, value in samples.items() if key[0] != "build_info"}


def series(name: str, **labels: object) -> tuple[str, Labels]:
    return name, frozenset((label, str(value)) for label, value in labels.items())


def batch_of(
    number: int = 0,
    query: str = "q",
    *,
    duration_s: float = 2.0,
    input_rows: int = 100,
    interval_s: float | None = None,
    backlog_rows: float | None = None,
    trigger_s: float | None = None,
    planning_s: float = 0.0,
    gaps_s: float = 0.0,
) -> BatchSample:
    return BatchSample(
        query,
        number,
        1_000.0 + number,
        duration_s,
        input_rows,
        interval_s,
        backlog_rows,
        trigger_s,
        planning_s=planning_s,
        gaps_s=gaps_s,
    )


def stage_of(
    kind: StageKind = "source",
    busy_s: Mapping[str, float] | None = None,
    *,
    query: str = "q",
    tasks: int = 4,
) -> StageSample:
    of_executor = {"0": 1.0} if busy_s is None else busy_s
    return StageSample(query, 0, kind, 1_000.0, tasks, max(of_executor.values()), of_executor)


def task_of(
    partition: int,
    executor: str = "0",
    *,
    query: str = "q",
    operator: int = 0,
    busy_s: float = 1.0,
    records: int = 10,
    state_bytes: int = 1_000,
    restore_s: float = 0.0,
) -> TaskSample:
    return TaskSample(
        query, operator, partition, 0, executor, busy_s, records, state_bytes, 1_000.0, restore_s
    )


def shuffled(
    *,
    batch: int = 0,
    by_estimates: bool = False,
    name: str = "classify by kind",
    partitions: int = 2,
    errors: tuple[float, float] | None = (0.1, 0.5),
    trusted: bool = True,
) -> ShuffleRecord:
    return ShuffleRecord(
        at_s=1.0,
        shuffle=name,
        batch=batch,
        records=10,
        by_estimates=by_estimates,
        estimated_s=tuple(1.0 for _ in range(partitions)),
        real_s=tuple(float(partition) for partition in range(partitions)),
        error=errors[0] if errors else None,
        equal_error=errors[1] if errors else None,
        trusted=trusted,
        reason="off by 10 %",
    )
