"""What the other tests rest on works without the operator, on a driver written by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker import Broker
from kube import Kube
from monitoring import Prometheus
from plain_driver import run_plain_driver
from producing import PacedProducer, ZipfKeys
from storage import Storage
from streaming import assert_exact
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e]

PATIENCE_S = 400.0
"""For a few batches, after a start of three JVMs on processors that others use too."""


@pytest.fixture
def producer(broker: Broker, topic: str) -> PacedProducer:
    return PacedProducer(broker, topic, ZipfKeys(count=200, exponent=1.0, seed=1))


def test_prometheus_scrapes_a_pod_for_its_annotations(
    kube: Kube, prometheus: Prometheus, infrastructure: str
) -> None:
    (pod,) = kube.pods(infrastructure, {"app.kubernetes.io/name": "prometheus"})
    name = pod["metadata"]["name"]
    scraped = f'up{{namespace="{infrastructure}", pod="{name}"}} == 1'
    wait_until("a scrape of Prometheus itself", lambda: prometheus.query(scraped), timeout_s=30)
    assert prometheus.query('up{pod!~"prometheus.*", namespace="balancedstream-e2e"}') == []


@pytest.mark.usefixtures("app_image")
def test_plain_spark_is_exact_when_an_executor_and_the_driver_are_deleted(
    kube: Kube,
    storage: Storage,
    broker: Broker,
    topic: str,
    producer: PacedProducer,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("plain")
    with producer:
        producer.set_rate(200)
        run_plain_driver(
            kube,
            storage.namespace,
            stream.name,
            # Small batches, whatever piled up while pods started: five of them are soon there.
            [
                "/app/counts.py",
                broker.in_pods,
                topic,
                "--wait-ms=2",
                "--max-offsets-per-trigger=600",
            ],
        )
        stream.wait_for_batches(5, timeout_s=PATIENCE_S)
        (victim, *_) = stream.wait_for_executors(2)
        kube.delete("v1", "Pod", victim["metadata"]["name"], namespace=storage.namespace)
        stream.wait_for_batches(5, timeout_s=PATIENCE_S)
        stream.wait_for_executors(2)
        kube.delete("v1", "Pod", f"{stream.name}-driver-0", namespace=storage.namespace)
        stream.wait_for_batches(5, timeout_s=PATIENCE_S)
        stream.wait_for_executors(2)
    assert_exact(stream, broker, topic)
