"""A Kubernetes API server that keeps objects in memory and checks nothing.

It knows the paths, verbs and content types that the operator and the kubectl plugin use: discovery,
get, list, watch, server-side apply, merge patches of a status and of annotations, JSON patches,
delete, events, dry runs, access reviews, Secrets, and Leases, with their versions. An object
without labels is in every list.
"""

from __future__ import annotations

import copy
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from loopback import Request, Response

Manifest = dict[str, Any]

RESOURCES = {
    "/api/v1": {
        "configmaps": "ConfigMap",
        "events": "Event",
        "namespaces": "Namespace",
        "persistentvolumeclaims": "PersistentVolumeClaim",
        "pods": "Pod",
        "secrets": "Secret",
        "serviceaccounts": "ServiceAccount",
        "services": "Service",
    },
    "/apis/apps/v1": {"deployments": "Deployment", "statefulsets": "StatefulSet"},
    "/apis/apiextensions.k8s.io/v1": {"customresourcedefinitions": "CustomResourceDefinition"},
    "/apis/authorization.k8s.io/v1": {
        "localsubjectaccessreviews": "LocalSubjectAccessReview",
        "selfsubjectaccessreviews": "SelfSubjectAccessReview",
        "subjectaccessreviews": "SubjectAccessReview",
    },
    "/apis/rbac.authorization.k8s.io/v1": {"roles": "Role", "rolebindings": "RoleBinding"},
    "/apis/balancedstream.io/v1alpha1": {"balancedstreams": "BalancedStream"},
    "/apis/batch/v1": {"jobs": "Job"},
    "/apis/policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "/apis/coordination.k8s.io/v1": {"leases": "Lease"},
}
CLUSTER_WIDE = {
    "Namespace",
    "CustomResourceDefinition",
    "SelfSubjectAccessReview",
    "SubjectAccessReview",
}
REVIEWS = {"localsubjectaccessreviews", "selfsubjectaccessreviews", "subjectaccessreviews"}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class ApiServer:
    """Answers requests from the objects that it keeps.

    Attributes:
        objects: path of each object, and the object.
        requests: every request, oldest first.
        refusals: path of an object to the status and the message with which writes of it fail.
        retry_after: header of these answers; empty for none.
        forbidden: what access reviews deny, such as `SelfSubjectAccessReview patch pods`;
            everywhere, or only `in` a namespace.
        hidden: paths that this client may not use.
        broken: path to the answer that it gives, whatever is asked.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Manifest] = {}
        self.requests: list[Request] = []
        self.refusals: dict[str, tuple[int, str]] = {}
        self.retry_after = ""
        self.forbidden: set[str] = set()
        self.hidden: set[str] = set()
        self.broken: dict[str, Response] = {}
        self._lock = threading.Lock()
        self._watches: list[queue.Queue[Any]] = []
        # All that watches of BalancedStreams were told; a version is how many there were.
        self._told: list[Manifest] = []

    def put(self, path: str, manifest: Manifest) -> None:
        """Keeps an object, and sends it to watches of BalancedStreams."""
        with self._lock:
            self._keep(path, manifest)

    def remove(self, path: str) -> None:
        """Deletes an object, and sends that to watches of BalancedStreams."""
        with self._lock:
            self._notify("DELETED", self.objects.pop(path))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Answers no request until it is over."""
        with self._lock:
            yield

    def close_watches(self) -> None:
        """Ends all watches; clients start new ones, or stop."""
        with self._lock:
            for watch in self._watches:
                watch.put(None)
            self._watches.clear()

    def answer(self, request: Request) -> Response:
        """The response to a request."""
        with self._lock:
            self.requests.append(request)
            if request.path in self.broken:
                return self.broken[request.path]
            if request.path in self.hidden:
                return refuse(403, f"forbidden: you cannot use {request.path}")
            if request.method == "GET":
                return self._get(request)
            if request.path in self.refusals:
                status, message = self.refusals[request.path]
                refused = refuse(status, message)
                headers = {"Retry-After": self.retry_after} if self.retry_after else {}
                return Response(refused.body, status, headers)
            match request.method:
                case "PATCH":
                    return self._patch(request)
                case "DELETE" if request.path in self.objects:
                    return Response(self.objects.pop(request.path))
                case "PUT":
                    return self._replace(request)
                case "POST" if request.path.rpartition("/")[2] in REVIEWS:
                    return Response(self._review(json.loads(request.body)), 201)
                case "POST" if request.path.endswith(("/leases", "/secrets")):
                    return self._create(request)
                case "POST" if request.query.get("dryRun") == "All":
                    return Response(json.loads(request.body), 201)
                case "POST":
                    created = json.loads(request.body)
                    self.objects[f"{request.path}/{len(self.requests)}"] = created
                    return Response(created, 201)
            return refuse(404, f"{request.path} not found")

    def _get(self, request: Request) -> Response:
        path = request.path.rstrip("/")
        if path in self.objects:
            return Response(self.objects[path])
        if path == "/version":
            return Response({"major": "1", "minor": "34", "gitVersion": "v1.34.0"})
        if path == "/api":
            return Response({"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            return Response({"kind": "APIGroupList", "groups": [*map(describe_group, GROUPS)]})
        if path in RESOURCES:
            return Response(describe_resources(path))
        if path.rpartition("/")[2] not in {name for kinds in RESOURCES.values() for name in kinds}:
            return refuse(404, f"{path} not found")
        if request.query.get("watch") == "true":
            watch: queue.Queue[Any] = queue.Queue()
            for event in self._told[int(request.query.get("resourceVersion", len(self._told))) :]:
                watch.put(event)
            self._watches.append(watch)
            return Response(iter(watch.get, None))
        prefix, _, plural = path.rpartition("/")
        spread = prefix in RESOURCES and RESOURCES[prefix].get(plural) not in CLUSTER_WIDE
        items = [
            o
            for key, o in self.objects.items()
            if key.rpartition("/")[0] == path
            or (spread and key.startswith(f"{prefix}/") and key.split("/")[-2] == plural)
        ]
        wanted = dict(
            part.split("=") for part in request.query.get("labelSelector", "").split(",") if part
        )
        items = [o for o in items if wanted.items() <= o["metadata"].get("labels", wanted).items()]
        return Response(
            {
                "kind": "List",
                "apiVersion": "v1",
                "items": items,
                "metadata": {"resourceVersion": str(len(self._told))},
            }
        )

    def _create(self, request: Request) -> Response:
        made = json.loads(request.body)
        path = f"{request.path}/{made['metadata']['name']}"
        if path in self.objects:
            return refuse(409, f"{path} already exists", "AlreadyExists")
        made["metadata"]["resourceVersion"] = str(len(self.requests))
        self.objects[path] = made
        return Response(made, 201)

    def _replace(self, request: Request) -> Response:
        made, kept = json.loads(request.body), self.objects.get(request.path)
        if kept is None:
            return refuse(404, f"{request.path} not found")
        if made["metadata"]["resourceVersion"] != kept["metadata"]["resourceVersion"]:
            return refuse(409, "the object has been modified")
        made["metadata"]["resourceVersion"] = str(len(self.requests))
        self.objects[request.path] = made
        return Response(made)

    def _review(self, review: Manifest) -> Manifest:
        asked = review["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        right = f"{review['kind']} {asked['verb']} {resource}"
        denied = {right, f"{right} in {asked.get('namespace')}"} & self.forbidden
        return {**review, "status": {"allowed": not denied}}

    def _patch(self, request: Request) -> Response:
        path, of_status, part = request.path.partition("/status")
        if request.content_type in {"application/merge-patch+json", "application/json-patch+json"}:
            if path not in self.objects:
                return refuse(404, f"{path} not found")
            kept = copy.deepcopy(self.objects[path])
            change = json.loads(request.body)
            if isinstance(change, list):
                if not all(take_step(kept, step) for step in change):
                    return refuse(422, "the server rejected our request due to an error in it")
            elif of_status:
                kept["status"] = merge(kept.get("status"), change["status"])
            else:
                if change["metadata"].get("uid") not in {None, kept["metadata"].get("uid")}:
                    return refuse(409, "the object has another uid")
                metadata = kept["metadata"]
                asked = change["metadata"]["annotations"]
                metadata["annotations"] = merge(metadata.get("annotations"), asked)
            self._keep(path, kept)
            return Response(kept)
        assert request.content_type == "application/apply-patch+yaml", request.content_type
        assert not part
        return self._apply(path, yaml.safe_load(request.body))

    def _apply(self, path: str, manifest: Manifest) -> Response:
        """What the API server answers to a server-side apply, in its words."""
        kept = self.objects.get(path, {})
        given, there = manifest["metadata"].get("uid"), kept.get("metadata", {}).get("uid")
        if given and kept and given != there:
            message = f'is invalid: metadata.uid: Invalid value: "{given}": field is immutable'
            return refuse(422, f"{path} {message}")
        if given and not kept:
            said = f"the provided object specified uid {given}, and no existing object was found"
            return refuse(409, f"Operation cannot be fulfilled on {path}: uid mismatch: {said}")
        manifest["metadata"]["uid"] = there or f"uid-{len(self.requests)}"
        self._keep(path, {**kept, **manifest})
        return Response(self.objects[path])

    def _keep(self, path: str, manifest: Manifest) -> None:
        known = path in self.objects
        self.objects[path] = manifest
        self._notify("MODIFIED" if known else "ADDED", manifest)

    def _notify(self, what: str, manifest: Manifest) -> None:
        if manifest.get("kind") == "BalancedStream":
            event = {"type": what, "object": copy.deepcopy(manifest)}
            self._told.append(event)
            for watch in self._watches:
                watch.put(event)


def merge(kept: Manifest | None, change: Manifest) -> Manifest:
    """A merge patch of one level: None removes a field."""
    merged = {**(kept or {}), **change}
    return {name: value for name, value in merged.items() if value is not None}


def take_step(manifest: Manifest, step: Manifest) -> bool:
    """One step of a JSON patch, `test` or `remove`; whether it could be taken."""
    *folders, name = (
        part.replace("~1", "/").replace("~0", "~") for part in step["path"].strip("/").split("/")
    )
    for folder in folders:
        manifest = manifest.get(folder) or {}
    if name not in manifest:
        return False
    if step["op"] == "test":
        return bool(manifest[name] == step["value"])
    del manifest[name]
    return True


GROUPS = [path.removeprefix("/apis/") for path in RESOURCES if path.startswith("/apis/")]


def describe_group(group_version: str) -> Manifest:
    group, version = group_version.split("/")
    found = {"groupVersion": group_version, "version": version}
    return {"name": group, "versions": [found], "preferredVersion": found}


def describe_resources(path: str) -> Manifest:
    resources = []
    for name, kind in RESOURCES[path].items():
        described = {
            "name": name,
            "singularName": kind.lower(),
            "kind": kind,
            "namespaced": kind not in CLUSTER_WIDE,
            "verbs": VERBS,
        }
        resources.append(described)
        if kind == "BalancedStream":
            resources.append({**described, "name": f"{name}/status", "verbs": ["get", "patch"]})
    version = path.removeprefix("/apis/").removeprefix("/api/")
    return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}


def refuse(status: int, message: str, reason: str = "") -> Response:
    """A failure as the API server words it."""
    body = {"kind": "Status", "status": "Failure", "message": message, "code": status}
    return Response(body | ({"reason": reason} if reason else {}), status)


def write_kubeconfig(url: str) -> str:
    """A kubeconfig for the server at a URL, without any credentials."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "loopback",
            "contexts": [{"name": "loopback", "context": {"cluster": "loopback", "user": "me"}}],
            "clusters": [{"name": "loopback", "cluster": {"server": url}}],
            "users": [{"name": "me", "user": {}}],
        }
    )


def path_of(kind: str, name: str, namespace: str = "shop") -> str:
    """The path of an object."""
    for prefix, kinds in RESOURCES.items():
        for plural, known in kinds.items():
            if known == kind and kind in CLUSTER_WIDE:
                return f"{prefix}/{plural}/{name}"
            if known == kind:
                return f"{prefix}/namespaces/{namespace}/{plural}/{name}"
    message = f"this server knows no {kind}"
    raise ValueError(message)
