"""What acts on objects: the controller of StatefulSets, kubelets, the collector of garbage."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from balancedstream_operator.api.resource import Manifest, driver_name, driver_pod_name
from balancedstream_operator.api.status import format_time
from balancedstream_operator.children.pods import DRIVER_GRACE_S, configuration_name
from world.api_model import NAMESPACE

if TYPE_CHECKING:
    from world.worlds import World


class Nodes:
    """Runs the driver's pod as its StatefulSet says.

    Attributes:
        restarts: how often a driver's process was started.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._pod = driver_pod_name(world.stream)
        self._set = driver_name(world.stream)
        self.restarts = 0
        self._crashes = 0
        self._mounted: Mapping[str, str] = {}
        world.api.watch(self._note)

    def delete_pod(self, name: str) -> None:
        """Deletes a pod with its grace period."""
        api, now_s = self._world.api, self._world.now_s
        if name != self._pod:
            self._world.jobs.delete_pod(name)
            return
        pod = api.get("Pod", name)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        ends = format_time(now_s + DRIVER_GRACE_S)
        api.change("Pod", name, metadata={"deletionTimestamp": ends})
        self._later(1.0, 25.0, lambda: self._end_pod(pod["metadata"]["uid"]))

    def crash(self) -> None:
        """The driver's process ends; its container starts again after a pause."""
        pod = self._world.api.get("Pod", self._pod)
        if pod is None or self._world.driver is None:
            return
        self._world.end_driver()
        self._end_container(pod, "a stack trace")

    def _end_container(self, pod: Manifest, said: str) -> None:
        ended = {"exitCode": 1, "reason": "Error", "message": said}
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
        self._set_container(pod, state, {"terminated": ended})
        self._crashes += 1
        pause_s = min(10.0 * 2.0**self._crashes, 80.0)
        uid = pod["metadata"]["uid"]
        self._later(pause_s, pause_s + 5.0, lambda: self._run_container(uid))

    def _later(self, least_s: float, most_s: float, act: Callable[[], None]) -> None:
        factor = self._world.weather.slow_start
        self._world.call_in(self._chance.uniform(least_s, most_s) * factor, act)

    def _note(self, what: str, manifest: Manifest) -> None:
        kind = manifest["kind"]
        if kind in {"StatefulSet", "Pod"}:
            self._world.call_in(self._chance.uniform(0.1, 3.0), self._reconcile)
        if what == "DELETED":
            self.collect()

    def collect(self) -> None:
        """Lets the collector look soon."""
        self._world.call_in(self._chance.uniform(1.0, 20.0), self._collect)

    def _reconcile(self) -> None:
        """What the controller of StatefulSets does."""
        world = self._world
        if world.weather.controllers_stalled:
            world.call_in(10.0, self._reconcile)
            return
        found, pod = world.api.get("StatefulSet", self._set), world.api.get("Pod", self._pod)
        if found is None:
            return
        template = found["spec"]["template"]
        revision = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:8]
        generation = found["metadata"]["generation"]
        status = {
            "observedGeneration": generation,
            "updateRevision": revision,
            "replicas": 0 if pod is None else 1,
        }
        world.api.change("StatefulSet", self._set, status=status)
        if pod is not None and found["spec"]["replicas"] == 0:
            self.delete_pod(self._pod)
        elif pod is None and found["spec"]["replicas"] == 1:
            self._make_pod(found, revision)

    def _make_pod(self, stateful_set: Manifest, revision: str) -> None:
        given = stateful_set["spec"]["template"]
        labels = {**given["metadata"]["labels"], "controller-revision-hash": revision}
        owner = {"uid": stateful_set["metadata"]["uid"]}
        made = self._world.api.put(
            {
                "kind": "Pod",
                "metadata": {
                    "name": self._pod,
                    "namespace": NAMESPACE,
                    "labels": labels,
                    "annotations": given["metadata"].get("annotations") or {},
                    "ownerReferences": [owner],
                },
                "spec": given["spec"],
                "status": {"phase": "Pending"},
            }
        )
        uid = made["metadata"]["uid"]
        self._later(1.0, 8.0, lambda: self._run_container(uid))

    def _run_container(self, uid: str) -> None:
        world = self._world
        pod = world.api.get("Pod", self._pod)
        if not _is_there(pod, uid) or pod is None:
            return
        if world.weather.unschedulable:
            waits = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes fit"}
            world.api.change("Pod", self._pod, status={"phase": "Pending", "conditions": [waits]})
            world.call_in(10.0, lambda: self._run_container(uid))
            return
        if not self._mount():
            # The kubelet starts no container without its volumes.
            world.call_in(10.0, lambda: self._run_container(uid))
            return
        self._set_container(pod, {"running": {"startedAt": format_time(world.now_s)}}, {})
        self._later(2.0, 12.0, lambda: self._start_process(uid))

    def _mount(self) -> bool:
        """Whether the files of the driver's ConfigMap are there; those of one that is gone stay."""
        found = self._world.api.get("ConfigMap", configuration_name(self._world.stream))
        if found is not None:
            self._mounted = found.get("data") or {}
        return found is not None

    def _set_container(self, pod: Manifest, state: Manifest, last: Manifest) -> None:
        ip = f"10.0.0.{int(pod['metadata']['uid'].removeprefix('uid-')) % 250}"
        container = {"name": "driver", "state": state, "lastState": last}
        status = {
            "phase": "Running",
            "podIPs": [{"ip": ip}],
            "containerStatuses": [container],
        }
        self._world.api.change("Pod", self._pod, status=status)

    def _start_process(self, uid: str) -> None:
        pod = self._world.api.get("Pod", self._pod)
        if pod is None or not _is_there(pod, uid) or self._world.driver is not None:
            return
        state = pod["status"]["containerStatuses"][0]["state"]
        if "running" in state:
            self.restarts += 1
            self._mount()
            fault = self._world.jobs.find_fault()
            if fault:
                self._end_container(pod, fault)
            else:
                self._world.start_driver(pod, self._mounted)

    def _end_pod(self, uid: str) -> None:
        """The process of a deleted pod has ended, and the pod is gone."""
        pod = self._world.api.get("Pod", self._pod)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        if self._world.weather.node_lost:
            self._world.call_in(20.0, lambda: self._end_pod(uid))
            return
        self._world.end_driver()
        self._crashes = 0
        self._world.api.remove("Pod", self._pod)

    def _collect(self) -> None:
        """Deletes what belongs to owners that are gone."""
        world = self._world
        if world.weather.controllers_stalled:
            world.call_in(10.0, self._collect)
            return
        objects = world.api.objects
        there = {manifest["metadata"]["uid"] for manifest in objects.values()}
        for (kind, name), manifest in list(objects.items()):
            owners = manifest["metadata"].get("ownerReferences") or []
            if not owners or any(owner["uid"] in there for owner in owners):
                continue
            if kind == "Pod":
                self.delete_pod(name)
            else:
                world.api.remove(kind, name)


def _is_there(pod: Manifest | None, uid: str) -> bool:
    metadata = (pod or {}).get("metadata") or {}
    return metadata.get("uid") == uid and not metadata.get("deletionTimestamp")
