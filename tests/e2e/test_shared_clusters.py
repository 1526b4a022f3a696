"""What the chart offers for clusters that many share: logins, accounts, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from guarded import deploy_guarded_prometheus, describe_login
from installing import NAMESPACE, Operator
from kube import Kube, Manifest
from monitoring import Prometheus
from prometheus_operator import API_VERSION, read_definitions
from real_prometheus import PASSWORD
from streams import Condition, Stream

pytestmark = [pytest.mark.e2e]

LOGIN = "prometheus-login"


@pytest.fixture
def shared(kube: Kube, operator: Operator) -> Iterator[Operator]:
    """The operator, which is installed anew as it was when the test has changed it."""
    try:
        yield operator
    finally:
        operator.install()
        kube.delete("v1", "Secret", LOGIN, namespace=NAMESPACE)


@pytest.mark.usefixtures("app_image")
def test_operator_and_streams_log_in_to_prometheus_with_secrets_that_are_rotated(
    kube: Kube,
    shared: Operator,
    prometheus: Prometheus,
    open_stream: Callable[[str], Stream],
) -> None:
    theirs, own = open_stream("theirs"), open_stream("own")
    url = deploy_guarded_prometheus(kube, own.namespace, urlsplit(prometheus.in_pods).netloc)
    kube.apply(
        describe_login(LOGIN, NAMESPACE, "forgotten"),
        describe_login("login", own.namespace, PASSWORD),
    )
    settings = (
        f"--set=prometheus.url={url}",
        f"--set=prometheus.credentialsSecret={LOGIN}",
        "--set=logFormat=json",
        "--set=logLevel=DEBUG",
    )
    shared.install(*settings)
    theirs.apply(theirs.describe("rate.py", executors=(1, 1)))
    own.apply(own.describe("rate.py", executors=(1, 1), metrics={"secret": "login"}))

    said = wait_for_measurements(theirs, "False", "401")
    assert url in said.message
    wait_for_measurements(own, "False", "the chart's prometheus.streamSecrets lets the operator")

    shared.install(*settings, "--set=prometheus.streamSecrets=true")
    wait_for_measurements(own, "True")
    wait_for_measurements(theirs, "False", "401")
    operators_pod = shared.pod()
    kube.apply(describe_login(LOGIN, NAMESPACE, PASSWORD))
    # The kubelet takes a minute and more to bring what a Secret holds now.
    wait_for_measurements(theirs, "True")
    assert shared.pod() is not None
    assert uid(shared.pod()) == uid(operators_pod), "it was not restarted for that"

    log = shared.log()
    assert all(json.loads(line)["message"] for line in log.splitlines())
    shown = log + json.dumps([theirs.read(), own.read(), kube.pods(own.namespace)])
    assert "forgotten" not in shown
    assert PASSWORD not in shown


@pytest.mark.usefixtures("app_image")
def test_an_account_of_the_users_own_runs_until_the_operator_forbids_it(
    kube: Kube, shared: Operator, open_stream: Callable[[str], Stream]
) -> None:
    stream, mounting = open_stream("identified"), open_stream("mounting")
    account = {"name": "cloud", "namespace": stream.namespace}
    kube.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    manifest = stream.describe("rate.py", executors=(1, 1))
    manifest["spec"]["driver"]["serviceAccount"] = {"name": account["name"]}
    stream.apply(manifest)
    # Batches end: this account may start executors, and follow plans.
    stream.wait_for_condition("Ready", timeout_s=240)
    driver = stream.driver()
    assert driver is not None
    assert driver["spec"]["serviceAccountName"] == account["name"]
    made = kube.find_all("v1", "ServiceAccount", namespace=stream.namespace)
    assert {entry["metadata"]["name"] for entry in made} == {"default", account["name"]}
    pods = stream.identities()

    shared.install("--set=streams.forbidEscalation=true")
    said = stream.wait_for_condition("Accepted", "False", timeout_s=120)
    assert "spec.driver.serviceAccount.name" in said.message
    host = {"name": "host", "hostPath": {"path": "/"}}
    refused = mounting.describe("rate.py", executors=(1, 1))
    refused["spec"]["executors"]["podTemplate"] = {"spec": {"volumes": [host]}}
    mounting.apply(refused)
    said = mounting.wait_for_condition("Accepted", "False")
    assert "spec.executors.podTemplate.spec.volumes[host].hostPath" in said.message
    assert mounting.driver() is None
    stream.wait_for_batches(3, query="rate")
    assert stream.identities() == pods, "what runs is let run"

    shared.install()
    stream.wait_for_condition("Ready", timeout_s=120)
    assert stream.identities() == pods


def test_the_prometheus_operators_own_definitions_take_the_monitors_and_rules(
    kube: Kube, shared: Operator
) -> None:
    definitions = read_definitions("podmonitors", "prometheusrules")
    kube.apply(*definitions)
    names = [definition["metadata"]["name"] for definition in definitions]
    kube.kubectl("wait", "--for=condition=Established", *[f"crd/{name}" for name in names])
    try:
        shared.install(
            "--set=monitoring.podMonitor.enabled=true", "--set=monitoring.rules.enabled=true"
        )
        (rule,) = kube.find_all(API_VERSION, "PrometheusRule", namespace=NAMESPACE)
        assert rule["spec"]["groups"]
        monitors = kube.find_all(API_VERSION, "PodMonitor", namespace=NAMESPACE)
        # What their definition does not know, the API server drops.
        assert {name for monitor in monitors for name in find_ports(monitor)} == {"metrics"}
        assert len(monitors) == 2
    finally:
        shared.install()
        for name in names:
            kube.delete("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)


def wait_for_measurements(stream: Stream, status: str, words: str = "") -> Condition:
    """Until the operator has measured the stream, or says with these words why it has not."""
    return stream.wait_for_condition("MetricsAvailable", status, words=words, timeout_s=300)


def uid(pod: Manifest | None) -> str:
    assert pod is not None
    found: str = pod["metadata"]["uid"]
    return found


def find_ports(monitor: Manifest) -> list[str]:
    return [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]]
