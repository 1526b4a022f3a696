"""Plans that are old, in conflict or rubbish are refused and told, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from broker import Broker
from kube import Kube
from streaming import assert_exact, describe_counts, skewed
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]


@pytest.mark.usefixtures("operator", "app_image")
def test_rubbish_and_old_epochs_are_refused_and_the_operator_restores_its_plan(
    kube: Kube, broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("plans")
    with skewed(broker, topic, seed=9) as producer:
        producer.set_rate(80)
        manifest = describe_counts(stream, broker, topic, executors=(1, 2), wait_ms=2)
        manifest["spec"]["executors"]["fixed"] = 2
        stream.apply(manifest)
        stream.wait_for_condition("Running", timeout_s=240)
        stream.wait_for_executors(2)
        wait_until("an applied plan", lambda: stream.status().get("appliedEpoch"), timeout_s=60)
        stream.wait_for_batches(2)
        pods = stream.identities()
        for text in ("rubbish", '{"epohc": 9}', json.dumps(plan(epoch=0)), "x" * 600_000):
            write(kube, stream, text)
            wait_until(
                "the operator's own plan",
                lambda: (
                    "rubbish" not in read(kube, stream)
                    and read(kube, stream).startswith('{"epoch":')
                ),
                timeout_s=60,
                last_seen=lambda: read(kube, stream)[:100],
            )
        wait_until("events", lambda: "PlanOverwritten" in stream.event_reasons(), timeout_s=60)
        stream.wait_for_batches(2)
        assert stream.identities() == pods
    assert_exact(stream, broker, topic)


def plan(epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "executors": ["1"], "placement": {}, "routes": [], "strategy": "fluid"}


def write(kube: Kube, stream: Stream, text: str) -> None:
    kube.merge(
        "v1", "ConfigMap", f"{stream.name}-plan", {"data": {"plan.json": text}},
        namespace=stream.namespace,
    )  # fmt: skip


def read(kube: Kube, stream: Stream) -> str:
    found = kube.find("v1", "ConfigMap", f"{stream.name}-plan", namespace=stream.namespace) or {}
    return str((found.get("data") or {}).get("plan.json", ""))
