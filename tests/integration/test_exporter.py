"""What is exported against what Spark itself reports of the same batches."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished
from balancedstream.metrics.exporter import Exporter

pytestmark = pytest.mark.integration

QUERY = "exported"

ROWS_PER_BATCH = 600

ROUNDING = 0.051
"""Spark's JSON gives rates with one decimal."""


def scrape(exporter: Exporter) -> dict[str, dict[tuple[str, ...], float]]:
    """Metric to the values of its series, by label values in the order of the labels' names."""
    assert exporter.port is not None
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
    finally:
        connection.close()
    metrics: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            metrics.setdefault(sample.name.removeprefix("balancedstream_"), {})[labels] = (
                sample.value
            )
    return metrics


def test_after_every_batch_a_scrape_agrees_with_the_progress_that_spark_reports(
    engine: SparkEngine,
    stream: Callable[[int], DataFrame],
    start: Callable[..., StreamingQuery],
    batches: Callable[[str], BatchFinished],
) -> None:
    exporter = Exporter()
    exporter.start(0)
    try:
        # every row its own key: a partial aggregation leaves nothing out
        query = start(stream(ROWS_PER_BATCH).groupBy("value").count(), QUERY, "update")
        rows = 0
        durations_s = 0.0
        excess = []
        for number in range(6):
            event = batches(QUERY)
            exporter.on_batch(event.sample, event.tasks, engine.executors())
            progress = find_progress(query, event.sample.batch)
            rows += progress["numInputRows"]
            durations_s += progress["durationMs"]["triggerExecution"] / 1000
            found = scrape(exporter)

            assert found["batches_total"][QUERY,] == number + 1
            assert found["last_batch_id"][QUERY,] == progress["batchId"] == number
            assert found["input_rows_total"][QUERY,] == rows == ROWS_PER_BATCH * (number + 1)
            assert found["batch_duration_seconds_sum"][QUERY,] == pytest.approx(durations_s)
            processed = found["processed_rows_per_second"][QUERY,]
            # Spark's own clock runs on for some milliseconds after what it calls the execution
            assert processed >= progress["processedRowsPerSecond"] - ROUNDING
            excess.append(processed / progress["processedRowsPerSecond"])
            if number == 0:
                assert progress["inputRowsPerSecond"] == 0.0
                assert "input_rows_per_second" not in found
            else:
                input_rate = found["input_rows_per_second"][QUERY,]
                assert input_rate == pytest.approx(progress["inputRowsPerSecond"], abs=ROUNDING)

            state = progress["stateOperators"][0]
            assert found["partitions"]["0", QUERY] == state["numShufflePartitions"]
            assert sum(found["partition_records_total"].values()) == rows
            assert sum(found["executor_records_total"].values()) == rows
            assert sum(found["executor_partitions"].values()) == state["numShufflePartitions"]
            assert {key[0] for key in found["partition_executor_info"]} <= set(engine.executors())
        assert median(excess) < 1.05
    finally:
        exporter.close()


def find_progress(query: StreamingQuery, batch: int) -> Any:
    (progress,) = (p for p in query.recentProgress if p["batchId"] == batch)
    return progress
