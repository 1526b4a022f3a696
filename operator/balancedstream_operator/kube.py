"""Reads and writes objects of the cluster; blocks, so call it from a thread."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient, Resource
from kubernetes.dynamic.exceptions import NotFoundError
from urllib3.exceptions import HTTPError

from balancedstream_operator.errors import ClusterError
from balancedstream_operator.resource import API_VERSION, KIND, Manifest

FIELD_MANAGER = "balancedstream"
PLAN_MANAGER = "balancedstream-plan"
"""Another owner for the plan's text: applying the rest of its ConfigMap must not remove it."""

TIMEOUT_S = (5, 20)
CONNECTIONS = 32

# The server asks to come back later.
_LATER = {408, 409, 429}


@contextmanager
def _said_plainly(what: str) -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        refused = 400 <= (error.status or 0) < 500 and error.status not in _LATER
        message = f"the API server did not {what}: {_reason_of(error)}"
        raise ClusterError(message, refused=refused) from error
    except HTTPError as error:
        message = f"the API server cannot be reached to {what}: {error}"
        raise ClusterError(message, refused=False) from error


def _reason_of(error: ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)


class KubernetesCluster:
    """The API server, as the operator's service account, or as KUBECONFIG says outside a pod.

    Every method raises ClusterError when the server cannot be reached or refuses.
    """

    def __init__(self) -> None:
        configuration = client.Configuration()
        configuration.connection_pool_maxsize = CONNECTIONS
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            config.load_kube_config(client_configuration=configuration)
        self._client = DynamicClient(client.ApiClient(configuration))
        self._resources: dict[tuple[str, str], Resource] = {}

    def get(self, version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        """An object, or None if there is none of that name."""
        try:
            with _said_plainly(f"give {kind} {name}"):
                found = self._resource(version, kind).get(
                    name=name, namespace=namespace, _request_timeout=TIMEOUT_S
                )
        except ClusterError as error:
            if isinstance(error.__cause__, NotFoundError):
                return None
            raise
        manifest: Manifest = found.to_dict()
        return manifest

    def apply(self, manifest: Manifest) -> None:
        """Makes an object be as the manifest says; fields that others own are taken over."""
        self._apply(manifest, FIELD_MANAGER)

    def apply_plan(self, manifest: Manifest) -> None:
        """The same for a plan, whose text has an owner of its own."""
        self._apply(manifest, PLAN_MANAGER)

    def _apply(self, manifest: Manifest, manager: str) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        with _said_plainly(f"take {kind} {name}"):
            self._resource(manifest["apiVersion"], kind).server_side_apply(
                body=manifest,
                field_manager=manager,
                force_conflicts=True,
                _request_timeout=TIMEOUT_S,
            )

    def delete_pod(self, namespace: str, name: str) -> None:
        """Deletes a pod in peace; one that is gone already is fine."""
        with _said_plainly(f"delete pod {name}"), suppress(NotFoundError):
            self._resource("v1", "Pod").delete(
                name=name, namespace=namespace, _request_timeout=TIMEOUT_S
            )

    def write_status(self, namespace: str, name: str, status: dict[str, Any]) -> None:
        """Replaces fields of a BalancedStream's status; one that is gone already is fine."""
        with _said_plainly(f"take the status of {name}"), suppress(NotFoundError):
            self._resource(API_VERSION, KIND).status.patch(
                body={"metadata": {"name": name, "namespace": namespace}, "status": status},
                namespace=namespace,
                name=name,
                content_type="application/merge-patch+json",
                _request_timeout=TIMEOUT_S,
            )

    def _resource(self, version: str, kind: str) -> Resource:
        key = version, kind
        if key not in self._resources:
            self._resources[key] = self._client.resources.get(api_version=version, kind=kind)
        return self._resources[key]
