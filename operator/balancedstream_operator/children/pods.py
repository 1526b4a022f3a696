"""Pod templates of a stream's driver and executors, with the user's own merged over them: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from balancedstream.core.sizing import parse_mib
from balancedstream.core.wire.objects import STREAM_LABEL
from balancedstream_operator.api.annotations import RESTART_ANNOTATION
from balancedstream_operator.api.resource import GROUP, Manifest, Stream, driver_name
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.children.authentication import (
    SECRET_DIR,
    has_secret,
    secret_conf,
    secret_name,
)
from balancedstream_operator.children.fingerprint import fingerprint_conf, fingerprint_spec
from balancedstream_operator.children.merge import merge, name_account
from balancedstream_operator.children.spark_pods import mounts_claims, read_pull_secrets

CONFIGURATION_ANNOTATION = f"{GROUP}/configuration"
"""Annotation of the driver's pod: fingerprint of its configuration outside the pod template."""

SPEC_ANNOTATION = f"{GROUP}/spec"
"""Annotation of the driver's pod: fingerprint of the spec's fields that need a new driver."""

UID_ANNOTATION = f"{GROUP}/stream-uid"
"""Annotation of a Job's pod: uid of its stream. One of the same name may have been made since."""

JOB_PODS = "app.kubernetes.io/name=balancedstream-repartition"
"""Label selector of the pods of all Jobs that write state anew."""

DRIVER_PORT = 7078
BLOCK_MANAGER_PORT = 7079
METRICS_PORT = 9404
UI_PORT = 4040

DRIVER_TEMPLATE = "spec.driver.podTemplate"
EXECUTORS_TEMPLATE = "spec.executors.podTemplate"

CONF_DIR = "/etc/balancedstream"
SCRIPT_DIR = "/etc/balancedstream-script"
CHECKPOINTS_DIR = "/checkpoints"
DRIVER_GRACE_S = 60
_SIZE = re.compile(r"[1-9][0-9]*[kmgt]b?", re.IGNORECASE)
"""Matches a size of memory in Spark's settings, with its unit."""

_POD_SECURITY: Manifest = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_LET_GO = {_SAFE_TO_EVICT: "true"}
"""Without it, cluster-autoscaler keeps nodes with pods that have a /tmp or are owned by a pod."""
_KEEP = {
    _SAFE_TO_EVICT: "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations with which autoscalers keep a pod's node."""

_CONTAINER_SECURITY: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}

_CLAIMS = {"persistentVolumeClaim", "ephemeral"}
"""Kinds of volumes that are claims."""


def configuration_name(stream: Stream) -> str:
    """Name of the ConfigMap with the Spark settings and the template of executor pods."""
    return f"{stream.name}-configuration"


def checkpoint_dir(stream: Stream, spec: StreamSpec) -> str:
    """Folder of the stream's checkpoints, as driver and executors see it.

    >>> from balancedstream_operator.api.job import Checkpoints, Executors
    >>> stream = Stream("default", "clicks", "1")
    >>> spec = StreamSpec(Executors(2), checkpoints=Checkpoints("claim"))
    >>> checkpoint_dir(stream, spec)
    '/checkpoints/clicks'
    """
    if spec.checkpoints.uri:
        return spec.checkpoints.uri
    return f"{CHECKPOINTS_DIR}/{spec.checkpoints.path or stream.name}"


def _pod_security(
    spec: StreamSpec, template: Mapping[str, Any], conf: Mapping[str, str]
) -> Manifest:
    """The security context of a pod. A pod with a claim, also the user's, gets a group for it."""
    own = template.get("spec")
    volumes = own.get("volumes") if isinstance(own, Mapping) else None
    claims = bool(spec.checkpoints.claim) or mounts_claims(conf)
    for volume in volumes if isinstance(volumes, list) else ():
        claims |= isinstance(volume, Mapping) and bool(_CLAIMS & volume.keys())
    if not (claims and spec.fs_group):
        return dict(_POD_SECURITY)
    # Without this policy, each start would change the owner of every file of the checkpoint.
    return {**_POD_SECURITY, "fsGroup": spec.fs_group, "fsGroupChangePolicy": "OnRootMismatch"}


def is_at_work(pod: Mapping[str, Any]) -> bool:
    """Whether a Job's pod may still change a checkpoint.

    >>> is_at_work({"status": {"phase": "Succeeded"}}), is_at_work({"status": {}})
    (False, True)
    """
    return (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}


def stream_labels(stream: Stream, component: str) -> dict[str, str]:
    """Labels of an object of a stream; `component` is driver, executor or repartition."""
    return {
        "app.kubernetes.io/name": f"balancedstream-{component}",
        "app.kubernetes.io/instance": stream.name,
        "app.kubernetes.io/managed-by": "balancedstream",
        STREAM_LABEL: stream.name,
    }


def build_driver_pod(
    stream: Stream, spec: StreamSpec, conf: Mapping[str, str], restart: str = ""
) -> Manifest:
    """The template of the driver's pod in its StatefulSet.

    A change of `conf` changes an annotation of the pod.

    Raises:
        InvalidInputError: a pod template cannot be merged; the message names the field.
    """
    application = spec.application
    script = application.file or f"{SCRIPT_DIR}/script.py"
    secret = secret_conf(stream) if has_secret(spec) else {}
    submit = " ".join(
        [
            "--conf spark.kubernetes.driver.pod.name=$(POD_NAME)",
            # These settings must come with the pod that mounts the Secret: a driver without the
            # mount may restart with a newer configuration file.
            *(f"--conf {name}={value}" for name, value in secret.items()),
            "pyspark-shell",
        ]
    )
    mounts = [
        {"name": "configuration", "mountPath": CONF_DIR, "readOnly": True},
        *_storage_mounts(spec),
    ]
    volumes = [
        {"name": "configuration", "configMap": {"name": configuration_name(stream)}},
        *_storage_volumes(spec),
    ]
    if secret:
        mounts.append({"name": "authentication", "mountPath": SECRET_DIR, "readOnly": True})
        volumes.append({"name": "authentication", "secret": {"secretName": secret_name(stream)}})
    if application.config_map:
        source = application.config_map
        mounts.append({"name": "script", "mountPath": SCRIPT_DIR, "readOnly": True})
        volumes.append(
            {
                "name": "script",
                "configMap": {
                    "name": source.name,
                    "items": [{"key": source.key, "path": "script.py"}],
                },
            }
        )
    memory_mib = _driver_memory_mib(spec)
    container = {
        "name": "driver",
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": [
            "balancedstream",
            "run",
            "--stream",
            str(stream),
            "--metrics-port",
            str(METRICS_PORT),
            "--metrics-address",
            "0.0.0.0",  # noqa: S104 - Prometheus scrapes from outside the pod
            # An older image may not know the option.
            *([] if spec.metrics.hot_keys == "plain" else ["--hot-keys", spec.metrics.hot_keys]),
            script,
            *application.arguments,
        ],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            # The default of spark.driver.host; Spark puts an IPv6 address in brackets.
            {"name": "SPARK_LOCAL_HOSTNAME", "value": "$(POD_IP)"},
            {"name": "SPARK_CONF_DIR", "value": CONF_DIR},
            {"name": "CHECKPOINT_DIR", "value": checkpoint_dir(stream, spec)},
            {"name": "PYSPARK_SUBMIT_ARGS", "value": submit},
        ],
        "ports": [
            {"name": "driver", "containerPort": DRIVER_PORT},
            {"name": "block-manager", "containerPort": BLOCK_MANAGER_PORT},
            {"name": "ui", "containerPort": UI_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "metrics"},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
        # A restart loses a batch, so the driver has ten minutes without an answer or without Spark.
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "metrics"},
            "periodSeconds": 60,
            "timeoutSeconds": 10,
            "failureThreshold": 10,
        },
        "resources": {
            "requests": {"cpu": spec.driver.cpu, "memory": f"{memory_mib}Mi"},
            "limits": {"memory": f"{memory_mib}Mi"},
        },
        # With this policy, the last lines of a crashed script become the condition's message.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": mounts,
    }
    pod = {
        "metadata": {
            "labels": {**spec.labels, **stream_labels(stream, "driver")},
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(METRICS_PORT),
                "prometheus.io/path": "/metrics",
                **(_LET_GO if spec.driver.evictable else _KEEP),
                **spec.annotations,
            },
        },
        "spec": {
            "serviceAccountName": driver_account(stream, spec),
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": DRIVER_GRACE_S,
            # Spark itself gives executors the secrets of the setting.
            **_pull_secrets([*spec.image_pull_secrets, *read_pull_secrets(spec.spark_conf)]),
            "securityContext": _pod_security(spec, spec.driver.pod_template, {}),
            "containers": [container],
            "volumes": volumes,
        },
    }
    merged: Manifest = merge(pod, name_account(spec.driver.pod_template), DRIVER_TEMPLATE)
    annotations = merged["metadata"]["annotations"]
    annotations[CONFIGURATION_ANNOTATION] = fingerprint_conf(build_executor_pod(stream, spec), conf)
    annotations[SPEC_ANNOTATION] = fingerprint_spec(spec, restart)
    if restart:
        annotations[RESTART_ANNOTATION] = restart
    return merged


def _driver_memory_mib(spec: StreamSpec) -> int:
    """Heap and overhead of the driver in MiB; Spark's own settings override the spec."""
    heap = spec.spark_conf.get("spark.driver.memory", "")
    overhead = spec.spark_conf.get("spark.driver.memoryOverhead", "")
    if overhead.isdecimal():
        overhead += "m"
    return sum(
        parse_mib(given if _SIZE.fullmatch(given) else size)
        for given, size in ((heap, spec.driver.memory), (overhead, spec.driver.memory_overhead))
    )


def copy_pod(like: Mapping[str, Any], name: str, namespace: str) -> Manifest:
    """A copy of a pod, or of a template, under an unused name, for a dry run.

    >>> copy_pod({"metadata": {}, "spec": {"nodeName": "a"}}, "b", "shop")["spec"]
    {}
    """
    kept = {field: like["metadata"].get(field) or {} for field in ("labels", "annotations")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**kept, "name": name, "namespace": namespace},
        "spec": {field: value for field, value in like["spec"].items() if field != "nodeName"},
    }


def build_executor_pod(stream: Stream, spec: StreamSpec) -> Manifest:
    """The template from which Spark creates executor pods.

    Raises:
        InvalidInputError: a pod template cannot be merged; the message names the field.
    """
    own = spec.executors.pod_template
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {**spec.labels, **stream_labels(stream, "executor")},
            "annotations": {**_LET_GO, **spec.annotations},
        },
        "spec": {
            "serviceAccountName": spec.executors.service_account.name
            or driver_account(stream, spec),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **_pull_secrets(spec.image_pull_secrets),
            "securityContext": _pod_security(spec, own, spec.spark_conf),
            "containers": [
                {
                    "name": "executor",
                    "securityContext": _CONTAINER_SECURITY,
                    "volumeMounts": _storage_mounts(spec),
                }
            ],
            "volumes": _storage_volumes(spec),
        },
    }
    merged: Manifest = merge(pod, name_account(own), EXECUTORS_TEMPLATE)
    return merged


def driver_account(stream: Stream, spec: StreamSpec) -> str:
    """The driver's ServiceAccount; executors have it, too, unless the spec names another."""
    named = name_account(spec.driver.pod_template).get("spec")
    own = named.get("serviceAccountName") if isinstance(named, Mapping) else None
    return str(own or spec.driver.service_account.name or driver_name(stream))


def _pull_secrets(names: Sequence[str]) -> Manifest:
    return {"imagePullSecrets": [{"name": n} for n in dict.fromkeys(names)]} if names else {}


def _storage_mounts(spec: StreamSpec) -> list[Manifest]:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the pod's own
    if spec.checkpoints.claim:
        mounts.append({"name": "checkpoints", "mountPath": CHECKPOINTS_DIR})
    return mounts


def _storage_volumes(spec: StreamSpec) -> list[Manifest]:
    volumes: list[Manifest] = [{"name": "tmp", "emptyDir": {}}]
    if spec.checkpoints.claim:
        claim = {"claimName": spec.checkpoints.claim}
        volumes.append({"name": "checkpoints", "persistentVolumeClaim": claim})
    return volumes
