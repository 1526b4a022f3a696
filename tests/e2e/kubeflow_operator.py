"""kubeflow's own Spark operator, from its sources, and a streaming job that it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images import APP, KUBEFLOW
from kube import NO_RIGHTS_TO_GAIN, UNPRIVILEGED_POD, Kube, Manifest, create_namespace
from plain_driver import STATE_CONF
from spark_application import ACCOUNT, KIND, METRICS_PORT, RunningApplication
from storage import CLAIM
from streams import Stream
from waiting import wait_until

_RELEASE = "spark-operator"
_NAMESPACE = "spark-operator"
_START_S = 240.0
_NETWORK_POLICY = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"


@dataclass(frozen=True)
class KubeflowOperator:
    """A Helm release of the chart that is beside its sources.

    Attributes:
        kube: the cluster.
        source: a clone of https://github.com/kubeflow/spark-operator.
    """

    kube: Kube
    source: Path

    def install(self, namespace: str) -> None:
        """Installs it for the SparkApplications of a namespace; returns when it is ready.

        Its chart also makes the account of the drivers there.
        """
        create_namespace(self.kube, _NAMESPACE)
        registry, _, image = KUBEFLOW.partition("/")
        repository, _, tag = image.partition(":")
        values = {
            "image.registry": registry,
            "image.repository": repository,
            "image.tag": tag,
            "spark.jobNamespaces": f"{{{namespace}}}",
            "spark.serviceAccount.name": ACCOUNT,
        }
        settings = [f"--set={key}={value}" for key, value in values.items()]
        self.kube.helm(
            "upgrade", "--install", _RELEASE, str(self.source / "charts/spark-operator-chart"),
            f"--namespace={_NAMESPACE}", "--wait", "--timeout=180s", *settings,
        )  # fmt: skip

    def uninstall(self) -> None:
        """`helm uninstall`; its definitions stay."""
        self.kube.helm("uninstall", _RELEASE, f"--namespace={_NAMESPACE}", "--wait")


class KubeflowApplication(RunningApplication):
    """One SparkApplication, for which kubeflow's operator starts the driver.

    Args:
        kube: the cluster.
        stream: whose plans its driver follows.
        name: of the SparkApplication.
    """

    writers = frozenset({"fabric8-kubernetes-client", "kubelet"})
    """Who writes its driver's pod: spark-submit, which that operator calls."""

    def __init__(self, kube: Kube, stream: Stream, name: str) -> None:
        super().__init__(kube, stream, name)
        self._seen: set[str] = set()

    def submit(self, script: str, *arguments: str) -> str:
        """Starts the application with one executor; returns Spark's id of it.

        Args:
            script: of `apps`, such as `counts.py`.
            arguments: of the script.
        """
        self._kube.apply(self._describe(script, arguments))
        return self._await_start()

    def restart(self) -> str:
        """Loses the driver, as with a node; returns the new application's id."""
        self._kube.delete("v1", "Pod", self._pod, namespace=self._namespace)
        return self._await_start()

    def _status(self) -> dict[str, Any]:
        found = self._kube.find(self.api_version, KIND, self.name, namespace=self._namespace)
        status: dict[str, Any] = (found or {}).get("status", {})
        return status

    def _await_start(self) -> str:
        def has_started() -> bool:
            application = self._status().get("sparkApplicationId", "")
            return application != "" and application not in self._seen

        wait_until(
            "a driver by kubeflow's operator", has_started, timeout_s=_START_S,
            last_seen=self._status,
        )  # fmt: skip
        application: str = self._status()["sparkApplicationId"]
        self._seen.add(application)
        return application

    def _describe(self, script: str, arguments: tuple[str, ...]) -> Manifest:
        checkpoint = f"/checkpoints/{self._stream.name}"
        volumes = [
            {"name": "checkpoints", "persistentVolumeClaim": {"claimName": CLAIM}},
            {"name": "tmp", "emptyDir": {}},
        ]
        pod = {
            "cores": 1,
            "coreRequest": "200m",
            "podSecurityContext": UNPRIVILEGED_POD,
            "securityContext": NO_RIGHTS_TO_GAIN,
            "volumeMounts": [
                {"name": "checkpoints", "mountPath": "/checkpoints"},
                {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            ],
        }
        return {
            "apiVersion": self.api_version,
            "kind": KIND,
            "metadata": {"name": self.name, "namespace": self._namespace},
            "spec": {
                "type": "Python",
                "pythonVersion": "3",
                "mode": "cluster",
                "sparkVersion": "4.3.0",
                "image": APP,
                "imagePullPolicy": "IfNotPresent",
                "mainApplicationFile": f"local:///app/{script}",
                "arguments": list(arguments),
                "restartPolicy": {
                    "type": "Always",
                    "onFailureRetryInterval": 5,
                    "onSubmissionFailureRetryInterval": 5,
                },
                "sparkConf": {
                    **STATE_CONF,
                    "spark.sql.streaming.checkpointLocation": checkpoint,
                    # Its chart is for the spark-submit of Spark 4.0, which makes none.
                    "spark.kubernetes.driver.pod.excludedFeatureSteps": _NETWORK_POLICY,
                    "spark.plugins": "io.balancedstream.Plugin",
                    "spark.balancedstream.stream": f"{self._namespace}/{self._stream.name}",
                    "spark.balancedstream.metrics.port": str(METRICS_PORT),
                    "spark.balancedstream.metrics.address": "0.0.0.0",  # noqa: S104 - Prometheus
                },
                "volumes": volumes,
                "driver": {
                    **pod,
                    "memory": "768m",
                    "memoryOverhead": "768m",
                    "serviceAccount": ACCOUNT,
                    "env": [{"name": "CHECKPOINT_DIR", "value": checkpoint}],
                    "annotations": {
                        "prometheus.io/scrape": "true",
                        "prometheus.io/port": str(METRICS_PORT),
                        "prometheus.io/path": "/metrics",
                    },
                },
                "executor": {**pod, "instances": 1, "memory": "512m", "memoryOverhead": "512m"},
            },
        }
