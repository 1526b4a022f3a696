"""What Prometheus gets over HTTP, and what happens when `/metrics` cannot be served."""

from __future__ import annotations

import http.client
import random
import re
import threading

import pytest
from metric_samples import (
    OPENMETRICS,
    batch_of,
    fetch,
    read_samples,
    scrape,
    select,
    series,
    task_of,
    without_build_info,
)
from metric_stories import Story, tell_batches
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from balancedstream.core.samples import KeySample
from balancedstream.errors import BalancedStreamError, InvalidInputError, PortInUseError
from balancedstream.metrics.exporter import Exporter


def test_openmetrics_which_prometheus_asks_for_has_the_same_values(exporter: Exporter) -> None:
    story = Story(exporter)
    for _ in tell_batches(story, random.Random(7), 20):
        pass
    found = read_samples(fetch(exporter, accept=OPENMETRICS), parse_openmetrics)
    assert without_build_info(found) == pytest.approx(story.samples(), rel=1e-9)


def test_a_scrape_in_the_middle_of_batches_sees_whole_batches_only(exporter: Exporter) -> None:
    batches, partitions = 400, 24

    def feed() -> None:
        for number in range(batches):
            executors = {str(number % 3): 1, "7": 1}
            tasks = [
                task_of(partition, str(number % 3) if (partition + number) % 2 else "7")
                for partition in range(partitions)
            ]
            exporter.on_batch(batch_of(number, input_rows=10 * partitions), tasks, executors)

    feeder = threading.Thread(target=feed)
    feeder.start()
    done = False
    while not done:
        done = not feeder.is_alive()
        samples = scrape(exporter)
        if not select(samples, "batches_total"):
            continue
        finished = samples[series("batches_total", query="q")]
        placed = [key[2] for key in select(samples, "partition_executor_info")]
        assert sorted(placed) == sorted(map(str, range(partitions)))
        assert samples[series("last_batch_id", query="q")] == finished - 1
        assert samples[series("input_rows_total", query="q")] == 10 * partitions * finished
        records = select(samples, "partition_records_total").values()
        assert set(records) == {10 * finished}
        assert sum(select(samples, "executor_partitions").values()) == partitions
    feeder.join()
    assert finished == batches


@pytest.mark.parametrize("query", ['say "hi"', "two\nlines", "back\\slash", "übung {x=1}", ""])
def test_any_query_name_survives_the_text_format(exporter: Exporter, query: str) -> None:
    exporter.on_batch(batch_of(0, query), [task_of(0, query=query)], {"0": 1})
    assert select(scrape(exporter), "batches_total") == {(query,): 1}


def test_a_name_that_is_no_utf_8_costs_no_scrape(exporter: Exporter) -> None:
    # prometheus/client_python#564: half of a surrogate pair in one label ended all scrapes.
    for query in ("caf\udca0", "café"):
        exporter.on_batch(batch_of(0, query), [task_of(0, query=query)], {"0": 1})
        exporter.on_hot_keys(query, 0, (KeySample(query, 0, "\ud83d", 0, 0, 1.0),))
    newer = read_samples(fetch(exporter, accept=OPENMETRICS), parse_openmetrics)
    for samples in (scrape(exporter), newer):
        assert select(samples, "batches_total") == {("caf\\udca0",): 1, ("café",): 1}
        assert select(samples, "batch_duration_seconds_count").keys() == {
            ("caf\\udca0",),
            ("café",),
        }


def test_one_metric_alone_can_be_asked_for(exporter: Exporter) -> None:
    exporter.on_epoch(5)
    page = fetch(exporter, "/metrics?name[]=balancedstream_plan_epoch")
    assert read_samples(page) == {series("plan_epoch"): 5}


def test_a_taken_port_is_an_error_that_says_what_it_means_and_what_to_do(
    exporter: Exporter,
) -> None:
    second = Exporter()
    assert exporter.port is not None
    with pytest.raises(PortInUseError) as caught:
        second.start(exporter.port)
    assert isinstance(caught.value, BalancedStreamError)
    assert str(exporter.port) in str(caught.value)
    assert "the job was not started: no data was read, changed or lost" in str(caught.value)
    assert "--metrics-port" in str(caught.value)
    assert second.port is None
    fetch(exporter)


@pytest.mark.parametrize(
    ("port", "addr", "problem"),
    [
        (65_536, "127.0.0.1", "--metrics-port: 65536 is not a port"),
        (-1, "127.0.0.1", "--metrics-port: -1 is not a port"),
        (0, "not an address", "metrics address: 'not an address'"),
        (0, "203.0.113.7", "metrics address: '203.0.113.7'"),  # for documentation: nobody's
        (0, "a" * 64 + ".invalid", "metrics address"),
    ],
)
def test_a_port_or_address_that_cannot_be_served_is_named(
    port: int, addr: str, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(problem)):
        Exporter().start(port, addr)


def test_a_closed_exporter_frees_its_port_and_still_takes_what_happens() -> None:
    exporter = Exporter()
    exporter.start(0)
    port = exporter.port
    assert port
    exporter.close()
    exporter.close()
    assert exporter.port is None
    exporter.on_epoch(3)
    exporter.start(port)
    assert scrape(exporter)[series("plan_epoch")] == 3
    exporter.close()


def test_started_again_it_serves_the_new_port_only(exporter: Exporter) -> None:
    first = exporter.port
    exporter.start(0)
    assert first is not None
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection("127.0.0.1", first, timeout=30).connect()
    fetch(exporter)
