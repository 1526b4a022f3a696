"""What the tests of running streams share: a load, a fast policy, and exactness at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from broker import Broker
from monitoring import Prometheus
from producing import PacedProducer, ZipfKeys
from recomputation import Recompute, compare, recompute_counts
from streams import API_VERSION, KIND, Stream
from waiting import wait_until

INTERVAL_S = 2.0

FAST: dict[str, Any] = {
    "metrics": {"intervalSeconds": INTERVAL_S},
    "scaling": {
        "mode": "Off",
        "windowSeconds": 20,
    },
}
"""The product's policy on a shorter clock: tests cannot wait for a quarter of an hour."""


def count_state_holders(prometheus: Prometheus, stream: Stream) -> int:
    """The executors that run state partitions of a stream."""
    return len(prometheus.query(f"balancedstream_executor_partitions{stream.label} > 0"))


def wait_for_state_on(
    count: int, prometheus: Prometheus, stream: Stream, *, timeout_s: float = 180
) -> None:
    """Until so many executors run state partitions of a stream."""
    wait_until(
        f"state on {count} executors",
        lambda: count_state_holders(prometheus, stream) == count,
        timeout_s=timeout_s,
        last_seen=stream.status,
    )


def describe_counts(stream: Stream, broker: Broker, topic: str, **more: Any) -> dict[str, Any]:
    """The manifest of `counts.py` on a topic, under the fast policy.

    Args:
        stream: whose.
        broker: of the topic.
        topic: with the input.
        more: `wait_ms` a row, `check_ms` a row in a shuffle before, `map_ms` a row that is read,
            `rows` at most in a batch, `trigger_s` from one batch to the next, `retain`ed batches,
            whether keys are `balanced`, whether the job is `stateless`; the rest goes into the
            spec.
    """
    options = [f"--{name}" for name in ("balanced", "stateless") if more.pop(name, False)]
    if "retain" in more:
        options.append(f"--retain={more.pop('retain')}")
    options.append(f"--map-ms={more.pop('map_ms', 0)}")
    wait_ms, check_ms = more.pop("wait_ms", 5), more.pop("check_ms", 0)
    rows = more.pop("rows", 2000)
    trigger_s = more.pop("trigger_s", 2)
    return stream.describe(
        "counts.py",
        broker.in_pods,
        topic,
        f"--wait-ms={wait_ms}",
        f"--check-ms={check_ms}",
        f"--max-offsets-per-trigger={rows}",
        f"--trigger={trigger_s} seconds",
        *options,
        **{"partitions": 12, **FAST, **more},
    )


def describe_target(stream: Stream, target: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A BalancedStream that names an application, under the fast policy."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": stream.name, "namespace": stream.namespace},
        "spec": {"targetRef": target, "executors": {"min": 1, "max": 2}, **FAST, **spec},
    }


def skewed(seed: int) -> ZipfKeys:
    """Keys of which few have most rows."""
    return ZipfKeys(count=100, exponent=1.1, seed=seed)


@contextmanager
def run_and_compare(
    stream: Stream,
    manifest: dict[str, Any],
    broker: Broker,
    topic: str,
    keys: ZipfKeys,
    *,
    rate: float,
    recompute: Recompute = recompute_counts,
    partitions: int = 6,
) -> Iterator[PacedProducer]:
    """Runs a stream under load; at the end its output has to be exact.

    Args:
        stream: whose.
        manifest: made by `describe_counts`.
        broker: of the topic.
        topic: with the input.
        keys: of the rows that are produced meanwhile.
        rate: rows a second at first.
        recompute: what each batch should have written.
        partitions: of the topic.
    """
    with PacedProducer(broker, topic, keys, partitions=partitions) as producer:
        producer.set_rate(rate)
        stream.apply(manifest)
        stream.wait_for_condition("Running", timeout_s=240)
        yield producer
    assert_exact(stream, broker, topic, recompute)


def assert_exact(
    stream: Stream, broker: Broker, topic: str, recompute: Recompute = recompute_counts
) -> None:
    """The sink, batch by batch, is what a recomputation of the topic gives."""
    comparison = compare(
        stream.checkpoint / "counts", stream.sink, topic, broker.read_topic, recompute
    )
    assert comparison.batches > 0
    assert not comparison.differences, str(comparison)
