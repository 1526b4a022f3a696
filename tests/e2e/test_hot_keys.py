"""A hot key changes its state partition while the stream runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker import Broker
from dashboards import HOT_KEYS, find_empty_panels
from hotkeys import find_keys_of_one_partition
from monitoring import Prometheus
from producing import ZipfKeys
from streaming import describe_counts, run_and_compare
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.turn]

KEYS = 20
PARTITIONS = 12


@pytest.mark.usefixtures("operator", "app_image")
def test_two_hot_keys_of_one_partition_are_parted_without_a_restart(
    prometheus: Prometheus,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("hot")
    manifest = describe_counts(
        stream,
        broker,
        topic,
        balanced=True,
        wait_ms=20,
        rows=200,
        executors=(2, 2),
        partitions=PARTITIONS,
    )
    pair = find_keys_of_one_partition(KEYS, PARTITIONS)
    keys = ZipfKeys(count=KEYS, exponent=0.0, seed=5)
    # Together they have four fifths of the rows: more than one executor's share.
    keys.favor(pair, 36)
    settled = f"balancedstream_key_moves_settled_total{stream.label}"
    with run_and_compare(stream, manifest, broker, topic, keys, rate=100):
        stream.wait_for_executors(2)
        pods = stream.identities()
        wait_until(
            "a key in its new partition",
            lambda: prometheus.value(settled),
            timeout_s=240,
            last_seen=lambda: stream.status().get("reason"),
        )

        def count_places() -> int:
            hottest = stream.status().get("hottestKeys", [])
            names = {f'"{key}"' for key in pair}
            return len({entry["partition"] for entry in hottest if entry["key"] in names})

        wait_until(
            "two hot keys in two partitions",
            lambda: count_places() == 2,
            timeout_s=120,
            last_seen=lambda: stream.status().get("hottestKeys"),
        )
        stream.wait_for_condition("Balanced", "True", timeout_s=180)
        stream.wait_for_condition("Migrating", "False")
        decisions = stream.status()["decisions"]
        assert any("key move" in decision["reason"] for decision in decisions)
        assert stream.identities() == pods, "no pod was replaced or restarted"
        assert find_empty_panels(prometheus, stream, HOT_KEYS) == []
