"""A streaming job in Java whose image has no Python: a sidecar of its driver has the agent."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyspark
from clusters import HERE, Node
from harness.applications import compile_java, find_spark
from images import SPARK
from kube import NO_RIGHTS_TO_GAIN, Manifest
from spark_application import SparkApplication

JAVA = "localhost/balancedstream-java:e2e"
SIDECAR = "balancedstream"
_SHARED = {"name": "balancedstream", "mountPath": "/balancedstream"}


def build_java_image(node: Node) -> None:
    """The application of `benchmarks/applications`, Spark and the plugin's jar; and no Python."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(HERE / "java" / "Dockerfile", scratch)
        compile_java(find_spark(pyspark.__version__, Path(sys.executable)), Path(scratch))
        node.build(JAVA.removeprefix("localhost/"), Path(scratch), [])


class JavaApplication(SparkApplication):
    """As `docs/attach-by-settings.md` tells its users to add a sidecar."""

    main_class = "Counts"

    def end_sidecar(self) -> None:
        """Ends its main process, and with it the container, in the middle of this command."""
        words = [f"--container={SIDECAR}", "--", "bash", "-c", "kill 1"]
        self._kube.kubectl("exec", self._pod, *words, namespace=self._namespace, check=False)

    def count_restarts(self) -> tuple[int, int]:
        """Of the driver's container, and of the sidecar's."""
        status = (self.driver() or {})["status"]
        (driver,), (sidecar,) = status["containerStatuses"], status["initContainerStatuses"]
        return driver["restartCount"], sidecar["restartCount"]

    def phase(self) -> str:
        """Of the driver's pod."""
        return str((self.driver() or {})["status"]["phase"])

    def read_logs(self) -> dict[str, str]:
        """What driver and sidecar say since they started last, by their containers' names."""
        names = ("spark-kubernetes-driver", SIDECAR)
        return {
            name: self._kube.kubectl(
                "logs", self._pod, f"--container={name}", namespace=self._namespace
            )
            for name in names
        }

    def _settings(self, application: str) -> dict[str, str]:
        return {
            **super()._settings(application),
            "spark.kubernetes.container.image": JAVA,
            "spark.balancedstream.sidecar": _SHARED["mountPath"],
        }

    def _describe_driver(self, application: str) -> Manifest:
        pod = super()._describe_driver(application)
        spec: dict[str, Any] = pod["spec"]
        (driver,) = spec["containers"]
        driver["image"] = JAVA
        driver["volumeMounts"].append(_SHARED)
        spec["volumes"].append({"name": _SHARED["name"], "emptyDir": {"medium": "Memory"}})
        spec["initContainers"] = [
            {
                "name": SIDECAR,
                "image": SPARK,
                "imagePullPolicy": "IfNotPresent",
                "restartPolicy": "Always",
                "args": ["balancedstream", "sidecar", _SHARED["mountPath"]],
                "resources": {"requests": {"cpu": "50m", "memory": "200Mi"}},
                "securityContext": NO_RIGHTS_TO_GAIN,
                "volumeMounts": [_SHARED],
            }
        ]
        return pod
