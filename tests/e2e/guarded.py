"""A Prometheus that asks who somebody is: it has what the tests' own one has, by federation."""

from __future__ import annotations

import json
from base64 import b64encode

from images import PROMETHEUS
from kube import Kube, Manifest
from real_prometheus import PASSWORD, PASSWORD_HASH, USER
from servers import describe_server

NAME = "guarded"
PORT = 9090
_LABELS = {"app.kubernetes.io/name": NAME}


def deploy_guarded_prometheus(kube: Kube, namespace: str, source: str) -> str:
    """Starts it, and returns its URL for pods when it is ready.

    Args:
        kube: the cluster.
        namespace: for it.
        source: host and port of the Prometheus that has the series.
    """
    kube.apply(*_describe(namespace, source))
    kube.wait_for_rollout(namespace, NAME)
    return f"http://{NAME}.{namespace}.svc:{PORT}"


def describe_login(name: str, namespace: str, password: str) -> Manifest:
    """The Secret to log in with."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {"username": USER, "password": password},
    }


def _describe(namespace: str, source: str) -> list[Manifest]:
    metadata = {"name": NAME, "namespace": namespace, "labels": _LABELS}
    job = {
        "job_name": "federate",
        "scrape_interval": "2s",
        "honor_labels": True,
        "metrics_path": "/federate",
        "params": {"match[]": ['{__name__=~"balancedstream_.+"}']},
        "static_configs": [{"targets": [source]}],
    }
    # JSON is YAML.
    files = {
        "prometheus.yml": json.dumps({"scrape_configs": [job]}),
        "web.yml": json.dumps({"basic_auth_users": {USER: PASSWORD_HASH}}),
    }
    login = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    authorization = {"name": "Authorization", "value": f"Basic {login}"}
    container = {
        "name": NAME,
        "image": PROMETHEUS,
        "args": [
            "--config.file=/etc/guarded/prometheus.yml",
            "--web.config.file=/etc/guarded/web.yml",
            "--storage.tsdb.path=/var/lib/guarded",
        ],
        "ports": [{"name": "web", "containerPort": PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/-/ready", "port": "web", "httpHeaders": [authorization]},
            "periodSeconds": 1,
        },
        "volumeMounts": [
            {"name": "configuration", "mountPath": "/etc/guarded"},
            {"name": "data", "mountPath": "/var/lib/guarded"},
        ],
    }
    volumes = [
        {"name": "configuration", "configMap": {"name": NAME}},
        {"name": "data", "emptyDir": {}},
    ]
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files},
        *describe_server(
            metadata,
            ports=[{"name": "web", "port": PORT}],
            pod={"containers": [container], "volumes": volumes},
        ),
    ]
