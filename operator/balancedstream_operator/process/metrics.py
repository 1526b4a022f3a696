"""The operator's own metrics, served next to `/healthz` for Prometheus."""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
)

from balancedstream.listening import choose_address
from balancedstream_operator.api.conditions import METRICS_AVAILABLE
from balancedstream_operator.api.status import Status
from balancedstream_operator.process.passes import Pass

_PREFIX = "balancedstream_operator"


class OperatorMetrics:
    """Metrics of the operator itself.

    Attributes:
        registry: of prometheus-client, with all of them.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._phases: dict[str, str] = {}
        self._streams = Gauge(
            f"{_PREFIX}_streams", "BalancedStreams by phase.", ["phase"], registry=self.registry
        )
        self._condition = Gauge(
            f"{_PREFIX}_condition",
            "1 while a condition of a BalancedStream is True, 0 while False; absent if unknown.",
            ["stream", "type"],
            registry=self.registry,
        )
        self._failures = Counter(
            f"{_PREFIX}_observation_failures",
            "Passes that found no measurements.",
            ["stream"],
            registry=self.registry,
        )
        self._pass_failures = Counter(
            f"{_PREFIX}_pass_failures",
            "Passes over a stream that ended too early.",
            ["stream"],
            registry=self.registry,
        )
        self._active = Gauge(
            f"{_PREFIX}_active",
            "1 while the operator holds its Lease and acts, 0 while it waits for it.",
            registry=self.registry,
        )
        self._served = Gauge(
            f"{_PREFIX}_namespace_served",
            "1 while the BalancedStreams of a namespace, or of all where it is empty, can be seen, "
            "0 while they are left out.",
            ["namespace"],
            registry=self.registry,
        )
        self._epoch = Gauge(
            f"{_PREFIX}_plan_epoch",
            "Epoch of a stream's newest plan.",
            ["stream"],
            registry=self.registry,
        )
        self._proposal = Gauge(
            f"{_PREFIX}_proposal",
            "1 while mode Advise proposes a change of a stream (`status.proposal`), 0 otherwise.",
            ["stream"],
            registry=self.registry,
        )
        self._pass = Histogram(
            f"{_PREFIX}_pass_seconds",
            "How long a pass over a stream took.",
            registry=self.registry,
        )

    def start(self, port: int) -> None:
        """Starts to serve `/metrics` on all addresses, IPv6 included, from a daemon thread."""
        start_http_server(port, choose_address("::"), registry=self.registry)

    def set_active(self, active: bool) -> None:
        """Records whether the operator acts."""
        self._active.set(active)

    def set_served(self, namespace: str, served: bool) -> None:
        """Records whether the BalancedStreams of a namespace can be seen; "" for all."""
        self._served.labels(namespace).set(served)

    def add_stream(self, stream: str) -> None:
        """Counts a stream that has had no pass yet."""
        self._phases[stream] = "Pending"
        self._count_phases()
        self._failures.labels(stream)
        self._pass_failures.labels(stream)

    def add_pass(self, stream: str, done: Pass) -> None:
        """Records a pass over a stream, and the status that it wrote."""
        if done.failure is not None:
            self._pass_failures.labels(stream).inc()
        if done.status is not None:
            self._pass.observe(done.took_s)
            self._set_status(stream, done.status)

    def _set_status(self, stream: str, status: Status) -> None:
        self._phases[stream] = status.phase or "Pending"
        self._count_phases()
        self._epoch.labels(stream).set(status.plan_epoch or 0)
        self._proposal.labels(stream).set(status.proposal is not None)
        for condition in status.conditions:
            self._set_condition(stream, condition.type, condition.status)
        if status.recall(METRICS_AVAILABLE).holds is False:
            self._failures.labels(stream).inc()

    def remove(self, stream: str) -> None:
        """Removes all series of a stream."""
        self._phases.pop(stream, None)
        self._count_phases()
        for metric in (
            self._condition, self._failures, self._pass_failures, self._epoch, self._proposal,
        ):  # fmt: skip
            metric.remove_by_labels({"stream": stream})

    def _set_condition(self, stream: str, kind: str, state: str) -> None:
        if state != "Unknown":
            self._condition.labels(stream, kind).set(state == "True")
            return
        # An unknown condition is neither 0 nor 1.
        with suppress(KeyError):
            self._condition.remove(stream, kind)

    def _count_phases(self) -> None:
        self._streams.clear()
        for phase in self._phases.values():
            self._streams.labels(phase).inc()
