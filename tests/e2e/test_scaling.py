"""The number of executors follows the load; state follows the executors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker import Broker
from monitoring import Prometheus
from streaming import FAST, assert_exact, describe_counts, skewed
from streams import Stream
from waiting import stays_true, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

WAIT_MS = 8
LOW, HIGH = 50, 220
"""Rows a second: 0.4 and 1.76 executors' worth of waiting."""
ORACLE = 3
"""1.76 executors' worth at 70 % busy."""


@pytest.mark.usefixtures("operator", "app_image")
def test_a_load_step_is_followed_up_and_down(
    prometheus: Prometheus,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("steps")
    scaling = {**FAST["scaling"], "mode": "Auto"}
    manifest = describe_counts(
        stream, broker, topic, executors=(1, 4), wait_ms=WAIT_MS, rows=3000, scaling=scaling
    )
    label = f'{{stream="{stream.namespace}/{stream.name}"}}'

    def actions(direction: str) -> float:
        counted = prometheus.value(
            f'balancedstream_scale_actions_total{{stream="{stream.namespace}/{stream.name}",'
            f'direction="{direction}"}}'
        )
        return counted or 0.0

    with skewed(broker, topic, seed=3) as producer:
        producer.set_rate(LOW)
        stream.apply(manifest)
        stream.wait_for_condition("Running", timeout_s=240)
        stream.wait_for_batches(8)
        assert len(stream.executors()) == 1
        producer.set_rate(HIGH)
        wait_until(
            "more executors",
            lambda: len(stream.executors()) >= 2,
            timeout_s=240,
            last_seen=lambda: stream.status().get("reason"),
        )
        new_executors_carry_state(stream, prometheus, label)
        wait_until(
            "the end of the backlog",
            lambda: stream.status().get("backlogRows", 1e9) < 3 * HIGH,
            timeout_s=300,
            last_seen=lambda: stream.status().get("backlogRows"),
        )
        assert len(stream.executors()) <= ORACLE + 1
        assert actions("out") <= 3
        producer.set_rate(LOW)
        wait_until(
            "fewer executors",
            lambda: (
                len(stream.executors()) < int(stream.status()["desiredExecutors"]) + 1
                and actions("in") >= 1
            ),
            timeout_s=300,
            last_seen=lambda: stream.status().get("reason"),
        )
    assert actions("in") <= 3
    assert_exact(stream, broker, topic)


def new_executors_carry_state(stream: Stream, prometheus: Prometheus, label: str) -> None:
    """Within three batches of registering; a scrape and a decision come in between."""
    wait_until(
        "state on every executor",
        lambda: (
            all(
                sample.value > 0
                for sample in prometheus.query(f"balancedstream_executor_partitions{label}")
            )
            and len(prometheus.query(f"balancedstream_executor_partitions{label}")) >= 2
        ),
        timeout_s=120,
        last_seen=lambda: prometheus.query(f"balancedstream_executor_partitions{label}"),
    )


@pytest.mark.usefixtures("operator", "app_image")
def test_a_person_can_fix_the_number_and_give_it_back(
    broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("fixed")
    manifest = describe_counts(stream, broker, topic, executors=(1, 2), wait_ms=1)
    with skewed(broker, topic, seed=4) as producer:
        producer.set_rate(50)
        stream.apply(manifest)
        stream.wait_for_condition("Running", timeout_s=240)
        driver = stream.identities()[f"{stream.name}-driver-0"]
        stream.scale(2)
        stream.wait_for_executors(2)
        stream.scale(9)
        stream.wait_for_condition("ScalingLimited", "True", reason="OutOfBounds")
        stream.scale(0)
        stream.wait_for_condition("ScalingLimited", "False")
        stays_true(
            "the driver",
            lambda: stream.identities().get(f"{stream.name}-driver-0") == driver,
            for_s=5,
        )
    assert_exact(stream, broker, topic)
