"""The Kubernetes objects of a stream, as manifests: pure functions of its name and spec.

The BalancedStream owns every object, so Kubernetes deletes them with it, even without the operator.
The claim with the checkpoints belongs to the user and stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from balancedstream.core.wire.objects import STREAM_LABEL, answer_name, plan_name
from balancedstream_operator.api.resource import API_VERSION, KIND, Manifest, Stream, driver_name
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.children.authentication import has_secret, secret_name
from balancedstream_operator.children.configuration import build_spark_conf, render_properties
from balancedstream_operator.children.pods import (
    BLOCK_MANAGER_PORT,
    DRIVER_PORT,
    METRICS_PORT,
    UI_PORT,
    build_driver_pod,
    build_executor_pod,
    configuration_name,
    driver_account,
    stream_labels,
)
from balancedstream_operator.children.spark_pods import makes_claims


def build_children(
    stream: Stream, spec: StreamSpec, partitions: int, restart: str = "", *, runs: bool = True
) -> list[Manifest]:
    """Every object of a stream, in the order to apply them; its driver has a pod if it `runs`."""
    conf = build_spark_conf(stream, spec, partitions)
    account, own = driver_account(stream, spec), spec.driver.service_account
    claims = [_CLAIM_RULE] if makes_claims(conf) else []
    children = [
        *([_service_account(stream, own.annotations)] if account == driver_name(stream) else []),
        _role(stream, [_POD_RULE, *claims, *_plan_rules(stream)]),
        _role_binding(stream, account),
        *([_secret(stream)] if has_secret(spec) else []),
        _disruption_budget(stream, evictable=spec.driver.evictable),
        _config_map(stream, plan_name(stream.name)),
        _config_map(stream, answer_name(stream.name)),
        _configuration(stream, spec, conf),
        _service(stream),
        _stateful_set(
            stream,
            build_driver_pod(stream, spec, conf, restart),
            replicas=1 if runs and not spec.suspend else 0,
        ),
    ]
    return [mark(child, spec) for child in children]


def mark(child: Manifest, spec: StreamSpec) -> Manifest:
    """The object with the labels and annotations that the spec sets on all objects."""
    metadata = dict(child["metadata"])
    metadata["labels"] = {**spec.labels, **metadata["labels"]}
    annotations = {**spec.annotations, **metadata.get("annotations", {})}
    return {**child, "metadata": metadata | ({"annotations": annotations} if annotations else {})}


def build_target_children(stream: Stream, account: str, spec: StreamSpec) -> list[Manifest]:
    """Every object of a stream whose application another operator runs, in the order to apply them.

    `account` is the driver's if it needs the rights to follow plans; otherwise it is empty.
    """
    rights = [_role(stream, _plan_rules(stream)), _role_binding(stream, account)]
    children = [
        *(rights if account else []),
        _config_map(stream, plan_name(stream.name)),
        _config_map(stream, answer_name(stream.name)),
    ]
    return [mark(child, spec) for child in children]


def build_plan(stream: Stream, data: Mapping[str, str], found: Mapping[str, Any]) -> Manifest:
    """The ConfigMap of a stream's plan.

    Args:
        stream: the owner of the plan.
        data: entries of the ConfigMap, such as the plan as JSON.
        found: metadata of the ConfigMap as last read; empty if there was none. The API server
            refuses to replace any other version of it.
    """
    manifest = _config_map(stream, plan_name(stream.name)) | {"data": dict(data)}
    seen = {name: found[name] for name in ("resourceVersion", "uid") if found.get(name)}
    return manifest | {"metadata": manifest["metadata"] | seen}


def build_object(
    stream: Stream, version: str, kind: str, name: str, component: str = "driver"
) -> Manifest:
    """An object that a stream owns, without its content."""
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": stream.namespace,
            "labels": stream_labels(stream, component),
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": stream.name,
                    "uid": stream.uid,
                    "controller": True,
                }
            ],
        },
    }


def _driver_selector(stream: Stream) -> dict[str, str]:
    labels = stream_labels(stream, "driver")
    return {name: labels[name] for name in ("app.kubernetes.io/name", STREAM_LABEL)}


def _config_map(stream: Stream, name: str) -> Manifest:
    return build_object(stream, "v1", "ConfigMap", name)


def _service_account(stream: Stream, annotations: Mapping[str, str]) -> Manifest:
    account = build_object(stream, "v1", "ServiceAccount", driver_name(stream))
    account["metadata"]["annotations"] = dict(annotations)
    return account | {"automountServiceAccountToken": False}


def _secret(stream: Stream) -> Manifest:
    """The Secret without content: the operator adds random bytes at creation and forgets them."""
    return build_object(stream, "v1", "Secret", secret_name(stream)) | {"immutable": True}


def _disruption_budget(stream: Stream, *, evictable: bool) -> Manifest:
    """The budget always exists: the operator has no right to delete it for an evictable driver."""
    name = driver_name(stream)
    return build_object(stream, "policy/v1", "PodDisruptionBudget", name) | {
        "spec": {
            "maxUnavailable": 1 if evictable else 0,
            "selector": {"matchLabels": _driver_selector(stream)},
        }
    }


_POD_RULE: Manifest = {
    "apiGroups": [""],
    "resources": ["pods"],
    "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
}
"""RBAC cannot select by label, so a driver can delete any pod of its namespace: see
`docs/security.md`."""


_CLAIM_RULE: Manifest = {
    "apiGroups": [""],
    "resources": ["persistentvolumeclaims"],
    "verbs": ["create"],
}
"""For executors with claims of their own; Kubernetes deletes such a claim with its pod."""


def _plan_rules(stream: Stream) -> list[Manifest]:
    return [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [name],
            "verbs": list(verbs),
        }
        for name, verbs in plan_rights(stream).items()
    ]


def plan_rights(stream: Stream) -> dict[str, tuple[str, ...]]:
    """The ConfigMaps of plans and answers, and the verbs that a driver needs on each.

    >>> plan_rights(Stream("default", "clicks", "1"))["clicks-answer"]
    ('get', 'patch')
    """
    return {
        plan_name(stream.name): ("get", "list", "watch"),
        answer_name(stream.name): ("get", "patch"),
    }


def _role(stream: Stream, rules: list[Manifest]) -> Manifest:
    role = build_object(stream, "rbac.authorization.k8s.io/v1", "Role", driver_name(stream))
    return role | {"rules": rules}


def _role_binding(stream: Stream, account: str) -> Manifest:
    name = driver_name(stream)
    binding = build_object(stream, "rbac.authorization.k8s.io/v1", "RoleBinding", name)
    return binding | {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": stream.namespace}],
    }


def _configuration(stream: Stream, spec: StreamSpec, conf: Mapping[str, str]) -> Manifest:
    # The template is JSON, because Spark reads YAML 1.2 and PyYAML writes YAML 1.1: a label 12e4567
    # would arrive as the number Infinity. Spark reads any file that begins with a brace as JSON.
    template = json.dumps(build_executor_pod(stream, spec), indent=2)
    return _config_map(stream, configuration_name(stream)) | {
        "data": {"spark-defaults.conf": render_properties(conf), "executor.yaml": template}
    }


def _service(stream: Stream) -> Manifest:
    """The headless Service that a StatefulSet needs; it gives the driver a DNS name."""
    return build_object(stream, "v1", "Service", driver_name(stream)) | {
        "spec": {
            "clusterIP": "None",
            # Executors connect to their driver while it starts.
            "publishNotReadyAddresses": True,
            "selector": _driver_selector(stream),
            "ports": [
                {"name": "driver", "port": DRIVER_PORT},
                {"name": "block-manager", "port": BLOCK_MANAGER_PORT},
                {"name": "ui", "port": UI_PORT},
                {"name": "metrics", "port": METRICS_PORT},
            ],
        }
    }


def _stateful_set(stream: Stream, template: Manifest, *, replicas: int) -> Manifest:
    name = driver_name(stream)
    return build_object(stream, "apps/v1", "StatefulSet", name) | {
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": _driver_selector(stream)},
            # A rolling update would wait forever for a pod with a bad image. The operator deletes
            # pods of an old revision.
            "updateStrategy": {"type": "OnDelete"},
            "template": template,
        }
    }
