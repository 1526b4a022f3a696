"""The Helm chart, with Helm and promtool themselves; no cluster is needed."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from balancedstream.version import __version__

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "balancedstream"
ALERTS = CHART / "files" / "alerts.yaml"
DASHBOARD = CHART / "files" / "dashboard.json"
CRD = CHART / "files" / "balancedstreams.yaml"
NAMESPACE = "operators"
EVERYTHING = (
    "monitoring.podMonitor.enabled=true",
    "monitoring.rules.enabled=true",
    "monitoring.dashboard.enabled=true",
)

Manifest = dict[str, Any]


def find_tool(name: str, how: str) -> str:
    """The path of a program; without it CI fails, and a laptop skips."""
    # tests/cluster builds Helm into its own folder.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bare-cluster"
    built = Path(os.environ.get("CLUSTER_CACHE") or cache) / "bin"
    found = shutil.which(name) or shutil.which(name, path=str(built))
    if found is None:
        message = f"{name} is not installed: {how}."
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


def run(command: Sequence[str], *, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # Helm's own settings and caches of whoever runs the tests are left alone.
    for variable in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    return find_tool("helm", "`tests/cluster/cluster build` builds it, or see helm.sh")


@pytest.fixture
def promtool() -> str:
    return find_tool("promtool", "it comes with Prometheus: `apt-get install prometheus`")


def render_raw(helm: str, *settings: str) -> subprocess.CompletedProcess[str]:
    # A Helm that was built from its sources takes itself for the companion of an old Kubernetes.
    command = [helm, "template", "bst", str(CHART), "--namespace", NAMESPACE]
    command += ["--kube-version", "1.34.0"]
    for setting in settings:
        command += ["--set", setting]
    return run(command)


def render(helm: str, *settings: str) -> list[Manifest]:
    result = render_raw(helm, *settings)
    assert result.returncode == 0, result.stderr
    manifests = [m for m in yaml.safe_load_all(result.stdout) if m]
    # Whatever is rendered is an object of Kubernetes, and no two are the same one.
    names = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests]
    assert len(names) == len(set(names))
    assert all(m["apiVersion"] for m in manifests)
    return manifests


def of_kind(manifests: Sequence[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def only(manifests: Sequence[Manifest], kind: str) -> Manifest:
    [manifest] = of_kind(manifests, kind)
    return manifest


def container(manifests: Sequence[Manifest]) -> Manifest:
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
    return {(group, resource, verb) for verb in verbs.split()}


# --- the chart as a whole


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
        ("replicas=2", "replicas"),
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
        ("crds.install=maybe", "install"),
        ("serviceAccount.create=1", "create"),
        ("resources.limits.memory=plenty", "memory"),
        ("resources.limit.memory=1Gi", "limit"),
        ("networkPolicy.prometheus.ports={0}", "ports"),
        ("networkPolicy.prometheus.ports=null", "ports"),
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


def test_the_schema_knows_every_value_and_leaves_nothing_open() -> None:
    """Each object of ours closes its list of properties, and each default is among them."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))

    def resolve(part: Manifest) -> Manifest:
        if "$ref" in part:
            return dict(schema["definitions"][part["$ref"].rsplit("/", 1)[1]])
        return part

    def compare(values: Manifest, part: Manifest, where: str) -> None:
        assert part.get("additionalProperties") is False, where
        assert not values.keys() - part["properties"].keys(), where
        for name, value in values.items():
            inner = resolve(part["properties"][name])
            if isinstance(value, dict) and "properties" in inner:
                compare(value, inner, f"{where}.{name}")

    compare(yaml.safe_load((CHART / "values.yaml").read_text("utf-8")), schema, "")


# --- the resource's definition


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


# --- what the operator may do

PER_NAMESPACE = {
    *all_of("balancedstream.io", "balancedstreams", "get list watch patch"),
    *all_of("balancedstream.io", "balancedstreams/status", "get patch"),
    *all_of("balancedstream.io", "balancedstreams/finalizers", "update"),
    *all_of("apps", "statefulsets", "get list watch create patch update"),
    *all_of("", "services", "get list watch create patch update"),
    *all_of("", "serviceaccounts", "get list watch create patch update"),
    *all_of("", "configmaps", "get list watch create patch update"),
    *all_of("rbac.authorization.k8s.io", "roles", "get list watch create patch update"),
    *all_of("rbac.authorization.k8s.io", "rolebindings", "get list watch create patch update"),
    *all_of("", "pods", "get list watch create delete deletecollection"),
    *all_of("", "persistentvolumeclaims", "get"),
    *all_of("", "events", "create patch"),
}


def test_cluster_wide(helm: str) -> None:
    manifests = render(helm, "prometheus.url=http://prometheus:9090")
    assert container(manifests)["args"] == [
        "--all-namespaces",
        "--prometheus-url=http://prometheus:9090",
    ]
    role = next(m for m in of_kind(manifests, "ClusterRole") if m["metadata"]["name"] == FULL_NAME)
    assert grants(role) == {
        *PER_NAMESPACE,
        *all_of("apiextensions.k8s.io", "customresourcedefinitions", "get list watch"),
        *all_of("", "namespaces", "list watch"),
    }
    binding = only(manifests, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == FULL_NAME
    assert binding["subjects"] == [SUBJECT]
    assert not of_kind(manifests, "Role")


def test_namespaced(helm: str) -> None:
    manifests = render(helm, "watch.namespaces={shop,bank}", "rbac.aggregate=false")
    assert container(manifests)["args"] == ["--namespace=shop", "--namespace=bank"]
    roles = of_kind(manifests, "Role")
    bindings = of_kind(manifests, "RoleBinding")
    assert [role["metadata"]["namespace"] for role in roles] == ["shop", "bank"]
    assert [binding["metadata"]["namespace"] for binding in bindings] == ["shop", "bank"]
    assert all(grants(role) == PER_NAMESPACE for role in roles)
    assert all(binding["subjects"] == [SUBJECT] for binding in bindings)
    # Nothing that reaches over the whole cluster.
    assert not of_kind(manifests, "ClusterRole")
    assert not of_kind(manifests, "ClusterRoleBinding")


def test_no_rule_has_a_wildcard_or_reaches_secrets(helm: str) -> None:
    for role in of_kind(render(helm), "ClusterRole"):
        for group, resource, verb in grants(role):
            assert "*" not in {group, resource, verb}
            assert resource not in {"secrets", "pods/exec", "nodes", "serviceaccounts/token"}
            assert verb not in {"escalate", "bind", "impersonate"}


def test_users_with_the_clusters_own_roles_may_read_and_change_streams(helm: str) -> None:
    roles = {role["metadata"]["name"]: role for role in of_kind(render(helm), "ClusterRole")}
    view, edit = roles[f"{FULL_NAME}-view"], roles[f"{FULL_NAME}-edit"]
    assert "rbac.authorization.k8s.io/aggregate-to-view" in view["metadata"]["labels"]
    assert {verb for _, _, verb in grants(view)} == {"get", "list", "watch"}
    assert "rbac.authorization.k8s.io/aggregate-to-edit" in edit["metadata"]["labels"]
    assert {group for group, _, _ in grants(edit)} == {"balancedstream.io"}
    # Conditions are the operator's word.
    assert not any(resource == "balancedstreams/status" for _, resource, _ in grants(edit))


def test_an_account_that_exists_is_used(helm: str) -> None:
    settings = ("serviceAccount.create=false", "rbac.create=false")
    manifests = render(helm, *settings, "serviceAccount.name=ours")
    assert not of_kind(manifests, "ServiceAccount")
    assert not of_kind(manifests, "ClusterRoleBinding")
    pod = only(manifests, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "ours"
    assert "serviceAccount.name" in render_raw(helm, *settings).stderr


FULL_NAME = "bst-balancedstream"
SUBJECT = {"kind": "ServiceAccount", "name": FULL_NAME, "namespace": NAMESPACE}

# --- the operator's pod


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
    assert {entry["name"] for entry in operator["env"]} == {"POD_NAME", "POD_NAMESPACE"}
    ports = {port["name"]: port["containerPort"] for port in operator["ports"]}
    assert ports == {"health": 8080, "metrics": 8081}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert operator[probe]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert only(manifests, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod["automountServiceAccountToken"] is True


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


# --- alerts and dashboard


def test_alerts_are_in_the_prometheus_rule_as_they_are(helm: str) -> None:
    rule = only(render(helm, *EVERYTHING, "monitoring.rules.labels.release=p"), "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "p"
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text("utf-8"))


def test_every_alert_says_how_bad_it_is_what_it_means_and_what_to_do() -> None:
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        for alert in group["rules"]:
            assert alert["labels"]["severity"] in {"critical", "warning"}, alert["alert"]
            assert alert["annotations"].keys() == {"summary", "description", "action"}
            assert re.fullmatch(r"[1-9]\d*m", alert["for"]), alert["alert"]


def test_promtool_accepts_the_alerts(promtool: str) -> None:
    result = run([promtool, "check", "rules", "--lint-fatal", str(ALERTS)])
    assert result.returncode == 0, result.stdout + result.stderr


def test_alerts_fire_when_they_should_and_only_then(promtool: str) -> None:
    result = run([promtool, "test", "rules", "alerts-test.yaml"], cwd=Path(__file__).parent)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_is_tested() -> None:
    tests = (Path(__file__).parent / "alerts-test.yaml").read_text("utf-8")
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        for alert in group["rules"]:
            assert alert["alert"] in tests


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """Title and expression of each query; Grafana's interval becomes one that Prometheus knows."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")


def test_the_dashboard_is_in_the_config_map_as_it_is(helm: str) -> None:
    manifests = render(helm, *EVERYTHING)
    config = only(manifests, "ConfigMap")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    [text] = config["data"].values()
    assert json.loads(text) == json.loads(DASHBOARD.read_text("utf-8"))


def test_the_dashboard_is_laid_out() -> None:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"]


def test_promtool_accepts_every_query_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    queries = list(dashboard_queries())
    assert len(queries) >= 20
    rules = [{"record": f"query:{i}", "expr": expr} for i, (_, expr) in enumerate(queries)]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")
    result = run([promtool, "check", "rules", str(path)])
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(queries)} rules found" in result.stdout


HISTOGRAMS = {"balancedstream_operator_pass_seconds", "balancedstream_batch_duration_seconds"}


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


def made_up_series() -> Iterator[dict[str, str]]:
    """Every metric there is, of two streams whose drivers were restarted and moved a partition.

    Prometheus still has what the drivers before the restart said, because nothing marks it as
    stale here: a query must not stumble over the same thing said twice.
    """
    choices = {
        "stream": ["shop/clicks", "shop/visits"],
        "query": ["counts"],
        "operator": ["0", "1"],
        "partition": ["0", "1", "2"],
        "executor": ["1", "2"],
    }
    for name, labels in documented_metrics().items():
        sets = itertools.product(*(choices.get(label, ["a", "b"]) for label in labels))
        for values in sets:
            for instance, samples in (("before", "1+3x10 _x10"), ("after", "_x10 1+2x10")):
                given = {**dict(zip(labels, values, strict=True)), "instance": instance}
                buckets = [("_bucket", {"le": le}) for le in ("1", "10", "+Inf")]
                parts = [*buckets, ("_count", {}), ("_sum", {})]
                for suffix, more in parts if name in HISTOGRAMS else [("", {})]:
                    pairs = ", ".join(f'{k}="{v}"' for k, v in {**given, **more}.items())
                    yield {"series": f"{name}{suffix}{{{pairs}}}", "values": samples}


def test_every_query_of_the_dashboard_finds_something(promtool: str, tmp_path: Path) -> None:
    evaluations = []
    for title, expr in dashboard_queries():
        chosen = expr.replace("$stream", "shop/.*").replace("$query", "counts")
        evaluations += [
            {
                "expr": f"count({chosen}) > bool 0 # {title}",
                "eval_time": minute,
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
            for minute in ("8m", "12m", "18m")
        ]
    case = {
        "interval": "1m",
        "input_series": list(made_up_series()),
        "promql_expr_test": evaluations,
    }
    path = tmp_path / "queries-test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}), "utf-8")
    result = run([promtool, "test", "rules", str(path)])
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_dashboard_shows_what_is_to_know_of_hot_keys_and_shuffles() -> None:
    asked = {
        name for _, expr in dashboard_queries() for name in re.findall(r"balancedstream_\w+", expr)
    }
    for of, names in (
        ("", "hot_key_busy_seconds keys_under_way key_moves_total key_moves_settled_total"),
        ("shuffle_", "estimated_seconds_total real_seconds_total imbalance_ratio"),
        ("shuffle_", "estimate_error_ratio equal_error_ratio trusted"),
    ):
        assert {f"balancedstream_{of}{name}" for name in names.split()} <= asked


def test_only_metrics_that_exist_are_asked_for() -> None:
    known = documented_metrics().keys()
    texts = [expr for _, expr in dashboard_queries()]
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        texts += [alert["expr"] for alert in group["rules"]]
    asked = {name for text in texts for name in re.findall(r"balancedstream_\w+", text)}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in asked}
    assert families <= known
