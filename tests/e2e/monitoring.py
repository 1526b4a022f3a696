"""Prometheus in a pod: finds annotated pods, scrapes them often, and answers this machine."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

import yaml
from images import PROMETHEUS
from kube import Kube, Manifest
from servers import describe_server
from waiting import wait_until

NODE_PORT = 30090
NAME = "prometheus"
SCRAPE_INTERVAL_S = 2
_LABELS = {"app.kubernetes.io/name": NAME}
_ANNOTATION = "__meta_kubernetes_pod_annotation_prometheus_io"


@dataclass(frozen=True)
class Sample:
    """One series of an instant query's answer."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus.

    Attributes:
        in_pods: its URL for pods.
        here: its URL for this machine.
    """

    in_pods: str
    here: str

    def query(self, expression: str) -> list[Sample]:
        """An instant query.

        Raises:
            urllib.error.URLError: it does not answer, or not this expression.
        """
        result = self._ask("query", {"query": expression})["result"]
        return [Sample(series["metric"], float(series["value"][1])) for series in result]

    def value(self, expression: str) -> float | None:
        """The value of the only series of an instant query; None where there is none.

        Raises:
            AssertionError: there are several.
        """
        samples = self.query(expression)
        if len(samples) > 1:
            message = f"{expression} has {len(samples)} series, one was expected: {samples}"
            raise AssertionError(message)
        return samples[0].value if samples else None

    def series(self, expression: str, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        """A range query of one series: Unix time and value, at each scrape interval."""
        arguments = {
            "query": expression,
            "start": f"{begin_s:.3f}",
            "end": f"{end_s:.3f}",
            "step": f"{SCRAPE_INTERVAL_S}s",
        }
        result = self._ask("query_range", arguments)["result"]
        if len(result) > 1:
            message = f"{expression} has {len(result)} series, one was expected"
            raise AssertionError(message)
        values = result[0]["values"] if result else []
        return [(float(at_s), float(value)) for at_s, value in values]

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return bool(self._get("/-/ready"))
        except OSError:
            return False

    def _ask(self, path: str, arguments: dict[str, str]) -> dict[str, Any]:
        answer = self._get(f"/api/v1/{path}?{urllib.parse.urlencode(arguments)}")
        data: dict[str, Any] = json.loads(answer)["data"]
        return data

    def _get(self, path: str) -> bytes:
        # The scheme is ours, and http. Executors that start leave no core to a server for long.
        with urllib.request.urlopen(f"{self.here}{path}", timeout=60) as answer:  # noqa: S310
            content: bytes = answer.read()
        return content


def deploy_prometheus(kube: Kube, namespace: str) -> Prometheus:
    """Starts it; returns when it answers this machine."""
    prometheus = Prometheus(
        f"http://{NAME}.{namespace}.svc:9090", f"http://{kube.node_address}:{NODE_PORT}"
    )
    kube.apply(*_manifests(namespace))
    kube.wait_for_rollout(namespace, NAME)
    wait_until("Prometheus' answer", prometheus.is_ready, timeout_s=60)
    return prometheus


def configuration() -> Manifest:
    """Scrapes each pod with `prometheus.io/scrape: "true"` at its annotated port and path."""
    return {
        "global": {
            "scrape_interval": f"{SCRAPE_INTERVAL_S}s",
            "scrape_timeout": f"{SCRAPE_INTERVAL_S}s",
        },
        "scrape_configs": [
            {
                "job_name": "pods",
                # In the place of kubernetes_sd_configs: prometheus/discovery.py says why.
                "http_sd_configs": [
                    {"url": "http://127.0.0.1:9091/", "refresh_interval": f"{SCRAPE_INTERVAL_S}s"}
                ],
                "relabel_configs": [
                    {
                        "source_labels": [f"{_ANNOTATION}_scrape"],
                        "regex": "true",
                        "action": "keep",
                    },
                    # A pod that is pending has no address, and one that ended none of its own.
                    {
                        "source_labels": ["__meta_kubernetes_pod_phase"],
                        "regex": "Running",
                        "action": "keep",
                    },
                    {
                        "source_labels": [f"{_ANNOTATION}_path"],
                        "regex": "(.+)",
                        "target_label": "__metrics_path__",
                    },
                    {
                        "source_labels": ["__meta_kubernetes_pod_ip", f"{_ANNOTATION}_port"],
                        "separator": ":",
                        "target_label": "__address__",
                    },
                    {
                        "source_labels": ["__meta_kubernetes_namespace"],
                        "target_label": "namespace",
                    },
                    {
                        "source_labels": ["__meta_kubernetes_pod_name"],
                        "target_label": "pod",
                    },
                ],
            }
        ],
    }


def _manifests(namespace: str) -> list[Manifest]:
    metadata = {"name": NAME, "namespace": namespace, "labels": _LABELS}
    cluster_wide = {"name": f"{namespace}-{NAME}", "labels": _LABELS}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": cluster_wide,
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": cluster_wide,
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": cluster_wide["name"],
            },
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"prometheus.yml": yaml.safe_dump(configuration(), sort_keys=False)},
        },
        *describe_server(
            metadata,
            ports=[{"name": "web", "port": 9090, "nodePort": NODE_PORT}],
            # It scrapes itself by the annotations that it looks for in others.
            annotations={
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9090",
                "prometheus.io/path": "/metrics",
            },
            pod={
                "serviceAccountName": NAME,
                "automountServiceAccountToken": True,
                # Discovery does not hear that it should end, and nothing here needs time for that.
                "terminationGracePeriodSeconds": 2,
                "containers": [
                    {
                        "name": NAME,
                        "image": PROMETHEUS,
                        "args": [
                            "--config.file=/etc/prometheus-e2e/prometheus.yml",
                            "--storage.tsdb.path=/var/lib/prometheus-e2e",
                        ],
                        "ports": [{"name": "web", "containerPort": 9090}],
                        "readinessProbe": {
                            "httpGet": {"path": "/-/ready", "port": "web"},
                            "periodSeconds": 1,
                        },
                        "volumeMounts": [
                            {"name": "configuration", "mountPath": "/etc/prometheus-e2e"},
                            {"name": "data", "mountPath": "/var/lib/prometheus-e2e"},
                        ],
                    },
                    {
                        "name": "discovery",
                        "image": PROMETHEUS,
                        "command": ["python3", "/opt/discovery.py"],
                    },
                ],
                "volumes": [
                    {"name": "configuration", "configMap": {"name": NAME}},
                    {"name": "data", "emptyDir": {}},
                ],
            },
        ),
    ]
