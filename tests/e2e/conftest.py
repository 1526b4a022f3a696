"""One cluster with a broker and a Prometheus for all tests; a namespace with storage for each."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import images
import pytest
from broker import Broker, deploy_broker
from clusters import Cluster, ClusterUnavailableError, open_cluster
from installing import NAMESPACE as OPERATOR_NAMESPACE
from installing import Operator
from kube import Kube, create_namespace, describe_namespace
from monitoring import Prometheus, deploy_prometheus
from objectstore import ObjectStore, deploy_object_store
from storage import Storage, create_storage, delete_storage
from streams import Stream

INFRASTRUCTURE = "balancedstream-e2e"
"""The namespace of the broker and of Prometheus."""
PARTITIONS = 6
FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep", action="store_true", help="leave the cluster and each test's namespace as it is"
    )
    parser.addoption(
        "--diagnostics",
        type=Path,
        default=Path("e2e-diagnostics"),
        help="where objects, events and logs of a failed test go",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    try:
        with open_cluster(keep=request.config.getoption("--keep")) as running:
            yield running
    except ClusterUnavailableError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kube(cluster: Cluster) -> Kube:
    return Kube(cluster)


@pytest.fixture(scope="session")
def project_images(cluster: Cluster) -> None:
    images.build_project_images(cluster.node)


@pytest.fixture(scope="session")
def app_image(project_images: None, cluster: Cluster) -> str:
    images.build_app_image(cluster.node)
    return images.APP


@pytest.fixture(scope="session")
def infrastructure(kube: Kube) -> str:
    create_namespace(kube, INFRASTRUCTURE)
    return INFRASTRUCTURE


@pytest.fixture(scope="session")
def broker(cluster: Cluster, kube: Kube, infrastructure: str) -> Broker:
    images.build_kafka_image(cluster.node)
    return deploy_broker(kube, infrastructure)


@pytest.fixture(scope="session")
def object_store(cluster: Cluster, kube: Kube, infrastructure: str) -> ObjectStore:
    images.build_object_store_image(cluster.node)
    return deploy_object_store(kube, infrastructure, cluster.shared_folder)


@pytest.fixture(scope="session")
def prometheus(cluster: Cluster, kube: Kube, infrastructure: str) -> Prometheus:
    images.build_prometheus_image(cluster.node)
    return deploy_prometheus(kube, infrastructure)


@pytest.fixture(scope="session")
def operator(
    request: pytest.FixtureRequest, project_images: None, kube: Kube, prometheus: Prometheus
) -> Iterator[Operator]:
    """Installed once; a test that uninstalls it has to install it again."""
    operator = Operator(kube, prometheus.in_pods)
    operator.install()
    yield operator
    if not request.config.getoption("--keep"):
        operator.uninstall()


@pytest.fixture
def storage(request: pytest.FixtureRequest, cluster: Cluster, kube: Kube) -> Iterator[Storage]:
    """A namespace of the test's own, with the claim that its streams keep their checkpoints on."""
    name = _name(request.node.name)
    create_namespace(kube, name)
    storage = create_storage(kube, name, cluster.shared_folder)
    yield storage
    if request.node.stash.get(FAILED, False):
        folder: Path = request.config.getoption("--diagnostics") / request.node.name
        describe_namespace(kube, name, folder)
        describe_namespace(kube, OPERATOR_NAMESPACE, folder / "operator")
    if request.config.getoption("--keep"):
        return
    kube.delete("v1", "Namespace", name)
    kube.wait_for_absence("v1", "Namespace", name)
    delete_storage(kube, storage)


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: Broker) -> Iterator[str]:
    """An empty topic of the test's own, with six partitions."""
    name = _name(request.node.name)
    broker.create_topic(name, PARTITIONS)
    yield name
    broker.delete_topic(name)


@pytest.fixture
def open_stream(
    request: pytest.FixtureRequest, kube: Kube, storage: Storage
) -> Callable[[str], Stream]:
    """A handle on the stream of that name in the test's namespace; it need not exist yet.

    Its checkpoint is on the namespace's claim, or in the object store where the parameter says so.
    """
    if getattr(request, "param", "claim") == "claim":
        return lambda name: Stream(kube, storage, name)
    object_store: ObjectStore = request.getfixturevalue("object_store")
    object_store.create_account(kube, storage.namespace)
    return lambda name: Stream(kube, storage, name, object_store)


def _name(test: str) -> str:
    """A name that Kubernetes and Kafka take, and that says which test it belongs to."""
    words = re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")
    return f"{words[:40].strip('-')}-{uuid.uuid4().hex[:6]}"
