"""Whatever pod is lost under load, the stream recovers by itself and every batch is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker import Broker
from installing import Operator
from kube import Kube
from monitoring import Prometheus
from streaming import describe_counts, run_and_compare, skewed
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e]


@pytest.mark.parametrize(
    "open_stream",
    [pytest.param("claim", marks=pytest.mark.turn), "object store"],
    indirect=True,
)
@pytest.mark.usefixtures("operator", "app_image")
def test_an_executor_and_then_the_driver_are_deleted(
    kube: Kube, broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("losses")
    manifest = describe_counts(stream, broker, topic, executors=(2, 2))
    with run_and_compare(stream, manifest, broker, topic, skewed(seed=5), rate=100):
        stream.wait_for_batches(3)
        (victim, *_) = stream.wait_for_executors(2)
        kube.kubectl("delete", "pod", victim["metadata"]["name"], namespace=stream.namespace)
        stream.wait_for_batches(3)
        stream.wait_for_executors(2)
        kube.kubectl("delete", "pod", f"{stream.name}-driver-0", namespace=stream.namespace)
        stream.wait_for_batches(3, timeout_s=240)
        stream.wait_for_executors(2)
        stream.wait_for_condition("Running")


@pytest.mark.usefixtures("app_image")
def test_the_operator_and_prometheus_are_deleted(
    kube: Kube,
    operator: Operator,
    prometheus: Prometheus,
    infrastructure: str,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("alone")
    manifest = describe_counts(stream, broker, topic, executors=(2, 2))
    with run_and_compare(stream, manifest, broker, topic, skewed(seed=6), rate=100):
        stream.wait_for_batches(3)
        pods = stream.identities()
        epoch = stream.status().get("planEpoch", 0)
        operator.delete_pod()
        stream.wait_for_batches(2)
        kube.kubectl("scale", "deployment/prometheus", "--replicas=0", namespace=infrastructure)
        stream.wait_for_condition("Fallback", "True", reason="MetricsMissing")
        stream.wait_for_batches(2)
        kube.kubectl("scale", "deployment/prometheus", "--replicas=1", namespace=infrastructure)
        stream.wait_for_condition("Fallback", "False", timeout_s=180)
        assert stream.identities() == pods
        assert stream.status()["planEpoch"] >= epoch


@pytest.mark.usefixtures("operator", "app_image")
def test_a_restarted_driver_container_leaves_no_executor_behind(
    kube: Kube, broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("restarted")
    manifest = describe_counts(stream, broker, topic, executors=(2, 2))
    with run_and_compare(stream, manifest, broker, topic, skewed(seed=7), rate=50):
        stream.wait_for_batches(2)
        before = set(stream.identities())
        # The JVM dies as if out of memory; the container is started again in the same pod.
        kube.kubectl(
            "exec", f"{stream.name}-driver-0", "--", "sh", "-c",
            "kill -9 $(cat /proc/[0-9]*/stat | awk '$2 == \"(java)\" {print $1}')",
            namespace=stream.namespace, check=False,
        )  # fmt: skip
        stream.wait_for_batches(3, timeout_s=300)
        stream.wait_for_executors(2)
        assert not (before & set(stream.identities())) - {f"{stream.name}-driver-0"}


@pytest.mark.usefixtures("operator", "app_image")
def test_executors_that_are_killed_for_their_memory_are_explained(
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("hungry")
    manifest = stream.describe("hungry.py", executors=(1, 1))
    manifest["spec"]["executors"] |= {"cores": 4, "memoryOverhead": "256m"}
    stream.apply(manifest)
    said = stream.wait_for_condition("ExecutorsLost", "True", reason="OutOfMemory", timeout_s=300)
    assert "raise executors.memoryOverhead" in said.message
    wait_until("the event", lambda: "OutOfMemory" in stream.event_reasons(), timeout_s=30)
