"""What a stream consists of in Kubernetes, as manifests: pure functions of its name and spec.

Every object is owned by the BalancedStream, so that deleting it deletes them without the operator;
the claim with the checkpoints is the user's own and stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from balancedstream.core.objects import PLAN_KEY, STREAM_LABEL, answer_name, plan_name
from balancedstream_operator.crd import API_VERSION, GROUP, KIND
from balancedstream_operator.spec import StreamSpec

Manifest = dict[str, Any]

CONFIGURATION_ANNOTATION = f"{GROUP}/configuration"
DRIVER_PORT = 7078
BLOCK_MANAGER_PORT = 7079
METRICS_PORT = 9404
UI_PORT = 4040
GROUP_ID = 10001
CONF_DIR = "/etc/balancedstream"
SCRIPT_DIR = "/etc/balancedstream-script"
CHECKPOINTS_DIR = "/checkpoints"
DRIVER_GRACE_S = 60


@dataclass(frozen=True, slots=True)
class Stream:
    """A BalancedStream's identity.

    Attributes:
        namespace: where it and all its objects are.
        name: of the resource.
        uid: of the resource, for owner references.
    """

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def driver_name(stream: Stream) -> str:
    """Name of the driver's StatefulSet, Service and account; its pod is this and `-0`."""
    return f"{stream.name}-driver"


def checkpoint_dir(stream: Stream, spec: StreamSpec) -> str:
    """Where the stream's checkpoints are, as the driver and the executors see it.

    >>> from balancedstream_operator.spec import Application, Checkpoints, Executors
    >>> stream = Stream("default", "clicks", "1")
    >>> spec = StreamSpec("i", Application("/a.py"), Executors(2), Checkpoints("claim"))
    >>> checkpoint_dir(stream, spec)
    '/checkpoints/clicks'
    """
    if spec.checkpoints.uri:
        return spec.checkpoints.uri
    return f"{CHECKPOINTS_DIR}/{spec.checkpoints.path or stream.name}"


def build_children(stream: Stream, spec: StreamSpec, partitions: int) -> list[Manifest]:
    """Every object of a stream, in the order in which they are to be applied.

    Args:
        stream: whose.
        spec: what it shall be.
        partitions: number of state partitions.
    """
    conf = build_spark_conf(stream, spec, partitions)
    return [
        _service_account(stream),
        _role(stream),
        _role_binding(stream),
        _config_map(stream, plan_name(stream.name)),
        _config_map(stream, answer_name(stream.name)),
        _configuration(stream, spec, conf),
        _service(stream),
        _stateful_set(stream, spec, conf),
    ]


def build_plan(stream: Stream, text: str) -> Manifest:
    """The plan's ConfigMap with a plan in it."""
    return _config_map(stream, plan_name(stream.name)) | {"data": {PLAN_KEY: text}}


def build_spark_conf(stream: Stream, spec: StreamSpec, partitions: int) -> dict[str, str]:
    """The job's Spark settings; the user's own win over what is only a default here."""
    executors = spec.executors
    defaults = {
        "spark.executor.memoryOverhead": executors.memory_overhead,
        "spark.driver.memory": spec.driver.memory,
        "spark.executor.memory": executors.memory,
        "spark.executor.cores": str(executors.cores),
        "spark.kubernetes.container.image.pullPolicy": spec.image_pull_policy,
        "spark.authenticate": "true",
    }
    owned = {
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.app.name": stream.name,
        # A change of the least number restarts nothing: the plan asks for the right one.
        "spark.executor.instances": str(executors.min),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.checkpointLocation": checkpoint_dir(stream, spec),
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.kubernetes.namespace": stream.namespace,
        "spark.kubernetes.container.image": spec.image,
        "spark.kubernetes.executor.podTemplateFile": f"{CONF_DIR}/executor.yaml",
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        # Otherwise Spark wants to create and delete ConfigMaps.
        "spark.kubernetes.executor.disableConfigMap": "true",
        # Otherwise Spark looks for Services and claims of its own to delete when it stops.
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        f"spark.kubernetes.executor.label.{STREAM_LABEL}": stream.name,
    }
    if executors.cpu:
        defaults["spark.kubernetes.executor.request.cores"] = executors.cpu
    return {**defaults, **spec.spark_conf, **owned}


def render_properties(conf: Mapping[str, str]) -> str:
    r"""Settings as a Java properties file, which is what spark-defaults.conf is.

    >>> print(render_properties({"spark.a": "C:\\x", "spark.b": "x y"}), end="")
    spark.a=C:\\x
    spark.b=x y
    """

    def escape(text: str) -> str:
        for raw, safe in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
            text = text.replace(raw, safe)
        return text

    def escape_key(text: str) -> str:
        text = escape(text)
        for character in " :=#!":
            text = text.replace(character, f"\\{character}")
        return text

    return "".join(f"{escape_key(key)}={escape(conf[key])}\n" for key in sorted(conf))


def merge(base: Any, over: Any) -> Any:
    """Merges a user's pod template over ours: maps by key, lists of named things by name.

    >>> merge({"a": [{"name": "x", "v": 1}]}, {"a": [{"name": "x", "w": 2}, {"name": "y"}]})
    {'a': [{'name': 'x', 'v': 1, 'w': 2}, {'name': 'y'}]}
    """
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        merged = dict(base)
        for key, value in over.items():
            merged[key] = merge(base[key], value) if key in base else value
        return merged
    if isinstance(base, list) and isinstance(over, list):
        named = {entry["name"]: entry for entry in base if _is_named(entry)}
        if len(named) < len(base) or not all(map(_is_named, over)):
            return over
        for entry in over:
            name = entry["name"]
            named[name] = merge(named[name], entry) if name in named else entry
        return list(named.values())
    return over


def _is_named(entry: Any) -> bool:
    return isinstance(entry, Mapping) and "name" in entry


def _labels(stream: Stream, component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": f"balancedstream-{component}",
        "app.kubernetes.io/instance": stream.name,
        "app.kubernetes.io/managed-by": "balancedstream",
        STREAM_LABEL: stream.name,
    }


def _object(stream: Stream, version: str, kind: str, name: str) -> Manifest:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": stream.namespace,
            "labels": _labels(stream, "driver"),
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


def _config_map(stream: Stream, name: str) -> Manifest:
    return _object(stream, "v1", "ConfigMap", name)


def _service_account(stream: Stream) -> Manifest:
    account = _object(stream, "v1", "ServiceAccount", driver_name(stream))
    return account | {"automountServiceAccountToken": False}


def _role(stream: Stream) -> Manifest:
    """The least that the driver can do its work with.

    RBAC knows no labels: in one namespace, a driver can delete any pod. `docs/security.md` says so.
    """
    plan, answer = plan_name(stream.name), answer_name(stream.name)
    return _object(stream, "rbac.authorization.k8s.io/v1", "Role", driver_name(stream)) | {
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["pods"],
                "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
            },
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": [plan],
                "verbs": ["get", "list", "watch"],
            },
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": [answer],
                "verbs": ["get", "patch"],
            },
        ]
    }


def _role_binding(stream: Stream) -> Manifest:
    name = driver_name(stream)
    binding = _object(stream, "rbac.authorization.k8s.io/v1", "RoleBinding", name)
    return binding | {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": stream.namespace}],
    }


def _configuration(stream: Stream, spec: StreamSpec, conf: Mapping[str, str]) -> Manifest:
    template = yaml.safe_dump(_executor_pod(stream, spec), sort_keys=False)
    return _config_map(stream, f"{stream.name}-configuration") | {
        "data": {"spark-defaults.conf": render_properties(conf), "executor.yaml": template}
    }


def _service(stream: Stream) -> Manifest:
    """Headless: a StatefulSet wants one, and the driver gets a name of its own by it."""
    return _object(stream, "v1", "Service", driver_name(stream)) | {
        "spec": {
            "clusterIP": "None",
            # Executors call their driver while it starts.
            "publishNotReadyAddresses": True,
            "selector": {
                "app.kubernetes.io/name": "balancedstream-driver",
                STREAM_LABEL: stream.name,
            },
            "ports": [
                {"name": "driver", "port": DRIVER_PORT},
                {"name": "block-manager", "port": BLOCK_MANAGER_PORT},
                {"name": "ui", "port": UI_PORT},
                {"name": "metrics", "port": METRICS_PORT},
            ],
        }
    }


def _stateful_set(stream: Stream, spec: StreamSpec, conf: Mapping[str, str]) -> Manifest:
    name = driver_name(stream)
    selector = {"app.kubernetes.io/name": "balancedstream-driver", STREAM_LABEL: stream.name}
    return _object(stream, "apps/v1", "StatefulSet", name) | {
        "spec": {
            "replicas": 0 if spec.suspend else 1,
            "serviceName": name,
            "selector": {"matchLabels": selector},
            # A rolling update would wait for a pod with a bad image for ever; the operator deletes
            # a pod whose revision is old.
            "updateStrategy": {"type": "OnDelete"},
            "template": _driver_pod(stream, spec, conf),
        }
    }


def _driver_pod(stream: Stream, spec: StreamSpec, conf: Mapping[str, str]) -> Manifest:
    application = spec.application
    script = application.file or f"{SCRIPT_DIR}/script.py"
    submit = " ".join(
        [
            "--conf spark.driver.host=$(POD_IP)",
            "--conf spark.driver.bindAddress=$(POD_IP)",
            "--conf spark.kubernetes.driver.pod.name=$(POD_NAME)",
            "pyspark-shell",
        ]
    )
    mounts = [
        {"name": "configuration", "mountPath": CONF_DIR, "readOnly": True},
        *_storage_mounts(spec),
    ]
    volumes = [
        {"name": "configuration", "configMap": {"name": f"{stream.name}-configuration"}},
        *_storage_volumes(spec),
    ]
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
    memory_mib = _mib(spec.driver.memory) + _mib(spec.driver.memory_overhead)
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
            "0.0.0.0",  # noqa: S104 - Prometheus comes from outside the pod
            "--hot-keys",
            spec.metrics.hot_keys,
            script,
            *application.arguments,
        ],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
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
            "httpGet": {"path": "/metrics", "port": "metrics"},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
        "resources": {
            "requests": {"cpu": spec.driver.cpu, "memory": f"{memory_mib}Mi"},
            "limits": {"memory": f"{memory_mib}Mi"},
        },
        # The last lines of a script that crashed become the condition's message.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": mounts,
    }
    pod = {
        "metadata": {
            "labels": _labels(stream, "driver"),
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(METRICS_PORT),
                "prometheus.io/path": "/metrics",
            },
        },
        "spec": {
            "serviceAccountName": driver_name(stream),
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": DRIVER_GRACE_S,
            "securityContext": _POD_SECURITY,
            "containers": [container],
            "volumes": volumes,
        },
    }
    merged: Manifest = merge(pod, dict(spec.driver.pod_template))
    fingerprint = _fingerprint(_executor_pod(stream, spec), conf)
    annotations = merged["metadata"].setdefault("annotations", {})
    annotations[CONFIGURATION_ANNOTATION] = fingerprint
    return merged


def _fingerprint(executor_pod: Manifest, conf: Mapping[str, str]) -> str:
    """Changes with all that needs a restart of the driver and is not in its own pod template."""
    restarts = {key: value for key, value in conf.items() if key != "spark.executor.instances"}
    text = json.dumps([executor_pod, restarts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _executor_pod(stream: Stream, spec: StreamSpec) -> Manifest:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": _labels(stream, "executor")},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": _POD_SECURITY,
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
    merged: Manifest = merge(pod, dict(spec.executors.pod_template))
    return merged


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


def _mib(size: str) -> int:
    """A size such as 1g or 512m in MiB.

    >>> _mib("2g"), _mib("512m")
    (2048, 512)
    """
    return int(size[:-1]) * (1024 if size.endswith("g") else 1)


_POD_SECURITY: Manifest = {
    "runAsNonRoot": True,
    "fsGroup": GROUP_ID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINER_SECURITY: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
