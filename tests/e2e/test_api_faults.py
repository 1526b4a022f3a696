"""An operator is killed after each of its writes, is shown old streams, and misses events.

It runs as a process of this machine against the real API server, with a proxy between them. Most
streams are suspended: they have all their objects, and no Spark that would have to start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from children import CHILDREN, read_children
from clusters import Cluster
from faulty_api import FaultyApi
from installing import Operator
from kube import Kube, Manifest
from local_operator import LocalOperator
from monitoring import Prometheus
from storage import Storage
from streams import Stream
from waiting import stays_true, wait_until

pytestmark = [pytest.mark.e2e]

NOWHERE: dict[str, Any] = {"image": "localhost/nothing:1", "imagePullPolicy": "Never"}
"""Fields of a stream whose driver's pod is there, and never starts."""


@pytest.fixture
def api(cluster: Cluster) -> Iterator[FaultyApi]:
    api = FaultyApi(cluster.kubeconfig)
    yield api
    api.close()


@pytest.fixture(scope="module")
def definition(operator: Operator) -> Iterator[None]:
    """The chart is installed, and its operator does not run."""
    operator.pause()
    yield
    operator.resume()


@pytest.fixture
def local(
    api: FaultyApi, definition: None, storage: Storage, prometheus: Prometheus, tmp_path: Path
) -> Iterator[LocalOperator]:
    """The only operator; not started yet."""
    local = LocalOperator(tmp_path, storage.namespace, api.url, prometheus.here)
    yield local
    local.kill()
    print(local.read_log())
    assert "Traceback" not in local.read_log()


def test_it_does_not_matter_after_which_write_an_operator_dies(
    kube: Kube, api: FaultyApi, local: LocalOperator, open_stream: Callable[[str], Stream]
) -> None:
    first = open_stream("life-00")
    local.start()
    first.apply(suspended(first))
    wait_until_settled(first)
    writes = [write for write in api.writes if first.name in write]
    expected = describe(kube, first)
    local.kill()
    lives = [open_stream(f"life-{number:02}") for number in range(1, len(writes) + 1)]
    assert len(lives) > len(CHILDREN)
    for number, stream in enumerate(lives, 1):
        stream.apply(suspended(stream))
        api.kill_after(stream.name, number, local.kill)
        # It also goes on with what the one before has left.
        local.start()
        wait_until_dead(local, writes[number - 1])
    local.start()
    for number, stream in enumerate(lives, 1):
        wait_until_settled(stream)
        assert describe(kube, stream) == expected, f"after {writes[number - 1]}"


@pytest.mark.usefixtures("app_image")
def test_a_first_stream_gets_ready_under_operators_that_each_make_one_write_more(
    kube: Kube, api: FaultyApi, local: LocalOperator, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("clicks")
    stream.apply(stream.describe("rate.py", executors=(1, 1), metrics={"intervalSeconds": 2}))

    def is_ready() -> bool:
        return stream.condition("Ready").status == "True"

    deaths = 0
    while not is_ready():
        api.kill_after(stream.name, deaths + 1, local.kill)
        local.start()
        wait_until(
            f"write {deaths + 1} of an operator, or a stream that is ready",
            lambda: not local.runs() or is_ready(),
            timeout_s=240,
            last_seen=stream.status,
        )
        deaths += not local.runs()
    assert deaths > len(CHILDREN)
    assert set(read_children(kube, stream)) == CHILDREN
    stream.wait_for_executors(1)
    drivers = kube.pods(stream.namespace, {"app.kubernetes.io/name": "balancedstream-driver"})
    assert len(drivers) == 1


def test_an_operator_that_is_shown_old_streams_goes_back_to_none_of_them(
    kube: Kube, api: FaultyApi, local: LocalOperator, open_stream: Callable[[str], Stream]
) -> None:
    resumed, renewed = open_stream("resumed"), open_stream("renewed")
    for stream in (resumed, renewed):
        stream.apply(suspended(stream, **NOWHERE))
    restarted = open_stream("restarted")
    restarted.apply(restarted.describe("rate.py", executors=(1, 1), **NOWHERE))
    local.start()
    for stream in (resumed, renewed):
        wait_until_settled(stream)
    first = wait_until("a driver to replace", lambda: find_driver(restarted), timeout_s=60)
    restarted.annotate("balancedstream.io/restart", "now")
    wait_until("the next driver", lambda: find_driver(restarted) not in {"", first}, timeout_s=90)
    resumed.change({"suspend": False})
    wait_until("a driver", resumed.driver, timeout_s=60)
    renewed.delete()
    kube.wait_for_absence("apps/v1", "StatefulSet", "renewed-driver", namespace=renewed.namespace)
    renewed.apply(suspended(renewed, **NOWHERE))
    wait_until_settled(renewed)
    local.kill()

    def looks() -> tuple[Any, ...]:
        """What an old stream would change: replicas of a driver, owners, and pods of drivers."""
        sets = {
            stream.name: read_children(kube, stream)["StatefulSet", "NAME-driver"]
            for stream in (resumed, renewed)
        }
        owners = [found["metadata"]["ownerReferences"][0]["uid"] for found in sets.values()]
        drivers = [find_driver(stream) for stream in (resumed, restarted)]
        return sets["resumed"]["spec"]["replicas"], owners, drivers

    before = looks()
    api.serve_old_lists()
    local.start()
    wait_until("an old list", lambda: api.old_lists > 0, timeout_s=60)
    stays_true("what runs", lambda: looks() == before, for_s=15)
    assert local.runs()
    api.catch_up()
    resumed.change({"suspend": True})
    wait_until_settled(resumed)
    wait_until("the end of the driver", lambda: resumed.driver() is None, timeout_s=60)


def test_what_lost_events_told_is_found_out(
    kube: Kube, api: FaultyApi, local: LocalOperator, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("deaf")
    local.start()
    stream.apply(suspended(stream))
    wait_until_settled(stream)
    lose(api, "MODIFIED", lambda: stream.change({"driver": {"memory": "900m"}}))
    api.cut_watches()
    wait_until_settled(stream)
    data = read_children(kube, stream)["ConfigMap", "NAME-configuration"]["data"]
    assert "spark.driver.memory=900m" in data["spark-defaults.conf"]

    lose(api, "DELETED", stream.delete)
    kube.wait_for_absence("apps/v1", "StatefulSet", "deaf-driver", namespace=stream.namespace)
    stream.apply(suspended(stream))
    wait_until_settled(stream)
    children = read_children(kube, stream)
    owners = {child["metadata"]["ownerReferences"][0]["uid"] for child in children.values()}
    assert owners == {stream.read()["metadata"]["uid"]}
    assert set(children) == CHILDREN


def test_an_operator_whose_watch_is_too_old_lists_the_streams_anew(
    kube: Kube, api: FaultyApi, local: LocalOperator, open_stream: Callable[[str], Stream]
) -> None:
    old, new = open_stream("old"), open_stream("new")
    local.start()
    old.apply(suspended(old))
    wait_until_settled(old)
    api.forget_events()
    new.apply(suspended(new))
    wait_until("a watch that is too old", lambda: api.too_old == 1, timeout_s=60)
    wait_until_settled(new)
    assert set(read_children(kube, new)) == CHILDREN
    old.delete()
    kube.wait_for_absence("apps/v1", "StatefulSet", "old-driver", namespace=old.namespace)
    assert local.runs()


def find_driver(stream: Stream) -> str:
    """The uid of a driver's pod; empty if there is none."""
    return str((stream.driver() or {"metadata": {"uid": ""}})["metadata"]["uid"])


def suspended(stream: Stream, **spec: Any) -> Manifest:
    return stream.describe("rate.py", executors=(1, 1), suspend=True, **spec)


def lose(api: FaultyApi, kind: str, act: Callable[[], object]) -> None:
    """Does something, and returns when the watch has lost the event of it."""
    lost = api.lost
    api.loses = lambda event: event["type"] == kind
    act()
    wait_until("an event that gets lost", lambda: api.lost > lost, timeout_s=30, interval_s=0.1)
    api.loses = lambda event: False


def wait_until_dead(local: LocalOperator, write: str) -> None:
    wait_until(
        f"the end of an operator after {write}",
        lambda: not local.runs(),
        timeout_s=60,
        interval_s=0.1,
        last_seen=local.read_log,
    )


def wait_until_settled(stream: Stream) -> None:
    """Until the operator has acted on the present spec of a suspended stream."""

    def is_settled() -> bool:
        found = stream.read()
        status = found.get("status") or {}
        acted = status.get("observedGeneration") == found["metadata"]["generation"]
        return acted and bool(status.get("phase") == "Suspended")

    wait_until(
        f"the objects of {stream.name}",
        is_settled,
        timeout_s=60,
        interval_s=0.2,
        last_seen=stream.read,
    )


def describe(kube: Kube, stream: Stream) -> str:
    """What a stream consists of, as text that is the same for all streams of its spec."""
    children = read_children(kube, stream)
    # The record has the time at which it was written.
    plan = children["ConfigMap", "NAME-plan"]
    plan["data"] = sorted(plan["data"])
    text = repr(sorted(children.items())).replace(stream.read()["metadata"]["uid"], "UID")
    # A fingerprint of objects that have the stream's name in them.
    text = re.sub(r"'balancedstream.io/configuration': '\w+'", "", text)
    return text.replace(stream.name, "NAME")
