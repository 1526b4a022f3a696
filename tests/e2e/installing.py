"""The operator, installed as a person installs it: by Helm, from a chart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from images import OPERATOR, REPOSITORY
from kube import Kube, Manifest, create_namespace

CHART = REPOSITORY / "charts" / "balancedstream"
RELEASE = "balancedstream"
NAMESPACE = "balancedstream-system"
_LABELS = {"app.kubernetes.io/name": "balancedstream", "app.kubernetes.io/component": "operator"}


@dataclass(frozen=True)
class Operator:
    """A Helm release of a chart.

    Attributes:
        kube: the cluster.
        prometheus_url: for its pod.
        chart: the working tree's, or an older one.
        image: of the same age.
    """

    kube: Kube
    prometheus_url: str
    chart: Path = CHART
    image: str = OPERATOR

    def install(self, *arguments: str) -> None:
        """`helm upgrade --install`, with its image; returns when the operator is ready.

        Args:
            arguments: more of Helm's, such as `--set`.
        """
        create_namespace(self.kube, NAMESPACE)
        repository, _, tag = self.image.rpartition(":")
        values = {
            "image.repository": repository,
            "image.tag": tag,
            "prometheus.url": self.prometheus_url,
        }
        settings = [f"--set={key}={value}" for key, value in values.items()]
        self.kube.helm(
            "upgrade", "--install", RELEASE, str(self.chart), f"--namespace={NAMESPACE}",
            "--wait", "--timeout=120s", *settings, *arguments,
        )  # fmt: skip

    def uninstall(self) -> None:
        """`helm uninstall`; the CRD and all streams stay."""
        self.kube.helm("uninstall", RELEASE, f"--namespace={NAMESPACE}", "--wait")

    def pod(self) -> Manifest | None:
        """The operator's pod, if one is there and not being deleted."""
        return next(iter(self.kube.pods(NAMESPACE, _LABELS)), None)

    def active_pod(self) -> Manifest | None:
        """The pod that holds the Lease; None if it is gone, or nobody holds it."""
        lease = self.kube.find("coordination.k8s.io/v1", "Lease", RELEASE, namespace=NAMESPACE)
        assert lease is not None, "the operator has no Lease"
        holder = lease["spec"].get("holderIdentity") or ""
        pods = self.kube.pods(NAMESPACE, _LABELS)
        return next((p for p in pods if p["metadata"]["name"] == holder.partition("_")[0]), None)

    def delete_pod(self) -> None:
        """What a lost node does to it; returns when another is ready."""
        pod = self.pod()
        assert pod is not None, "there is no operator to delete"
        self.kube.delete("v1", "Pod", pod["metadata"]["name"], namespace=NAMESPACE)
        self.kube.wait_for_absence(
            "v1", "Pod", pod["metadata"]["name"], namespace=NAMESPACE, timeout_s=60
        )
        self.kube.wait_for_rollout(NAMESPACE, RELEASE)

    def pause(self) -> None:
        """No operator until `resume`; one that is being deleted still acts, so its end counts."""
        pod = self.pod()
        assert pod is not None, "there is no operator to pause"
        self._scale(0)
        self.kube.wait_for_absence(
            "v1", "Pod", pod["metadata"]["name"], namespace=NAMESPACE, timeout_s=90
        )

    def resume(self) -> None:
        """Returns when it is ready."""
        self._scale(1)
        self.kube.wait_for_rollout(NAMESPACE, RELEASE)

    def _scale(self, replicas: int) -> None:
        self.kube.kubectl(
            "scale", f"deployment/{RELEASE}", f"--replicas={replicas}", namespace=NAMESPACE
        )

    def log(self) -> str:
        """Of the pod that runs now."""
        pod = self.pod()
        assert pod is not None, "there is no operator"
        return self.kube.log(NAMESPACE, pod["metadata"]["name"])
