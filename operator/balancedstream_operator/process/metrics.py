"""The operator's own metrics, served next to `/healthz` for Prometheus."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

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
from balancedstream_operator.api.status import Cost, Status
from balancedstream_operator.process.passes import Pass


class OperatorMetrics:
    """Metrics of the operator itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        ours: dict[str, Any] = {"namespace": "balancedstream_operator", "registry": self.registry}
        self._phases: dict[str, str] = {}
        self._streams = Gauge("streams", "BalancedStreams by phase.", ["phase"], **ours)
        self._condition = Gauge(
            "condition",
            "1 while a condition of a BalancedStream is True, 0 while False; absent if unknown.",
            ["stream", "type"],
            **ours,
        )
        self._failures = Counter(
            "observation_failures", "Passes that found no measurements.", ["stream"], **ours
        )
        self._pass_failures = Counter(
            "pass_failures", "Passes over a stream that ended too early.", ["stream"], **ours
        )
        self._active = Gauge(
            "active",
            "1 while the operator holds its Lease and acts, 0 while it waits for it.",
            **ours,
        )
        self._served = Gauge(
            "namespace_served",
            "1 while the BalancedStreams of a namespace, or of all where it is empty, can be seen, "
            "0 while they are left out.",
            ["namespace"],
            **ours,
        )
        self._epoch = Gauge("plan_epoch", "Epoch of a stream's newest plan.", ["stream"], **ours)
        self._proposal = Gauge(
            "proposal",
            "1 while mode Advise proposes a change of a stream (`status.proposal`), 0 otherwise.",
            ["stream"],
            **ours,
        )
        self._cost = Gauge(
            "cost_per_day",
            "Money that the executors of now cost a stream a day, by part: spent, or saved beside "
            "a fixed size of `executors.max`; absent without a price.",
            ["stream", "part", "currency"],
            **ours,
        )
        self._pass = Histogram("pass_seconds", "How long a pass over a stream took.", **ours)

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
        self._set_cost(stream, status.cost)
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
            self._cost,
        ):  # fmt: skip
            metric.remove_by_labels({"stream": stream})

    def _set_cost(self, stream: str, cost: Cost | None) -> None:
        # The currency may be another one since the last pass.
        self._cost.remove_by_labels({"stream": stream})
        if cost is None:
            return
        self._cost.labels(stream, "spent", cost.currency).set(cost.spent_per_day)
        if cost.saved_per_day is not None:
            self._cost.labels(stream, "saved", cost.currency).set(cost.saved_per_day)

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
