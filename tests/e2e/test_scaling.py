"""The number of executors follows the load; state follows the executors."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from broker import Broker
from installing import Operator
from monitoring import SCRAPE_INTERVAL_S, Prometheus
from recomputation import recompute_rows
from sites import Site
from streaming import FAST, count_state_holders, describe_counts, run_and_compare, skewed
from streams import Stream
from waiting import stays_true, wait_until

pytestmark = [pytest.mark.e2e]

WAIT_MS = 8
TRIGGER_S = 8
LOW, HIGH = 10, 220
"""Rows a second: 0.08 and 1.76 executors' worth of waiting. Each task takes up to a quarter of a
second besides, on two cores that everything shares."""
AUTO = {**FAST["scaling"], "mode": "Auto"}
ORACLE = 3
"""Two executors' worth at 70 % busy. More are not allowed: what starts takes both cores of the
machine from what runs."""


@pytest.mark.e2e_ci
@pytest.mark.usefixtures("operator", "app_image")
def test_a_load_step_is_followed_up_and_down(
    prometheus: Prometheus,
    broker: Broker,
    site: Site,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("steps")
    manifest = describe_counts(
        stream,
        broker,
        "steps",
        executors=(1, ORACLE),
        partitions=6,
        wait_ms=WAIT_MS,
        rows=3000,
        trigger_s=TRIGGER_S,
        scaling=AUTO,
    )
    label = stream.label

    def actions(direction: str) -> float:
        counted = prometheus.value(
            f'balancedstream_scale_actions_total{{stream="{stream.namespace}/{stream.name}",'
            f'direction="{direction}"}}'
        )
        return counted or 0.0

    with (
        site.topic("steps", partitions=3) as topic,
        run_and_compare(
            stream, manifest, broker, topic, skewed(seed=3), rate=LOW, partitions=3
        ) as producer,
    ):
        stream.wait_for_batches(6)
        assert len(stream.executors()) == 1
        stepped_s = time.time()
        producer.set_rate(HIGH)
        wait_until(
            "state on more executors",
            lambda: count_state_holders(prometheus, stream) >= 2,
            timeout_s=240,
            last_seen=lambda: stream.status().get("reason"),
        )
        wait_until(
            "the end of the backlog",
            lambda: stream.status().get("backlogRows", 1e9) < 3 * HIGH,
            timeout_s=300,
            last_seen=lambda: stream.status().get("backlogRows"),
        )
        assert 1 <= actions("out") <= 3
        late = {e: n for e, n in batches_to_state(prometheus, label, stepped_s).items() if n > 3}
        assert not late, "a new executor carries state within three batches of registering"
        producer.set_rate(LOW)
        wait_until(
            "one executor again",
            lambda: len(stream.executors()) == 1 and stream.status()["desiredExecutors"] == 1,
            timeout_s=400,
            last_seen=lambda: stream.status().get("reason"),
        )
        assert 1 <= actions("in") <= 3
        done = actions("in"), actions("out")
        stays_true(
            "the number of executors",
            lambda: (actions("in"), actions("out")) == done,
            for_s=180,
            interval_s=5,
        )


def batches_to_state(prometheus: Prometheus, label: str, begin_s: float) -> dict[str, int]:
    """Of each executor that registered since: how many batches it was without any state.

    The batch that ran when it registered does not count: its tasks were placed before. An
    executor that never got any counts all batches until now.
    """

    def history(metric: str, executor: str = "") -> list[tuple[float, float]]:
        selector = label.replace("}", f',executor="{executor}"}}') if executor else label
        return prometheus.series(f"balancedstream_{metric}{selector}", begin_s, time.time())

    batches = history("last_batch_id")
    waited = {}
    for sample in prometheus.query(f"balancedstream_executor_cores{label}"):
        executor = sample.labels["executor"]
        registered_s, _ = history("executor_cores", executor)[0]
        if registered_s < begin_s + 2 * SCRAPE_INTERVAL_S:
            continue
        filled = [at_s for at_s, n in history("executor_partitions", executor) if n]
        carried_s = filled[0] if filled else time.time()
        before = max(batch for at_s, batch in batches if at_s <= registered_s)
        first = max(batch for at_s, batch in batches if at_s <= carried_s)
        waited[executor] = int(first - before) - 1
    assert waited, "executors registered"
    return waited


@pytest.mark.usefixtures("app_image")
def test_a_stream_scales_out_by_its_standing_plan_while_its_operator_is_away(
    operator: Operator, broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("standing")
    manifest = describe_counts(
        stream,
        broker,
        topic,
        executors=(1, 2),
        partitions=6,
        wait_ms=WAIT_MS,
        rows=3000,
        trigger_s=TRIGGER_S,
        scaling=AUTO,
    )

    def tell() -> list[str]:
        return [d["reason"] for d in stream.status().get("decisions", ()) if d["kind"] == "scale"]

    with run_and_compare(stream, manifest, broker, topic, skewed(seed=8), rate=LOW) as producer:
        stream.wait_for_batches(6)
        wait_until(
            "a standing plan",
            lambda: bool(stream.status().get("standing")),
            timeout_s=300,
            last_seen=lambda: stream.status().get("reason"),
        )
        operator.pause()
        try:
            producer.set_rate(HIGH)
            wait_until("two executors", lambda: len(stream.executors()) == 2, timeout_s=180)
        finally:
            operator.resume()
        wait_until(
            "what the driver did in the history",
            lambda: any("standing plan" in reason for reason in tell()),
            timeout_s=120,
            last_seen=tell,
        )
        assert stream.status()["desiredExecutors"] == 2


@pytest.mark.usefixtures("operator", "app_image")
def test_a_person_can_fix_the_number_and_give_it_back(
    broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("fixed")
    manifest = describe_counts(stream, broker, topic, executors=(1, 2), wait_ms=1)
    with run_and_compare(stream, manifest, broker, topic, skewed(seed=4), rate=50):
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


@pytest.mark.usefixtures("operator", "app_image")
def test_a_stateless_job_follows_the_load_and_writes_every_row_once(
    broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("mapped")
    manifest = describe_counts(
        stream,
        broker,
        topic,
        executors=(1, 3),
        stateless=True,
        map_ms=WAIT_MS,
        rows=3000,
        trigger_s=TRIGGER_S,
        scaling=AUTO,
    )
    keys = skewed(seed=5)
    with run_and_compare(
        stream, manifest, broker, topic, keys, rate=LOW, recompute=recompute_rows
    ) as producer:
        stream.wait_for_batches(6)
        assert stream.condition("Balanced").status == "True", "there is nothing to balance"
        producer.set_rate(HIGH)
        wait_until("two executors", lambda: len(stream.executors()) >= 2, timeout_s=300)
        producer.set_rate(LOW)
        wait_until(
            "one executor again",
            lambda: len(stream.executors()) == 1 and stream.status()["desiredExecutors"] == 1,
            timeout_s=500,
            last_seen=lambda: stream.status().get("reason"),
        )


@pytest.mark.usefixtures("operator", "app_image")
def test_a_job_whose_map_stage_is_heavy_keeps_the_executors_that_it_needs(
    broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("heavy-map")
    manifest = describe_counts(
        stream,
        broker,
        topic,
        executors=(1, 4),
        map_ms=WAIT_MS,
        wait_ms=0,
        rows=3000,
        trigger_s=TRIGGER_S,
        scaling=AUTO,
    )
    with run_and_compare(stream, manifest, broker, topic, skewed(seed=6), rate=HIGH):
        wait_until("two executors", lambda: len(stream.executors()) >= 2, timeout_s=300)
        # Longer than the scale-in delay of the fast policy: its stateful tasks alone are idle.
        stays_true("two executors", lambda: len(stream.executors()) >= 2, for_s=120, interval_s=5)


@pytest.mark.usefixtures("operator", "app_image")
def test_two_kafka_partitions_for_four_executors_are_named_and_add_none(
    broker: Broker, site: Site, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("two-splits")
    with site.topic("two-splits", partitions=2) as topic:
        manifest = describe_counts(
            stream,
            broker,
            topic,
            executors=(4, 6),
            map_ms=2 * WAIT_MS,
            wait_ms=0,
            rows=3000,
            trigger_s=TRIGGER_S,
            scaling=AUTO,
        )
        with run_and_compare(
            stream, manifest, broker, topic, skewed(seed=7), rate=HIGH, partitions=2
        ):
            stream.wait_for_condition("ScalingLimited", "True", reason="SourceBound", timeout_s=300)
            assert "has 2 splits for 4 cores" in stream.condition("ScalingLimited").message
            assert stream.status()["desiredExecutors"] == 4
