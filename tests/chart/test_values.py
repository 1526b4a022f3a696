"""Every value of the chart does something, and where it should."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from charts import CHART, EVERYTHING, NAMESPACE, Manifest, identity, load, template

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

VALUES: Manifest = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))

OWN = {"labels", "podSecurityContext", "securityContext", "resources"}
PEERS = [{"podSelector": {"matchLabels": {"a": "b"}}}]
WORDS = {"a": "b"}
EVERY_KIND: set[str] = {
    *("ClusterRole", "ClusterRoleBinding", "ConfigMap", "CustomResourceDefinition", "Deployment"),
    *("NetworkPolicy", "PodMonitor", "PrometheusRule", "Role", "RoleBinding", "ServiceAccount"),
}
NAMED = EVERY_KIND - {"CustomResourceDefinition"}
ACCESS = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}

# Another value, and the kinds of the objects that it changes. With `|`: settings that it needs.
CHANGES: dict[str, tuple[Any, set[str]]] = {
    "image.registry": ("registry:5000", {"Deployment"}),
    "image.repository": ("other", {"Deployment"}),
    "image.tag": ("dev", {"Deployment"}),
    "image.digest": ("sha256:" + "0" * 64, {"Deployment"}),
    "image.pullPolicy": ("Always", {"Deployment"}),
    "imagePullSecrets": ([{"name": "registry"}], {"Deployment"}),
    "replicas": (2, {"Deployment", "PodDisruptionBudget"}),
    "nameOverride": ("other", EVERY_KIND),
    "fullnameOverride": ("other", NAMED),
    "commonLabels": (WORDS, EVERY_KIND),
    "commonAnnotations": (WORDS, EVERY_KIND),
    "crds.install": (False, {"CustomResourceDefinition"}),
    "watch.namespaces": (["shop"], {*ACCESS, "Deployment", "PodMonitor"}),
    "prometheus.url": ("http://p:1", {"Deployment", "NetworkPolicy"}),
    "prometheus.labels": (WORDS, {"Deployment"}),
    "prometheus.credentialsSecret": ("mine", {"Deployment"}),
    "prometheus.serviceAccountToken.enabled": (True, {"Deployment"}),
    "prometheus.serviceAccountToken.audience | prometheus.serviceAccountToken.enabled=true": (
        "p",
        {"Deployment"},
    ),
    "prometheus.sigv4.region": ("eu-central-1", {"Deployment", "NetworkPolicy"}),
    "prometheus.allowedUrls": (["http://p:1"], {"Deployment", "NetworkPolicy"}),
    "prometheus.streamSecrets": (True, {"ClusterRole"}),
    "prometheus.streamQueries": (True, {"Deployment"}),
    "streams.forbidEscalation": (True, {"Deployment"}),
    "streams.allowedServiceAccounts": (["reader"], {"Deployment"}),
    "streams.maxExecutors": (40, {"Deployment"}),
    "streams.maxCores": (160, {"Deployment"}),
    "streams.maxMemory": ("512g", {"Deployment"}),
    "cost.executorHour": (0.12, {"Deployment"}),
    "cost.currency": ("EUR", {"Deployment"}),
    "serviceAccount.create | serviceAccount.name=ours": (False, {"ServiceAccount"}),
    "serviceAccount.name": (
        "ours",
        {"ServiceAccount", "Deployment", "RoleBinding", "ClusterRoleBinding"},
    ),
    "serviceAccount.annotations": (WORDS, {"ServiceAccount"}),
    "rbac.create": (False, ACCESS),
    "rbac.aggregate": (False, {"ClusterRole"}),
    "resources": ({"requests": {"cpu": 2}}, {"Deployment"}),
    "podSecurityContext": ({"fsGroup": 1}, {"Deployment"}),
    "securityContext": ({"privileged": False}, {"Deployment"}),
    "deploymentAnnotations": (WORDS, {"Deployment"}),
    "podAnnotations": (WORDS, {"Deployment"}),
    "podLabels": (WORDS, {"Deployment"}),
    "priorityClassName": ("high", {"Deployment"}),
    "runtimeClassName": ("gvisor", {"Deployment"}),
    "nodeSelector": (WORDS, {"Deployment"}),
    "tolerations": ([WORDS], {"Deployment"}),
    "affinity": (WORDS, {"Deployment"}),
    "topologySpreadConstraints": ([WORDS], {"Deployment"}),
    "dnsPolicy": ("Default", {"Deployment"}),
    "dnsConfig": (WORDS, {"Deployment"}),
    "hostAliases": ([WORDS], {"Deployment"}),
    "podDisruptionBudget.minAvailable | replicas=2": (0, {"PodDisruptionBudget"}),
    "logLevel": ("DEBUG", {"Deployment"}),
    "logFormat": ("json", {"Deployment"}),
    "extraArgs": (["--a"], {"Deployment"}),
    "extraVolumes": ([{"name": "a"}], {"Deployment"}),
    "extraVolumeMounts": ([{"name": "a", "mountPath": "/a"}], {"Deployment"}),
    "extraEnv": ([{"name": "A"}], {"Deployment"}),
    "extraObjects": (
        [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}],
        {"Secret"},
    ),
    "networkPolicy.enabled": (False, {"NetworkPolicy"}),
    "networkPolicy.from": (PEERS, {"NetworkPolicy"}),
    "networkPolicy.apiServer.ports": ([1], {"NetworkPolicy"}),
    "networkPolicy.apiServer.to": (PEERS, {"NetworkPolicy"}),
    "networkPolicy.prometheus.ports": ([1], {"NetworkPolicy"}),
    "networkPolicy.prometheus.to": (PEERS, {"NetworkPolicy"}),
    "networkPolicy.dns.ports": ([1], {"NetworkPolicy"}),
    "networkPolicy.dns.to": (PEERS, {"NetworkPolicy"}),
    "networkPolicy.streams.namespaces": (["shop"], {"NetworkPolicy"}),
    "networkPolicy.streams.metricsFrom | networkPolicy.streams.namespaces={shop}": (
        PEERS,
        {"NetworkPolicy"},
    ),
    "networkPolicy.streams.uiFrom | networkPolicy.streams.namespaces={shop}": (
        PEERS,
        {"NetworkPolicy"},
    ),
    "monitoring.scrapeAnnotations": (False, {"Deployment"}),
    "monitoring.podMonitor.enabled": (False, {"PodMonitor"}),
    "monitoring.podMonitor.interval": ("5s", {"PodMonitor"}),
    "monitoring.podMonitor.namespaces": (["shop"], {"PodMonitor"}),
    "monitoring.podMonitor.relabelings": ([WORDS], {"PodMonitor"}),
    "monitoring.podMonitor.metricRelabelings": ([WORDS], {"PodMonitor"}),
    "monitoring.podMonitor.labels": (WORDS, {"PodMonitor"}),
    "monitoring.rules.enabled": (False, {"PrometheusRule"}),
    "monitoring.rules.labels": (WORDS, {"PrometheusRule"}),
    "monitoring.dashboard.enabled": (False, {"ConfigMap"}),
    "monitoring.dashboard.labels": (WORDS, {"ConfigMap"}),
    "monitoring.dashboard.annotations": (WORDS, {"ConfigMap"}),
}


def leaves(values: Manifest, where: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in OWN:
            yield from leaves(value, f"{where}{name}.")
        else:
            yield where + name


def differing(one: list[Manifest], other: list[Manifest]) -> set[str]:
    """The kinds of the objects of which one of two sets has another form, or has none."""
    first, second = ({identity(m): m for m in manifests} for manifests in (one, other))
    return {key[0] for key in first.keys() | second.keys() if first.get(key) != second.get(key)}


def test_the_table_has_every_value() -> None:
    assert {change.partition(" | ")[0] for change in CHANGES} == {*leaves(VALUES)}


@pytest.mark.parametrize("change", CHANGES)
def test_a_value_changes_the_objects_that_it_is_for(helm: str, change: str) -> None:
    path, _, needed = change.partition(" | ")
    value, kinds = CHANGES[change]
    values: Any = value
    for name in reversed(path.split(".")):
        values = {name: values}
    settings = [s for s in EVERYTHING if not s.startswith(f"{path}=")]
    settings += [needed] if needed else []
    before = load(template(helm, {}, *EVERYTHING, *([needed] if needed else [])))
    assert differing(before, load(template(helm, values, *settings))) == kinds


def test_what_a_release_is_called_is_not_a_value(helm: str) -> None:
    one = load(template(helm, {}, *EVERYTHING))
    assert differing(one, load(template(helm, {}, *EVERYTHING, release="other"))) == EVERY_KIND
    assert differing(one, load(template(helm, {}, *EVERYTHING, namespace="other"))) == NAMED
    assert NAMESPACE != "other"
