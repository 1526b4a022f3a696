"""The API server, by the kubeconfig that kubectl uses: the plugin's only way to anything."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError, ResourceNotFoundError
from urllib3.exceptions import HTTPError

from balancedstream_operator.errors import ClusterError
from balancedstream_operator.kube import TIMEOUT_S, set_annotation, translate_errors
from balancedstream_operator.plugin.errors import NoClusterError, NoStreamError
from balancedstream_operator.plugin.rights import Right
from balancedstream_operator.plugin.services import Service
from balancedstream_operator.reading import read_json
from balancedstream_operator.resource import API_VERSION, KIND, Manifest

_REVIEWS = "authorization.k8s.io/v1"


class Connection:
    """One cluster, as one person.

    Every method raises ClusterError when the server cannot be reached or refuses the request.

    Args:
        context: of the kubeconfig; None for the current one.

    Attributes:
        namespace: of that context.

    Raises:
        NoClusterError: there is no kubeconfig, or no such context.
        ClusterError: the server cannot be reached.
    """

    def __init__(self, context: str | None = None) -> None:
        configuration = client.Configuration()
        try:
            config.load_kube_config(context=context, client_configuration=configuration)
            contexts, current = config.list_kube_config_contexts()
        except config.ConfigException as error:
            message = f"there is no cluster to talk to: {error}. Check KUBECONFIG and --context"
            raise NoClusterError(message) from error
        used = next((c for c in contexts if c["name"] == context), current)
        self.namespace: str = used["context"].get("namespace") or "default"
        # The person is there to try again.
        configuration.retries = False
        with translate_errors("say what it knows"):
            self._client = DynamicClient(client.ApiClient(configuration))

    def get(self, version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        """An object, or None if it, or its kind, does not exist."""
        try:
            with translate_errors(f"return {kind} {name}"):
                found = self._resource(version, kind).get(
                    name=name,
                    namespace=namespace or None,
                    serialize=False,
                    _request_timeout=TIMEOUT_S,
                )
                manifest: Manifest = read_json(found.data)
        except ClusterError as error:
            if isinstance(error.__cause__, NotFoundError | ResourceNotFoundError):
                return None
            raise
        return manifest

    def find(self, version: str, kind: str, namespace: str, selector: str = "") -> list[Manifest]:
        """The objects of a kind; of all namespaces if none is given."""
        try:
            with translate_errors(f"list {kind}s"):
                found = self._resource(version, kind).get(
                    namespace=namespace or None,
                    label_selector=selector or None,
                    serialize=False,
                    _request_timeout=TIMEOUT_S,
                )
                items: list[Manifest] = read_json(found.data)["items"]
        except ClusterError as error:
            if isinstance(error.__cause__, ResourceNotFoundError):
                return []
            raise
        return items

    def get_stream(self, namespace: str, name: str) -> Manifest:
        """A BalancedStream.

        Raises:
            NoStreamError: it does not exist.
        """
        found = self.get(API_VERSION, KIND, namespace, name)
        if found is None:
            message = (
                f"there is no BalancedStream {name} in namespace {namespace}, or this cluster does "
                "not know BalancedStreams: see kubectl get bst -A, and kubectl bst doctor"
            )
            raise NoStreamError(message)
        return found

    def annotate(self, stream: Manifest, name: str, value: str | None) -> None:
        """Sets an annotation of a BalancedStream; None removes it."""
        metadata = stream["metadata"]
        with translate_errors(f"annotate {metadata['name']}"):
            set_annotation(self._resource(API_VERSION, KIND), metadata, name, value)

    def ask(self, service: Service, query: str) -> tuple[int, object]:
        """What the Prometheus behind a Service, or the API server in its place, answers to a query.

        Returns:
            The status by HTTP, and the answer: parsed if it is JSON.
        """
        path = (
            f"/api/v1/namespaces/{service.namespace}/services/"
            f"{service.scheme}:{service.name}:{service.port}/proxy{service.path}/api/v1/query"
        )
        try:
            with translate_errors(f"ask {service}"):
                found = self._client.request(
                    "get",
                    path,
                    query_params=[("query", query)],
                    serialize=False,
                    _request_timeout=TIMEOUT_S,
                )
                return HTTPStatus.OK, _parse(found.data)
        except ClusterError as error:
            cause = error.__cause__
            if not isinstance(cause, ApiException):
                raise
            return cause.status, _parse(cause.body)

    def may(self, right: Right, namespace: str, account: str = "") -> bool:
        """Whether the person, or an account, has a right.

        Args:
            right: to do what.
            namespace: where; empty for all.
            account: `system:serviceaccount:NAMESPACE:NAME`; empty for the person.
        """
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
            "namespace": namespace,
        }
        kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
        spec: dict[str, Any] = {"resourceAttributes": attributes}
        if account:
            spec["user"] = account
        with translate_errors(f"say who may {right}"):
            answer = self._resource(_REVIEWS, kind).create(
                body={"apiVersion": _REVIEWS, "kind": kind, "spec": spec},
                _request_timeout=TIMEOUT_S,
            )
        return bool(answer.to_dict().get("status", {}).get("allowed"))

    def _resource(self, version: str, kind: str) -> Any:
        try:
            return self._client.resources.get(api_version=version, kind=kind)
        except HTTPError as error:
            message = f"the API server cannot be reached to find {kind}s: {error}"
            raise ClusterError(message, refused=False) from error


def _parse(body: str | bytes | None) -> object:
    try:
        return json.loads(body or "")
    except ValueError:
        return body
