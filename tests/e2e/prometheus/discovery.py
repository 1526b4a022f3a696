"""Tells Prometheus which pods there are, over HTTP service discovery.

Debian builds Prometheus without its Kubernetes discovery. This serves what that would find, under
the same names of labels, so that the relabelling of the scrape configuration is the usual one.
"""

from __future__ import annotations

import json
import re
import ssl
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PODS = "https://kubernetes.default.svc/api/v1/pods?resourceVersion=0"
PORT = 9091


def list_pods() -> list[dict[str, Any]]:
    """All pods of the cluster, from the API server's cache."""
    # The token is read each time: Kubernetes replaces it.
    token = (ACCOUNT / "token").read_text()
    request = urllib.request.Request(PODS, headers={"Authorization": f"Bearer {token}"})
    trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, context=trusted, timeout=10) as answer:  # noqa: S310
        items: list[dict[str, Any]] = json.load(answer)["items"]
    return items


def describe(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod as a target group, with the labels of Prometheus' own discovery."""
    metadata, status = pod["metadata"], pod["status"]
    prefix = "__meta_kubernetes_pod"
    labels = {
        "__meta_kubernetes_namespace": metadata["namespace"],
        f"{prefix}_name": metadata["name"],
        f"{prefix}_ip": status["podIP"],
        f"{prefix}_phase": status["phase"],
    }
    for kind in ("annotation", "label"):
        for key, value in metadata.get(f"{kind}s", {}).items():
            labels[f"{prefix}_{kind}_{re.sub('[^a-zA-Z0-9_]', '_', key)}"] = value
    return {"targets": [status["podIP"]], "labels": labels}


class Discovery(BaseHTTPRequestHandler):
    """Answers each GET with all pods that have an address."""

    def do_GET(self) -> None:
        """Prometheus keeps the last targets where this fails."""
        groups = [describe(pod) for pod in list_pods() if pod["status"].get("podIP")]
        body = json.dumps(groups).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """One line every two seconds would only hide what matters."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Discovery).serve_forever()
