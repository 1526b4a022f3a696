"""The chart as a whole, and the operator's pod, with Helm itself; no cluster is needed."""

from __future__ import annotations

import pytest
import yaml
from charts import (
    CHART,
    CRD,
    EVERYTHING,
    FULL_NAME,
    ROOT,
    Manifest,
    container,
    of_kind,
    only,
    render,
    render_raw,
    run,
)

from balancedstream.version import __version__
from balancedstream_operator.api.resource import Stream
from balancedstream_operator.children.pods import (
    BLOCK_MANAGER_PORT,
    DRIVER_PORT,
    METRICS_PORT,
    UI_PORT,
    stream_labels,
)

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param((), id="defaults"),
        pytest.param(EVERYTHING, id="everything"),
        pytest.param(("watch.namespaces={shop,bank}", *EVERYTHING), id="namespaced"),
    ],
)
def test_lint_finds_nothing(helm: str, settings: tuple[str, ...]) -> None:
    command = [helm, "lint", "--strict", str(CHART)]
    for setting in settings:
        command += ["--set", setting]
    result = run(command)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "[WARNING]" not in result.stdout


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("replicas=0", "replicas"),
        ("logLevel=LOUD", "logLevel"),
        ("logFormat=xml", "logFormat"),
        ("networkPolicy.streams.namespaces={Shop}", "namespaces"),
        ("extraArgs={namespace}", "extraArgs"),
        ("replicas=many", "replicas"),
        ("image.repo=x", "repo"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("image.repository=", "repository"),
        ("image.repository=name:tag", "repository"),
        ("image.digest=sha256:abc", "digest"),
        ("watch.namespaces=shop", "namespaces"),
        ("watch.namespaces={Shop}", "namespaces"),
        ("watch.namespaces={shop,shop}", "namespaces"),
        ("watch.namespace=shop", "namespace"),
        ("prometheus.url=prometheus:9090", "url"),
        ("prometheus.allowedUrls={prometheus}", "allowedUrls"),
        ("prometheus.labels.cluster=1", "labels"),
        ("prometheus.credentialsSecret=Mine", "credentialsSecret"),
        ("crds.install=maybe", "install"),
        ("streams.forbidEscalation=1", "forbidEscalation"),
        ("cost.executorHour=-1", "executorHour"),
        ("cost.executorHour=cheap", "executorHour"),
        ("cost.executorHour=nan", "executorHour"),
        ("cost.currency=SeventeenLetters1", "currency"),
        ("streams.forbidEscalations=true", "forbidEscalations"),
        ("serviceAccount.create=1", "create"),
        ("resources.limits.memory=plenty", "memory"),
        ("resources.limit.memory=1Gi", "limit"),
        ("networkPolicy.prometheus.ports={0}", "ports"),
        ("prometheus.labels.a-b=c", "labels"),
        ("extraObjects[0].kind=Secret", "extraObjects"),
        ("networkPolicy.egress=false", "egress"),
        ("monitoring.podMonitor.interval=15", "interval"),
        ("monitoring.rules.labels.release=1", "labels"),
        ("podLabels.team=null,podLabels.on=true", "podLabels"),
        ("imagePullSecrets={registry}", "imagePullSecrets"),
    ],
)
def test_bad_values_are_refused_by_name(helm: str, setting: str, named: str) -> None:
    result = render_raw(helm, setting)
    assert result.returncode != 0
    assert "values don't meet the specifications of the schema" in result.stderr
    assert named in result.stderr


@pytest.mark.parametrize("price", ["0.12", "2"])
def test_a_price_can_be_set_on_the_command_line_of_helm(helm: str, price: str) -> None:
    result = render_raw(helm, f"cost.executorHour={price}")
    assert result.returncode == 0, result.stderr
    assert f"--cost-executor-hour={price}" in result.stdout


def test_the_definition_is_the_generated_one(helm: str) -> None:
    generated = ROOT / "crds" / "balancedstreams.yaml"
    assert CRD.read_bytes() == generated.read_bytes()
    rendered = only(render(helm), "CustomResourceDefinition")
    annotations = rendered["metadata"].pop("annotations")
    labels = rendered["metadata"].pop("labels")
    expected = yaml.safe_load(generated.read_text("utf-8"))
    own = expected["metadata"].pop("annotations", {}), expected["metadata"].pop("labels", {})
    assert rendered == expected
    assert annotations == {**own[0], "helm.sh/resource-policy": "keep"}
    assert labels.items() >= own[1].items()
    assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_the_definition_can_be_left_out(helm: str) -> None:
    assert not of_kind(render(helm, "crds.install=false"), "CustomResourceDefinition")
    assert not (CHART / "crds").exists(), "Helm never upgrades what is in `crds/`"


def test_one_operator_that_is_restricted(helm: str) -> None:
    manifests = render(helm)
    deployment = only(manifests, "Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    operator = container(manifests)
    assert operator["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert operator["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in operator["resources"]["limits"]
    assert operator["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108
    assert {entry["name"] for entry in operator["env"]} == {
        "POD_NAME",
        "POD_NAMESPACE",
        "LOG_LEVEL",
    }
    ports = {port["name"]: port["containerPort"] for port in operator["ports"]}
    assert ports == {"health": 8080, "metrics": 8081}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        path = "/readyz" if probe == "readinessProbe" else "/healthz"
        assert operator[probe]["httpGet"] == {"path": path, "port": "health"}
    assert only(manifests, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod["automountServiceAccountToken"] is True


def test_how_to_ask_prometheus_reaches_the_operator(helm: str) -> None:
    manifests = render(
        helm,
        "prometheus.labels.cluster=eu",
        "prometheus.allowedUrls={*,http://thanos}",
        "prometheus.credentialsSecret=account",
    )
    operator = container(manifests)
    folder = "/etc/prometheus-credentials"
    assert {
        "--prometheus-label=cluster=eu",
        "--allow-prometheus-url=*",
        "--allow-prometheus-url=http://thanos",
        f"--prometheus-credentials={folder}",
    } <= {*operator["args"]}
    (mount,) = [m for m in operator["volumeMounts"] if m["mountPath"] == folder]
    assert mount["readOnly"]
    volumes = only(manifests, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": mount["name"], "secret": {"secretName": "account"}} in volumes


def test_escalation_is_forbidden_only_if_that_is_asked_for(helm: str) -> None:
    asked = render(helm, "streams.forbidEscalation=true")
    assert "--forbid-escalation" in container(asked)["args"]
    assert "--forbid-escalation" not in container(render(helm))["args"]


def test_accounts_that_streams_may_name_are_arguments(helm: str) -> None:
    asked = render(helm, "streams.allowedServiceAccounts={reader,writer}")
    allowed = [a for a in container(asked)["args"] if a.startswith("--allow-service-account")]
    assert allowed == ["--allow-service-account=reader", "--allow-service-account=writer"]


def test_two_operators_are_replaced_one_after_the_other(helm: str) -> None:
    deployment = only(render(helm, "replicas=2"), "Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (2, {"type": "RollingUpdate"})
    budget = only(render(helm, "replicas=2"), "PodDisruptionBudget")["spec"]
    assert budget["minAvailable"] == 1
    labels = deployment["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert not of_kind(render(helm), "PodDisruptionBudget"), "it would block drains"


def test_what_a_platform_adds_reaches_the_operators_pod(helm: str) -> None:
    manifests = render(
        helm,
        "logLevel=DEBUG",
        "extraArgs={--allow-prometheus-url=http://thanos}",
        "extraVolumes[0].name=ca,extraVolumes[0].configMap.name=ca",
        "extraVolumeMounts[0].name=ca,extraVolumeMounts[0].mountPath=/ca",
        "topologySpreadConstraints[0].topologyKey=zone",
        "monitoring.podMonitor.enabled=true",
        "monitoring.podMonitor.relabelings[0].targetLabel=cluster",
    )
    operator = container(manifests)
    assert operator["args"][-1] == "--allow-prometheus-url=http://thanos"
    assert {"name": "LOG_LEVEL", "value": "DEBUG"} in operator["env"]
    assert {"name": "ca", "mountPath": "/ca"} in operator["volumeMounts"]
    pod = only(manifests, "Deployment")["spec"]["template"]["spec"]
    assert {"name": "ca", "configMap": {"name": "ca"}} in pod["volumes"]
    assert pod["topologySpreadConstraints"] == [{"topologyKey": "zone"}]
    for monitor in of_kind(manifests, "PodMonitor"):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["relabelings"] == [{"targetLabel": "cluster"}]


def test_image_by_tag_and_by_digest(helm: str) -> None:
    digest = "sha256:" + "0" * 64
    assert container(render(helm))["image"] == f"balancedstream-operator:{__version__}"
    assert container(render(helm, "image.tag=dev"))["image"] == "balancedstream-operator:dev"
    by_digest = container(render(helm, f"image.digest={digest}", "image.tag=dev"))
    assert by_digest["image"] == f"balancedstream-operator@{digest}"


def test_network_policy(helm: str) -> None:
    policy = only(render(helm), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    [inward] = policy["ingress"]
    assert [port["port"] for port in inward["ports"]] == [8080, 8081]
    outward = [{(p["port"], p["protocol"]) for p in rule["ports"]} for rule in policy["egress"]]
    assert outward == [
        {(53, "UDP"), (53, "TCP")},
        {(443, "TCP"), (6443, "TCP")},
        {(9090, "TCP")},
    ]
    pod = only(render(helm), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= pod.items()
    narrowed = render(helm, "networkPolicy.prometheus.to[0].ipBlock.cidr=10.0.0.0/8")
    assert only(narrowed, "NetworkPolicy")["spec"]["egress"][2]["to"] == [
        {"ipBlock": {"cidr": "10.0.0.0/8"}}
    ]
    assert not of_kind(render(helm, "networkPolicy.enabled=false"), "NetworkPolicy")


def closed(manifests: list[Manifest], component: str) -> Manifest:
    """The NetworkPolicy of the streams' drivers or executors."""
    name = f"{FULL_NAME}-{component}s"
    [found] = [m for m in of_kind(manifests, "NetworkPolicy") if m["metadata"]["name"] == name]
    assert found["metadata"]["namespace"] == "shop"
    return dict(found["spec"])


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    """Whether a label selector selects a pod."""
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", [])
    )


def test_streams_can_be_closed_to_all_but_each_other(helm: str) -> None:
    settings = (
        "networkPolicy.streams.namespaces={shop}",
        "networkPolicy.streams.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring",
    )
    manifests = render(helm, *settings)
    assert len(of_kind(manifests, "NetworkPolicy")) == 3
    stream = Stream("shop", "clicks", "uid-1")
    driver, executor = stream_labels(stream, "driver"), stream_labels(stream, "executor")
    drivers, executors = closed(manifests, "driver"), closed(manifests, "executor")
    assert drivers["policyTypes"] == executors["policyTypes"] == ["Ingress"]
    assert selects(drivers["podSelector"], driver)
    assert not selects(drivers["podSelector"], executor)
    assert selects(executors["podSelector"], executor)
    assert not selects(executors["podSelector"], driver)
    spark, metrics = drivers["ingress"]
    assert [p["port"] for p in spark["ports"]] == [DRIVER_PORT, BLOCK_MANAGER_PORT]
    assert selects(spark["from"][0]["podSelector"], executor)
    assert [p["port"] for p in metrics["ports"]] == [METRICS_PORT]
    assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
    [among] = executors["ingress"]
    assert "ports" not in among
    for labels in (driver, executor):
        assert selects(among["from"][0]["podSelector"], labels)
    assert not selects(among["from"][0]["podSelector"], {"app": "other"})
    with_ui = render(helm, *settings, "networkPolicy.streams.uiFrom[0].podSelector.matchLabels.a=b")
    assert closed(with_ui, "driver")["ingress"][2] == {
        "ports": [{"port": UI_PORT, "protocol": "TCP"}],
        "from": [{"podSelector": {"matchLabels": {"a": "b"}}}],
    }


def test_logs_can_be_json(helm: str) -> None:
    env = container(render(helm, "logFormat=json"))["env"]
    assert {"name": "LOG_FORMAT", "value": "json"} in env


def test_scraping_by_annotation_and_by_monitor(helm: str) -> None:
    pod = only(render(helm), "Deployment")["spec"]["template"]["metadata"]
    assert pod["annotations"].items() >= {
        ("prometheus.io/scrape", "true"),
        ("prometheus.io/port", "8081"),
        ("prometheus.io/path", "/metrics"),
    }
    without = render(helm, "monitoring.scrapeAnnotations=false")
    quiet = only(without, "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert not any(name.startswith("prometheus.io/") for name in quiet)
    operator, drivers = of_kind(render(helm, *EVERYTHING), "PodMonitor")
    assert operator["spec"]["selector"]["matchLabels"].items() <= pod["labels"].items()
    assert drivers["spec"]["namespaceSelector"] == {"any": True}
    assert drivers["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/managed-by": "balancedstream",
        "app.kubernetes.io/name": "balancedstream-driver",
    }
    _, drivers = of_kind(render(helm, *EVERYTHING, "watch.namespaces={shop}"), "PodMonitor")
    assert drivers["spec"]["namespaceSelector"] == {"matchNames": ["shop"]}


def test_what_another_operator_must_know_is_off_by_default(helm: str) -> None:
    assert {m["apiVersion"] for m in render(helm)} <= {
        "v1",
        "apps/v1",
        "apiextensions.k8s.io/v1",
        "networking.k8s.io/v1",
        "rbac.authorization.k8s.io/v1",
    }
