"""The operators' Lease, as Kubernetes' dynamic client gives it to one process, in virtual time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kubernetes.client import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

from balancedstream_operator.api.resource import Manifest
from world.api_model import NAMESPACE, ModelCluster

NAME = "balancedstream-operator"


class ModelLeases:
    """What `leases.Lease` calls.

    Args:
        cluster: the API server as this process reaches it.
    """

    def __init__(self, cluster: ModelCluster) -> None:
        self._cluster = cluster

    def get(self, **_: Any) -> Any:
        """The Lease as it is: such a read is never stale."""
        found = self._cluster.get("coordination.k8s.io/v1", "Lease", NAMESPACE, NAME)
        if found is None:
            raise NotFoundError(ApiException(status=404))
        return SimpleNamespace(to_dict=lambda: found)

    def create(self, body: Manifest, **_: Any) -> None:
        """Makes it, unless it is there."""
        if not self._cluster.write(body, None):
            raise ConflictError(ApiException(status=409))

    def replace(self, body: Manifest, **_: Any) -> None:
        """Replaces it, unless another version is there by now."""
        if not self._cluster.write(body, body["metadata"]["resourceVersion"]):
            raise ConflictError(ApiException(status=409))


def open_client(cluster: ModelCluster) -> Any:
    """A client that knows of nothing but Leases."""
    leases = ModelLeases(cluster)
    return SimpleNamespace(resources=SimpleNamespace(get=lambda **_: leases))
