"""A Spark driver on Kubernetes without the operator, written by hand.

What the tests of the operator rest on is tested with it: images, storage, broker, recomputation.
Its pods are named and labelled as the operator's are.
"""

from __future__ import annotations

from collections.abc import Sequence

import yaml
from images import APP
from kube import NO_RIGHTS_TO_GAIN, UNPRIVILEGED_POD, Kube, Manifest
from storage import CLAIM

DRIVER_PORT = 7078
BLOCK_MANAGER_PORT = 7079
POD_VERBS = ("create", "delete", "deletecollection", "get", "list", "watch")
_CONF = "/etc/spark"
_TMP = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108
_MOUNT = "/checkpoints"
_CHECKPOINTS = {"name": "checkpoints", "mountPath": _MOUNT}

STATE_CONF = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
"""How a balanced job keeps its state, where checkpoints are on a claim."""


def run_plain_driver(
    kube: Kube,
    namespace: str,
    name: str,
    script: Sequence[str],
    *,
    executors: int = 2,
    conf: dict[str, str] | None = None,
    pod_verbs: Sequence[str] = POD_VERBS,
) -> None:
    """Starts a driver in client mode as a StatefulSet of one; returns at once.

    Args:
        kube: the cluster.
        namespace: with a claim for checkpoints.
        name: of the stream; the pod is `<name>-driver-0`.
        script: an application's path in the image and its arguments.
        executors: how many.
        conf: more Spark settings.
        pod_verbs: what the driver's account may do with pods.
    """
    kube.apply(*_manifests(namespace, name, script, executors, conf or {}, pod_verbs))


def executor_template() -> Manifest:
    """What Pod Security `restricted` asks of an executor's pod, and the shared storage."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": UNPRIVILEGED_POD,
            "containers": [
                {
                    "name": "executor",
                    "securityContext": NO_RIGHTS_TO_GAIN,
                    "volumeMounts": [_TMP, _CHECKPOINTS],
                }
            ],
            "volumes": _volumes(),
        },
    }


def spark_conf(namespace: str, name: str, executors: int) -> dict[str, str]:
    """The settings that do not depend on the pod."""
    return {
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.app.name": name,
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.driver.pod.name": f"{name}-driver-0",
        "spark.kubernetes.container.image": APP,
        # Without these it wants to create and delete ConfigMaps, Services and claims.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.executor.podTemplateFile": f"{_CONF}/executor.yaml",
        "spark.kubernetes.executor.request.cores": "200m",
        "spark.executor.instances": str(executors),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": "512m",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.driver.memory": "768m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.streaming.checkpointLocation": f"{_MOUNT}/{name}",
        **STATE_CONF,
    }


def _manifests(
    namespace: str,
    name: str,
    script: Sequence[str],
    executors: int,
    conf: dict[str, str],
    pod_verbs: Sequence[str],
) -> list[Manifest]:
    driver = f"{name}-driver"
    labels = {
        "app.kubernetes.io/managed-by": "balancedstream",
        "app.kubernetes.io/name": "balancedstream-driver",
        "balancedstream.io/stream": name,
    }
    metadata = {"name": driver, "namespace": namespace, "labels": labels}
    settings = {**spark_conf(namespace, name, executors), **conf}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(pod_verbs)}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": driver,
            },
            "subjects": [{"kind": "ServiceAccount", "name": driver, "namespace": namespace}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {
                "spark-defaults.conf": "".join(f"{key} {settings[key]}\n" for key in settings),
                "executor.yaml": yaml.safe_dump(executor_template()),
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": metadata,
            "spec": {
                "serviceName": driver,
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "serviceAccountName": driver,
                        "securityContext": UNPRIVILEGED_POD,
                        "enableServiceLinks": False,
                        "containers": [
                            {
                                "name": "driver",
                                "image": APP,
                                "imagePullPolicy": "IfNotPresent",
                                "args": ["python3", *script],
                                "securityContext": NO_RIGHTS_TO_GAIN,
                                "resources": {"requests": {"cpu": "200m", "memory": "1Gi"}},
                                "env": _environment(name),
                                "volumeMounts": [
                                    _TMP,
                                    _CHECKPOINTS,
                                    {"name": "conf", "mountPath": _CONF},
                                ],
                            }
                        ],
                        "volumes": [
                            *_volumes(),
                            {"name": "conf", "configMap": {"name": driver}},
                        ],
                    },
                },
            },
        },
    ]


def _environment(name: str) -> list[Manifest]:
    # 0.0.0.0 as the bind address would also be the one that executors are told to call.
    address = "--conf spark.driver.host=$(POD_IP) --conf spark.driver.bindAddress=$(POD_IP)"
    return [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "SPARK_CONF_DIR", "value": _CONF},
        {"name": "PYSPARK_SUBMIT_ARGS", "value": f"{address} pyspark-shell"},
        {"name": "CHECKPOINT_DIR", "value": f"{_MOUNT}/{name}"},
    ]


def _volumes() -> list[Manifest]:
    return [
        {"name": "tmp", "emptyDir": {}},
        {"name": "checkpoints", "persistentVolumeClaim": {"claimName": CLAIM}},
    ]
