"""A streaming job as Apache's Spark operator runs it, made by hand from that operator's sources.

They are those of release 1.0.0 of https://github.com/apache/spark-kubernetes-operator. Of a
SparkApplication its `SparkAppSubmissionWorker` and `SparkAppResourceSpec` make the pod, the Service
and the ConfigMap that `spark-submit` makes, by the same classes of Spark's, except for what is said
here. Names, labels, owners and these settings are what `SparkAppResourceSpecFactory` rendered when
it was called without a cluster.
"""

from __future__ import annotations

from itertools import count

from kube import Kube, Manifest
from spark_application import KIND, SparkApplication, refer_to
from streams import Stream
from waiting import wait_until

_GROUP = "spark.apache.org"
_DEFINITION = (
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    f"sparkapplications.{_GROUP}",
)


class ApacheApplication(SparkApplication):
    """One SparkApplication, and what there would be of it.

    Args:
        kube: the cluster.
        stream: whose plans its driver follows.
        name: of the SparkApplication.
    """

    api_version = f"{_GROUP}/v1"
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    """`workloadRbacRules` of its chart's `templates/workload-rbac.yaml`."""

    def __init__(self, kube: Kube, stream: Stream, name: str) -> None:
        super().__init__(kube, stream, name)
        self._attempts = count()
        self._owner: Manifest = {}

    def create_account(self) -> None:
        """The account of drivers and the definition of a SparkApplication: its chart brings both.

        The definition has the names of the chart's
        (`crds/sparkapplications.spark.apache.org-v1.yaml`), and allows any content.
        """
        super().create_account()
        if self._is_defined():
            return
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": anything},
        }
        api_version, kind, name = _DEFINITION
        self._kube.apply(
            {
                "apiVersion": api_version,
                "kind": kind,
                "metadata": {"name": name},
                "spec": {
                    "group": _GROUP,
                    "names": {
                        "kind": KIND,
                        "plural": "sparkapplications",
                        "singular": "sparkapplication",
                    },
                    "scope": "Namespaced",
                    "versions": [version],
                },
            }
        )
        wait_until("a definition that the API server serves", self._is_defined, timeout_s=60)

    def _is_defined(self) -> bool:
        found = self._kube.find(*_DEFINITION) or {}
        # A new one has conditions that are null.
        conditions = found.get("status", {}).get("conditions") or []
        return ("Established", "True") in {(one["type"], one["status"]) for one in conditions}

    def _submit(self) -> str:
        """The next attempt, by `generateSparkAppId` of `SparkAppSubmissionWorker`.

        `ApplicationStatus.terminateOrRestart` counts the attempts, and `BasicDriverFeatureStep` of
        Spark's names the pod after the application's id, which is `resourceNamePrefix` of
        `SparkAppDriverConf`.
        """
        self._owner = refer_to(self._kube.apply(self._describe_application()))
        application = f"{self.name}-{next(self._attempts)}"
        self._pod = f"{application}-driver"
        self._make(application)
        return application

    def _tie_to(self, driver: Manifest) -> Manifest:
        """`DriverResourceDecorator`: all that goes with the pod has its labels."""
        return {**super()._tie_to(driver), "labels": driver["metadata"]["labels"]}

    def _labels(self, application: str) -> dict[str, str]:
        """`Utils.sparkAppResourceLabels`, which `SparkAppResourceSpecFactory` hands to Spark."""
        return {
            "spark.operator/name": "spark-kubernetes-operator",
            "spark.operator/spark-app-name": self.name,
        }

    def _settings(self, application: str) -> dict[str, str]:
        """With those that `SparkAppSubmissionWorker.buildDriverConf` sets where no one else has."""
        defaults = (
            "spark.authenticate",
            "spark.io.encryption.enabled",
            "spark.kubernetes.driver.annotateExitException",
            "spark.kubernetes.executor.useDriverPodIP",
        )
        return {**super()._settings(application), **dict.fromkeys(defaults, "true")}

    def _describe_driver(self, application: str) -> Manifest:
        """`OwnerResourceDecorator`: the SparkApplication owns the driver's pod, and only it."""
        pod = super()._describe_driver(application)
        pod["metadata"]["ownerReferences"] = [self._owner]
        return pod

    def _describe_application(self) -> Manifest:
        file, *arguments = self._command
        return {
            "apiVersion": self.api_version,
            "kind": KIND,
            "metadata": {"name": self.name, "namespace": self._namespace},
            "spec": {
                "pyFiles": file,
                "driverArgs": arguments,
                "applicationTolerations": {"restartConfig": {"restartPolicy": "Always"}},
            },
        }
