"""Pods that a quota refuses are not there to ask: the status has the quota's own words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kube import Kube, Manifest
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e]


def describe_quota(stream: Stream, pods: int) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": stream.namespace},
        "spec": {"hard": {"pods": str(pods)}},
    }


@pytest.mark.usefixtures("operator", "app_image")
def test_an_executor_that_the_quota_refuses_is_explained_and_comes_when_there_is_room(
    kube: Kube, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("refused")
    kube.apply(describe_quota(stream, pods=2))
    stream.apply(stream.describe("rate.py", executors=(1, 3)))
    stream.wait_for_condition("Running", timeout_s=240)
    pods = stream.identities()
    stream.scale(2)
    said = stream.wait_for_condition("ScalingLimited", reason="ExecutorsPending", timeout_s=180)
    assert "1 of 2 executors did not start" in said.message
    assert "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2" in said.message
    wait_until("the event", lambda: "ExecutorsPending" in stream.event_reasons(), timeout_s=30)
    # What the operator asks about is never made, with room for it or without.
    kube.apply(describe_quota(stream, pods=4))
    stream.wait_for_executors(2)
    wait_until(
        "nothing to be said any more",
        lambda: stream.condition("ScalingLimited").reason != "ExecutorsPending",
        timeout_s=60,
        last_seen=lambda: stream.condition("ScalingLimited"),
    )
    names = {pod["metadata"]["name"] for pod in kube.pods(stream.namespace)}
    assert names == stream.identities().keys()
    assert stream.identities().items() >= pods.items(), "nothing was restarted"


@pytest.mark.usefixtures("operator", "app_image")
def test_a_stream_whose_quota_has_room_for_the_driver_only_says_so(
    kube: Kube, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("alone")
    kube.apply(describe_quota(stream, pods=1))
    stream.apply(stream.describe("rate.py", executors=(1, 1)))
    said = stream.wait_for_condition("ScalingLimited", reason="ExecutorsPending", timeout_s=300)
    assert "1 of 1 executors did not start" in said.message
    assert "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1" in said.message


@pytest.mark.usefixtures("operator", "app_image")
def test_a_driver_that_the_quota_refuses_is_explained_and_comes_when_there_is_room(
    kube: Kube, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("shut")
    kube.apply(describe_quota(stream, pods=0))
    stream.apply(stream.describe("rate.py", executors=(1, 1)))
    said = stream.wait_for_condition("Running", "False", reason="DriverRefused", timeout_s=240)
    assert "exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0" in said.message
    assert stream.condition("Reconciling").status == "True", "others may leave the quota room"
    wait_until("the event", lambda: "DriverRefused" in stream.event_reasons(), timeout_s=30)
    assert kube.pods(stream.namespace) == [], "none is made to find out"
    kube.apply(describe_quota(stream, pods=2))
    # Its controller has long pauses by then, so the operator wakes it.
    stream.wait_for_condition("Running", timeout_s=600)
    made = kube.find("apps/v1", "StatefulSet", f"{stream.name}-driver", namespace=stream.namespace)
    assert made is not None
    assert "balancedstream.io/woken" in made["metadata"]["annotations"]
