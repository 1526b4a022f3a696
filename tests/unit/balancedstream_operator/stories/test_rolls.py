"""Drivers of several streams that are all to be replaced: one at a time, each once."""

from __future__ import annotations

import copy
import hashlib
import json
from contextlib import suppress
from typing import Any

import pytest
from supervised import KeepingCluster, Scene

from balancedstream_operator.api.annotations import RESTART_ANNOTATION
from balancedstream_operator.api.resource import Manifest, Stream, driver_name, driver_pod_name
from balancedstream_operator.api.status import read_status
from balancedstream_operator.errors import ClusterError, StreamGoneError, UnreachableError
from balancedstream_operator.process.turns import Turns

NAMES = ("clicks", "orders", "visits")
PASS_S = 15.0
TEN_MINUTES_S = 600.0
NEVER_S = float("inf")


class ControlledCluster(KeepingCluster):
    """Has a controller that acts on a StatefulSet some time after it was applied, or at once.

    Args:
        acts_at_once: whether it does so before the next request.
    """

    def __init__(self, *, acts_at_once: bool) -> None:
        super().__init__()
        self.acts_at_once = acts_at_once

    def apply(self, manifest: Manifest, uid: str = "") -> str:
        key = manifest["kind"], manifest["metadata"]["name"]
        before = copy.deepcopy(self.objects.get(key) or {})
        found = super().apply(manifest, uid)
        if manifest["kind"] == "StatefulSet":
            generation = before.get("metadata", {}).get("generation", 0)
            changed = before.get("spec") != manifest["spec"]
            self.objects[key]["metadata"]["generation"] = generation + changed
            if self.acts_at_once:
                self.act_on(manifest["metadata"]["name"])
        return found

    def act_on(self, name: str) -> None:
        """The controller sees the StatefulSet as it is now."""
        stateful_set = self.objects["StatefulSet", name]
        text = json.dumps(stateful_set["spec"]["template"], sort_keys=True)
        stateful_set["status"] = {
            "observedGeneration": stateful_set["metadata"]["generation"],
            "updateRevision": hashlib.sha256(text.encode()).hexdigest()[:10],
        }

    def write_status(self, stream: Stream, status: dict[str, Any]) -> None:
        if ("BalancedStream", stream.name) not in self.objects:
            message = f"the API server did not update the status of {stream.name}: not found"
            raise UnreachableError(message)
        super().write_status(stream, status)


class Roll:
    """Three streams of one operator that run, in a cluster that makes their drivers' pods.

    Args:
        acts_at_once: whether the controller of StatefulSets does.
        starts_s: how long a new driver of a stream takes until its batches end; 30 s if not given.
    """

    def __init__(self, *, acts_at_once: bool = False, **starts_s: float) -> None:
        self.cluster = ControlledCluster(acts_at_once=acts_at_once)
        turns = Turns()
        streams = [Stream("shop", name, f"uid-{name}") for name in NAMES]
        self.scenes = {s.name: Scene(s, self.cluster, turns) for s in streams}
        self.starts_s = dict.fromkeys(NAMES, 30.0)
        self.ready_s = dict.fromkeys(NAMES, NEVER_S)
        self.deleted_s: dict[str, float] = {}
        while not all(read_status(scene.resource).is_ready for scene in self.run_passes()):
            assert self.now_s < 10_200.0, "the streams do not get ready"
        self.starts_s |= starts_s

    @property
    def now_s(self) -> float:
        return self.scenes["clicks"].now_s

    def annotate(self) -> None:
        """As `kubectl annotate bst --all` does."""
        for scene in self.scenes.values():
            scene.resource["metadata"]["annotations"] = {RESTART_ANNOTATION: "now"}

    def run_passes(self) -> list[Scene]:
        """A pass over each stream that there is, 15 s after the one before; the streams."""
        there = [scene for scene in self.scenes.values() if self._exists(scene)]
        for scene in self.scenes.values():
            if ("StatefulSet", driver_name(scene.stream)) in self.cluster.objects:
                self._make_pod(scene)
            scene.measured = "no batch has ended"
            if self.ready_s[scene.stream.name] <= scene.now_s:
                scene.finish_batches()
            with suppress(StreamGoneError, ClusterError):
                scene.run_pass()
            if ("Pod", driver_pod_name(scene.stream)) not in self.cluster.objects:
                self.ready_s[scene.stream.name] = NEVER_S
        for pod in self.cluster.deleted:
            self.deleted_s.setdefault(pod.removesuffix("-driver-0"), self.now_s)
        return there

    def find_down(self) -> set[str]:
        """Streams without a driver whose batches end."""
        return {name for name, at_s in self.ready_s.items() if at_s > self.now_s}

    def run_until_replaced(self, *names: str) -> None:
        """Passes until the drivers of these streams have been replaced."""
        end_s = self.now_s + 2 * TEN_MINUTES_S
        while not self.deleted_s.keys() >= set(names):
            assert self.now_s < end_s, f"{names} are not replaced"
            self.run_passes()

    def suspend(self, name: str) -> None:
        resource = self.scenes[name].resource
        resource["spec"]["suspend"] = True
        resource["metadata"]["generation"] += 1

    def delete(self, name: str) -> None:
        """Deletes a stream with all that it has; the operator's watch misses it."""
        for kind, child in [*self.cluster.objects]:
            if child == name or child.startswith(f"{name}-"):
                del self.cluster.objects[kind, child]

    def change_and_delete(self, name: str) -> None:
        """Another spec, of which the watch tells, and then its end, of which it does not."""
        resource = self.scenes[name].resource
        resource["spec"]["image"] = "clicks:2"
        resource["metadata"]["generation"] += 1
        self.delete(name)

    def _exists(self, scene: Scene) -> bool:
        return ("BalancedStream", scene.stream.name) in self.cluster.objects

    def _make_pod(self, scene: Scene) -> None:
        """The controller and the kubelet do what they have to."""
        self.cluster.act_on(driver_name(scene.stream))
        stateful_set = self.cluster.objects["StatefulSet", driver_name(scene.stream)]
        pod = "Pod", driver_pod_name(scene.stream)
        if not stateful_set["spec"]["replicas"]:
            self.cluster.objects.pop(pod, None)
        elif pod not in self.cluster.objects:
            scene.start_driver()
            metadata = self.cluster.objects[pod]["metadata"]
            metadata["annotations"] = stateful_set["spec"]["template"]["metadata"]["annotations"]
            revision = stateful_set["status"]["updateRevision"]
            metadata["labels"]["controller-revision-hash"] = revision
            name = scene.stream.name
            self.ready_s[name] = scene.now_s + self.starts_s[name]


@pytest.mark.parametrize("acts_at_once", [True, False])
def test_of_drivers_that_are_all_to_be_replaced_one_at_a_time_is_down_and_each_is_once(
    acts_at_once: bool,
) -> None:
    roll = Roll(acts_at_once=acts_at_once)
    assert roll.find_down() == set()
    roll.annotate()
    for _ in range(40):
        roll.run_passes()
        assert len(roll.find_down()) <= 1
    assert sorted(roll.cluster.deleted) == [f"{name}-driver-0" for name in NAMES]
    assert roll.find_down() == set()
    for scene in roll.scenes.values():
        assert read_status(scene.resource).is_ready
        pod = roll.cluster.objects["Pod", driver_pod_name(scene.stream)]
        assert pod["metadata"]["annotations"][RESTART_ANNOTATION] == "now"


def test_a_driver_that_never_gets_ready_keeps_the_others_waiting_for_ten_minutes() -> None:
    roll = Roll(clicks=NEVER_S)
    roll.annotate()
    roll.run_until_replaced("clicks")
    assert list(roll.deleted_s) == ["clicks"]
    roll.run_until_replaced(*NAMES)
    waited_s = roll.deleted_s["orders"] - roll.deleted_s["clicks"]
    assert TEN_MINUTES_S <= waited_s <= TEN_MINUTES_S + PASS_S
    assert roll.deleted_s["visits"] - roll.deleted_s["orders"] < 5 * PASS_S
    for _ in range(40):
        roll.run_passes()
    assert sorted(roll.cluster.deleted) == [f"{name}-driver-0" for name in NAMES], "each once"
    assert roll.find_down() == {"clicks"}


@pytest.mark.parametrize("end", ["suspend", "delete", "change_and_delete"])
def test_a_stream_that_is_suspended_or_deleted_does_not_keep_the_others_waiting(end: str) -> None:
    roll = Roll(clicks=NEVER_S)
    roll.annotate()
    roll.run_until_replaced("clicks")
    getattr(roll, end)("clicks")
    ended_s = roll.now_s
    roll.run_until_replaced(*NAMES)
    assert roll.deleted_s["orders"] - ended_s <= 5 * PASS_S
    assert sorted(roll.cluster.deleted) == [f"{name}-driver-0" for name in NAMES], "each once"


def test_a_stream_that_was_suspended_before_is_not_waited_for() -> None:
    roll = Roll()
    roll.suspend("clicks")
    for _ in range(3):
        roll.run_passes()
    roll.annotate()
    began_s = roll.now_s
    roll.run_until_replaced("orders", "visits")
    assert roll.now_s - began_s <= 10 * PASS_S
    assert sorted(roll.cluster.deleted) == ["orders-driver-0", "visits-driver-0"]
