"""Servers that the tests put on the cluster: one pod each, under Pod Security `restricted`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube import NO_RIGHTS_TO_GAIN, UNPRIVILEGED_POD, Manifest


def describe_server(
    metadata: Manifest,
    *,
    ports: Sequence[Manifest],
    pod: Manifest,
    annotations: Mapping[str, str] | None = None,
) -> list[Manifest]:
    """A Deployment of one pod, and the Service in front of it.

    Args:
        metadata: of both; its labels are the pod's, too.
        ports: of the Service; one with a `nodePort` answers this machine as well.
        pod: the pod's spec. What it says replaces what is made here, and so does what each of its
            containers says.
        annotations: of the pod.
    """
    labels = metadata["labels"]
    containers = [
        {"imagePullPolicy": "IfNotPresent", "securityContext": NO_RIGHTS_TO_GAIN, **container}
        for container in pod["containers"]
    ]
    reached_from_here = any("nodePort" in port for port in ports)
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "type": "NodePort" if reached_from_here else "ClusterIP",
                "selector": labels,
                # A probe may fail on a busy machine: the only pod is then slow, but not refused.
                "publishNotReadyAddresses": True,
                "ports": [*ports],
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": dict(annotations or {})},
                    "spec": {
                        "securityContext": UNPRIVILEGED_POD,
                        "automountServiceAccountToken": False,
                        "enableServiceLinks": False,
                        **pod,
                        "containers": containers,
                    },
                },
            },
        },
    ]
