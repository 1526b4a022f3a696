"""The Helm chart: its files, what Helm renders of it, and what its dashboard asks for."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
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


def template(
    helm: str,
    values: Manifest,
    *settings: str,
    chart: Path = CHART,
    release: str = "bst",
    namespace: str = NAMESPACE,
) -> subprocess.CompletedProcess[str]:
    """What Helm says to a chart with some values, as in a file, and settings on top of them."""
    # A Helm that was built from its sources takes itself for the companion of an old Kubernetes.
    command = [helm, "template", release, str(chart), "--namespace", namespace, "--values", "-"]
    command += ["--kube-version", "1.34.0"]
    for setting in settings:
        command += ["--set", setting]
    given = json.dumps(values, ensure_ascii=False)
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


def render_raw(helm: str, *settings: str) -> subprocess.CompletedProcess[str]:
    """What Helm says to the chart with some settings."""
    return template(helm, {}, *settings)


def render(helm: str, *settings: str) -> list[Manifest]:
    """The objects that Helm makes of the chart with some settings."""
    return load(render_raw(helm, *settings))


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is there twice, as the API server does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key is there twice: {sorted(map(str, keys))}"
        return super().construct_mapping(node, deep)


def load(result: subprocess.CompletedProcess[str]) -> list[Manifest]:
    """The objects that Helm made."""
    assert result.returncode == 0, result.stderr
    manifests = [m for m in yaml.load_all(result.stdout, _StrictLoader) if m]
    # Whatever is rendered is an object of Kubernetes, and no two are the same one.
    names = [identity(m) for m in manifests]
    assert len(names) == len(set(names))
    assert all(m["apiVersion"] for m in manifests)
    return manifests


def identity(manifest: Manifest) -> tuple[str, str, str]:
    """Kind, namespace (empty for none) and name of an object."""
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


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
