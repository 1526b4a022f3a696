"""A node goes: drained under a running stream, as by an upgrade of the cluster, or off for good."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from broker import Broker
from kube import Kube
from streaming import describe_counts, run_and_compare, skewed
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e]


@pytest.mark.usefixtures("operator", "app_image")
def test_a_drain_takes_executors_and_the_driver_only_if_it_may(
    kube: Kube, broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("drained")
    manifest = describe_counts(stream, broker, topic, executors=(2, 2))
    manifest["spec"]["driver"]["evictable"] = False
    driver = f"{stream.name}-driver-0"
    with run_and_compare(stream, manifest, broker, topic, skewed(seed=9), rate=60):
        stream.wait_for_batches(3)
        stream.wait_for_executors(2)
        before = stream.identities()
        with draining(kube, stream) as said:
            assert "disruption budget" in said
            assert stream.identities() == {driver: before[driver]}, "only executors may go"
            pending = stream.wait_for_condition("ScalingLimited", reason="ExecutorsPending")
            assert "unschedulable" in pending.message
        stream.wait_for_executors(2, timeout_s=180)
        stream.wait_for_batches(3)
        assert stream.identities()[driver] == before[driver]

        stream.change({"driver": {"evictable": True}})
        wait_until("a budget that lets it go", lambda: may_evict(kube, stream), timeout_s=60)
        assert stream.identities()[driver] == before[driver]
        with draining(kube, stream) as said:
            assert "disruption budget" not in said
            # Kubernetes makes another driver, which waits for a node.
            waiting = stream.identities()
            assert set(waiting) <= {driver}
            assert before[driver] not in waiting.values()
        stream.wait_for_executors(2, timeout_s=240)
        stream.wait_for_batches(3)
        stream.wait_for_condition("Ready")


@pytest.mark.usefixtures("operator", "app_image")
def test_a_driver_whose_node_is_off_for_good_goes_on_elsewhere_once_its_taint_says_so(
    kube: Kube, broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("off")
    manifest = describe_counts(stream, broker, topic, executors=(1, 1))
    driver = f"{stream.name}-driver-0"

    def find_node() -> str:
        pod = kube.find("v1", "Pod", driver, namespace=stream.namespace)
        return str(((pod or {}).get("spec") or {}).get("nodeName", ""))

    with machine_that_is_off(kube) as (lost, others):
        kube.kubectl("cordon", others)
        try:
            stream.apply(manifest)
            wait_until("a driver on the node", lambda: find_node() == lost, timeout_s=60)
        finally:
            kube.kubectl("uncordon", others)
        kube.kubectl("delete", "pod", driver, "--wait=false", namespace=stream.namespace)
        stuck = stream.wait_for_condition("Running", "False", reason="DriverStuck", timeout_s=240)
        (command,) = re.findall(r"kubectl (taint nodes \S+ \S+NoExecute)", stuck.message)
        assert command.split()[2] == lost
        kube.kubectl(*command.split())
        stream.wait_for_batches(1, timeout_s=240)
        stream.wait_for_condition("Ready")
        assert find_node() == others


@contextmanager
def machine_that_is_off(kube: Kube) -> Iterator[tuple[str, str]]:
    """A node without a kubelet, which takes pods and never runs them, and the name of the other."""
    (node,) = kube.find_all("v1", "Node")
    name = "off"
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}},
        }
    )
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    status = {name: node["status"][name] for name in ("capacity", "allocatable")}
    patch = json.dumps({"status": {**status, "conditions": [ready]}})
    try:
        kube.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)
        yield name, node["metadata"]["name"]
    finally:
        kube.kubectl("delete", "node", name, "--wait=false")


@contextmanager
def draining(kube: Kube, stream: Stream) -> Iterator[str]:
    """What `kubectl drain` says of a stream's pods; the node takes pods again afterwards."""
    (node,) = (entry["metadata"]["name"] for entry in kube.find_all("v1", "Node"))
    selector = f"app.kubernetes.io/instance={stream.name}"
    try:
        yield kube.kubectl(
            "drain", node, f"--pod-selector={selector}", "--delete-emptydir-data", "--force",
            "--timeout=90s", check=False,
        )  # fmt: skip
    finally:
        kube.kubectl("uncordon", node)


def may_evict(kube: Kube, stream: Stream) -> bool:
    """Whether the driver's budget has room for an eviction."""
    budget = kube.find(
        "policy/v1", "PodDisruptionBudget", f"{stream.name}-driver", namespace=stream.namespace
    )
    return budget is not None and budget["status"]["disruptionsAllowed"] > 0
