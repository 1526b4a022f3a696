"""A cluster and what is put on it, for the tests and for the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property

import images
from broker import Broker, deploy_broker
from clusters import Cluster
from installing import Operator
from kube import Kube, create_namespace
from monitoring import Prometheus, deploy_prometheus
from objectstore import ObjectStore, deploy_object_store
from storage import Storage, create_storage, delete_storage

INFRASTRUCTURE = "balancedstream-e2e"
"""The namespace of the broker, of Prometheus and of the object store."""
PARTITIONS = 6


@dataclass
class Site:
    """A cluster; what else there is, is built and started when it is first asked for.

    Attributes:
        cluster: with everything on it.
        keep: namespaces, storage and the operator stay when they are no longer needed.
    """

    cluster: Cluster
    keep: bool

    @cached_property
    def kube(self) -> Kube:
        return Kube(self.cluster)

    @cached_property
    def infrastructure(self) -> str:
        create_namespace(self.kube, INFRASTRUCTURE)
        return INFRASTRUCTURE

    @cached_property
    def broker(self) -> Broker:
        images.build_kafka_image(self.cluster.node)
        return deploy_broker(self.kube, self.infrastructure)

    @cached_property
    def prometheus(self) -> Prometheus:
        images.build_prometheus_image(self.cluster.node)
        return deploy_prometheus(self.kube, self.infrastructure)

    @cached_property
    def object_store(self) -> ObjectStore:
        images.build_object_store_image(self.cluster.node)
        return deploy_object_store(self.kube, self.infrastructure, self.cluster.shared_folder)

    def operator(self, prometheus_url: str) -> AbstractContextManager[Operator]:
        """The chart, installed for as long; the project's images must have been built."""
        return self.installed(Operator(self.kube, prometheus_url))

    @contextmanager
    def installed(self, operator: Operator) -> Iterator[Operator]:
        """Any release, installed for as long."""
        operator.install()
        try:
            yield operator
        finally:
            if not self.keep:
                operator.uninstall()

    @contextmanager
    def namespace(self, name: str) -> Iterator[None]:
        """A namespace for as long."""
        create_namespace(self.kube, name)
        try:
            yield
        finally:
            if not self.keep:
                self.kube.delete("v1", "Namespace", name)
                self.kube.wait_for_absence("v1", "Namespace", name, timeout_s=300)

    @contextmanager
    def storage(self, name: str) -> Iterator[Storage]:
        """A namespace for as long, with the claim that its streams keep their checkpoints on."""
        with self.namespace(name):
            storage = create_storage(self.kube, name, self.cluster.shared_folder)
            yield storage
        if not self.keep:
            delete_storage(self.kube, storage)

    @contextmanager
    def topic(self, name: str, partitions: int = PARTITIONS) -> Iterator[str]:
        """An empty topic for as long."""
        self.broker.create_topic(name, partitions)
        try:
            yield name
        finally:
            self.broker.delete_topic(name)
