"""The API server, by the kubeconfig that kubectl uses: the plugin's only way to anything."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError, ResourceNotFoundError
from urllib3 import HTTPHeaderDict, disable_warnings
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from balancedstream.errors import BalancedStreamError
from balancedstream_operator.api.resource import API_VERSION, KIND, Manifest
from balancedstream_operator.errors import (
    ClusterError,
    NoClusterError,
    NoStreamError,
    UnreachableError,
)
from balancedstream_operator.kube.client import (
    TIMEOUT_S,
    ask,
    limit_time,
    set_annotation,
    translate_errors,
)
from balancedstream_operator.kube.reading import read_json
from balancedstream_operator.kubectl.kubeconfig import Choice, Chosen, choose, impersonate
from balancedstream_operator.kubectl.rights import Right
from balancedstream_operator.kubectl.services import Service

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""In each pod: its namespace."""

_REVIEWS = "authorization.k8s.io/v1"


class Connection:
    """One cluster, as one person.

    Every method raises ClusterError when the server cannot be reached or refuses the request.

    Attributes:
        namespace: of the context, or of the pod.

    Raises:
        NoClusterError: there is no kubeconfig, or it cannot be used.
        ClusterError: the server cannot be reached.
    """

    def __init__(self, choice: Choice) -> None:
        configuration = client.Configuration()
        chosen = choose(choice, os.environ)
        if chosen is None:
            self.namespace = _be_a_pod(configuration)
            headers = impersonate(choice, {}, "")
        else:
            self.namespace = chosen.namespace
            headers = chosen.headers
            _log_in(chosen, configuration)
        # The person is there to try again.
        configuration.retries = False
        if not configuration.verify_ssl:
            disable_warnings(InsecureRequestWarning)
        try:
            api = client.ApiClient(configuration)
        # Certificates and proxies of any kind are read here.
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            message = f"{configuration.host} cannot be connected to as configured: {said}"
            raise NoClusterError(message) from error
        _send_with(api.rest_client, headers)
        limit_time(api.rest_client)
        with _translate("say what it knows"):
            self._client = DynamicClient(api)

    def get(self, version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        """An object, or None if it, or its kind, does not exist."""
        absent = suppress(NotFoundError, ResourceNotFoundError)
        with _translate(f"return {kind} {name}"), absent:
            found = ask(self._resource(version, kind).get, name=name, namespace=namespace or None)
            manifest: Manifest = read_json(found)
            return manifest
        return None

    def find(self, version: str, kind: str, namespace: str, selector: str = "") -> list[Manifest]:
        """The objects of a kind; of all namespaces if none is given."""
        with _translate(f"list {kind}s"), suppress(ResourceNotFoundError):
            found = ask(
                self._resource(version, kind).get,
                namespace=namespace or None,
                label_selector=selector or None,
            )
            items: list[Manifest] = read_json(found)["items"]
            return items
        return []

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
        with _translate(f"annotate {metadata['name']}"):
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
            with _translate(f"ask {service}"):
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

        `account` is `system:serviceaccount:NAMESPACE:NAME`, or empty for the person; an empty
        `namespace` means all.
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
        with _translate(f"say who may {right}"):
            answer = self._resource(_REVIEWS, kind).create(
                body={"apiVersion": _REVIEWS, "kind": kind, "spec": spec},
                _request_timeout=TIMEOUT_S,
            )
        return bool(answer.to_dict().get("status", {}).get("allowed"))

    def _resource(self, version: str, kind: str) -> Any:
        return self._client.resources.get(api_version=version, kind=kind)


@contextmanager
def _translate(what: str) -> Iterator[None]:
    """Errors become ClusterErrors; also those of the client over an answer that is none."""
    with translate_errors(what):
        try:
            yield
        except (ApiException, HTTPError, ResourceNotFoundError, BalancedStreamError):
            raise
        except OSError as error:
            message = f"the API server cannot be reached to {what}: {error}"
            raise UnreachableError(message) from error
        except Exception as error:
            message = (
                f"what answers in the place of the API server did not {what}: its answer is none "
                f"of Kubernetes ({type(error).__name__}: {error})"
            )
            raise UnreachableError(message) from error


class _Listener(logging.Handler):
    """Keeps what is logged: so the client tells of a credential plugin that failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


def _log_in(chosen: Chosen, configuration: Any) -> None:
    """Takes cluster and user of a kubeconfig."""
    name = chosen.user_name
    one = "chosen"
    content = {
        "current-context": one,
        "contexts": [{"name": one, "context": {"cluster": one, "user": one}}],
        "clusters": [{"name": one, "cluster": chosen.cluster}],
        "users": [{"name": one, "user": chosen.user}],
    }
    listener = _Listener()
    logging.getLogger().addHandler(listener)
    try:
        config.load_kube_config_from_dict(content, one, configuration)
    # The client checks nothing of what it reads.
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        message = f"the kubeconfig cannot be used with user {name or '(nobody)'}: {said}"
        raise NoClusterError(message) from error
    finally:
        logging.getLogger().removeHandler(listener)
    if listener.heard and "exec" in chosen.user:
        message = f"the credential plugin of user {name} gave no credentials: {listener.heard[-1]}"
        raise NoClusterError(message)


def _be_a_pod(configuration: Any) -> str:
    """Takes the ServiceAccount of the pod that this runs in; returns its namespace."""
    try:
        config.load_incluster_config(client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        message = (
            "no kubeconfig names one, and this is no pod "
            f"({error}). Check KUBECONFIG and --kubeconfig"
        )
        raise NoClusterError(message) from error
    try:
        own = NAMESPACE_FILE.read_text("utf-8").strip()
    except OSError:
        own = ""
    return os.environ.get("POD_NAMESPACE") or own or "default"


def _send_with(rest: Any, headers: Iterable[tuple[str, str]]) -> None:
    """Adds headers to each request; one that is there twice, such as a group, is sent twice."""
    extra = list(headers)
    send = rest.request

    def request(*args: Any, headers: Mapping[str, str] | None = None, **kwargs: Any) -> Any:
        every = HTTPHeaderDict(headers or {})
        for name, value in extra:
            every.add(name, value)
        return send(*args, headers=every, **kwargs)

    if extra:
        rest.request = request


def _parse(body: str | bytes | None) -> object:
    try:
        return json.loads(body or "")
    except (ValueError, RecursionError):
        return body
