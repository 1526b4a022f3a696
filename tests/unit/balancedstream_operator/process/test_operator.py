"""The process: its watch reaches the passes, and their status and events reach the cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import ApiServer, path_of, write_kubeconfig
from distant import DistantOperator, look_after
from kubernetes.config import kube_config
from loopback import serve
from manifests import make_resource

from balancedstream_operator.api.annotations import (
    APPROVE_ANNOTATION,
    PAUSED_ANNOTATION,
    RESTART_ANNOTATION,
)
from balancedstream_operator.errors import UnreachableError
from balancedstream_operator.kube.client import KubernetesCluster
from balancedstream_operator.process.metrics import OperatorMetrics
from balancedstream_operator.process.operator import Operator
from balancedstream_operator.process.passes import choose_pause_s
from balancedstream_operator.settings import Settings

STREAM = path_of("BalancedStream", "clicks")
DRIVER = path_of("StatefulSet", "clicks-driver")
PATIENCE_S = 60.0


def resource(generation: int = 1, *, name: str = "clicks", **spec: Any) -> dict[str, Any]:
    return make_resource(name, generation=generation, **spec)


def wait_until(holds: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, f"{what}: not within {PATIENCE_S} s"
        time.sleep(0.02)


def read(metrics: OperatorMetrics, name: str) -> dict[str, float]:
    """Values of a metric with one label, by its value."""
    return {
        next(iter(sample.labels.values())): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"balancedstream_operator_{name}"
    }


def phases(metrics: OperatorMetrics) -> dict[str, float]:
    return read(metrics, "streams")


def count_writes(server: ApiServer, path: str) -> int:
    return sum(r.method == "PATCH" and r.path == path for r in list(server.requests))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    server = ApiServer()
    with serve(server.answer) as url:
        path = tmp_path / "kubeconfig"
        path.write_text(write_kubeconfig(url), "utf-8")
        monkeypatch.setenv("KUBECONFIG", str(path))
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        # The client keeps what it discovered in the folder for temporary files.
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        yield server
        server.close_watches()


@pytest.fixture(autouse=True)
def posted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """Kubernetes events, as (type, reason, message)."""
    events: list[tuple[str, str, str]] = []

    def post(_: object, event: dict[str, Any]) -> None:
        events.append((event["type"], event["reason"], event["message"]))

    monkeypatch.setattr(KubernetesCluster, "create_event", post)
    return events


# --- an Operator looks after the streams that it gets


def test_a_stream_that_appears_gets_its_objects_and_a_status(server: ApiServer) -> None:
    server.put(STREAM, resource())

    def act(operator: DistantOperator) -> None:
        operator.update(resource())
        wait_until(lambda: "status" in server.objects[STREAM], "a status")
        assert server.objects[STREAM]["status"]["phase"] == "Pending"
        assert DRIVER in server.objects
        assert operator.count_streams() == 1

    look_after(act)


def test_streams_that_came_before_the_lease_are_looked_after_with_it(
    server: ApiServer,
) -> None:
    server.put(STREAM, resource())
    metrics = OperatorMetrics()

    async def go() -> None:
        operator = Operator(Settings(), metrics, active=False)
        operator.update(resource())
        await asyncio.sleep(0.2)
        assert "status" not in server.objects[STREAM]
        assert operator.count_streams() == 1
        assert phases(metrics) == {}, "the active one counts it"
        operator.activate()
        await asyncio.to_thread(wait_until, lambda: "status" in server.objects[STREAM], "a status")

    asyncio.run(go())


def test_a_stream_that_is_deleted_just_as_it_changes_is_looked_after_no_more(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balancedstream_operator.kube.clocks.WAITING_S", 3600.0)
    server.put(STREAM, resource())
    metrics = OperatorMetrics()

    async def go() -> None:
        operator = Operator(Settings(), metrics)
        operator.update(resource())
        await asyncio.to_thread(wait_until, lambda: phases(metrics) != {}, "a pass")
        await asyncio.sleep(0.2)
        operator.update(resource(2))
        operator.remove(resource(2))
        await asyncio.to_thread(wait_until, lambda: phases(metrics) == {}, "its end")

    asyncio.run(go())


def test_a_changed_spec_is_acted_on_at_once(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balancedstream_operator.kube.clocks.WAITING_S", 3600.0)
    server.put(STREAM, resource())

    def act(operator: DistantOperator) -> None:
        operator.update(resource())
        wait_until(lambda: "status" in server.objects[STREAM], "a status")
        operator.change(server, resource(2, suspend=True))
        wait_until(lambda: server.objects[DRIVER]["spec"]["replicas"] == 0, "a stopped driver")

    look_after(act)


def test_an_annotation_that_asks_for_a_new_driver_is_acted_on_at_once(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balancedstream_operator.kube.clocks.WAITING_S", 3600.0)
    server.put(STREAM, resource())

    def act(operator: DistantOperator) -> None:
        operator.update(resource())
        wait_until(lambda: "status" in server.objects[STREAM], "a status")
        template = server.objects[DRIVER]["spec"]["template"]
        asked = resource()
        asked["metadata"]["annotations"] = {RESTART_ANNOTATION: "now"}
        operator.change(server, asked)
        wait_until(
            lambda: server.objects[DRIVER]["spec"]["template"] != template, "another template"
        )

    look_after(act)


def test_an_approval_and_a_pause_are_acted_on_at_once_and_an_approval_is_taken_away(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, posted: list[tuple[str, str, str]]
) -> None:
    monkeypatch.setattr("balancedstream_operator.kube.clocks.WAITING_S", 3600.0)
    server.put(STREAM, resource())

    def act(operator: DistantOperator) -> None:
        operator.update(resource())
        wait_until(lambda: "status" in server.objects[STREAM], "a status")
        asked = resource()
        asked["metadata"]["annotations"] = {APPROVE_ANNOTATION: "1-abcdef"}
        operator.change(server, asked)
        wait_until(lambda: "approval" in server.objects[STREAM]["status"], "an answer")
        assert server.objects[STREAM]["metadata"]["annotations"] == {}
        assert server.objects[STREAM]["status"]["approval"]["result"] == "Refused"
        asked = resource()
        asked["metadata"]["annotations"] = {PAUSED_ANNOTATION: "true"}
        operator.change(server, asked)
        wait_until(lambda: server.objects[STREAM]["status"]["mode"] == "Paused", "a pause")
        said = {"ApprovalRefused", "Asked"}
        wait_until(lambda: {reason for _, reason, _ in [*posted]} >= said, "events")

    look_after(act)


def test_a_deleted_stream_ends_its_task_and_leaves_the_metrics(server: ApiServer) -> None:
    server.put(STREAM, resource())
    metrics = OperatorMetrics()

    def act(operator: DistantOperator) -> None:
        operator.update(resource())
        wait_until(lambda: phases(metrics) == {"Pending": 1.0}, "a stream in the metrics")
        operator.remove(resource())
        wait_until(lambda: phases(metrics) == {}, "no stream in the metrics")
        assert operator.count_streams() == 0

    look_after(act, metrics)


def test_a_stream_whose_deletion_was_missed_ends_its_task_too(server: ApiServer) -> None:
    metrics = OperatorMetrics()

    def act(operator: DistantOperator) -> None:
        with server.hold():
            operator.update(resource())
            wait_until(lambda: operator.count_streams() == 1, "a stream")
        wait_until(lambda: operator.count_streams() == 0, "no stream")
        wait_until(lambda: phases(metrics) == {}, "no stream in the metrics")

    look_after(act, metrics)
    assert DRIVER not in server.objects


@pytest.mark.parametrize("status", [503, 500])
def test_a_pass_that_fails_is_tried_again(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr("balancedstream_operator.process.passes.RETRY_S", 0.05)
    server.put(STREAM, resource())
    server.refusals[DRIVER] = status, "try again"

    def act(operator: DistantOperator) -> None:
        operator.update(resource())
        wait_until(lambda: count_writes(server, DRIVER) >= 3, "three attempts")
        del server.refusals[DRIVER]
        wait_until(lambda: DRIVER in server.objects, "a driver")

    look_after(act)


def test_an_error_of_ours_ends_one_pass_and_no_stream_and_everybody_is_told(
    server: ApiServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    posted: list[tuple[str, str, str]],
) -> None:
    monkeypatch.setattr("balancedstream_operator.process.passes.RETRY_S", 0.05)
    broken = resource()
    del broken["spec"]
    server.put(STREAM, broken)
    metrics = OperatorMetrics()

    def act(operator: DistantOperator) -> None:
        operator.update(broken)
        wait_until(lambda: "this pass failed" in caplog.text, "a line in the log")
        wait_until(lambda: "status" in server.objects[STREAM], "a status")
        (failed,) = server.objects[STREAM]["status"]["conditions"]
        assert (failed["type"], failed["status"]) == ("PassFailed", "True")
        told = "Warning", "PassFailed", "KeyError: 'spec'"
        wait_until(lambda: told in posted, "an event, which is posted after the status")
        wait_until(lambda: read(metrics, "pass_failures_total")["shop/clicks"] >= 3, "more passes")
        assert posted == [told], "once"
        operator.change(server, resource(2))
        wait_until(lambda: DRIVER in server.objects, "a driver")

    look_after(act, metrics)


@pytest.mark.parametrize(
    ("failures", "retry_after_s", "pause_s"),
    [(1, 0.0, 5.0), (3, 0.0, 20.0), (50, 0.0, 300.0), (1, 17.0, 17.0), (1, 9999.0, 300.0)],
)
def test_the_next_pass_waits_longer_after_each_failure_and_as_the_server_asks(
    failures: int, retry_after_s: float, pause_s: float
) -> None:
    error = UnreachableError("too many requests", retry_after_s=retry_after_s)
    assert choose_pause_s(error, failures) == pause_s
