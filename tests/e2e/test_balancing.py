"""A skewed stream is balanced while it runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker import Broker
from monitoring import Prometheus
from streaming import assert_exact, describe_counts, skewed
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]


@pytest.mark.usefixtures("operator", "app_image")
def test_skewed_keys_are_spread_without_a_restart(
    prometheus: Prometheus,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("skew")
    # Left alone at first, so that the skew is there to be seen.
    manifest = describe_counts(
        stream, broker, topic, executors=(2, 2), balancing={"mode": "Advise"}
    )
    label = f'{{stream="{stream.namespace}/{stream.name}"}}'
    with skewed(broker, topic) as producer:
        producer.set_rate(120)
        stream.apply(manifest)
        stream.wait_for_condition("Running", timeout_s=240)
        stream.wait_for_executors(2)
        unbalance(stream)
        before = wait_until(
            "a measured imbalance",
            lambda: prometheus.value(f"max(balancedstream_imbalance_ratio{label})"),
            timeout_s=60,
        )
        pods = stream.identities()
        stream.change({"balancing": {"mode": "Auto", "actAbove": 1.05}})
        wait_until(
            "a plan with moves",
            lambda: any(d["kind"] == "move" for d in stream.status().get("decisions", [])),
            timeout_s=120,
            last_seen=lambda: stream.status().get("reason"),
        )
        stream.wait_for_condition("Balanced", "True", timeout_s=180)
        stream.wait_for_condition("Migrating", "False")
        after = prometheus.value(f"max(balancedstream_imbalance_ratio{label})")
        assert after is not None
        assert after < before
        moved = prometheus.value(f"balancedstream_moves_settled_total{label}")
        assert moved, "partitions moved"
        assert stream.identities() == pods, "no pod was replaced or restarted"
        reasons = stream.event_reasons()
        assert "Skewed" in reasons
        assert "Moving" in reasons
        decision = stream.status()["decisions"][0]
        assert decision["reason"]
    assert_exact(stream, broker, topic)


def unbalance(stream: Stream) -> None:
    """Vanilla Spark's first placement may be even by chance; the test needs one that is not."""
    stream.wait_for_condition("Balanced", "False", timeout_s=120)
