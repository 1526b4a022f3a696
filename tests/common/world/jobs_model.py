"""What acts on Jobs: their controller, kubelets, and the command that their pods run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.api.status import format_time
from balancedstream_operator.children.pods import UID_ANNOTATION, is_at_work
from world.api_model import NAMESPACE

if TYPE_CHECKING:
    from world.worlds import World

REFUSED = 2
"""Exit code of the command."""


class Jobs:
    """Runs Jobs that give the checkpoint another number of state partitions.

    Attributes:
        count: of pods so far.
        partitions: of the checkpoint; 0 before the first driver.
        before: the number before the last change, while no batch has been committed since.
        half: the number of a change that was begun and is not finished; 0 for none.
        half_of: uid of the stream that began it.
        undoable: whether a change can be undone; of format 1 it cannot.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self.count = 0
        self.partitions = 0
        self.before = 0
        self.half = 0
        self.half_of = ""
        self.undoable = chance.random() < 0.7
        world.api.watch(self._note)

    def commit_batch(self) -> None:
        """A query has committed a batch: nothing can be undone any more."""
        self.before = 0

    def find_fault(self) -> str:
        """Why Spark starts no query of a new driver; empty if it does.

        No driver starts while a Job works on its checkpoint, or on half of what its stream began.
        What a stream before it began, the stream does not know: Spark says it, and a person types
        the command.
        """
        at_work = [name for name, pod in self._list_pods() if is_at_work(pod) and _runs(pod)]
        if at_work:
            self._world.oracles.add("a driver starts beside a Job", str(at_work))
        if not self.half:
            return ""
        if self.half_of == self._world.stream.uid:
            self._world.oracles.add("a driver starts on half of a checkpoint", str(self.half))
        self._later(60.0, 600.0, self._finish_by_hand)
        return "[STREAMING_UNFINISHED_REPARTITION_DETECTED] The latest batch is not finished."

    def _finish_by_hand(self) -> None:
        if self.half:
            self._world.oracles.note(f"a person finishes the repartition to {self.half}")
            self.before, self.partitions, self.half = self.partitions, self.half, 0

    def delete(self, name: str) -> None:
        """Deletes a Job after its pods."""
        api = self._world.api
        if api.get("Job", name) is None:
            return
        api.change("Job", name, metadata={"deletionTimestamp": format_time(self._world.now_s)})
        self._later(0.5, 5.0, lambda: self._finish_deletion(name))

    def delete_pod(self, name: str) -> None:
        """Deletes a Job's pod; what it does ends soon."""
        pod = self._world.api.get("Pod", name)
        if pod is not None:
            uid = pod["metadata"]["uid"]
            self._later(0.5, 20.0, lambda: self._remove_pod(name, uid))

    def _finish_deletion(self, name: str) -> None:
        job = self._world.api.get("Job", name)
        if job is None:
            return
        pods = [pod for _, pod in self._list_pods() if _owns(job, pod)]
        for pod in pods:
            self._world.api.remove("Pod", pod["metadata"]["name"])
        self._world.api.remove("Job", name)

    def _later(self, least_s: float, most_s: float, act: Any) -> None:
        factor = self._world.weather.slow_start
        self._world.call_in(self._chance.uniform(least_s, most_s) * factor, act)

    def _note(self, what: str, manifest: Manifest) -> None:
        if manifest["kind"] == "Job" and what != "DELETED":
            uid, name = manifest["metadata"]["uid"], manifest["metadata"]["name"]
            self._world.call_in(self._chance.uniform(0.5, 3.0), lambda: self._act(name, uid))

    def _act(self, name: str, uid: str) -> None:
        """What the controller of Jobs does."""
        world = self._world
        if world.weather.controllers_stalled:
            world.call_in(10.0, lambda: self._act(name, uid))
            return
        job = self._find(name, uid)
        if job is None or job.get("status") or any(_owns(job, p) for _, p in self._list_pods()):
            return
        self.count += 1
        template = job["spec"]["template"]
        pod_name = f"{name}-{self.count}"
        made = world.api.put(
            {
                "kind": "Pod",
                "metadata": {
                    "name": pod_name,
                    "namespace": NAMESPACE,
                    "labels": template["metadata"]["labels"],
                    "annotations": template["metadata"]["annotations"],
                    "ownerReferences": [{"uid": uid}],
                },
                "spec": template["spec"],
                "status": {"phase": "Pending"},
            }
        )
        pod_uid = made["metadata"]["uid"]
        self._later(1.0, 8.0, lambda: self._begin(name, uid, pod_name, pod_uid))

    def _begin(self, name: str, uid: str, pod_name: str, pod_uid: str) -> None:
        world = self._world
        if not self._has_pod(pod_name, pod_uid):
            return
        if world.weather.unschedulable:
            world.call_in(10.0, lambda: self._begin(name, uid, pod_name, pod_uid))
            return
        world.oracles.note(f"{pod_name} begins")
        if world.driver is not None and not world.driver.application.killed:
            world.oracles.add("a Job begins beside a driver", pod_name)
        state = {"running": {"startedAt": format_time(world.now_s)}}
        world.api.change("Pod", pod_name, status=_status("Running", state))
        self._later(3.0, 40.0, lambda: self._end(name, uid, pod_name, pod_uid))

    def _end(self, name: str, uid: str, pod_name: str, pod_uid: str) -> None:
        world, job = self._world, self._find(name, uid)
        if not self._has_pod(pod_name, pod_uid):
            return
        if self._chance.random() < world.weather.job_evictions:
            world.oracles.note(f"{pod_name} is evicted")
            self._remove_pod(pod_name, pod_uid)
            self._later(5.0, 20.0, lambda: self._act(name, uid))
            return
        pod = world.api.objects["Pod", pod_name]
        was_half = self.half
        said = self._run(pod["spec"]["containers"][0]["args"])
        if self.half and not was_half:
            self.half_of = pod["metadata"]["annotations"][UID_ANNOTATION]
        world.oracles.note(f"{pod_name} ends: {said or 'done'}, {self.partitions} partitions")
        ended = {"exitCode": REFUSED if said else 0, "message": f"balancedstream: {said}"}
        phase = "Failed" if said else "Succeeded"
        world.api.change("Pod", pod_name, status=_status(phase, {"terminated": ended}))
        if job is not None:
            kind = "Failed" if said else "Complete"
            world.api.change("Job", name, status={"conditions": [{"type": kind, "status": "True"}]})

    def _run(self, command: Sequence[str]) -> str:
        """What the command does; why it did not, or nothing."""
        refuses = self._chance.random() < self._world.weather.job_refusals
        wanted = int(command[command.index("--partitions") + 1])
        if "--undo" in command:
            return self._undo(wanted, refuses=refuses)
        if self.half and self.half != wanted:
            return f"a repartition to {self.half} was begun. Nothing was changed."
        if wanted == self.partitions and not self.before:
            return ""
        if refuses and self._chance.random() < 0.5:
            self.half = wanted if wanted != self.partitions else 0
            return "Spark did not finish. The repartition is half done."
        if refuses:
            return "the state is kept otherwise. Nothing was changed."
        if wanted != self.partitions:
            self.before, self.partitions, self.half = self.partitions, wanted, 0
        return ""

    def _undo(self, wanted: int, *, refuses: bool) -> str:
        if wanted != (self.half or self.partitions):
            return f"another repartition was begun, to {self.half}." if self.half else ""
        if not self.half and not self.before:
            return "--undo: the query has committed a batch since. Nothing was changed."
        if refuses or not self.undoable:
            return "--undo: the checkpoint has format 1. Nothing was changed."
        if not self.half:
            self.partitions, self.before = self.before, 0
        self.half = 0
        return ""

    def _find(self, name: str, uid: str) -> Manifest | None:
        job = self._world.api.get("Job", name)
        gone = job is None or job["metadata"]["uid"] != uid
        return None if gone or (job or {})["metadata"].get("deletionTimestamp") else job

    def _has_pod(self, name: str, uid: str) -> bool:
        pod = self._world.api.get("Pod", name)
        return pod is not None and pod["metadata"]["uid"] == uid

    def _remove_pod(self, name: str, uid: str) -> None:
        if self._has_pod(name, uid):
            self._world.api.remove("Pod", name)

    def _list_pods(self) -> list[tuple[str, Manifest]]:
        label = "balancedstream-repartition"
        return [
            (name, pod)
            for (kind, name), pod in self._world.api.objects.items()
            if kind == "Pod" and pod["metadata"]["labels"].get("app.kubernetes.io/name") == label
        ]


def _owns(job: Manifest, pod: Manifest) -> bool:
    owners = pod["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == job["metadata"]["uid"] for owner in owners)


def _runs(pod: Manifest) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


def _status(phase: str, state: Manifest) -> Manifest:
    return {"phase": phase, "containerStatuses": [{"name": "driver", "state": state}]}
