"""The part of a Kubernetes cluster that the operator needs; tests bring their own."""

from __future__ import annotations

from typing import Any, Protocol

from balancedstream_operator.api.resource import Manifest, Stream


class Cluster(Protocol):
    """The part of a Kubernetes cluster that a pass needs; `client.KubernetesCluster` is real.

    Every method raises ClusterError when the API server cannot be reached or refuses the request.
    """

    def get(self, version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        """Returns an object, or None if it does not exist."""

    def list_pods(self, namespace: str, selector: str) -> list[Manifest]:
        """Returns the pods of a namespace ("" for all) that a label selector selects."""

    def apply(self, manifest: Manifest, uid: str = "") -> str:
        """Creates or changes an object so that it matches the manifest (server-side apply).

        Args:
            manifest: of the object.
            uid: that the object must have; empty for any uid, and for a new object.

        Returns:
            The uid of the object; empty, and nothing is changed, if no object has name and uid.
        """

    def apply_plan(self, manifest: Manifest) -> Manifest:
        """Applies a plan's ConfigMap, and returns it; the plan has a field manager of its own."""

    def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a pod with its grace period, unless another pod has its name by now."""

    def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a Job after its pods, unless another Job has its name by now."""

    def annotate(self, manifest: Manifest, name: str, value: str) -> None:
        """Sets an annotation of an object, unless another object has its name by now."""

    def create_secret(self, manifest: Manifest) -> None:
        """Makes a Secret; a Secret of that name stays as it is."""

    def try_pod(self, manifest: Manifest) -> None:
        """Tries to make a pod in a dry run; no pod is made."""

    def may(self, namespace: str, account: str, verb: str, config_map: str) -> bool:
        """Returns whether a ServiceAccount of a namespace may do something with a ConfigMap."""

    def write_status(self, stream: Stream, status: dict[str, Any]) -> None:
        """Merges fields into the status of a BalancedStream; None removes a field."""

    def take_annotation(self, stream: Stream, name: str, value: str) -> bool:
        """Removes an annotation of a BalancedStream; False if it has another value by now."""

    def set_partitions(self, stream: Stream, partitions: int) -> None:
        """Sets `spec.partitions` of a BalancedStream."""


class EventSink(Protocol):
    """Where Kubernetes events go; `client.KubernetesCluster` is the real one."""

    def create_event(self, manifest: Manifest) -> None:
        """Makes an event."""
