"""The objects that a stream consists of, as they are in the cluster."""

from __future__ import annotations

from kube import Kube, Manifest
from streams import Stream

VERSIONS = {
    "ConfigMap": "v1",
    "Service": "v1",
    "ServiceAccount": "v1",
    "StatefulSet": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
}
"""Each kind and its version."""

CHILDREN = {
    ("ConfigMap", "NAME-plan"),
    ("ConfigMap", "NAME-answer"),
    ("ConfigMap", "NAME-configuration"),
    ("PodDisruptionBudget", "NAME-driver"),
    ("Role", "NAME-driver"),
    ("RoleBinding", "NAME-driver"),
    ("Service", "NAME-driver"),
    ("ServiceAccount", "NAME-driver"),
    ("StatefulSet", "NAME-driver"),
}
"""Kind and name of each object of a stream that is called NAME."""

_OF_THE_SERVER = {"resourceVersion", "uid", "generation", "creationTimestamp", "managedFields"}


def read_children(kube: Kube, stream: Stream) -> dict[tuple[str, str], Manifest]:
    """What a stream consists of, by kind and name; without what only the server writes."""
    found: dict[tuple[str, str], Manifest] = {}
    labels = {"app.kubernetes.io/instance": stream.name}
    for kind, version in VERSIONS.items():
        for child in kube.find_all(version, kind, namespace=stream.namespace, labels=labels):
            found[kind, child["metadata"]["name"].replace(stream.name, "NAME")] = strip(child)
    return found


def strip(manifest: Manifest) -> Manifest:
    """An object without its status, and without what the server writes into its metadata."""
    metadata = {n: v for n, v in manifest["metadata"].items() if n not in _OF_THE_SERVER}
    content = {name: value for name, value in manifest.items() if name != "status"}
    return {**content, "metadata": metadata}
