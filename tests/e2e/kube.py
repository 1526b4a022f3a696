"""The cluster's API as the tests use it, and the commands that a person types."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from clusters import Cluster
from kubernetes import client, config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError
from waiting import wait_until

from balancedstream_operator.kube.client import render

Manifest = dict[str, Any]

FIELD_MANAGER = "e2e"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
NO_RIGHTS_TO_GAIN: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""A container's securityContext under Pod Security `restricted`."""
UNPRIVILEGED_POD: Manifest = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "fsGroup": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""A pod's securityContext under Pod Security `restricted`."""


class Kube:
    """One cluster's API, by the administrator's account."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        api = config.new_client_from_config(str(cluster.kubeconfig))
        self._core = client.CoreV1Api(api)
        self._dynamic = DynamicClient(api)
        # A kind that is not known yet empties its cache, while other threads look into it.
        self._discovery = threading.Lock()

    @cached_property
    def node_address(self) -> str:
        """The node's address, where its NodePorts answer this machine."""
        (node, *_) = self.find_all("v1", "Node")
        addresses = {a["type"]: a["address"] for a in node["status"]["addresses"]}
        return str(addresses["InternalIP"])

    @cached_property
    def own_address(self) -> str:
        """This machine's address for pods."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((self.node_address, 1))
            return str(probe.getsockname()[0])

    def apply(self, *manifests: Manifest) -> Manifest:
        """Server-side apply; returns the last object as the API server answered it."""
        answer: Manifest = {}
        for manifest in manifests:
            answer = self._apply(manifest, FIELD_MANAGER)
        return answer

    def try_to_apply(self, manifest: Manifest, field_manager: str) -> Manifest:
        """What server-side apply would make of an object; nothing is written."""
        return self._apply(manifest, field_manager, dry_run="All")

    def _apply(self, manifest: Manifest, field_manager: str, **options: str) -> Manifest:
        answer = self._dynamic.server_side_apply(
            self._resource(manifest["apiVersion"], manifest["kind"]),
            body=render(manifest),
            name=manifest["metadata"]["name"],
            namespace=manifest["metadata"].get("namespace"),
            field_manager=field_manager,
            force_conflicts=True,
            **options,
        )
        return _plain(answer)

    def merge(
        self, api_version: str, kind: str, name: str, change: Manifest, *, namespace: str = ""
    ) -> Manifest:
        """A JSON merge patch: None removes a field."""
        resource = self._resource(api_version, kind)
        patched = resource.patch(
            body=change,
            name=name,
            namespace=namespace or None,
            content_type="application/merge-patch+json",
        )
        return _plain(patched)

    def find(
        self, api_version: str, kind: str, name: str, *, namespace: str = ""
    ) -> Manifest | None:
        """The object, or None."""
        try:
            found = self._resource(api_version, kind).get(name=name, namespace=namespace or None)
        except NotFoundError:
            return None
        return _plain(found)

    def find_all(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> list[Manifest]:
        """All objects of a kind, in one namespace or in all, with these labels."""
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        answer = self._resource(api_version, kind).get(
            namespace=namespace or None, label_selector=selector or None
        )
        items: list[Manifest] = _plain(answer)["items"]
        return items

    def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        *,
        namespace: str = "",
        grace_s: int | None = None,
    ) -> None:
        """Asks for the deletion; it is not waited for. What is not there is fine."""
        body = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        try:
            self._resource(api_version, kind).delete(
                name=name, namespace=namespace or None, body=body
            )
        except NotFoundError:
            return

    def pods(self, namespace: str, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        """Pods that are not being deleted."""
        pods = self.find_all("v1", "Pod", namespace=namespace, labels=labels)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def log(self, namespace: str, pod: str, *, previous: bool = False) -> str:
        """A pod's log; `previous` is that of its container before the last restart."""
        text: str = self._core.read_namespaced_pod_log(pod, namespace, previous=previous)
        return text

    def wait_for_rollout(self, namespace: str, deployment: str, *, timeout_s: float = 120) -> None:
        """Until every pod of a Deployment is of its present form, and ready."""
        try:
            self.kubectl(
                "rollout", "status", f"deployment/{deployment}", f"--timeout={timeout_s:.0f}s",
                namespace=namespace,
            )  # fmt: skip
        except AssertionError as error:
            log = self.kubectl(
                "logs", f"deployment/{deployment}", "--tail=5", namespace=namespace, check=False
            )
            message = f"{error}; {self._explain_waiting(namespace)}; its log ends: {log.strip()}"
            raise AssertionError(message) from error

    def _explain_waiting(self, namespace: str) -> str:
        """What the pods of a namespace wait for, what was warned of last, and how the node is."""
        states = [
            f"pod {pod['metadata']['name']}: {entry.get('state')}, last {entry.get('lastState')}"
            for pod in self.find_all("v1", "Pod", namespace=namespace)
            for entry in pod["status"].get("containerStatuses") or [{"state": pod["status"]}]
        ]
        warnings = [
            f"{event['reason']}: {event['message']}"
            for event in self.find_all("v1", "Event", namespace=namespace)
            if event["type"] == "Warning"
        ]
        conditions = [
            f"node {condition['type']} {condition['status']}: {condition['message']}"
            for node in self.find_all("v1", "Node")
            for condition in node["status"]["conditions"]
            if (condition["status"] == "True") != (condition["type"] == "Ready")
        ]
        return "; ".join([*states, *warnings[-3:], *conditions])

    def wait_for_absence(
        self, api_version: str, kind: str, name: str, *, namespace: str = "", timeout_s: float = 90
    ) -> None:
        """Until the object is gone."""
        wait_until(
            f"the end of {kind} {name}",
            lambda: self.find(api_version, kind, name, namespace=namespace) is None,
            timeout_s=timeout_s,
            last_seen=lambda: self.find(api_version, kind, name, namespace=namespace),
        )

    def kubectl(
        self, *arguments: str, namespace: str = "", stdin: str = "", check: bool = True
    ) -> str:
        """What `kubectl ARGUMENTS` prints, on both streams where it is not `check`ed."""
        scope = ["--namespace", namespace] if namespace else []
        return self._type([str(self._cluster.kubectl), *scope, *arguments], stdin, check=check)

    def helm(self, *arguments: str, check: bool = True) -> str:
        """What `helm ARGUMENTS` prints, on both streams where it is not `check`ed."""
        return self._type([str(self._cluster.helm), *arguments], "", check=check)

    def may(self, account: str, verb: str, resource: str, *, namespace: str) -> bool:
        """`kubectl auth can-i`, for `NAMESPACE:NAME` of a service account.

        Args:
            account: `namespace:name` of the service account.
            verb: such as `get`.
            resource: as typed: `pods`, `configmaps/a-name` or `pods --subresource=exec`.
            namespace: where.
        """
        answer = self.kubectl(
            "auth", "can-i", verb, *resource.split(), f"--as=system:serviceaccount:{account}",
            namespace=namespace, check=False,
        )  # fmt: skip
        return answer.strip().splitlines()[-1] == "yes"

    def _type(self, command: Sequence[str], stdin: str, *, check: bool) -> str:
        ended = subprocess.run(
            command,
            env={**os.environ, "KUBECONFIG": str(self._cluster.kubeconfig)},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if not check:
            return ended.stdout + ended.stderr
        if ended.returncode != 0:
            message = f"{' '.join(command)} failed: {ended.stderr.strip() or ended.stdout.strip()}"
            raise AssertionError(message)
        return ended.stdout

    def _resource(self, api_version: str, kind: str) -> Any:
        with self._discovery:
            return self._dynamic.resources.get(api_version=api_version, kind=kind)


def create_namespace(kube: Kube, name: str) -> None:
    """A namespace that enforces Pod Security `restricted`."""
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": RESTRICTED},
        }
    )


def describe_namespace(kube: Kube, namespace: str, folder: Path) -> None:
    """Writes what is needed to understand a failed test: objects, events and logs."""
    folder.mkdir(parents=True, exist_ok=True)
    everything = "balancedstreams,statefulsets,deployments,pods,configmaps,services,pvc,events"
    for kind in everything.split(","):
        shown = kube.kubectl("get", kind, "-o", "yaml", namespace=namespace, check=False)
        (folder / f"{kind}.yaml").write_text(shown)
    for pod in kube.find_all("v1", "Pod", namespace=namespace):
        name = pod["metadata"]["name"]
        for previous in ([], ["--previous"]):
            log = kube.kubectl(
                "logs", name, "--all-containers", *previous, namespace=namespace, check=False
            )
            (folder / f"{name}{'-previous' if previous else ''}.log").write_text(log)


def parse(text: str) -> Manifest:
    """What `kubectl -o json` prints."""
    content: Manifest = json.loads(text)
    return content


def _plain(answer: Any) -> Manifest:
    content: Manifest = answer.to_dict()
    return content
