"""One cluster with a broker and a Prometheus for all tests; a namespace with storage for each."""

from __future__ import annotations

import os
import random
import re
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import images
import pytest
from broker import Broker
from clusters import Cluster, ClusterUnavailableError, open_cluster
from installing import NAMESPACE as OPERATOR_NAMESPACE
from installing import Operator
from kube import Kube, describe_namespace
from monitoring import Prometheus
from objectstore import ObjectStore
from sites import Site
from storage import Storage
from streams import Stream

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
    parser.addoption(
        "--kubeflow",
        type=Path,
        metavar="DIRECTORY",
        help="a clone of github.com/kubeflow/spark-operator, to test with that operator itself",
    )
    parser.addoption(
        "--manifests", type=int, default=1_000, metavar="N", help="generate so many manifests"
    )
    parser.addoption(
        "--manifests-seed", type=int, default=random.randrange(2**32), help="the same ones again"
    )
    parser.addoption("--changes", type=int, default=8, metavar="N", help="of a stream under load")
    parser.addoption(
        "--changes-seed", type=int, default=random.randrange(2**32), help="the same ones again"
    )
    parser.addoption(
        "--fault-schedules", type=int, default=1, metavar="N", help="run so many under load"
    )
    parser.addoption(
        "--faults-seed", type=int, default=random.randrange(2**32), help="of the first of them"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


CI_PATIENCE_S = 2400.0
"""What no test takes that each CI runs; others, such as those that soak a stream, take hours."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            in_ci = item.get_closest_marker("e2e_ci") is not None
            item.add_marker(pytest.mark.timeout(CI_PATIENCE_S if in_ci else 0))


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
def site(request: pytest.FixtureRequest, cluster: Cluster) -> Site:
    return Site(cluster, keep=request.config.getoption("--keep"))


@pytest.fixture(scope="session")
def kube(site: Site) -> Kube:
    return site.kube


@pytest.fixture(scope="session")
def project_images(cluster: Cluster) -> None:
    images.build_project_images(cluster.node)


@pytest.fixture(scope="session")
def app_image(project_images: None, cluster: Cluster) -> str:
    images.build_app_image(cluster.node)
    return images.APP


@pytest.fixture(scope="session")
def infrastructure(site: Site) -> str:
    return site.infrastructure


@pytest.fixture(scope="session")
def broker(site: Site) -> Broker:
    return site.broker


@pytest.fixture(scope="session")
def object_store(site: Site) -> ObjectStore:
    return site.object_store


@pytest.fixture(scope="session")
def prometheus(site: Site) -> Prometheus:
    return site.prometheus


@pytest.fixture(scope="session")
def operator(site: Site, project_images: None, prometheus: Prometheus) -> Iterator[Operator]:
    """Installed once; a test that uninstalls it has to install it again."""
    with site.operator(prometheus.in_pods) as operator:
        yield operator


@pytest.fixture
def storage(request: pytest.FixtureRequest, site: Site) -> Iterator[Storage]:
    """A namespace of the test's own, with the claim that its streams keep their checkpoints on."""
    name = _name(request.node.name)
    with site.storage(name) as storage:
        yield storage
        if request.node.stash.get(FAILED, False):
            folder: Path = request.config.getoption("--diagnostics") / request.node.name
            describe_namespace(site.kube, name, folder)
            describe_namespace(site.kube, OPERATOR_NAMESPACE, folder / "operator")


@pytest.fixture
def topic(request: pytest.FixtureRequest, site: Site) -> Iterator[str]:
    """An empty topic of the test's own, with six partitions."""
    with site.topic(_name(request.node.name)) as name:
        yield name


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
