"""The cluster of the end-to-end tests, with what they put on it, for benchmarks."""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY / folder) for folder in ("tests/e2e", "benchmarks")]

import images  # noqa: E402
from broker import Broker, deploy_broker  # noqa: E402
from clusters import Cluster, open_cluster  # noqa: E402
from installing import Operator  # noqa: E402
from kube import Kube, create_namespace  # noqa: E402
from monitoring import Prometheus, deploy_prometheus  # noqa: E402
from objectstore import ObjectStore, deploy_object_store  # noqa: E402
from storage import create_storage, delete_storage  # noqa: E402
from streams import Stream  # noqa: E402

INFRASTRUCTURE = "balancedstream-e2e"
PARTITIONS = 6


@dataclass
class Site:
    """A cluster with the project's images; the rest is started when it is first asked for."""

    cluster: Cluster
    kube: Kube

    @cached_property
    def broker(self) -> Broker:
        images.build_kafka_image(self.cluster.node)
        return deploy_broker(self.kube, INFRASTRUCTURE)

    @cached_property
    def prometheus(self) -> Prometheus:
        images.build_prometheus_image(self.cluster.node)
        return deploy_prometheus(self.kube, INFRASTRUCTURE)

    @cached_property
    def object_store(self) -> ObjectStore:
        images.build_object_store_image(self.cluster.node)
        return deploy_object_store(self.kube, INFRASTRUCTURE, self.cluster.shared_folder)

    @property
    def own_address(self) -> str:
        """This machine's address for pods."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((self.kube.node_address, 1))
            return str(probe.getsockname()[0])

    @contextmanager
    def operator(self, prometheus_url: str) -> Iterator[Operator]:
        """The chart, installed for as long."""
        operator = Operator(self.kube, prometheus_url)
        operator.install()
        try:
            yield operator
        finally:
            operator.uninstall()

    @contextmanager
    def namespace(self, name: str) -> Iterator[None]:
        """A namespace for as long."""
        create_namespace(self.kube, name)
        try:
            yield
        finally:
            self.kube.delete("v1", "Namespace", name)
            self.kube.wait_for_absence("v1", "Namespace", name, timeout_s=300)

    @contextmanager
    def stream(self, name: str, *, on_object_store: bool = False) -> Iterator[tuple[Stream, str]]:
        """A handle on a stream in a namespace of its own, and an empty topic of its own."""
        unique = f"{name}-{uuid.uuid4().hex[:6]}"
        store = self.object_store if on_object_store else None
        with self.namespace(unique):
            storage = create_storage(self.kube, unique, self.cluster.shared_folder)
            if store:
                store.create_account(self.kube, unique)
            self.broker.create_topic(unique, PARTITIONS)
            try:
                yield Stream(self.kube, storage, name, store), unique
            finally:
                self.broker.delete_topic(unique)
        delete_storage(self.kube, storage)


@contextmanager
def open_site() -> Iterator[Site]:
    """The cluster that can be had, with the images of this working tree."""
    with open_cluster(keep=False) as cluster:
        kube = Kube(cluster)
        create_namespace(kube, INFRASTRUCTURE)
        images.build_project_images(cluster.node)
        images.build_app_image(cluster.node)
        yield Site(cluster, kube)
