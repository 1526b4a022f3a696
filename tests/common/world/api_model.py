"""An API server in virtual time: versions, owners, conflicts, watches, and all that goes wrong.

Objects are never changed in place, so that an old one can be shown again.
"""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from balancedstream.core.wire.objects import STREAM_LABEL
from balancedstream_operator.api.resource import KIND, Manifest, Stream
from balancedstream_operator.api.status import format_time
from balancedstream_operator.errors import RefusedError, UnreachableError
from balancedstream_operator.kube.cluster import Cluster
from balancedstream_operator.kube.reading import bound_stream

if TYPE_CHECKING:
    from world.worlds import World

NAMESPACE = "shop"
PLAN_MANAGER = "plan"
CHILD_MANAGER = "children"

Key = tuple[str, str]
"""Kind and name: there is one namespace."""


class KilledError(BaseException):
    """The operator's process was killed in the middle of a pass; nothing catches it."""


class ApiServer:
    """Keeps objects with versions, and tells watches of changes.

    Attributes:
        objects: that exist now.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.objects: dict[Key, Manifest] = {}
        self._version = 0
        self._history: dict[Key, list[tuple[float, Manifest | None]]] = defaultdict(list)
        self._data_of: dict[tuple[Key, str], set[str]] = defaultdict(set)
        self._watches: list[Callable[[str, Manifest], None]] = []

    def watch(self, notify: Callable[[str, Manifest], None]) -> None:
        """Has every change told from now on: `MODIFIED` or `DELETED`, and the object."""
        self._watches.append(notify)

    def unwatch(self, notify: Callable[[str, Manifest], None]) -> None:
        """Ends that."""
        self._watches.remove(notify)

    def get(self, kind: str, name: str) -> Manifest | None:
        """An object, as it is now."""
        return self.objects.get((kind, name))

    def get_old(self, kind: str, name: str, age_s: float) -> Manifest | None:
        """An object, as it was."""
        at_s = self._world.now_s - age_s
        old = [manifest for time_s, manifest in self._history[kind, name] if time_s <= at_s]
        return old[-1] if old else None

    def age_s(self, manifest: Manifest) -> float:
        """For how long an object has been there, however it was."""
        metadata = manifest["metadata"]
        times = [
            time_s
            for time_s, known in self._history[manifest["kind"], metadata["name"]]
            if known is not None and known["metadata"]["uid"] == metadata["uid"]
        ]
        return self._world.now_s - times[0]

    def list_since(self, manifest: Manifest) -> list[Manifest]:
        """An object as it was at some time, and as it has been since."""
        metadata = manifest["metadata"]
        first = int(metadata["resourceVersion"])
        return [
            known
            for _, known in self._history[manifest["kind"], metadata["name"]]
            if known is not None and int(known["metadata"]["resourceVersion"]) >= first
        ]

    def put(self, manifest: Manifest) -> Manifest:
        """Keeps an object as it is given, with a new version."""
        self._version += 1
        metadata = {
            "uid": f"uid-{self._version}",
            "generation": 1,
            "namespace": NAMESPACE,
            "creationTimestamp": format_time(self._world.now_s),
            **manifest["metadata"],
            "resourceVersion": str(self._version),
        }
        kept = {**manifest, "metadata": metadata}
        key = kept["kind"], metadata["name"]
        self.objects[key] = kept
        self._history[key].append((self._world.now_s, kept))
        self._notify("MODIFIED", kept)
        return kept

    def change(self, kind: str, name: str, **parts: Any) -> None:
        """Replaces parts of an object, such as its status; a new spec is a new generation."""
        kept = self.objects.get((kind, name))
        if kept is None or all(kept.get(part) == value for part, value in parts.items()):
            return
        metadata = kept["metadata"]
        if "spec" in parts and parts["spec"] != kept.get("spec"):
            metadata = {**metadata, "generation": metadata["generation"] + 1}
        metadata = {**metadata, **parts.pop("metadata", {})}
        self.put({**kept, **parts, "metadata": metadata})

    def remove(self, kind: str, name: str) -> None:
        """Deletes an object, if it is there; what it owned goes with it, later."""
        kept = self.objects.pop((kind, name), None)
        if kept is not None:
            self._version += 1
            self._history[kind, name].append((self._world.now_s, None))
            for key, manager in list(self._data_of):
                if key == (kind, name):
                    del self._data_of[key, manager]
            self._notify("DELETED", kept)

    def apply(self, manifest: Manifest, manager: str) -> Manifest:
        """Server-side apply.

        Raises:
            ClusterError: it names another version of the object than the present one.
        """
        given = manifest["metadata"]
        key = manifest["kind"], given["name"]
        kept = self.objects.get(key)
        there = (kept or {}).get("metadata") or {}
        for name in ("resourceVersion", "uid"):
            if given.get(name) and given[name] != there.get(name):
                message = f"the API server did not apply {key[0]} {key[1]}: it has been modified"
                raise UnreachableError(message)
        metadata = {**there, **given}
        for name in ("labels", "annotations"):
            metadata[name] = {**(there.get(name) or {}), **(given.get(name) or {})}
        owners = {o["uid"]: o for o in there.get("ownerReferences") or []}
        owners |= {o["uid"]: o for o in given.get("ownerReferences") or []}
        metadata["ownerReferences"] = list(owners.values())
        if sum(bool(owner.get("controller")) for owner in owners.values()) > 1:
            message = f"the API server did not apply {key[0]} {key[1]}: it has another controller"
            raise RefusedError(message)
        made = {**(kept or {}), **manifest, "metadata": metadata}
        if key[0] == "ConfigMap":
            made["data"] = self._merge_data(key, manager, kept, manifest.get("data") or {})
        if kept is not None and made == kept:
            return kept
        if kept is not None and made.get("spec") != kept.get("spec"):
            metadata["generation"] += 1
        return self.put(made)

    def _merge_data(
        self, key: Key, manager: str, kept: Manifest | None, data: dict[str, str]
    ) -> dict[str, str]:
        """A manager's keys become what it gives; those of others stay."""
        mine = self._data_of[key, manager]
        before = (kept or {}).get("data") or {}
        merged = {name: text for name, text in before.items() if name not in mine} | data
        self._data_of[key, manager] = set(data)
        return merged

    def _notify(self, what: str, manifest: Manifest) -> None:
        for notify in list(self._watches):
            notify(what, manifest)


class ModelCluster(Cluster):
    """The API server as one operator's process reaches it.

    Attributes:
        calls: made so far.
        writes: made so far.
        kill_after: the process dies with this write; None if it does not.
        before_call: number of a call to what happens just before it.
        cut: whether this process reaches nothing.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._api = world.api
        self._chance = chance
        self.calls = 0
        self.writes = 0
        self.kill_after: int | None = None
        self.before_call: dict[int, Callable[[], None]] = {}
        self.cut = False

    def get(self, version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        """An object, or None."""
        self._call(f"return {kind} {name}")
        if kind == "Pod" and self._world.weather.api_stale_s:
            return self._api.get_old(kind, name, self._world.weather.api_stale_s)
        found = self._api.get(kind, name)
        return bound_stream(copy.deepcopy(found)) if found and kind == KIND else found

    def create_secret(self, manifest: Manifest) -> None:
        """Keeps a Secret, unless there is one of its name."""
        name = manifest["metadata"]["name"]
        self._call(f"make Secret {name}")
        if self._api.get("Secret", name) is None:
            self._world.oracles.check_owner(manifest)
            self._api.put(manifest)
            self._finish_write()

    def try_pod(self, manifest: Manifest) -> None:
        """Refuses an executor that the quota has no room for."""
        what = f"take pod {manifest['metadata']['name']} in a dry run"
        self._call(what)
        if manifest["metadata"]["labels"].get("app.kubernetes.io/name") == "balancedstream-driver":
            return
        if len(self._world.list_executor_pods()) >= self._world.weather.quota:
            message = f"the API server did not {what}: exceeded quota"
            raise RefusedError(message)

    def may(self, namespace: str, account: str, verb: str, config_map: str) -> bool:
        """Every account has the rights of a driver."""
        return True

    def list_pods(self, namespace: str, selector: str) -> list[Manifest]:
        """Pods of drivers, of Jobs, or of executors."""
        self._call(f"list pods with {selector}")
        if selector.startswith("spark-role"):
            return self._world.list_executor_pods()
        wanted = dict(term.split("=") for term in selector.split(","))
        pods = [pod for (kind, _), pod in self._api.objects.items() if kind == "Pod"]
        return [pod for pod in pods if wanted.items() <= pod["metadata"]["labels"].items()]

    def apply(self, manifest: Manifest, uid: str = "") -> str:
        """Keeps a child, unless another object has its name."""
        kind = manifest["kind"]
        self._call(f"apply {kind}")
        there = self._api.get(kind, manifest["metadata"]["name"]) or {}
        if uid and uid != (there.get("metadata") or {}).get("uid"):
            return ""
        if kind == self._world.weather.refused_kind:
            message = f"the API server did not apply {kind} {manifest['metadata']['name']}: denied"
            raise RefusedError(message)
        self._world.oracles.check_owner(manifest)
        self._world.oracles.check_taken(manifest, there or None)
        self._world.oracles.check_stop(manifest)
        applied = self._api.apply(manifest, CHILD_MANAGER)
        self._finish_write()
        return str(applied["metadata"]["uid"])

    def apply_plan(self, manifest: Manifest) -> Manifest:
        """Keeps a plan, unless another version of it is there by now."""
        self._call("apply the plan")
        self._world.oracles.check_owner(manifest)
        before = self._api.get("ConfigMap", manifest["metadata"]["name"])
        self._world.oracles.check_taken(manifest, before)
        applied = self._api.apply(manifest, PLAN_MANAGER)
        self._world.oracles.check_plan(manifest, before)
        self._finish_write()
        return applied

    def write(self, manifest: Manifest, version: str | None) -> bool:
        """Makes an object, or replaces that version of it; whether it was so."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        self._call(f"write {kind} {name}")
        there = (self._api.get(kind, name) or {}).get("metadata") or {}
        if there.get("resourceVersion") != version:
            return False
        self._api.put({**manifest, "metadata": {**there, **manifest["metadata"]}})
        self._finish_write()
        return True

    def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a pod with its grace period, unless it is another one by now."""
        self._call(f"delete pod {name}")
        found = self._api.get("Pod", name)
        if found is not None and uid not in {"", found["metadata"]["uid"]}:
            message = f"the API server did not delete pod {name}: it is another one"
            raise UnreachableError(message)
        if found is not None:
            self._world.oracles.check_replacement(found)
        self._world.nodes.delete_pod(name)
        self._finish_write()

    def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a Job after its pods, unless it is another one by now."""
        self._call(f"delete Job {name}")
        found = self._api.get("Job", name)
        if found is not None and found["metadata"]["uid"] == uid:
            self._world.jobs.delete(name)
            self._finish_write()

    def write_status(self, stream: Stream, status: dict[str, Any]) -> None:
        """Merges fields into the status; None removes one."""
        self._call("update the status")
        found = self._api.get(KIND, stream.name)
        if found is None:
            return
        if found["metadata"]["uid"] != stream.uid:
            message = "the API server did not update the status: it is of another stream"
            raise UnreachableError(message)
        merged = {**(found.get("status") or {}), **status}
        merged = {name: value for name, value in merged.items() if value is not None}
        self._world.oracles.check_status(merged)
        self._api.change(KIND, stream.name, status=merged)
        self._finish_write()

    def annotate(self, manifest: Manifest, name: str, value: str) -> None:
        """Sets an annotation of a child."""
        kind, metadata = manifest["kind"], manifest["metadata"]
        self._call(f"annotate {kind}")
        found = (self._api.get(kind, metadata["name"]) or {}).get("metadata")
        if found is None:
            return
        if found["uid"] != metadata["uid"]:
            message = f"the API server did not annotate {kind}: it is another one"
            raise UnreachableError(message)
        annotations = {**(found.get("annotations") or {}), name: value}
        self._api.change(kind, metadata["name"], metadata={"annotations": annotations})
        self._finish_write()

    def take_annotation(self, stream: Stream, name: str, value: str) -> bool:
        """Removes an annotation, if it still has that value."""
        self._call("remove an annotation")
        metadata = (self._api.get(KIND, stream.name) or {}).get("metadata") or {}
        annotations = metadata.get("annotations") or {}
        if metadata.get("uid") != stream.uid or annotations.get(name) != value:
            return False
        kept = {key: text for key, text in annotations.items() if key != name}
        self._api.change(KIND, stream.name, metadata={"annotations": kept})
        self._finish_write()
        return True

    def set_partitions(self, stream: Stream, partitions: int) -> None:
        """Sets the field of the spec."""
        self._call("set spec.partitions")
        found = self._api.get(KIND, stream.name)
        if found is not None and found["metadata"]["uid"] == stream.uid:
            self._api.change(KIND, stream.name, spec={**found["spec"], "partitions": partitions})
            self._finish_write()

    def _call(self, what: str) -> None:
        self.calls += 1
        act = self.before_call.pop(self.calls, None)
        if act is not None:
            self._world.oracles.interrupted = True
            act()
        weather = self._world.weather
        if weather.api_down or self.cut:
            message = f"the API server cannot be reached to {what}: refused"
            raise UnreachableError(message)
        if weather.forbidden:
            message = f'the API server did not {what}: User "operator" cannot do that'
            raise RefusedError(message)
        if weather.api_throttles:
            message = f"the API server did not {what}: too many requests"
            raise UnreachableError(message, retry_after_s=self._chance.choice((0, 9)))
        if weather.api_errors and self._chance.random() < weather.api_errors:
            message = f"the API server did not {what}: overloaded"
            raise UnreachableError(message)

    def _finish_write(self) -> None:
        """What was written is there; whether the operator learns of it is another matter."""
        self.writes += 1
        if self.writes == self.kill_after:
            raise KilledError
        lost = self._world.weather.api_lost
        if lost and self._chance.random() < lost:
            message = "the API server cannot be reached: the answer timed out"
            raise UnreachableError(message)


def stream_pod(name: str, stream: str, phase: str, message: str = "") -> Manifest:
    """An executor's pod."""
    waits = {"type": "PodScheduled", "status": "False", "message": message}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"spark-role": "executor", STREAM_LABEL: stream}},
        "spec": {"containers": [{"name": "executor"}]},
        "status": {"phase": phase, "conditions": [waits] if message else []},
    }
