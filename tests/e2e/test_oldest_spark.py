"""A stream on the oldest Spark that is supported is scaled, loses an executor, and counts right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import images
import pyarrow.parquet as pq
import pytest
from clusters import Cluster
from kube import Kube
from monitoring import Prometheus
from streaming import wait_for_state_on
from streams import Stream

pytestmark = [pytest.mark.e2e]

KEYS = 40
NUMBERS_OF_A_KEY = 2
"""In each second; the source counts from 0, so that each key gets as many."""


@pytest.fixture(scope="module")
def oldest_image(cluster: Cluster) -> str:
    images.build_oldest_image(cluster.node)
    return images.OLDEST


@pytest.mark.usefixtures("operator")
def test_a_stream_on_the_oldest_spark_is_scaled_and_counts_right(
    kube: Kube,
    prometheus: Prometheus,
    oldest_image: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("rate")
    arguments = (
        f"--rows-per-second={KEYS * NUMBERS_OF_A_KEY}", f"--keys={KEYS}", "--trigger=3 seconds",
    )  # fmt: skip
    stream.apply(stream.describe("rate.py", *arguments, image=oldest_image, partitions=6))
    stream.wait_for_condition("Ready", timeout_s=240)

    stream.scale(2)
    wait_for_state_on(2, prometheus, stream)
    lost = stream.executors()[0]["metadata"]["name"]
    kube.delete("v1", "Pod", lost, namespace=stream.namespace, grace_s=0)
    kube.wait_for_absence("v1", "Pod", lost, namespace=stream.namespace)
    stream.wait_for_executors(2)
    wait_for_state_on(2, prometheus, stream)
    stream.scale(1)
    stream.wait_for_executors(1, timeout_s=180)
    stream.wait_for_batches(2, query="rate")

    batches = [n for n in range(stream.last_batch("rate") + 1) if read_seconds(stream, n)]
    for batch in batches:
        count = NUMBERS_OF_A_KEY * read_seconds(stream, batch)
        assert read_counts(stream.sink / f"batch={batch}") == dict.fromkeys(range(KEYS), count)
    assert len(batches) > 5


def read_seconds(stream: Stream, batch: int) -> int:
    """The seconds since the start whose numbers are counted in a batch."""
    log = stream.checkpoint / "rate" / "offsets" / str(batch)
    return int(json.loads(log.read_text("utf-8").splitlines()[-1]))


def read_counts(folder: Path) -> dict[int, int]:
    """The numbers of each key so far."""
    rows = pq.read_table(folder).to_pylist()
    counts = {row["key"]: row["count"] for row in rows}
    assert len(counts) == len(rows)
    return counts
