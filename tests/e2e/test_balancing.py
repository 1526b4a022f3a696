"""A skewed stream is balanced while it runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker import Broker
from dashboards import find_empty_panels
from hotkeys import find_keys_of_one_executor
from monitoring import Prometheus
from producing import ZipfKeys
from streaming import describe_counts, run_and_compare
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e]


@pytest.mark.parametrize(
    "open_stream",
    [pytest.param("claim", marks=pytest.mark.turn), "object store"],
    indirect=True,
)
@pytest.mark.usefixtures("operator", "app_image")
def test_skewed_keys_are_spread_without_a_restart(
    prometheus: Prometheus,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("skew")
    # Only watched at first, so that the skew is there to be seen.
    manifest = describe_counts(
        stream, broker, topic, executors=(2, 2), balancing={"mode": "Advise"}
    )
    keys = ZipfKeys(count=100, exponent=0.5, seed=1)
    label = stream.label

    def imbalance() -> float | None:
        return prometheus.value(f"max(balancedstream_imbalance_ratio{label})")

    with run_and_compare(stream, manifest, broker, topic, keys, rate=160):
        stream.wait_for_executors(2)
        stream.wait_for_batches(3)
        keys.favor(find_keys_of_one_executor(prometheus, label, stream), 20)
        stream.wait_for_condition("Balanced", "False", reason="Skewed")
        before = wait_until("the imbalance", imbalance, timeout_s=30)
        pods = stream.identities()
        stream.change({"balancing": {"mode": "Auto"}})
        wait_until(
            "a plan with moves",
            lambda: any(d["kind"] == "move" for d in stream.status().get("decisions", [])),
            timeout_s=120,
            last_seen=lambda: stream.status().get("reason"),
        )
        stream.wait_for_condition("Balanced", "True", timeout_s=180)
        stream.wait_for_condition("Migrating", "False")
        wait_until(
            "a lower imbalance in Prometheus",
            lambda: (imbalance() or before) < before,
            timeout_s=30,
            last_seen=lambda: f"{imbalance()}, {before} before",
        )
        assert prometheus.value(f"balancedstream_moves_settled_total{label}"), "partitions moved"
        assert stream.identities() == pods, "no pod was replaced or restarted"
        reasons = stream.event_reasons()
        assert "Skewed" in reasons
        assert "Moving" in reasons
        assert stream.status()["decisions"][0]["reason"]
        assert find_empty_panels(prometheus, stream) == []
