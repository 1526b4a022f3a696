"""The Kubernetes objects of a stream, as manifests: pure functions of its name and spec.

The BalancedStream owns every object, so Kubernetes deletes them with it, even without the operator.
The claim with the checkpoints belongs to the user and stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from balancedstream.core.objects import STREAM_LABEL, answer_name, plan_name
from balancedstream_operator.authentication import has_secret, secret_name
from balancedstream_operator.pods import (
    BLOCK_MANAGER_PORT,
    CONF_DIR,
    DRIVER_PORT,
    METRICS_PORT,
    UI_PORT,
    build_driver_pod,
    build_executor_pod,
    checkpoint_dir,
    configuration_name,
    stream_labels,
)
from balancedstream_operator.resource import API_VERSION, KIND, Manifest, Stream, driver_name
from balancedstream_operator.spec import StreamSpec


def build_children(
    stream: Stream, spec: StreamSpec, partitions: int, restart: str = ""
) -> list[Manifest]:
    """Every object of a stream, in the order to apply them.

    Args:
        stream: whose.
        spec: of the stream.
        partitions: number of state partitions.
        restart: value of the annotation that asks for a new driver; empty for none.
    """
    conf = build_spark_conf(stream, spec, partitions)
    account = spec.driver.service_account
    return [
        *([] if account.name else [_service_account(stream, account.annotations)]),
        _role(stream, [_POD_RULE, *_plan_rules(stream)]),
        _role_binding(stream, account.name or driver_name(stream)),
        *([_secret(stream)] if has_secret(spec) else []),
        _disruption_budget(stream, evictable=spec.driver.evictable),
        _config_map(stream, plan_name(stream.name)),
        _config_map(stream, answer_name(stream.name)),
        _configuration(stream, spec, conf),
        _service(stream),
        _stateful_set(stream, spec, build_driver_pod(stream, spec, conf, restart)),
    ]


def build_target_children(stream: Stream, account: str) -> list[Manifest]:
    """Every object of a stream whose application another operator runs, in the order to apply them.

    Args:
        stream: whose.
        account: of the driver's pod, if it has not the rights to follow plans; empty if it has.
    """
    rights = [_role(stream, _plan_rules(stream)), _role_binding(stream, account)]
    return [
        *(rights if account else []),
        _config_map(stream, plan_name(stream.name)),
        _config_map(stream, answer_name(stream.name)),
    ]


def build_plan(stream: Stream, data: Mapping[str, str], found: Mapping[str, Any]) -> Manifest:
    """The ConfigMap of a stream's plan.

    Args:
        stream: whose.
        data: the plan as JSON, and what belongs to it.
        found: metadata of the ConfigMap as it was read; the API server refuses to replace any
            other version of it. Empty if there was none.
    """
    manifest = _config_map(stream, plan_name(stream.name)) | {"data": dict(data)}
    seen = {name: found[name] for name in ("resourceVersion", "uid") if found.get(name)}
    return manifest | {"metadata": manifest["metadata"] | seen}


def build_spark_conf(stream: Stream, spec: StreamSpec, partitions: int) -> dict[str, str]:
    """The job's Spark settings: our defaults, then the user's own, then what the pods need."""
    executors = spec.executors
    defaults = {
        "spark.executor.memoryOverhead": executors.memory_overhead,
        "spark.driver.memory": spec.driver.memory,
        "spark.executor.memory": executors.memory,
        "spark.executor.cores": str(executors.cores),
        "spark.kubernetes.container.image.pullPolicy": spec.image_pull_policy,
        "spark.authenticate": "true",
        # A stream outlives its executors. Spark would end the driver after a few that are lost, or
        # that a quota refuses, however long that takes; and it remembers each without an interval.
        "spark.executor.maxNumFailures": str(2**31 - 1),
        "spark.executor.failuresValidityInterval": "1h",
    }
    owned = {
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.app.name": stream.name,
        # A change of executors.min restarts nothing: the plan asks for the right number.
        "spark.executor.instances": str(executors.min),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.checkpointLocation": checkpoint_dir(stream, spec),
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.kubernetes.namespace": stream.namespace,
        "spark.kubernetes.container.image": spec.image,
        "spark.kubernetes.executor.podTemplateFile": f"{CONF_DIR}/executor.yaml",
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        # Otherwise Spark creates and deletes ConfigMaps, which the driver may not.
        "spark.kubernetes.executor.disableConfigMap": "true",
        # Otherwise Spark deletes Services and claims when it stops, which the driver may not.
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        f"spark.kubernetes.executor.label.{STREAM_LABEL}": stream.name,
    }
    if executors.cpu:
        defaults["spark.kubernetes.executor.request.cores"] = executors.cpu
    return {**defaults, **spec.spark_conf, **owned}


_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\f", "\\f"))


def render_properties(conf: Mapping[str, str]) -> str:
    r"""Settings as a Java properties file, which is what spark-defaults.conf is.

    >>> print(render_properties({"spark.a": "C:\\x", "spark.b": "x y"}), end="")
    spark.a=C:\\x
    spark.b=x y
    """

    def escape(text: str) -> str:
        for raw, safe in _ESCAPES:
            text = text.replace(raw, safe)
        return text

    def escape_key(text: str) -> str:
        text = escape(text)
        for character in " :=#!":
            text = text.replace(character, f"\\{character}")
        return text

    def escape_value(text: str) -> str:
        # Spaces before a value are skipped.
        return f"\\{escape(text)}" if text.startswith(" ") else escape(text)

    return "".join(f"{escape_key(key)}={escape_value(conf[key])}\n" for key in sorted(conf))


def _object(stream: Stream, version: str, kind: str, name: str) -> Manifest:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": stream.namespace,
            "labels": stream_labels(stream, "driver"),
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
    return _object(stream, "v1", "ConfigMap", name)


def _service_account(stream: Stream, annotations: Mapping[str, str]) -> Manifest:
    account = _object(stream, "v1", "ServiceAccount", driver_name(stream))
    account["metadata"]["annotations"] = dict(annotations)
    return account | {"automountServiceAccountToken": False}


def _secret(stream: Stream) -> Manifest:
    """Without its content, which is drawn when it is made, and known to nobody afterwards."""
    return _object(stream, "v1", "Secret", secret_name(stream)) | {"immutable": True}


def _disruption_budget(stream: Stream, *, evictable: bool) -> Manifest:
    """Always there, because the operator may not delete it when the driver is evictable again."""
    name = driver_name(stream)
    return _object(stream, "policy/v1", "PodDisruptionBudget", name) | {
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


def _plan_rules(stream: Stream) -> list[Manifest]:
    """What a driver may do with plans and answers."""
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
    """The ConfigMaps that plans and answers are in, and what a driver does with each.

    >>> plan_rights(Stream("default", "clicks", "1"))["clicks-answer"]
    ('get', 'patch')
    """
    return {
        plan_name(stream.name): ("get", "list", "watch"),
        answer_name(stream.name): ("get", "patch"),
    }


def _role(stream: Stream, rules: list[Manifest]) -> Manifest:
    """The permissions that the driver needs, and no more."""
    role = _object(stream, "rbac.authorization.k8s.io/v1", "Role", driver_name(stream))
    return role | {"rules": rules}


def _role_binding(stream: Stream, account: str) -> Manifest:
    name = driver_name(stream)
    binding = _object(stream, "rbac.authorization.k8s.io/v1", "RoleBinding", name)
    return binding | {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": stream.namespace}],
    }


def _configuration(stream: Stream, spec: StreamSpec, conf: Mapping[str, str]) -> Manifest:
    # Spark reads a file that begins with a brace as JSON, whatever it is called. As YAML 1.2, which
    # PyYAML does not write, a label 12e4567 would be a number, and arrive as Infinity.
    template = json.dumps(build_executor_pod(stream, spec), indent=2)
    return _config_map(stream, configuration_name(stream)) | {
        "data": {"spark-defaults.conf": render_properties(conf), "executor.yaml": template}
    }


def _service(stream: Stream) -> Manifest:
    """Headless: a StatefulSet needs one, and it gives the driver a DNS name."""
    return _object(stream, "v1", "Service", driver_name(stream)) | {
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


def _stateful_set(stream: Stream, spec: StreamSpec, template: Manifest) -> Manifest:
    name = driver_name(stream)
    return _object(stream, "apps/v1", "StatefulSet", name) | {
        "spec": {
            "replicas": 0 if spec.suspend else 1,
            "serviceName": name,
            "selector": {"matchLabels": _driver_selector(stream)},
            # A rolling update would wait forever for a pod with a bad image. The operator deletes
            # pods of an old revision.
            "updateStrategy": {"type": "OnDelete"},
            "template": template,
        }
    }
