"""What the operator asks of the API server, and how often."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from apiserver import ApiServer, path_of, write_kubeconfig
from kubernetes.config import kube_config
from loopback import serve
from supervised import POD, SETTINGS, STREAM, KeepingCluster, Scene, Shown, conditions

from balancedstream_operator.api.resource import API_VERSION, KIND
from balancedstream_operator.kube.client import KubernetesCluster
from balancedstream_operator.kube.clocks import RESTING_S, WAITING_S
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.process.passes import Passes

EVEN = dict.fromkeys(range(4), 2.0)
RESOURCE = path_of(KIND, STREAM.name)


class ServedCluster(KeepingCluster):
    """Keeps its objects in an API server, and speaks to it as the operator does."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__()
        self.server = server
        self.operator = KubernetesCluster()

    def give_away(self) -> None:
        """What the test wrote is in the API server from now on."""
        for (kind, name), manifest in self.objects.items():
            self.server.put(path_of(kind, name), {"kind": kind, "apiVersion": "v1", **manifest})

    def take_back(self) -> None:
        """What the operator wrote is there for the test."""
        for manifest in list(self.server.objects.values()):
            if "kind" in manifest:
                self.objects[manifest["kind"], manifest["metadata"]["name"]] = manifest


class ServedScene(Scene):
    """A stream whose objects are in an API server that counts what it is asked."""

    def __init__(self, server: ApiServer, **spec: Any) -> None:
        self.served = ServedCluster(server)
        super().__init__(**spec)
        self.resource |= {"apiVersion": API_VERSION, "kind": KIND}
        self.cluster = self.served
        self.cluster.objects["BalancedStream", "clicks"] = self.resource

    def make_passes(self) -> Passes:
        return Passes(STREAM, self.served.operator, lambda _: self, SETTINGS, self.find_streams)

    def count_calls(self) -> Counter[str]:
        """Makes a pass, and counts what it asked: by verb and kind of object."""
        self.served.give_away()
        before = len(self.served.server.requests)
        self.run_pass()
        self.served.take_back()
        kinds = [
            f"{request.method} {request.path.split('/namespaces/')[1].split('/', 1)[1]}"
            for request in self.served.server.requests[before:]
            if "/namespaces/" in request.path
        ]
        return Counter(kinds)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    server = ApiServer()
    with serve(server.answer) as url:
        path = tmp_path / "kubeconfig"
        path.write_text(write_kubeconfig(url), "utf-8")
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        yield server


LOOKS = Counter(
    {
        "GET configmaps/clicks-plan": 1,
        "GET configmaps/clicks-answer": 1,
        "GET statefulsets/clicks-driver": 1,
        f"GET pods/{POD}": 1,
    }
)


def run(scene: ServedScene) -> None:
    """Until its batches are measured, and evenly spread."""
    scene.placement = {0: "1", 1: "1", 2: "2", 3: "2"}
    scene.count_calls()
    scene.start_driver()
    scene.finish_batches(EVEN)
    scene.count_calls()
    assert scene.resource["status"]["phase"] == "Running"


def test_a_running_stream_costs_four_looks_and_no_write_while_nothing_changes(
    server: ApiServer,
) -> None:
    scene = ServedScene(server)
    run(scene)
    for _ in range(3):
        # The message of Running has the number of the batch.
        scene.finish_batches(EVEN)
        assert scene.count_calls() == LOOKS
    scene.finish_batches(EVEN)
    assert scene.count_calls() == LOOKS + Counter(["PATCH balancedstreams/clicks/status"]), (
        "once a minute"
    )


def test_figures_that_change_cost_one_write_and_a_decision_two(server: ApiServer) -> None:
    scene = ServedScene(server)
    run(scene)
    scene.finish_batches({**EVEN, 0: 2.2})
    status = Counter(["PATCH balancedstreams/clicks/status"])
    assert scene.count_calls() == LOOKS + status
    scene.finish_batches({0: 4.0, 1: 3.0, 2: 0.5, 3: 0.5})
    assert scene.count_calls() == LOOKS + status + Counter(["PATCH configmaps/clicks-plan"])


def test_what_a_stream_consists_of_is_written_when_the_spec_changes_and_each_five_minutes(
    server: ApiServer,
) -> None:
    scene = ServedScene(server)
    run(scene)
    writes = []
    for _ in range(60):
        scene.finish_batches(EVEN)
        calls = scene.count_calls()
        writes.append(calls["PATCH statefulsets/clicks-driver"])
        assert calls.total() <= 20
    assert sum(writes) == 3, "in 15 minutes"


@pytest.mark.parametrize(
    ("spec", "phase", "most"),
    [
        pytest.param({"suspend": True}, "Suspended", 3, id="suspended"),
        pytest.param({"balancing": {"mode": "No"}}, "Invalid", 3, id="invalid"),
    ],
)
def test_a_stream_that_rests_is_looked_at_once_a_minute_and_nothing_is_written(
    server: ApiServer, spec: dict[str, Any], phase: str, most: int
) -> None:
    scene = ServedScene(server, **spec)
    for _ in range(3):
        scene.count_calls()
    calls = scene.count_calls()
    assert calls.total() <= most
    assert {name.split()[0] for name in calls} <= {"GET"}
    assert scene.run_pass().interval_s == RESTING_S
    assert scene.resource["status"]["phase"] == phase


def crash(scene: Scene) -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    ended = {"terminated": {"exitCode": 1, "message": "boom"}}
    scene.cluster.objects["Pod", POD]["status"] = {
        "containerStatuses": [{"name": "driver", "state": state, "lastState": ended}]
    }


def test_objects_that_are_refused_are_tried_again_soon_and_then_ever_less() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.cluster.refuses = "StatefulSet"
    scene.resource["spec"]["image"] = "clicks:2"
    tried_s: list[float] = []
    for _ in range(60):
        applied = len(scene.cluster.applied)
        done = scene.run_pass()
        assert conditions(done)["Stalled"] == ("True", "Refused")
        assert done.interval_s == 15.0, "what runs is led on"
        if len(scene.cluster.applied) > applied:
            tried_s.append(scene.now_s)
    pauses = [after - before for before, after in pairwise(tried_s)]
    assert pauses[:2] == [15.0, 15.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == RESTING_S


def test_a_stream_that_fails_is_looked_at_soon_and_then_ever_less() -> None:
    scene = Scene()
    scene.run_until_running()
    crash(scene)
    pauses = []
    for _ in range(40):
        done = scene.run_pass()
        pauses.append(done.interval_s)
        # Scene itself lets 15 s pass.
        scene.now_s += max(0.0, done.interval_s - 15.0)
    assert pauses[0] == WAITING_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == RESTING_S
    written = len(scene.cluster.written)
    for _ in range(10):
        scene.now_s += RESTING_S
        scene.run_pass()
    repairs = 3
    assert len(scene.cluster.written) - written <= repairs, "the same is not written again"


def test_a_query_that_waits_for_rows_is_not_written_of_at_each_look() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.finish_batches(EVEN)
    scene.now_s += 700.0

    def scrape_and_pass() -> Shown:
        assert isinstance(scene.measured, Measurement)
        scene.measured = replace(scene.measured, scraped_s=scene.now_s)
        return scene.run_pass()

    for _ in range(2):
        scrape_and_pass()
    scene.cluster.written.clear()
    for _ in range(40):
        done = scrape_and_pass()
    assert done.interval_s == 15.0
    # The age of the last batch is in a message: once a minute.
    assert len(scene.cluster.written) <= 11
    assert json.dumps(done.status).count("s ago") > 0
