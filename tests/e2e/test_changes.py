"""A stream is changed while it runs: what needs a restart restarts, nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import images
import pytest
from broker import Broker
from clusters import Cluster
from kube import Kube
from streaming import describe_counts, run_and_compare, skewed
from streams import KIND, Stream
from waiting import stays_true, wait_until

pytestmark = [pytest.mark.e2e]


@pytest.mark.usefixtures("operator", "app_image")
def test_a_stream_is_suspended_resumed_advised_changed_and_deleted(
    kube: Kube,
    cluster: Cluster,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("changes")
    manifest = describe_counts(stream, broker, topic, executors=(1, 2), wait_ms=2)
    with run_and_compare(stream, manifest, broker, topic, skewed(seed=8), rate=80):
        stream.wait_for_batches(2)

        pods = stream.identities()
        stream.change({"balancing": {"mode": "Advise", "actAbove": 1.3}, "executors": {"max": 3}})
        stays_true("the pods", lambda: stream.identities() == pods, for_s=10)
        assert stream.status()["mode"].startswith("Advise")

        stream.change({"suspend": True})
        stream.wait_for_condition("Suspended")
        wait_until("the end of all pods", lambda: not kube.pods(stream.namespace), timeout_s=120)
        batch = stream.last_batch()
        stream.change({"suspend": False})
        stream.wait_for_batches(2, timeout_s=240)
        assert stream.last_batch() > batch

        driver = stream.identities()[f"{stream.name}-driver-0"]
        kube_tag(cluster, "localhost/balancedstream-app:again")
        stream.change({"image": "localhost/balancedstream-app:again"})
        wait_until(
            "another driver",
            lambda: stream.identities().get(f"{stream.name}-driver-0", driver) != driver,
            timeout_s=180,
        )
        stream.wait_for_batches(2, timeout_s=240)
    stream.delete()
    for kind in ("statefulset", "pod", "configmap", "secret", "service", "role"):
        wait_until(
            f"no {kind}",
            lambda kind=kind: (
                stream.name  # type: ignore[misc]
                not in kube.kubectl("get", kind, "-o", "name", namespace=stream.namespace)
            ),
            timeout_s=120,
        )
    assert stream.checkpoint.exists(), "the checkpoint stays"


def kube_tag(cluster: Cluster, image: str) -> None:
    """Another name of the applications' image on the node."""
    cluster.node.build(image.removeprefix("localhost/"), Path(__file__).parent / "again", [])


@pytest.mark.usefixtures("operator", "app_image")
def test_what_the_api_server_cannot_know_is_a_condition_and_repaired_by_itself(
    open_stream: Callable[[str], Stream],
) -> None:
    fine, image, crash = open_stream("fine"), open_stream("image"), open_stream("crash")
    fine.apply(fine.describe("rate.py", executors=(1, 1)))
    image.apply(image.describe("rate.py", executors=(1, 1), image="localhost/nothing:1"))
    crash.apply(crash.describe("crash.py", executors=(1, 1)))
    assert (
        "spec.image"
        in image.wait_for_condition("Running", "False", reason="ImageUnavailable").message
    )
    said = crash.wait_for_condition("Running", "False", reason="ApplicationFailed", timeout_s=180)
    assert "this application crashes at its start" in said.message
    fine.wait_for_condition("Running", timeout_s=240)
    crash.change({"suspend": True})
    image.change({"image": images.APP})
    image.wait_for_condition("Running", timeout_s=240)
    assert fine.condition("Running").status == "True"


@pytest.mark.usefixtures("operator", "app_image")
def test_a_renamed_stream_goes_on_when_the_driver_of_the_old_one_is_gone(
    kube: Kube, broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    older, renamed = open_stream("older"), open_stream("renamed")
    manifest = describe_counts(older, broker, topic, executors=(1, 1))
    manifest["spec"]["checkpoints"]["path"] = older.name
    with run_and_compare(older, manifest, broker, topic, skewed(seed=12), rate=60):
        older.wait_for_batches(2)
        renamed.apply({**manifest, "metadata": {**manifest["metadata"], "name": renamed.name}})
        refused = renamed.wait_for_condition("Running", "False", reason="Refused")
        assert f"{KIND} {older.namespace}/{older.name} has the checkpoint" in refused.message
        older.wait_for_batches(1)

        older.delete()
        drivers: set[frozenset[str]] = set()

        def is_renamed() -> bool:
            found = kube.find_all("v1", "Pod", namespace=older.namespace)
            names = (pod["metadata"]["name"] for pod in found)
            drivers.add(frozenset(name for name in names if name.endswith("-driver-0")))
            return renamed.condition("Running").status == "True"

        wait_until("the renamed stream", is_renamed, timeout_s=420)
        assert max(map(len, drivers)) == 1, "two drivers on one checkpoint lose data"
        older.wait_for_batches(2)
