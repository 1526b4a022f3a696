"""A stateless step's rows are spread by what they cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker import Broker
from dashboards import SHUFFLES, find_empty_panels
from monitoring import Prometheus
from producing import ZipfKeys
from streaming import describe_counts, run_and_compare
from streams import Stream

pytestmark = [pytest.mark.e2e, pytest.mark.turn]


@pytest.mark.usefixtures("operator", "app_image")
def test_costs_are_learnt_and_trusted_and_every_row_comes_out_once(
    prometheus: Prometheus,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("costs")
    manifest = describe_counts(
        stream, broker, topic, wait_ms=0, check_ms=2, rows=400, executors=(2, 2), partitions=4
    )
    keys = ZipfKeys(count=50, exponent=0.8, seed=6)
    with run_and_compare(stream, manifest, broker, topic, keys, rate=150):
        trusted = stream.wait_for_condition("CostsTrusted", "True", timeout_s=180)
        assert trusted.reason == "EstimatesHold"
        assert find_empty_panels(prometheus, stream, SHUFFLES) == []
