"""Asks a stream's Prometheus, with the stream's credentials, for the series of its driver."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Protocol

from balancedstream.core.policy import Policy
from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.errors import MissingMeasurementsError, RefusedError
from balancedstream_operator.kube.cluster import Cluster
from balancedstream_operator.observe.endpoints import (
    Endpoint,
    Subject,
    choose_endpoint,
    merge_labels,
)
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.settings import Settings


class Source(Protocol):
    """Where measurements come from; `prometheus.Prometheus` is the real one."""

    def observe(self, subject: Subject, policy: Policy, now_s: float) -> Measurement:
        """Returns what a stream's driver measured recently.

        Raises:
            MissingMeasurementsError: there is nothing to decide on.
        """

    def ask(self, query: str, now_s: float) -> float:
        """Returns what a query of a stream gives, which must be one number.

        Raises:
            MissingMeasurementsError: it gives no number, or Prometheus does not answer.
        """


class Measurer:
    """Measures one stream."""

    def __init__(
        self,
        stream: Stream,
        cluster: Cluster,
        open_source: Callable[[Endpoint], Source],
        settings: Settings,
    ) -> None:
        self._stream = stream
        self._cluster = cluster
        self._open_source = open_source
        self._settings = settings

    def measure(
        self, spec: StreamSpec, driver: DriverState, policy: Policy, now_s: float
    ) -> Measurement:
        """What the stream's driver measured recently.

        Raises:
            MissingMeasurementsError: there is nothing to decide on.
            ClusterError: the operator cannot read the stream's Secret for now.
        """
        source, stream = self._open(spec), self._stream
        subject = Subject(
            str(stream),
            stream.namespace,
            pod=driver.pod,
            ips=driver.ips,
            labels=merge_labels(spec, self._settings),
            stale_after_s=spec.metrics.stale_after_s,
        )
        return source.observe(subject, policy, now_s)

    def ask(self, spec: StreamSpec, now_s: float) -> float:
        """What the stream's query for executors gives.

        Raises:
            MissingMeasurementsError: it gives no number, or Prometheus does not answer.
            ClusterError: the operator cannot read the stream's Secret for now.
        """
        return self._open(spec).ask(spec.executors.min_query, now_s)

    def _open(self, spec: StreamSpec) -> Source:
        secret = self._read_secret(spec.metrics.secret) if spec.metrics.secret else {}
        return self._open_source(choose_endpoint(spec, self._settings, secret))

    def _read_secret(self, name: str) -> dict[str, str]:
        try:
            found = self._cluster.get("v1", "Secret", self._stream.namespace, name)
        except RefusedError as error:
            message = f"{error}; the chart's prometheus.streamSecrets lets the operator read it"
            raise MissingMeasurementsError(message) from error
        if found is None:
            message = f"Secret {name}, which spec.metrics.secret names, does not exist"
            raise MissingMeasurementsError(message)
        data = found.get("data") or {}
        return {key: b64decode(value).decode(errors="replace") for key, value in data.items()}
