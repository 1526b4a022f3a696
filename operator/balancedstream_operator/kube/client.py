"""Reads and writes Kubernetes objects; the calls block, so make them from a thread."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient, Resource
from kubernetes.dynamic.exceptions import (
    ConflictError,
    NotFoundError,
    ResourceNotFoundError,
    UnprocessibleEntityError,
)
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

from balancedstream_operator.api.resource import API_VERSION, KIND, Manifest, Stream
from balancedstream_operator.errors import ClusterError, RefusedError, UnreachableError
from balancedstream_operator.kube.reading import read_json, read_stream
from balancedstream_operator.kube.refusals import advise

FIELD_MANAGER = "balancedstream"
PLAN_MANAGER = "balancedstream-plan"
"""A field manager of its own, so that applying the plan's ConfigMap keeps the plan's text."""

TIMEOUT_S = (5, 20)
CONNECTIONS = 32

PAGE = 100
"""Pods of one answer: each may have more than a megabyte."""

# Timeout, conflict and too many requests: a retry may succeed.
_LATER = {408, 409, 429}

_NO_OBJECT_OF_ITS_KIND = "failed to create typed patch object"
"""How the API server says, with status 500, that what is applied has a field that its kind has not,
or one of another type."""

_ONLY_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that YAML takes for ends of lines, or not at all."""

_OTHER_UID = {409: "uid mismatch", 422: "metadata.uid: Invalid value"}
"""How the API server refuses to apply a uid: because no object has the name, or one that has
another uid."""


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Errors of the client become ClusterErrors: what was not done, and whether to try again."""
    try:
        yield
    except ApiException as error:
        status, reason = error.status or 0, _reason_of(error)
        message, advice = f"the API server did not {what}: {reason}", advise(status, reason)
        refused = 400 <= status < 500 and status not in _LATER
        if refused or reason.startswith(_NO_OBJECT_OF_ITS_KIND):
            raise RefusedError(message, passes=advice.passes, advice=advice.text) from error
        wait_s = _wait_of(error)
        raise UnreachableError(message, retry_after_s=wait_s, advice=advice.text) from error
    except HTTPError as error:
        message = f"the API server cannot be reached to {what}: {error}"
        raise UnreachableError(message) from error
    except ResourceNotFoundError as error:
        # The definition of the object was deleted, or is not there yet.
        message = f"the API server did not {what}: it does not know such objects ({error})"
        raise UnreachableError(message) from error
    except ValueError as error:
        message = f"the API server did not {what}: its answer is not JSON; a proxy may have sent it"
        raise UnreachableError(message) from error


def _is_of_another_object(error: ClusterError) -> bool:
    """Whether the applied uid is that of another object, or of a deleted one."""
    cause = error.__cause__
    return isinstance(cause, ApiException) and any(
        cause.status == status and said in _reason_of(cause) for status, said in _OTHER_UID.items()
    )


def _wait_of(error: ApiException) -> float:
    """The seconds that the server asks to wait for; 0 if it does not."""
    try:
        return float((error.headers or {}).get("Retry-After") or 0.0)
    except ValueError:
        return 0.0


def _reason_of(error: ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)


def render(manifest: Manifest) -> bytes:
    r"""A manifest as JSON that is YAML, too, which server-side apply reads it as.

    YAML has no pairs of escapes for characters beyond U+FFFF, and takes some others, such as DEL,
    only with escapes.

    >>> render({"a": chr(0x1F600)}).decode() == '{"a": "' + chr(0x1F600) + '"}'
    True
    >>> render({"a": chr(0x7F)})
    b'{"a": "\\u007f"}'
    """
    text = json.dumps(manifest, ensure_ascii=False)
    return _ONLY_ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def connect() -> DynamicClient:
    """The API server, by the pod's service account, or by KUBECONFIG outside a pod."""
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        config.load_kube_config(client_configuration=configuration)
    api_client = client.ApiClient(configuration)
    limit_time(api_client.rest_client)
    return DynamicClient(api_client)


def limit_time(rest_client: Any) -> None:
    """Lets no request wait for ever: those that ask for kinds have no time-out of their own."""
    request = rest_client.request

    def request_in_time(*given: Any, _request_timeout: Any = None, **named: Any) -> Any:
        return request(*given, _request_timeout=_request_timeout or TIMEOUT_S, **named)

    rest_client.request = request_in_time


def ask(call: Callable[..., HTTPResponse], **arguments: Any) -> bytes:
    """The API server's answer, read to its end, so that its connection is used again.

    Only `reading` parses it: it holds whole objects, which may be nested deeper than Python's
    recursion goes.
    """
    return call(**arguments, serialize=False, _request_timeout=TIMEOUT_S).data


def set_annotation(
    resource: Resource, metadata: Mapping[str, Any], name: str, value: str | None
) -> None:
    """Sets an annotation of an object; None removes it.

    The uid makes the server refuse the change if another object has the name by now.
    """
    ask(
        resource.patch,
        body={"metadata": {"uid": metadata["uid"], "annotations": {name: value}}},
        namespace=metadata["namespace"],
        name=metadata["name"],
        content_type="application/merge-patch+json",
    )


class KubernetesCluster:
    """The API server.

    Every method raises ClusterError when the server cannot be reached or refuses the request.
    """

    def __init__(self) -> None:
        self._client = connect()
        self._resources: dict[tuple[str, str], Resource] = {}

    def get(self, version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        """Returns an object, or None if it does not exist."""
        with translate_errors(f"return {kind} {name}"), suppress(NotFoundError):
            answer = ask(self._resource(version, kind).get, name=name, namespace=namespace)
            read = read_stream if kind == KIND else read_json
            manifest: Manifest = read(answer)
            return manifest
        return None

    def list_pods(self, namespace: str, selector: str) -> list[Manifest]:
        """Returns the pods of a namespace ("" for all) that a label selector selects."""
        pods: list[Manifest] = []
        token: str | None = None
        while True:
            with translate_errors(f"list pods with {selector}"):
                answer = ask(
                    self._resource("v1", "Pod").get,
                    namespace=namespace,
                    label_selector=selector,
                    limit=PAGE,
                    _continue=token,
                )
                page = read_json(answer)
            for pod in page["items"]:
                # They are as large as all the rest of a pod, and nobody reads them.
                pod["metadata"].pop("managedFields", None)
                pods.append(pod)
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return pods

    def apply(self, manifest: Manifest, uid: str = "") -> str:
        """Applies a manifest as `Cluster` says, and takes over fields that others own."""
        if uid:
            manifest = {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}
        try:
            return str(self._apply(manifest, FIELD_MANAGER)["metadata"]["uid"])
        except ClusterError as error:
            if uid and _is_of_another_object(error):
                return ""
            raise

    def apply_plan(self, manifest: Manifest) -> Manifest:
        """Applies a plan's ConfigMap, and returns it; the plan has a field manager of its own."""
        return self._apply(manifest, PLAN_MANAGER)

    def _apply(self, manifest: Manifest, manager: str) -> Manifest:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        with translate_errors(f"apply {kind} {name}"):
            applied = ask(
                self._resource(manifest["apiVersion"], kind).server_side_apply,
                body=render(manifest),
                name=name,
                namespace=manifest["metadata"].get("namespace"),
                field_manager=manager,
                force_conflicts=True,
            )
            found: Manifest = read_json(applied)
        return found

    def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a pod with its grace period; a pod that does not exist any more is no error."""
        with translate_errors(f"delete pod {name}"), suppress(NotFoundError):
            ask(
                self._resource("v1", "Pod").delete,
                name=name,
                namespace=namespace,
                body={"preconditions": {"uid": uid}},
            )

    def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a Job after its pods; a Job that does not exist any more is no error."""
        with translate_errors(f"delete Job {name}"), suppress(NotFoundError):
            ask(
                self._resource("batch/v1", "Job").delete,
                name=name,
                namespace=namespace,
                body={"preconditions": {"uid": uid}, "propagationPolicy": "Foreground"},
            )

    def annotate(self, manifest: Manifest, name: str, value: str) -> None:
        """Sets an annotation of an object; an object that does not exist any more is no error."""
        kind, metadata = manifest["kind"], manifest["metadata"]
        with translate_errors(f"annotate {kind} {metadata['name']}"), suppress(NotFoundError):
            set_annotation(self._resource(manifest["apiVersion"], kind), metadata, name, value)

    def create_event(self, manifest: Manifest) -> None:
        """Makes an event."""
        with translate_errors(f"make event {manifest['reason']}"):
            ask(
                self._resource("v1", "Event").create,
                body=manifest,
                namespace=manifest["metadata"]["namespace"],
            )

    def create_secret(self, manifest: Manifest) -> None:
        """Makes a Secret; a Secret of that name stays as it is, and is not read."""
        name = manifest["metadata"]["name"]
        with translate_errors(f"make Secret {name}"):
            try:
                ask(
                    self._resource("v1", "Secret").create,
                    body=manifest,
                    namespace=manifest["metadata"]["namespace"],
                )
            except ConflictError as error:
                # A quota that many requests use at once is a conflict, too.
                if "AlreadyExists" not in str(error.body):
                    raise

    def try_pod(self, manifest: Manifest) -> None:
        """Tries to make a pod in a dry run: admission judges it, and no pod is made."""
        with translate_errors(f"take pod {manifest['metadata']['name']} in a dry run"):
            ask(
                self._resource("v1", "Pod").create,
                body=manifest,
                namespace=manifest["metadata"]["namespace"],
                dry_run="All",
            )

    def may(self, namespace: str, account: str, verb: str, config_map: str) -> bool:
        """Returns whether a ServiceAccount of a namespace may do something with a ConfigMap."""
        attributes = {
            "namespace": namespace,
            "verb": verb,
            "version": "v1",
            "resource": "configmaps",
            "name": config_map,
        }
        spec = {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{namespace}",
                "system:authenticated",
            ],
            "resourceAttributes": attributes,
        }
        version, kind = "authorization.k8s.io/v1", "LocalSubjectAccessReview"
        body = {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"namespace": namespace},
            "spec": spec,
        }
        with translate_errors(f"say whether {account} may {verb} ConfigMap {config_map}"):
            found = read_json(
                ask(self._resource(version, kind).create, body=body, namespace=namespace)
            )
        return bool((found.get("status") or {}).get("allowed"))

    def write_status(self, stream: Stream, status: dict[str, Any]) -> None:
        """Merges fields into a BalancedStream's status; a deleted BalancedStream is no error.

        The uid makes the server refuse the change if another stream has the name by now.
        """
        metadata = {"name": stream.name, "namespace": stream.namespace, "uid": stream.uid}
        with translate_errors(f"update the status of {stream.name}"), suppress(NotFoundError):
            ask(
                self._resource(API_VERSION, KIND).status.patch,
                body={"metadata": metadata, "status": status},
                namespace=stream.namespace,
                name=stream.name,
                content_type="application/merge-patch+json",
            )

    def take_annotation(self, stream: Stream, name: str, value: str) -> bool:
        """Removes an annotation of a BalancedStream; False if it has another value by now."""
        path = f"/metadata/annotations/{name.replace('~', '~0').replace('/', '~1')}"
        steps = [
            {"op": "test", "path": "/metadata/uid", "value": stream.uid},
            {"op": "test", "path": path, "value": value},
            {"op": "remove", "path": path},
        ]
        # The server answers 422 if a test of a JSON patch fails.
        refusals = suppress(NotFoundError, UnprocessibleEntityError)
        with translate_errors(f"remove annotation {name} of {stream.name}"), refusals:
            ask(
                self._resource(API_VERSION, KIND).patch,
                body=steps,
                namespace=stream.namespace,
                name=stream.name,
                content_type="application/json-patch+json",
            )
            return True
        return False

    def set_partitions(self, stream: Stream, partitions: int) -> None:
        """Sets `spec.partitions` of a BalancedStream; a deleted BalancedStream is no error."""
        with translate_errors(f"set spec.partitions of {stream.name}"), suppress(NotFoundError):
            ask(
                self._resource(API_VERSION, KIND).patch,
                body={"metadata": {"uid": stream.uid}, "spec": {"partitions": partitions}},
                namespace=stream.namespace,
                name=stream.name,
                content_type="application/merge-patch+json",
            )

    def _resource(self, version: str, kind: str) -> Resource:
        key = version, kind
        if key not in self._resources:
            self._resources[key] = self._client.resources.get(api_version=version, kind=kind)
        return self._resources[key]
