"""Plans that are old, in conflict or rubbish are refused and told, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from broker import Broker
from installing import Operator
from kube import Kube
from streaming import describe_counts, run_and_compare, skewed
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.turn]


@pytest.mark.usefixtures("app_image")
def test_rubbish_and_old_epochs_are_refused_and_the_operator_restores_its_plan(
    kube: Kube,
    operator: Operator,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("plans")
    manifest = describe_counts(stream, broker, topic, executors=(1, 2), wait_ms=2)
    manifest["spec"]["executors"]["fixed"] = 2
    with run_and_compare(stream, manifest, broker, topic, skewed(seed=9), rate=80):
        stream.wait_for_executors(2)
        # A second plan for certain: whether one is needed to spread the state is Spark's luck.
        stream.scale(1)
        stream.wait_for_executors(1)
        wait_until(
            "a second plan",
            lambda: stream.status().get("appliedEpoch", 0) >= 2,
            timeout_s=120,
            last_seen=stream.status,
        )
        stream.wait_for_batches(2)
        pods = stream.identities()
        for text in ("rubbish", '{"epohc": 9}', "x" * 600_000):
            overwrite_and_wait_for_the_operators_plan(kube, stream, text)
        wait_until("events", lambda: "PlanOverwritten" in stream.event_reasons(), timeout_s=60)

        operator.pause()
        for text, said in (
            (describe_plan(epoch=1), "plan.epoch: 1 is older than"),
            (describe_plan(epoch=0), "plan.epoch"),
            ("rubbish", "plan"),
        ):
            write(kube, stream, text)
            wait_until(
                f"a refusal with {said!r}",
                lambda said=said: said in answer(kube, stream)["refused"],  # type: ignore[misc]
                timeout_s=30,
                last_seen=lambda: answer(kube, stream),
            )
        stream.wait_for_batches(2)
        operator.resume()
        wait_until(
            "the refusal's event", lambda: "PlanRefused" in stream.event_reasons(), timeout_s=60
        )
        stream.wait_for_batches(2)
        stream.wait_for_condition("Fallback", "False")
        assert stream.identities() == pods


def overwrite_and_wait_for_the_operators_plan(kube: Kube, stream: Stream, text: str) -> None:
    write(kube, stream, text)
    wait_until(
        "the operator's own plan",
        lambda: plan(kube, stream) != text,
        timeout_s=60,
        last_seen=lambda: plan(kube, stream)[:100],
    )


def describe_plan(epoch: int) -> str:
    return json.dumps(
        {
            "epoch": epoch,
            "executors": ["1"],
            "placement": {},
            "routes": [],
            "strategy": "budgeted",
        }
    )


def write(kube: Kube, stream: Stream, text: str) -> None:
    kube.merge(
        "v1", "ConfigMap", f"{stream.name}-plan", {"data": {"plan.json": text}},
        namespace=stream.namespace,
    )  # fmt: skip


def plan(kube: Kube, stream: Stream) -> str:
    return read(kube, stream, "plan")


def answer(kube: Kube, stream: Stream) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(read(kube, stream, "answer"))
    return content


def read(kube: Kube, stream: Stream, of: str) -> str:
    found = kube.find("v1", "ConfigMap", f"{stream.name}-{of}", namespace=stream.namespace) or {}
    return str((found.get("data") or {}).get(f"{of}.json", ""))
