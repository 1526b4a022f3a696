"""A streaming job as kubeflow's Spark operator runs it, made by hand where that operator is not.

For a SparkApplication it calls `spark-submit` in cluster mode, which makes what is made here: the
driver's pod, and its Service and its settings, which the pod owns. The labels are those of
`driverConfOption` and `executorConfOption` in kubeflow/spark-operator's
`internal/controller/sparkapplication/submission.go` and of Spark's `KubernetesConf`; the account's
rights are those of its chart (`templates/spark/rbac.yaml`).
"""

from __future__ import annotations

import uuid

import yaml
from images import APP
from kube import NO_RIGHTS_TO_GAIN, UNPRIVILEGED_POD, Kube, Manifest
from plain_driver import BLOCK_MANAGER_PORT, DRIVER_PORT, executor_template, spark_conf
from storage import CLAIM
from streams import Stream

ACCOUNT = "spark"
KIND = "SparkApplication"
METRICS_PORT = 9404
_CONF = "/opt/spark/conf"
_LOCAL = "/var/data/spark-local"


class RunningApplication:
    """An application that another operator runs, by its pods.

    Args:
        kube: the cluster.
        stream: whose plans its driver follows.
        name: of the SparkApplication.
    """

    api_version = "sparkoperator.k8s.io/v1beta2"
    """Of the SparkApplication; the kind has one name with both operators."""

    def __init__(self, kube: Kube, stream: Stream, name: str) -> None:
        self._kube = kube
        self._stream = stream
        self._namespace = stream.namespace
        self._pod = f"{name}-driver"
        self.name = name

    @property
    def target(self) -> Manifest:
        """What names it in `spec.targetRef`."""
        return {"apiVersion": self.api_version, "kind": KIND, "name": self.name}

    def driver(self) -> Manifest | None:
        """The driver's pod."""
        return self._kube.find("v1", "Pod", self._pod, namespace=self._namespace)

    def executors(self, application: str) -> list[str]:
        """The names of the executors' pods that run."""
        labels = {"spark-role": "executor", "spark-app-selector": application}
        pods = self._kube.pods(self._namespace, labels)
        return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]


class SparkApplication(RunningApplication):
    """One SparkApplication, by the pods that there would be of it.

    Args:
        kube: the cluster.
        stream: whose plans its driver follows.
        name: of the SparkApplication.
    """

    writers = frozenset({"e2e", "kubelet"})
    """Who writes its driver's pod."""

    main_class = "org.apache.spark.deploy.PythonRunner"
    verbs: tuple[str, ...] = (
        "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
    )  # fmt: skip
    """What the account of its driver may do, by the chart of its operator."""

    def __init__(self, kube: Kube, stream: Stream, name: str) -> None:
        super().__init__(kube, stream, name)
        self._command: list[str] = []

    def create_account(self) -> None:
        """The account of drivers that the chart of its operator makes."""
        metadata = {"name": ACCOUNT, "namespace": self._namespace}
        rbac = "rbac.authorization.k8s.io"
        resources = ["pods", "configmaps", "persistentvolumeclaims", "services"]
        rule = {"apiGroups": [""], "resources": resources, "verbs": [*self.verbs]}
        self._kube.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "Role",
                "metadata": metadata,
                "rules": [rule],
            },
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": ACCOUNT},
                "subjects": [{"kind": "ServiceAccount", **metadata}],
            },
        )

    def submit(self, file: str, *arguments: str) -> str:
        """Starts a driver for a new application with one executor; returns the application's id.

        Args:
            file: of its image, such as `counts.py`.
            arguments: of the application.
        """
        self._command = [f"local:///app/{file}", *arguments]
        return self._submit()

    def restart(self) -> str:
        """Loses the driver and submits again, as its operator does; returns Spark's id of it."""
        self._kube.delete("v1", "Pod", self._pod, namespace=self._namespace)
        self._kube.wait_for_absence("v1", "Pod", self._pod, namespace=self._namespace)
        return self._submit()

    def _submit(self) -> str:
        application = f"spark-{uuid.uuid4().hex}"
        self._make(application)
        return application

    def _make(self, application: str) -> None:
        driver = self._kube.apply(self._describe_driver(application))
        for manifest in (
            self._describe_settings(application),
            self._describe_service(application),
        ):
            manifest["metadata"] |= self._tie_to(driver)
            self._kube.apply(manifest)

    def _tie_to(self, driver: Manifest) -> Manifest:
        """What is in the metadata of what goes with a driver's pod."""
        return {"ownerReferences": [refer_to(driver)]}

    def _labels(self, application: str) -> dict[str, str]:
        """Those by which its operator knows the pods of driver and executors."""
        return {
            "sparkoperator.k8s.io/app-name": self.name,
            "sparkoperator.k8s.io/launched-by-spark-operator": "true",
            "sparkoperator.k8s.io/mutated-by-spark-operator": "true",
            "sparkoperator.k8s.io/submission-id": application.removeprefix("spark-"),
        }

    def _settings(self, application: str) -> dict[str, str]:
        labels = self._labels(application)
        return {
            **spark_conf(self._namespace, self._stream.name, 1),
            "spark.app.id": application,
            "spark.plugins": "io.balancedstream.Plugin",
            "spark.balancedstream.stream": f"{self._namespace}/{self._stream.name}",
            "spark.balancedstream.metrics.port": str(METRICS_PORT),
            "spark.balancedstream.metrics.address": "0.0.0.0",  # noqa: S104 - for Prometheus
            "spark.driver.host": f"{application}-driver-svc.{self._namespace}.svc",
            "spark.kubernetes.driver.pod.name": self._pod,
            "spark.kubernetes.submitInDriver": "true",
            "spark.submit.deployMode": "cluster",
            "spark.kubernetes.executor.podTemplateFile": f"{_CONF}/executor.yaml",
            **{f"spark.kubernetes.executor.label.{key}": labels[key] for key in labels},
            # Its account may do what these would forbid, and Spark does it by default.
            "spark.kubernetes.executor.disableConfigMap": "false",
            "spark.kubernetes.driver.service.deleteOnTermination": "true",
            "spark.kubernetes.driver.ownPersistentVolumeClaim": "true",
        }

    def _describe_settings(self, application: str) -> Manifest:
        settings = self._settings(application)
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _settings_name(application), "namespace": self._namespace},
            "data": {
                "spark.properties": "".join(lines),
                "executor.yaml": yaml.safe_dump(executor_template()),
            },
        }

    def _describe_service(self, application: str) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{application}-driver-svc", "namespace": self._namespace},
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {"spark-app-selector": application, "spark-role": "driver"},
                "ports": [
                    {"name": "driver-rpc-port", "port": DRIVER_PORT},
                    {"name": "blockmanager", "port": BLOCK_MANAGER_PORT},
                ],
            },
        }

    def _describe_driver(self, application: str) -> Manifest:
        pod_ip = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
        container = {
            "name": "spark-kubernetes-driver",
            "image": APP,
            "imagePullPolicy": "IfNotPresent",
            "args": [
                "driver",
                "--properties-file",
                f"{_CONF}/spark.properties",
                "--class",
                self.main_class,
                *self._command,
            ],
            "env": [
                {"name": "SPARK_USER", "value": "spark"},
                {"name": "SPARK_APPLICATION_ID", "value": application},
                {"name": "SPARK_DRIVER_BIND_ADDRESS", "valueFrom": pod_ip},
                {"name": "SPARK_LOCAL_DIRS", "value": _LOCAL},
                {"name": "SPARK_CONF_DIR", "value": _CONF},
                {"name": "CHECKPOINT_DIR", "value": f"/checkpoints/{self._stream.name}"},
            ],
            "ports": [
                {"name": "driver-rpc-port", "containerPort": DRIVER_PORT},
                {"name": "blockmanager", "containerPort": BLOCK_MANAGER_PORT},
            ],
            "resources": {"requests": {"cpu": "200m", "memory": "1Gi"}},
            "securityContext": NO_RIGHTS_TO_GAIN,
            "volumeMounts": [
                {"name": "spark-local-dir-1", "mountPath": _LOCAL},
                {"name": "spark-conf-volume-driver", "mountPath": _CONF},
                {"name": "checkpoints", "mountPath": "/checkpoints"},
                {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            ],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self._pod,
                "namespace": self._namespace,
                "labels": {
                    "spark-app-name": self.name,
                    "spark-app-selector": application,
                    "spark-role": "driver",
                    "spark-version": "4.3.0",
                    **self._labels(application),
                },
                "annotations": {
                    "prometheus.io/scrape": "true",
                    "prometheus.io/port": str(METRICS_PORT),
                    "prometheus.io/path": "/metrics",
                },
            },
            "spec": {
                "restartPolicy": "Never",
                "serviceAccountName": ACCOUNT,
                "securityContext": UNPRIVILEGED_POD,
                "terminationGracePeriodSeconds": 30,
                "containers": [container],
                "volumes": [
                    {"name": "spark-local-dir-1", "emptyDir": {}},
                    {
                        "name": "spark-conf-volume-driver",
                        "configMap": {"name": _settings_name(application)},
                    },
                    {"name": "checkpoints", "persistentVolumeClaim": {"claimName": CLAIM}},
                    {"name": "tmp", "emptyDir": {}},
                ],
            },
        }


def refer_to(owner: Manifest) -> Manifest:
    """The entry of `ownerReferences` that names an object, as the API server answered it."""
    name, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name,
        "uid": uid,
        "blockOwnerDeletion": True,
    }


def _settings_name(application: str) -> str:
    return f"{application}-spark-drv-conf-map"
