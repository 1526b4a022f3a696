"""A BalancedStream as tests see it: its conditions, its pods, its checkpoint and its sink."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images import APP
from kube import Kube, Manifest
from objectstore import ObjectStore
from storage import CLAIM, Storage
from waiting import wait_until

API_VERSION = "balancedstream.io/v1alpha1"
KIND = "BalancedStream"


@dataclass(frozen=True)
class Condition:
    """One of the status' conditions; of an absent one the status is Unknown and the rest empty."""

    status: str = "Unknown"
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class PodIdentity:
    """Differs as soon as a pod was replaced, or a container of it restarted."""

    uid: str
    restarts: int


class Stream:
    """One BalancedStream of the cluster.

    Attributes:
        name: of the object.
        namespace: of the object.
        checkpoint: its folder, seen from this machine.
        sink: where `apps/counts.py` writes, seen from this machine.
    """

    def __init__(
        self, kube: Kube, storage: Storage, name: str, object_store: ObjectStore | None = None
    ) -> None:
        folder = object_store.bucket / storage.namespace if object_store else storage.folder
        self.name = name
        self.namespace = storage.namespace
        self.checkpoint = folder / name
        self.sink = folder / f"sink-{name}"
        self._storage_spec = (
            object_store.describe_use(f"{storage.namespace}/{name}")
            if object_store
            else {"checkpoints": {"claim": CLAIM}}
        )
        self._kube = kube

    @property
    def label(self) -> str:
        """Selects its series."""
        return f'{{stream="{self.namespace}/{self.name}"}}'

    def describe(
        self, file: str, *arguments: str, executors: tuple[int, int] = (1, 2), **more: Any
    ) -> Manifest:
        """A manifest with what two cores can carry: small requests, little memory.

        Args:
            file: of `apps`, such as `counts.py`.
            arguments: of the application.
            executors: min and max.
            more: further fields of the spec, which replace those made here.
        """
        least, most = executors
        spec: dict[str, dict[str, Any]] = {
            "application": {"file": f"/app/{file}", "arguments": list(arguments)},
            "driver": {"cpu": "200m", "memory": "768m", "memoryOverhead": "512m"},
            "executors": {
                "min": least,
                "max": most,
                "cpu": "200m",
                "memory": "512m",
                "memoryOverhead": "512m",
            },
        }
        for field, value in self._storage_spec.items():
            spec[field] = spec.get(field, {}) | value
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {"image": APP, **spec, **more},
        }

    def apply(self, manifest: Manifest) -> None:
        """Creates or changes it."""
        self._kube.apply(manifest)

    def change(self, spec: Manifest) -> None:
        """Merges into the spec; None removes a field."""
        self._kube.merge(API_VERSION, KIND, self.name, {"spec": spec}, namespace=self.namespace)

    def annotate(self, name: str, value: str) -> None:
        """Sets an annotation."""
        metadata = {"annotations": {name: value}}
        self._kube.merge(
            API_VERSION, KIND, self.name, {"metadata": metadata}, namespace=self.namespace
        )

    def scale(self, replicas: int) -> None:
        """`kubectl scale`."""
        self._kube.kubectl(
            "scale", f"bst/{self.name}", f"--replicas={replicas}", namespace=self.namespace
        )

    def delete(self) -> None:
        """Asks for the deletion; it is not waited for."""
        self._kube.delete(API_VERSION, KIND, self.name, namespace=self.namespace)

    def read(self) -> Manifest:
        """The whole object.

        Raises:
            AssertionError: there is none.
        """
        found = self._kube.find(API_VERSION, KIND, self.name, namespace=self.namespace)
        assert found is not None, f"there is no BalancedStream {self.namespace}/{self.name}"
        return found

    def status(self) -> Manifest:
        """Empty until the operator has written one."""
        status: Manifest = self.read().get("status") or {}
        return status

    def condition(self, kind: str) -> Condition:
        """The condition of that type."""
        for entry in self.status().get("conditions", []):
            if entry["type"] == kind:
                return Condition(entry["status"], entry["reason"], entry.get("message", ""))
        return Condition()

    def wait_for_condition(
        self,
        kind: str,
        status: str = "True",
        *,
        reason: str = "",
        words: str = "",
        timeout_s: float = 120,
    ) -> Condition:
        """Until the condition has this status, and this reason and these words where given."""

        def look() -> Condition | None:
            condition = self.condition(kind)
            fits = condition.status == status and reason in ("", condition.reason)
            return condition if fits and words in condition.message else None

        return wait_until(
            f"{kind}={status} {reason} {words} of {self.name}",
            look,
            timeout_s=timeout_s,
            last_seen=lambda: self.status().get("conditions"),
        )

    def driver(self) -> Manifest | None:
        """The driver's pod."""
        return self._kube.find("v1", "Pod", f"{self.name}-driver-0", namespace=self.namespace)

    def executors(self) -> list[Manifest]:
        """The pods of executors that run and are not being deleted."""
        driver = self.driver()
        if driver is None:
            return []
        uid = driver["metadata"]["uid"]
        return [
            pod
            for pod in self._kube.pods(self.namespace, {"spark-role": "executor"})
            if pod["status"]["phase"] == "Running"
            and any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences", []))
        ]

    def identities(self) -> dict[str, PodIdentity]:
        """Of the driver and all running executors, by pod name."""
        driver = self.driver()
        pods = [*([driver] if driver else []), *self.executors()]
        return {pod["metadata"]["name"]: _identity(pod) for pod in pods}

    def wait_for_executors(self, count: int, *, timeout_s: float = 120) -> list[Manifest]:
        """Until exactly so many executors run."""

        def look() -> list[Manifest] | None:
            executors = self.executors()
            return executors if len(executors) == count else None

        return wait_until(
            f"{count} executors of {self.name}",
            look,
            timeout_s=timeout_s,
            last_seen=lambda: sorted(self.identities()),
        )

    def last_batch(self, query: str = "counts") -> int:
        """The last committed batch; -1 before the first."""
        return last_batch(self.checkpoint / query)

    def wait_for_batches(self, count: int, *, query: str = "counts", timeout_s: float = 180) -> int:
        """Until so many more batches are committed; returns the last one's number."""
        wanted = self.last_batch(query) + count
        wait_until(
            f"batch {wanted} of {self.name}",
            lambda: self.last_batch(query) >= wanted,
            timeout_s=timeout_s,
            last_seen=lambda: f"batch {self.last_batch(query)}",
        )
        return self.last_batch(query)

    def event_reasons(self) -> list[str]:
        """Reasons of the events on this object, oldest first."""
        events = self._kube.find_all("v1", "Event", namespace=self.namespace)
        mine = [event for event in events if event["involvedObject"].get("name") == self.name]
        mine.sort(key=lambda event: event["metadata"]["creationTimestamp"])
        return [event["reason"] for event in mine]


def last_batch(checkpoint: Path) -> int:
    """The last batch in a query's commit log; -1 where there is none."""
    committed = (int(entry.name) for entry in (checkpoint / "commits").glob("[0-9]*"))
    return max(committed, default=-1)


def _identity(pod: Manifest) -> PodIdentity:
    statuses = pod["status"].get("containerStatuses", [])
    return PodIdentity(pod["metadata"]["uid"], sum(s["restartCount"] for s in statuses))
