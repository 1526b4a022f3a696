"""Of two operators one acts; if it hangs, the other one goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from broker import Broker
from hotkeys import Skew
from installing import Operator
from kube import Manifest
from monitoring import Prometheus
from nodes import freezing
from producing import ZipfKeys
from streaming import describe_counts, run_and_compare
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e]

TAKEN_OVER_S = 20 + 10
"""The chart's values say 20 s; the rest is for a busy machine."""


@pytest.fixture
def operators(operator: Operator) -> Iterator[Operator]:
    operator.install("--set=replicas=2")
    yield operator
    operator.install()


@pytest.mark.usefixtures("app_image")
def test_an_operator_that_hangs_is_replaced_and_does_not_act_when_it_awakes(
    operators: Operator,
    prometheus: Prometheus,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("watched")
    manifest = describe_counts(stream, broker, topic, executors=(2, 2))
    keys = ZipfKeys(count=100, exponent=0.5, seed=1)
    skew = Skew(prometheus, stream, keys)

    def find_successor(before: Manifest) -> Manifest | None:
        pod = operators.active_pod()
        return None if pod is None or is_same(pod, before) else pod

    with run_and_compare(stream, manifest, broker, topic, keys, rate=160):
        stream.wait_for_executors(2)
        stream.wait_for_batches(3)
        pods = stream.identities()
        skew.shift("the first operator and the driver")
        first = operators.active_pod()
        assert first is not None
        with freezing(first):
            second = wait_until(
                "the other operator", lambda: find_successor(first), timeout_s=TAKEN_OVER_S
            )
        skew.shift("the second operator and the driver")
        now = operators.active_pod()
        assert now is not None
        assert is_same(now, second), "the operator that hung has the Lease again"
        assert stream.identities() == pods, "a pod was replaced"


def is_same(one: Manifest, other: Manifest) -> bool:
    return bool(one["metadata"]["uid"] == other["metadata"]["uid"])
