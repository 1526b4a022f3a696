"""The Helm chart: its files, what Helm renders of it, and what its dashboard asks for."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "balancedstream"
ALERTS = CHART / "files" / "alerts.yaml"
ALERT_TESTS = ROOT / "tests" / "chart" / "alerts-test.yaml"
DASHBOARD = CHART / "files" / "dashboard.json"
CRD = CHART / "files" / "balancedstreams.yaml"
NAMESPACE = "operators"
FULL_NAME = "bst-balancedstream"
SUBJECT = {"kind": "ServiceAccount", "name": FULL_NAME, "namespace": NAMESPACE}
EVERYTHING = (
    "monitoring.podMonitor.enabled=true",
    "monitoring.rules.enabled=true",
    "monitoring.dashboard.enabled=true",
)

Manifest = dict[str, Any]


def run(command: Sequence[str], *, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs a command, whatever its exit code."""
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def render_raw(helm: str, *settings: str) -> subprocess.CompletedProcess[str]:
    """What Helm says to the chart with some settings."""
    # A Helm that was built from its sources takes itself for the companion of an old Kubernetes.
    command = [helm, "template", "bst", str(CHART), "--namespace", NAMESPACE]
    command += ["--kube-version", "1.34.0"]
    for setting in settings:
        command += ["--set", setting]
    return run(command)


def render(helm: str, *settings: str) -> list[Manifest]:
    """The objects that Helm makes of the chart with some settings."""
    result = render_raw(helm, *settings)
    assert result.returncode == 0, result.stderr
    manifests = [m for m in yaml.safe_load_all(result.stdout) if m]
    # Whatever is rendered is an object of Kubernetes, and no two are the same one.
    names = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests]
    assert len(names) == len(set(names))
    assert all(m["apiVersion"] for m in manifests)
    return manifests


def of_kind(manifests: Sequence[Manifest], kind: str) -> list[Manifest]:
    """All objects of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def only(manifests: Sequence[Manifest], kind: str) -> Manifest:
    """The only object of a kind."""
    [manifest] = of_kind(manifests, kind)
    return manifest


def container(manifests: Sequence[Manifest]) -> Manifest:
    """The operator's container."""
    [found] = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def grants(role: Manifest) -> set[tuple[str, str, str]]:
    """What a role allows, as (group, resource, verb)."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def all_of(group: str, resource: str, verbs: str) -> set[tuple[str, str, str]]:
    """The same for one resource and some verbs."""
    return {(group, resource, verb) for verb in verbs.split()}


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """Title and expression of each query; Grafana's interval becomes one that Prometheus knows."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")


def documented_metrics() -> dict[str, list[str]]:
    """The labels of each metric; in Kubernetes those of drivers have `stream` as well."""
    pages = ("metrics.md", "operator-metrics.md")
    document = "".join((ROOT / "docs" / "reference" / p).read_text("utf-8") for p in pages)
    rows = re.findall(r"^\| `(balancedstream_\w+)` \| \w+ \| (.*?) \|", document, re.M)
    found = {name: re.findall(r"`(\w+)`", labels) for name, labels in rows}
    return {
        name: labels if name.startswith("balancedstream_operator") else ["stream", *labels]
        for name, labels in found.items()
    }
