"""What Kubernetes' probes get from the port of the metrics."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterable

import pytest
from metric_samples import batch_of, fetch, read_samples, series
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import Metric
from scripted import RecordingSpectator, ScriptedEngine

from balancedstream.core.policy import Policy
from balancedstream.engine.events import Event, QueryEnded, QueryStarted
from balancedstream.loop.controller import Controller
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo


def probe(port: int | None, path: str) -> int:
    """The status of an answer; Kubernetes takes 200 to 399 for success."""
    assert port is not None
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def probe_both(exporter: Exporter) -> tuple[bool, bool]:
    """Whether it is ready, and whether it is alive."""
    return probe(exporter.port, "/readyz") == 200, probe(exporter.port, "/healthz") == 200


def test_a_driver_is_ready_while_a_query_runs_and_alive_until_spark_stops(
    exporter: Exporter,
) -> None:
    assert probe_both(exporter) == (False, True), "Spark starts"
    exporter.on_query_started("a")
    assert probe_both(exporter) == (True, True), "before its first batch"
    exporter.on_query_started("b")
    exporter.on_query_ended("a")
    assert probe_both(exporter) == (True, True)
    exporter.on_query_ended("b")
    assert probe_both(exporter) == (False, True), "the script may start another one"
    exporter.on_query_started("a")
    exporter.on_application_ended()
    assert probe_both(exporter) == (False, False)
    exporter.on_query_started("a")
    assert probe_both(exporter) == (True, True), "the script has another session"


def test_a_query_that_started_before_the_loop_is_known_by_its_batches(exporter: Exporter) -> None:
    exporter.on_batch(batch_of(), (), {"0": 1})
    assert probe_both(exporter) == (True, True)
    exporter.on_query_ended("q")
    exporter.on_idle("q", 1.0)
    assert probe_both(exporter) == (True, True)


def test_a_probe_waits_for_no_scrape(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter.on_query_started("q")
    scraped, go_on = threading.Event(), threading.Event()
    write = Exporter.collect

    def collect_slowly(self: Exporter) -> Iterable[Metric]:
        with self._lock:
            scraped.set()
            assert go_on.wait(60)
        return write(self)

    monkeypatch.setattr(Exporter, "collect", collect_slowly)
    pages: list[str] = []
    scrape = threading.Thread(target=lambda: pages.append(fetch(exporter)))
    scrape.start()
    assert scraped.wait(60)
    try:
        assert probe_both(exporter) == (True, True)
    finally:
        go_on.set()
        scrape.join()
    assert series("plan_epoch") in read_samples(pages[0])


class LosingEngine(ScriptedEngine):
    """The JVM is gone after the script of events."""

    def wait(self, timeout_s: float) -> Event | None:
        event = next(self._events, None)
        if event is None:
            raise ConnectionRefusedError
        return event

    def is_connection_lost(self, error: Exception) -> bool:
        return isinstance(error, ConnectionRefusedError)


class BrokenEngine(ScriptedEngine):
    """Fails with something that the loop does not know."""

    def wait(self, timeout_s: float) -> Event | None:
        event = next(self._events, None)
        if event is None:
            raise KeyError
        return event


def follow(exporter: Exporter, engine: ScriptedEngine) -> None:
    """Runs the loop to its end."""
    history = History(RunInfo("test", 1000.0, 2, "4.3.0", "3.11"))
    journal = Journal(history, RecordingSpectator(), exporter, lambda: 0.0)
    controller = Controller(engine, Policy(), journal)
    controller.start()
    controller.stop()


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        pytest.param(ScriptedEngine, (False, False), id="Spark stopped"),
        pytest.param(LosingEngine, (False, False), id="the JVM was killed"),
        # Nothing moves any more, but the query runs, and a restart would cost a batch.
        pytest.param(BrokenEngine, (True, True), id="balancing failed"),
    ],
)
def test_the_loop_says_what_spark_does(
    exporter: Exporter, engine: type[ScriptedEngine], expected: tuple[bool, bool]
) -> None:
    follow(exporter, engine([QueryStarted("q")], {"a": 1}))
    assert probe_both(exporter) == expected


def test_a_query_that_ended_is_not_ready(exporter: Exporter) -> None:
    follow(exporter, BrokenEngine([QueryStarted("q"), QueryEnded("q", "it failed")], {"a": 1}))
    assert probe_both(exporter) == (False, True)


def test_an_image_of_an_older_release_passes_the_probes_as_it_did_before() -> None:
    # Such an image serves prometheus_client's own application, which knows no paths.
    server, thread = start_http_server(0, "127.0.0.1", registry=CollectorRegistry())
    try:
        assert {probe(server.server_port, path) for path in ("/readyz", "/healthz")} == {200}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
