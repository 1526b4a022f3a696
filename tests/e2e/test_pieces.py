"""What the other tests rest on works without the operator, on a driver written by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker import Broker
from kube import Kube
from plain_driver import run_plain_driver
from producing import PacedProducer, ZipfKeys
from recomputation import compare
from storage import Storage
from streams import Stream

pytestmark = [pytest.mark.e2e]


@pytest.fixture
def producer(broker: Broker, topic: str) -> PacedProducer:
    return PacedProducer(broker, topic, ZipfKeys(count=200, exponent=1.0, seed=1))


def assert_exact(stream: Stream, broker: Broker, topic: str) -> None:
    comparison = compare(stream.checkpoint / "counts", stream.sink, topic, broker.read_topic)
    assert comparison.batches > 0
    assert not comparison.differences, str(comparison)


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
            ["/app/counts.py", broker.in_pods, topic, "--wait-ms", "2"],
        )
        stream.wait_for_batches(5)
        (victim, *_) = stream.wait_for_executors(2)
        kube.delete("v1", "Pod", victim["metadata"]["name"], namespace=storage.namespace)
        stream.wait_for_batches(5)
        stream.wait_for_executors(2)
        kube.delete("v1", "Pod", f"{stream.name}-driver-0", namespace=storage.namespace)
        stream.wait_for_batches(5)
        stream.wait_for_executors(2)
    assert_exact(stream, broker, topic)
