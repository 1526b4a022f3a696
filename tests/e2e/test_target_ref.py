"""A job that another operator runs is balanced and scaled, and stays that operator's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apache_application import ApacheApplication
from broker import Broker
from clusters import Cluster
from images import SPARK, build_kubeflow_image
from kube import NO_RIGHTS_TO_GAIN, UNPRIVILEGED_POD, Kube
from kubeflow_operator import KubeflowApplication, KubeflowOperator
from monitoring import Prometheus
from producing import PacedProducer
from spark_application import KIND, SparkApplication
from storage import Storage
from streaming import assert_exact, describe_target, skewed, wait_for_state_on
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e]

RBAC = "rbac.authorization.k8s.io/v1"
BY_HAND = {"by hand": SparkApplication, "Apache by hand": ApacheApplication}


@pytest.fixture
def stream(open_stream: Callable[[str], Stream]) -> Stream:
    return open_stream("clicks")


@pytest.fixture(params=[*BY_HAND, "kubeflow"])
def application(
    request: pytest.FixtureRequest, cluster: Cluster, kube: Kube, app_image: str, stream: Stream
) -> Iterator[SparkApplication | KubeflowApplication]:
    """One that is not submitted yet, with the account of its driver."""
    assert app_image
    if request.param in BY_HAND:
        by_hand = BY_HAND[request.param](kube, stream, "shop-clicks")
        by_hand.create_account()
        yield by_hand
        return
    source = request.config.getoption("--kubeflow")
    if not source:
        pytest.skip("no sources of kubeflow's operator: see --kubeflow")
    build_kubeflow_image(cluster.node, source)
    operator = KubeflowOperator(kube, source)
    operator.install(stream.namespace)
    try:
        yield KubeflowApplication(kube, stream, "shop-clicks")
    finally:
        place = (KubeflowApplication.api_version, KIND, "shop-clicks")
        kube.delete(*place, namespace=stream.namespace)
        kube.wait_for_absence(*place, namespace=stream.namespace)
        operator.uninstall()


@pytest.mark.usefixtures("operator")
def test_a_spark_application_is_scaled_restarted_and_left_as_it_is(
    kube: Kube,
    prometheus: Prometheus,
    broker: Broker,
    topic: str,
    stream: Stream,
    application: SparkApplication | KubeflowApplication,
) -> None:
    counts = (
        "counts.py", broker.in_pods, topic, "--wait-ms=5", "--max-offsets-per-trigger=2000",
        "--trigger=2 seconds",
    )  # fmt: skip

    with PacedProducer(broker, topic, skewed(seed=28), partitions=6) as producer:
        producer.set_rate(80)
        stream.apply(describe_target(stream, application.target))
        stream.wait_for_condition("Running", "False", reason="TargetMissing", timeout_s=60)

        first = application.submit(*counts)
        stream.wait_for_condition("Running", timeout_s=240)
        assert first in stream.status()["selector"]
        for kind in ("Role", "RoleBinding"):
            found = kube.find(RBAC, kind, "clicks-driver", namespace=stream.namespace)
            assert found is None, "the account may do all that it needs"
        stream.scale(2)
        wait_for_state_on(2, prometheus, stream, timeout_s=120)
        assert len(application.executors(first)) == 2
        assert stream.wait_for_condition("Ready").status == "True"
        epoch = stream.status()["appliedEpoch"]
        assert epoch >= 1
        assert touched_by(application.driver()) == application.writers

        second = application.restart()
        wait_until(
            "a plan for the new application",
            lambda: (
                second in stream.status().get("selector", "")
                and stream.status().get("appliedEpoch") == 1
            ),
            timeout_s=180,
            last_seen=stream.status,
        )
        assert "NewApplication" in stream.event_reasons()
        wait_until(
            "two executors again", lambda: len(application.executors(second)) == 2, timeout_s=90
        )

        driver = application.driver()
        stream.delete()
        kube.wait_for_absence("v1", "ConfigMap", "clicks-plan", namespace=stream.namespace)
        stream.wait_for_batches(2)
        still = application.driver()
        assert driver is not None
        assert still is not None
        assert still["metadata"]["uid"] == driver["metadata"]["uid"]
    assert_exact(stream, broker, topic)


def touched_by(pod: dict[str, Any] | None) -> set[str]:
    """Who has written any field of a pod."""
    assert pod is not None
    return {entry["manager"] for entry in pod["metadata"]["managedFields"]}


@pytest.mark.e2e_ci
@pytest.mark.usefixtures("operator")
def test_an_account_without_rights_gets_those_on_its_two_config_maps_and_no_more(
    kube: Kube, storage: Storage, open_stream: Callable[[str], Stream], subtests: pytest.Subtests
) -> None:
    stream = open_stream("bare")
    namespace = storage.namespace
    metadata = {"name": "notebook", "namespace": namespace, "labels": {"app": "notebook"}}
    container = {
        "name": "notebook",
        "image": SPARK,
        "imagePullPolicy": "IfNotPresent",
        "args": ["sleep", "600"],
        "securityContext": NO_RIGHTS_TO_GAIN,
    }
    kube.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "serviceAccountName": "notebook",
                "securityContext": UNPRIVILEGED_POD,
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
            },
        },
    )
    account = f"{namespace}:notebook"
    assert not kube.may(account, "get", "configmaps/bare-plan", namespace=namespace)
    stream.apply(describe_target(stream, {"selector": {"app": "notebook"}}))
    said = stream.wait_for_condition("MetricsAvailable", "False", timeout_s=90).message
    assert f"spark.balancedstream.stream={namespace}/bare" in said
    for verb, resource, expected in (
        ("watch", "configmaps/bare-plan", True),
        ("patch", "configmaps/bare-answer", True),
        ("patch", "configmaps/bare-plan", False),
        ("create", "configmaps", False),
        ("list", "pods", False),
        ("delete", "pods", False),
    ):
        with subtests.test(verb=verb, resource=resource):
            assert kube.may(account, verb, resource, namespace=namespace) is expected
    stream.delete()
    kube.wait_for_absence(RBAC, "RoleBinding", "bare-driver", namespace=namespace)
    assert kube.find("v1", "Pod", "notebook", namespace=namespace) is not None
