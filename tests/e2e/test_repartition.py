"""A stream that runs gets more state partitions, and loses and doubles no row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import pytest
from broker import Broker
from kube import Kube
from recomputation import Offsets, Record, Rows, recompute_counts
from streaming import describe_counts, run_and_compare, skewed
from streams import Stream

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci, pytest.mark.turn]

BEFORE, AFTER = 4, 16
LONGEST_S = 300.0
"""A downtime that is longer hints at a step that hangs, also on a busy machine."""


def recompute(
    offsets: Mapping[int, Offsets], records: Mapping[int, Sequence[Record]]
) -> dict[int, Rows]:
    """As ever, without the batch of the repartition, which reads and writes nothing."""
    return {batch: rows for batch, rows in recompute_counts(offsets, records).items() if rows}


def read_partitions(stream: Stream) -> int:
    """That the newest batch of the query has."""
    offsets = stream.checkpoint / "counts" / "offsets"
    newest = max((file for file in offsets.glob("[0-9]*")), key=lambda file: int(file.name))
    conf = json.loads(newest.read_text().splitlines()[1])["conf"]
    return int(conf["spark.sql.shuffle.partitions"])


@pytest.mark.usefixtures("operator", "app_image")
def test_four_state_partitions_become_sixteen_while_rows_come(
    kube: Kube, broker: Broker, topic: str, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("repartition")
    manifest = describe_counts(
        stream, broker, topic, executors=(1, 2), wait_ms=2, partitions=BEFORE
    )
    load = skewed(seed=21)
    with run_and_compare(stream, manifest, broker, topic, load, rate=60, recompute=recompute):
        stream.wait_for_batches(2)
        assert read_partitions(stream) == BEFORE
        stream.change({"partitions": AFTER})
        stream.wait_for_condition("Repartitioning", timeout_s=60)
        stream.wait_for_condition(
            "Repartitioning", "False", reason="Done", timeout_s=LONGEST_S + 120.0
        )
        stream.wait_for_batches(2)
        status = stream.status()
        assert read_partitions(stream) == AFTER
    assert status["partitions"] == AFTER
    assert stream.condition("PartitionsAsAsked").status == "True"
    assert 0.0 < status["repartition"]["downtimeSeconds"] < LONGEST_S
    assert "repartition" in [decision["kind"] for decision in status["decisions"]]
    assert "Repartitioned" in stream.event_reasons()
    job = kube.find("batch/v1", "Job", f"{stream.name}-repartition", namespace=stream.namespace)
    assert job is not None
    assert job["status"]["succeeded"] == 1
    assert stream.identities()[f"{stream.name}-driver-0"].restarts == 0
