"""The chart's NetworkPolicies close the operator and streams to others, and to nobody they need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import broker as kafka
import monitoring
import pytest
from broker import Broker
from installing import Operator
from kube import Kube, Manifest
from monitoring import Prometheus
from storage import Storage
from streaming import describe_counts, run_and_compare, skewed, wait_for_state_on
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e]

RPC, BLOCKS, METRICS, UI = 7078, 7079, 9404, 4040
"""Of a driver."""

BROKER_PORT, PROMETHEUS_PORT, HEALTH_PORT = 9092, 9090, 8081
LISTEN, LOOPBACK = "0A", "0100007F"
"""As Linux writes them in `/proc/net/tcp`."""


@contextmanager
def closed_streams(operator: Operator, namespace: str, infrastructure: str) -> Iterator[None]:
    """A namespace whose streams only Prometheus may look at."""
    prometheus = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": infrastructure}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": monitoring.NAME}},
    }
    operator.install(
        f"--set-json=networkPolicy.streams.namespaces={json.dumps([namespace])}",
        f"--set-json=networkPolicy.streams.metricsFrom={json.dumps([prometheus])}",
    )
    try:
        yield
    finally:
        operator.install()


@pytest.mark.usefixtures("app_image")
def test_a_closed_stream_runs_and_only_prometheus_looks_at_it(
    kube: Kube,
    operator: Operator,
    prometheus: Prometheus,
    broker: Broker,
    topic: str,
    storage: Storage,
    infrastructure: str,
) -> None:
    stream = Stream(kube, storage, "closed")
    manifest = describe_counts(stream, broker, topic, executors=(2, 2))
    [stranger] = kube.pods(infrastructure, {"app.kubernetes.io/name": kafka.NAME})
    [watcher] = kube.pods(infrastructure, {"app.kubernetes.io/name": monitoring.NAME})
    keys = skewed(1)
    with run_and_compare(stream, manifest, broker, topic, keys, rate=60):
        stream.wait_for_batches(2)
        driver = stream.driver()
        assert driver is not None
        executor, peer = stream.wait_for_executors(2)
        [blocks] = find_ports(kube, executor)
        ways = [(driver, port) for port in (RPC, BLOCKS, METRICS, UI)] + [(executor, blocks)]
        for pod, port in ways:
            assert reaches(kube, stranger, address(pod), port), "it is open before"

        with closed_streams(operator, storage.namespace, infrastructure):
            wait_until(
                "the policies to be enforced",
                lambda: not reaches(kube, stranger, address(driver), METRICS),
                timeout_s=30,
            )
            pods = stream.identities()
            for port in (RPC, BLOCKS, METRICS, UI):
                assert not reaches(kube, stranger, address(driver), port), port
            assert not reaches(kube, stranger, address(executor), blocks)
            assert reaches(kube, watcher, address(driver), METRICS)
            assert not reaches(kube, watcher, address(driver), RPC)
            assert reaches(kube, executor, address(driver), RPC)
            assert not reaches(kube, executor, address(driver), UI)
            assert reaches(kube, driver, address(executor), blocks)
            assert reaches(kube, peer, address(executor), blocks)

            keys.favor({f"k{number}" for number in range(3)}, 10)
            stream.wait_for_batches(5)
            # An executor that comes in afterwards needs every way once more.
            kube.delete("v1", "Pod", executor["metadata"]["name"], namespace=stream.namespace)
            wait_until(
                "another executor in its place",
                lambda: executor["metadata"]["name"] not in stream.identities(),
                timeout_s=120,
            )
            stream.wait_for_executors(2)
            wait_for_state_on(2, prometheus, stream)
            stream.wait_for_condition("MetricsAvailable", timeout_s=60)
            stream.wait_for_condition("Ready", timeout_s=120)
            kept = pods.items() & stream.identities().items()
            assert len(kept) == 2, "driver and the other executor stayed"


@pytest.mark.usefixtures("broker")
def test_the_operator_reaches_the_api_server_and_prometheus_and_nobody_else(
    kube: Kube, operator: Operator, infrastructure: str
) -> None:
    pod = operator.pod()
    assert pod is not None
    services = {}
    for name in (kafka.NAME, monitoring.NAME):
        found = kube.find("v1", "Service", name, namespace=infrastructure)
        assert found is not None
        services[name] = found["spec"]["clusterIP"]
    [stranger] = kube.pods(infrastructure, {"app.kubernetes.io/name": kafka.NAME})
    assert reaches(kube, stranger, services[kafka.NAME], BROKER_PORT), "somebody answers there"
    assert reaches(kube, pod, services[monitoring.NAME], PROMETHEUS_PORT)
    assert reaches(kube, pod, "kubernetes.default.svc", 443)
    assert not reaches(kube, pod, services[kafka.NAME], BROKER_PORT)
    assert reaches(kube, stranger, address(pod), HEALTH_PORT), "health and metrics are open"


def address(pod: Manifest) -> str:
    ip: str = pod["status"]["podIP"]
    return ip


def reaches(kube: Kube, pod: Manifest, host: str, port: int) -> bool:
    """Whether a process in a pod can connect."""
    connect = f"timeout 3 bash -c 'exec 3<>/dev/tcp/{host}/{port}' && echo reached"
    return "reached" in run_in(kube, pod, "bash", "-c", connect, check=False).splitlines()


def find_ports(kube: Kube, pod: Manifest) -> set[int]:
    """The ports on which a pod takes connections that are not its own."""
    said = run_in(kube, pod, "cat", "/proc/net/tcp", "/proc/net/tcp6")
    sockets = [line.split() for line in said.splitlines()]
    listening = [socket[1].split(":") for socket in sockets if socket[3] == LISTEN]
    return {int(port, 16) for host, port in listening if not host.endswith(LOOPBACK)}


def run_in(kube: Kube, pod: Manifest, *command: str, check: bool = True) -> str:
    """What a command prints in the first container of a pod."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    container = pod["spec"]["containers"][0]["name"]
    into = ("exec", name, f"--container={container}", "--")
    return kube.kubectl(*into, *command, namespace=namespace, check=check)
