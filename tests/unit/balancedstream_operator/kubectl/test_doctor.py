"""`kubectl bst doctor`: one line a finding, and the truth about what cannot be seen."""

from __future__ import annotations

import copy
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apiserver
import pytest
import yaml
from apiserver import path_of

from balancedstream.version import __version__
from balancedstream_operator.api.crd import build
from balancedstream_operator.api.status import format_time
from balancedstream_operator.kubectl import connection
from balancedstream_operator.kubectl.checks import check_metrics
from balancedstream_operator.kubectl.rights import OPERATOR, Right

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[4]
DEFINITION = path_of("CustomResourceDefinition", "balancedstreams.balancedstream.io")
DEPLOYMENT = path_of("Deployment", "balancedstream", "balancedstream-system")
LEASE = path_of("Lease", "balancedstream", "balancedstream-system")
CLAIM = path_of("PersistentVolumeClaim", "checkpoints")
PROMETHEUS = path_of("Service", "http:p:80", "balancedstream-system") + "/proxy/api/v1/query"
STREAM = path_of("BalancedStream", "clicks")
EXECUTOR = path_of("Pod", "clicks-exec-1")


def test_nobody_reads_a_password_in_what_the_doctor_says() -> None:
    told = {"type": "MetricsAvailable", "status": "True"}
    spec = {"metrics": {"prometheusUrl": "https://me:secret@prometheus:9090"}}
    found = check_metrics({"spec": spec, "status": {"conditions": [told]}}, "clicks")
    assert "reaches https://prometheus:9090, which" in found.sentence


def healthy(make_site: Callable[..., Any]) -> Any:
    """A site on which all is well."""
    site = make_site()
    site.scene.run_until_running()
    site.publish()
    put = site.server.put
    condition = {"type": "Established", "status": "True"}
    put(DEFINITION, copy.deepcopy(build()) | {"status": {"conditions": [condition]}})
    put(DEPLOYMENT, describe_operator())
    put(LEASE, describe_lease(time.time()))
    put(CLAIM, describe_claim())
    put(PROMETHEUS, count_targets("14"))
    labels = {"spark-role": "executor", "balancedstream.io/stream": "clicks"}
    put(EXECUTOR, {"metadata": {"name": "e", "labels": labels | {"spark-version": "4.3.0"}}})
    return site


def describe_operator(*more: str) -> dict[str, Any]:
    arguments = ["--all-namespaces", "--lease=balancedstream", "--prometheus-url=http://p", *more]
    labels = {
        "app.kubernetes.io/component": "operator",
        "helm.sh/chart": f"balancedstream-{__version__}",
        "app.kubernetes.io/version": __version__,
    }
    pod = {"serviceAccountName": "balancedstream", "containers": [{"args": arguments}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "balancedstream",
            "namespace": "balancedstream-system",
            "labels": labels,
        },
        "spec": {"replicas": 1, "template": {"spec": pod}},
        "status": {"readyReplicas": 1},
    }


def describe_lease(renewed_s: float) -> dict[str, Any]:
    spec = {"holderIdentity": "balancedstream-7d9_uuid", "renewTime": format_time(renewed_s)}
    return {"kind": "Lease", "metadata": {"name": "balancedstream"}, "spec": spec}


def describe_claim(mode: str = "ReadWriteMany", phase: str = "Bound") -> dict[str, Any]:
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "checkpoints"},
        "spec": {"accessModes": [mode]},
        "status": {"phase": phase},
    }


def count_targets(*counts: str) -> dict[str, Any]:
    """What Prometheus answers to `count(up)`."""
    result = [{"metric": {}, "value": [1, count]} for count in counts]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def point(site: Any, url: str) -> None:
    pod = site.server.objects[DEPLOYMENT]["spec"]["template"]["spec"]
    pod["containers"] = [{"args": ["--lease=balancedstream", f"--prometheus-url={url}"]}]


def change(site: Any, path: str, **fields: Any) -> None:
    site.server.put(path, site.server.objects[path] | fields)


def test_where_all_is_well_every_line_is_ok(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    status, output, _ = kubectl_bst(healthy(make_site), "doctor", "-n", "shop")
    assert status == 0
    assert output.splitlines() == [
        f"ok       definition: installed, and that of release {__version__}",
        "ok       rights: you may use status and explain in namespace shop",
        "ok       rights: you may use approve, pause and resume in namespace shop",
        f"ok       operator: balancedstream-system/balancedstream, release {__version__}: 1 of 1 "
        "pods are ready",
        "ok       lease: balancedstream-7d9 holds balancedstream, and acts",
        "ok       rights: the operator may do what it needs in namespace shop",
        "ok       shop/clicks: spec: valid, and the operator has acted on it",
        "ok       shop/clicks: storage: claim checkpoints is bound, ReadWriteMany",
        "ok       shop/clicks: prometheus: the operator reaches http://prometheus, which scrapes "
        "the driver of clicks",
        "ok       shop/clicks: spark: clicks runs on Spark 4.3.0",
    ]


def narrow(site: Any) -> None:
    change(site, DEPLOYMENT, **describe_operator())
    pod = site.server.objects[DEPLOYMENT]["spec"]["template"]["spec"]
    pod["containers"] = [{"args": ["--namespace=bank", "--prometheus-url=http://p"]}]


def add_another(site: Any) -> None:
    other = path_of("Deployment", "other", "elsewhere")
    found = describe_operator()
    found["metadata"] |= {"name": "other", "namespace": "elsewhere"}
    site.server.put(other, found)
    lease = path_of("Lease", "balancedstream", "elsewhere")
    site.server.put(lease, describe_lease(time.time()))


def lose_metrics(site: Any) -> None:
    site.scene.measured = "Prometheus at http://prometheus cannot be queried: refused"
    site.scene.run_pass()
    site.publish()


def forget_fields(site: Any) -> None:
    schema = site.server.objects[DEFINITION]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"]["proposal"]


def know_more(site: Any) -> None:
    schema = site.server.objects[DEFINITION]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["mood"] = {"type": "string"}


def run_spark(site: Any, version: str) -> None:
    site.server.objects[EXECUTOR]["metadata"]["labels"]["spark-version"] = version


CASES: dict[str, tuple[Callable[[Any], object], str]] = {
    "no definition": (lambda s: s.server.remove(DEFINITION), "knows no BalancedStream; install"),
    "a definition that is not served": (
        lambda s: change(s, DEFINITION, status={}),
        "it does not serve v1alpha1",
    ),
    "an older definition": (forget_fields, "it lacks status.proposal, status.proposal.id"),
    "a newer definition": (know_more, "which does not know spec.mood; upgrade the plugin"),
    "no right to approve": (
        lambda s: s.server.forbidden.add("SelfSubjectAccessReview patch balancedstreams"),
        "you may not patch balancedstreams in namespace shop: approve, pause and resume need it",
    ),
    "an operator without rights": (
        lambda s: s.server.forbidden.add("SubjectAccessReview update balancedstreams/finalizers"),
        "system:serviceaccount:balancedstream-system:balancedstream may not update "
        "balancedstreams/finalizers in namespace shop",
    ),
    "no operator": (lambda s: s.server.remove(DEPLOYMENT), "none of the chart watches namespace"),
    "an operator that does not run": (
        lambda s: change(s, DEPLOYMENT, status={}),
        "has no pod that is ready; streams run on",
    ),
    "an operator of other namespaces": (narrow, "none of the chart watches namespace shop"),
    "two operators": (add_another, "both watch namespace shop"),
    "a lease that nobody renews": (
        lambda s: s.server.put(LEASE, describe_lease(time.time() - 600)),
        "renewed balancedstream 10 min ago by this machine's clock",
    ),
    "no lease": (lambda s: s.server.remove(LEASE), "nobody holds balancedstream"),
    "no claim": (lambda s: s.server.remove(CLAIM), "there is no PersistentVolumeClaim checkpoints"),
    "a claim for one node": (
        lambda s: s.server.put(CLAIM, describe_claim("ReadWriteOnce")),
        "claim checkpoints is ReadWriteOnce, and all pods of a stream must write",
    ),
    "a claim that waits": (
        lambda s: s.server.put(CLAIM, describe_claim(phase="Pending")),
        "claim checkpoints is Pending; kubectl describe pvc checkpoints",
    ),
    "no metrics": (lose_metrics, "cannot be queried: refused. Check the URL"),
    "a Spark that is not tested": (lambda s: run_spark(s, "3.4.4"), "4.2 and 4.3 are tested"),
}


@pytest.mark.parametrize(("spoil", "says"), CASES.values(), ids=CASES.keys())
def test_what_is_wrong_is_one_problem_that_says_what_to_do(
    make_site: Callable[..., Any], kubectl_bst: Run, spoil: Callable[[Any], object], says: str
) -> None:
    site = healthy(make_site)
    spoil(site)
    status, output, _ = kubectl_bst(site, "doctor", "-n", "shop", "-o", "json")
    problems = [f["sentence"] for f in json.loads(output) if f["level"] == "problem"]
    assert status == 1
    assert [problem for problem in problems if says in problem], problems
    assert len(problems) == 1


def test_what_cannot_be_seen_is_said_and_is_no_problem(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = healthy(make_site)
    site.server.remove(EXECUTOR)
    stream = site.server.objects[STREAM]
    spec = {**stream["spec"], "checkpoints": {"uri": "s3a://bucket/clicks"}}
    change(site, STREAM, spec=spec)
    for path in ("/apis/apps/v1/deployments", "/apis/authorization.k8s.io/v1/subjectaccessreviews"):
        site.server.hidden.add(path)
    status, output, _ = kubectl_bst(site, "doctor", "clicks", "-n", "shop")
    assert status == 0
    unseen = [line for line in output.splitlines() if line.startswith("unseen")]
    assert len(unseen) == 3
    assert "operator: you may not see it" in unseen[0]
    assert "can write to s3a://bucket/clicks cannot be known from here" in unseen[1]
    assert "no executor of clicks runs" in unseen[2]


def test_the_operators_rights_are_unseen_where_only_an_administrator_may_ask(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = healthy(make_site)
    site.server.hidden.add("/apis/authorization.k8s.io/v1/subjectaccessreviews")
    status, output, _ = kubectl_bst(site, "doctor", "-n", "shop")
    assert status == 0
    assert "unseen   rights of the operator in namespace shop: you may not see it" in output


def test_a_namespace_that_the_operator_leaves_out_is_a_problem(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = healthy(make_site)
    change(site, DEPLOYMENT, **describe_operator("--namespace=shop", "--namespace=bank"))
    status, output, _ = kubectl_bst(site, "doctor", "-n", "shop")
    assert (status, "leaves out" in output) == (0, False)
    site.server.forbidden.add("SubjectAccessReview watch balancedstreams in bank")
    status, output, _ = kubectl_bst(site, "doctor", "-n", "shop")
    assert status == 1
    assert "leaves out namespace bank" in output
    assert "it may not watch balancedstreams there" in output


def test_without_any_operator_and_any_stream_that_is_a_problem(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = healthy(make_site)
    for gone in (DEPLOYMENT, STREAM):
        del site.server.objects[gone]
    status, output, _ = kubectl_bst(site, "doctor", "--all-namespaces")
    assert status == 1
    assert "operator: none of the chart is installed" in output


def test_operators_of_other_products_are_none_of_ours(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = healthy(make_site)
    other = describe_operator()
    other["metadata"] |= {"name": "other", "labels": {"app.kubernetes.io/component": "operator"}}
    site.server.put(path_of("Deployment", "other", "elsewhere"), other)
    status, output, _ = kubectl_bst(site, "doctor", "-n", "shop")
    assert (status, "other" in output) == (0, False)


def test_a_cluster_that_knows_no_streams_is_one_problem(
    make_site: Callable[..., Any], kubectl_bst: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = healthy(make_site)
    site.server.remove(DEFINITION)
    site.server.remove(STREAM)
    monkeypatch.delitem(apiserver.RESOURCES, "/apis/balancedstream.io/v1alpha1")
    monkeypatch.setattr(
        apiserver, "GROUPS", [g for g in apiserver.GROUPS if "balancedstream" not in g]
    )
    status, output, _ = kubectl_bst(site, "doctor", "-n", "shop")
    assert status == 1
    assert output.count("problem") == 1
    assert "this cluster knows no BalancedStream; install the chart" in output
    status, _, errors = kubectl_bst(site, "status", "clicks", "-n", "shop")
    assert (status, "this cluster does not know BalancedStreams" in errors) == (2, True)


@pytest.mark.parametrize(
    ("drivers", "level", "says"),
    [
        (["a"], "ok", "driver: pod a of SparkApplication clicks runs"),
        ([], "unseen", "driver: no pod here has the labels spark-role=driver,sparkoperator.k8s.io"),
        (["a", "b"], "problem", "driver: pods a and b all have the labels"),
    ],
)
def test_of_another_operators_application_the_driver_is_looked_at_and_no_storage(
    make_site: Callable[..., Any], kubectl_bst: Run, drivers: list[str], level: str, says: str
) -> None:
    site = healthy(make_site)
    target = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "name": "clicks"}
    spec = {"targetRef": target, "executors": {"max": 4}}
    change(site, STREAM, spec=spec)
    ours = {"spark-app-selector": "spark-1"}
    for name in drivers:
        labels = ours | {"spark-role": "driver", "sparkoperator.k8s.io/app-name": "clicks"}
        container = {"name": "spark-kubernetes-driver", "state": {"running": {}}}
        pod = {
            "metadata": {"name": name, "labels": labels},
            "status": {"containerStatuses": [container]},
        }
        site.server.put(path_of("Pod", name), pod)
    labels = ours | {"spark-role": "executor", "spark-version": "3.4.1"}
    site.server.put(EXECUTOR, {"metadata": {"name": "e", "labels": labels}})
    _, output, _ = kubectl_bst(site, "doctor", "-n", "shop", "-o", "json")
    found = [(f["level"], f["sentence"]) for f in json.loads(output)]
    assert [(at, said) for at, said in found if says in said] == [
        (level, next(said for _, said in found if says in said))
    ]
    assert not [said for _, said in found if "storage" in said]
    spark = "runs on Spark 3.4.1" if drivers == ["a"] else "no executor of clicks runs"
    assert [said for _, said in found if spark in said]
    assert not [said for _, said in found if "balancedstream-spark" in said]


def test_before_the_first_stream_what_shows_later_is_unseen(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = healthy(make_site)
    site.server.remove(STREAM)
    status, output, _ = kubectl_bst(site, "doctor", "-n", "shop")
    assert status == 0
    assert "unseen   streams: there is none here" in output
    assert "ok       prometheus: http://p answers, and scrapes 14 targets" in output


NEW_SITES: dict[str, tuple[str, Callable[[Any], object], str]] = {
    "nothing is scraped": (
        "problem",
        lambda s: s.server.put(PROMETHEUS, count_targets()),
        "http://p answers, and scrapes nothing: have it scrape pods",
    ),
    "no such Service": (
        "problem",
        lambda s: s.server.remove(PROMETHEUS),
        "http://p names Service p in namespace balancedstream-system, which does not exist",
    ),
    "no right to ask": (
        "unseen",
        lambda s: s.server.hidden.add(PROMETHEUS),
        "http://p: you may not ask it through the API server (get services/proxy)",
    ),
    "elsewhere": (
        "unseen",
        lambda s: point(s, "https://metrics.shop.example"),
        "https://metrics.shop.example is no Service of this cluster; whether the operator",
    ),
    "with a login in its URL": (
        "unseen",
        lambda s: point(s, "https://me:secret@metrics.shop.example"),
        "prometheus: https://metrics.shop.example is no Service of this cluster",
    ),
    "perhaps elsewhere": (
        "unseen",
        lambda s: point(s, "https://metrics.example"),
        "https://metrics.example is no Service of this cluster; whether the operator",
    ),
}


@pytest.mark.parametrize(("level", "spoil", "says"), NEW_SITES.values(), ids=NEW_SITES.keys())
def test_before_the_first_stream_prometheus_is_asked_through_the_api_server(
    make_site: Callable[..., Any],
    kubectl_bst: Run,
    level: str,
    spoil: Callable[[Any], object],
    says: str,
) -> None:
    site = healthy(make_site)
    site.server.remove(STREAM)
    spoil(site)
    _, output, _ = kubectl_bst(site, "doctor", "-n", "shop", "-o", "json")
    (found,) = [f for f in json.loads(output) if f["sentence"].startswith("prometheus")]
    assert found["level"] == level
    assert says in found["sentence"]


def test_a_prometheus_that_hangs_ends_no_examination(
    make_site: Callable[..., Any], kubectl_bst: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()

    def hang() -> Iterator[dict[str, Any]]:
        yield {"status": "success"}
        told.wait(30.0)

    site = healthy(make_site)
    site.server.remove(STREAM)
    site.server.objects[PROMETHEUS] = hang()
    monkeypatch.setattr(connection, "TIMEOUT_S", (5, 0.5))
    status, output, _ = kubectl_bst(site, "doctor", "-n", "shop")
    told.set()
    assert status == 0
    assert "unseen   prometheus: http://p does not answer through the API server: " in output
    assert "unseen   streams: there is none here" in output


def test_the_rights_of_the_operator_are_those_that_the_chart_grants() -> None:
    template = (ROOT / "charts" / "balancedstream" / "templates" / "_helpers.tpl").read_text()
    rules = re.search(r'define "balancedstream.rules" -}}\n(.*?){{- end }}\n*$', template, re.S)
    assert rules is not None
    optional = re.sub(r"{{- if .*?{{- end }}\n", "", rules[1], flags=re.S)
    granted = set()
    for rule in yaml.safe_load(optional):
        for resource in rule["resources"]:
            name, _, subresource = resource.partition("/")
            for verb in rule["verbs"]:
                granted.add(Right(verb, rule["apiGroups"][0], name, subresource))
    assert {*OPERATOR} == granted
