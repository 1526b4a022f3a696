"""Settings that must agree, and keys of the user beside those that the chart writes itself."""

from __future__ import annotations

import pytest
from charts import EVERYTHING, Manifest, container, load, of_kind, only, template

from balancedstream_operator.main import HEALTH_PORT, METRICS_PORT

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]


def prometheus_ports(manifests: list[Manifest]) -> list[int]:
    """Ports of the rule for Prometheus."""
    rule = only(manifests, "NetworkPolicy")["spec"]["egress"][2]
    return [port["port"] for port in rule["ports"]]


@pytest.mark.parametrize(
    ("url", "ports"),
    [
        ("", []),
        ("http://vmsingle:8428", [8428]),
        ("http://vmsingle:8428/", [8428]),
        ("http://vmselect:8481/select/0:0/prometheus", [8481]),
        ("http://prometheus:9090", []),
        ("https://thanos.example", [443]),
        ("http://thanos.example/a:81", [80]),
        ("https://me:81@mimir:8080/prometheus?a=:82", [8080]),
        ("http://[fd00::9]:9009", [9009]),
        ("http://[fd00::9]", [80]),
    ],
)
def test_the_operator_may_reach_the_port_of_each_url(helm: str, url: str, ports: list[int]) -> None:
    expected = [9090, *ports]
    assert prometheus_ports(load(template(helm, {"prometheus": {"url": url}}))) == expected
    if url:
        allowed = {"prometheus": {"allowedUrls": ["*", url]}}
        assert prometheus_ports(load(template(helm, allowed))) == expected
        argument = {"extraArgs": [f"--allow-prometheus-url={url}"]}
        assert prometheus_ports(load(template(helm, argument))) == expected


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("value", ["http://proxy:3128", "proxy:3128", "http://me:1@proxy:3128/"])
def test_the_operator_may_reach_its_proxy(helm: str, name: str, value: str) -> None:
    values = {"extraEnv": [{"name": name, "value": value}, {"name": "NO_PROXY", "value": "a:1"}]}
    assert prometheus_ports(load(template(helm, values))) == [9090, 3128]


def test_ports_are_those_that_the_operator_listens_on(helm: str) -> None:
    manifests = load(template(helm, {}))
    ports = {port["name"]: port["containerPort"] for port in container(manifests)["ports"]}
    assert ports == {"health": HEALTH_PORT, "metrics": METRICS_PORT}
    [rule] = only(manifests, "NetworkPolicy")["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [HEALTH_PORT, METRICS_PORT]
    pod = only(manifests, "Deployment")["spec"]["template"]["metadata"]
    assert pod["annotations"]["prometheus.io/port"] == str(METRICS_PORT)


REFUSED = [
    (
        {"watch": {"namespaces": ["shop"]}, "networkPolicy": {"streams": {"namespaces": ["bank"]}}},
        "networkPolicy.streams.namespaces: the operator does not watch bank",
    ),
    (
        {
            "watch": {"namespaces": ["shop"]},
            "monitoring": {"podMonitor": {"namespaces": ["bank"]}},
        },
        "monitoring.podMonitor.namespaces: the operator does not watch bank",
    ),
    (
        {"replicas": 2, "podDisruptionBudget": {"minAvailable": 2}},
        "podDisruptionBudget.minAvailable: at most 1 of 2 replicas",
    ),
    (
        {"serviceAccount": {"create": False, "name": "ours", "annotations": {"a": "b"}}},
        "serviceAccount.annotations: ",
    ),
    (
        {"prometheus": {"sigv4": {"region": "eu"}, "serviceAccountToken": {"enabled": True}}},
        "prometheus.sigv4.region: ",
    ),
    ({"extraArgs": ["--namespace=shop"]}, "extraArgs: --namespace is what watch.namespaces sets"),
    ({"extraArgs": ["--all-namespaces"]}, "extraArgs: --all-namespaces is what watch.namespaces"),
    ({"extraArgs": ["--lease=mine"]}, "extraArgs: --lease is what fullnameOverride sets"),
    ({"extraArgs": ["--prometheus-url=http://p"]}, "extraArgs: --prometheus-url is what prom"),
    ({"extraEnv": [{"name": "POD_NAMESPACE", "value": "a"}]}, "extraEnv: POD_NAMESPACE: "),
    ({"extraEnv": [{"name": "LOG_LEVEL", "value": "INFO"}]}, "extraEnv: LOG_LEVEL: set logLevel"),
    ({"extraEnv": [{"name": "A"}, {"name": "A"}]}, "extraEnv: A: it is there twice"),
    ({"extraVolumes": [{"name": "tmp"}]}, "extraVolumes: tmp: the chart has a volume of this name"),
    ({"extraVolumes": [{"name": "a"}, {"name": "a"}]}, "extraVolumes: a: it is there twice"),
    ({"extraVolumeMounts": [{"name": "a", "mountPath": "/tmp/"}]}, "extraVolumeMounts: /tmp: "),  # noqa: S108
    (
        {"extraVolumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/a"}]},
        "extraVolumeMounts: /a: it is there twice",
    ),
]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_what_does_not_agree_is_refused_by_name(helm: str, values: Manifest, message: str) -> None:
    result = template(helm, values)
    assert result.returncode != 0
    assert message in result.stderr


OWN_LABELS = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
)


def nest(path: str, value: Manifest) -> Manifest:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


@pytest.mark.parametrize("key", OWN_LABELS)
@pytest.mark.parametrize(
    "path",
    [
        "commonLabels",
        "podLabels",
        "monitoring.podMonitor.labels",
        "monitoring.rules.labels",
        "monitoring.dashboard.labels",
    ],
)
def test_a_label_that_the_chart_sets_itself_is_refused(helm: str, path: str, key: str) -> None:
    result = template(helm, nest(path, {key: "mine"}), *EVERYTHING)
    assert result.returncode != 0
    assert f"{path}: the chart sets the label {key} itself" in result.stderr


def test_labels_of_everything_are_on_all_objects_and_select_nothing(helm: str) -> None:
    values = {
        "commonLabels": {"team": "shop", "both": "common"},
        "commonAnnotations": {"team": "shop", "both": "common"},
        "podLabels": {"both": "pod"},
        "podAnnotations": {"both": "pod", "prometheus.io/scrape": "false"},
        "deploymentAnnotations": {"both": "deployment"},
    }
    manifests = load(template(helm, values, *EVERYTHING, "replicas=2"))
    for manifest in manifests:
        assert manifest["metadata"]["labels"]["team"] == "shop"
        assert manifest["metadata"]["annotations"]["team"] == "shop"
    deployment = only(manifests, "Deployment")
    assert deployment["metadata"]["annotations"]["both"] == "deployment"
    pod = deployment["spec"]["template"]["metadata"]
    assert pod["labels"].items() >= {("team", "shop"), ("both", "pod")}
    assert pod["annotations"]["both"] == "pod"
    assert pod["annotations"]["prometheus.io/scrape"] == "false"
    selector = deployment["spec"]["selector"]["matchLabels"]
    plain = only(load(template(helm, {})), "Deployment")
    assert selector == plain["spec"]["selector"]["matchLabels"]
    assert selector.items() <= pod["labels"].items()
    crd = only(manifests, "CustomResourceDefinition")["metadata"]["annotations"]
    assert crd["helm.sh/resource-policy"] == "keep"


def test_a_monitor_can_be_in_each_namespace_of_streams(helm: str) -> None:
    values = {"monitoring": {"podMonitor": {"enabled": True, "namespaces": ["shop", "bank"]}}}
    operator, *drivers = of_kind(load(template(helm, values)), "PodMonitor")
    assert "namespaceSelector" not in operator["spec"]
    assert [d["metadata"]["namespace"] for d in drivers] == ["shop", "bank"]
    assert all("namespaceSelector" not in d["spec"] for d in drivers)
