"""Rows that wait in Kafka: between what was read and the ends of the topics."""

from __future__ import annotations

from typing import Any

import pytest

from balancedstream.engine.sources.kafka import Kafka
from balancedstream.engine.sources.progress import SourceProgress


def topics(end: Any, latest: Any, description: str = "KafkaV2[Subscribe[t]]") -> SourceProgress:
    return SourceProgress(description, end=end, latest=latest)


@pytest.mark.parametrize(
    ("end", "latest", "rows"),
    [
        ({"t": {"0": 9}}, {"t": {"0": 9}}, 0.0),
        # A partition that nothing was read of yet waits from its beginning.
        ({"t": {"0": 4}}, {"t": {"0": 9, "1": 5}}, 10.0),
        ({}, {"t": {"0": 9}}, 9.0),
        ({"t": {"0": 8}}, {"t": {"0": 9}, "u": {"0": 2}}, 3.0),
        # A topic that was made anew begins again at 0.
        ({"t": {"0": 9}}, {"t": {"0": 1}}, 0.0),
    ],
)
def test_rows_wait_between_what_was_read_and_the_ends_of_the_topics(
    end: Any, latest: Any, rows: float
) -> None:
    source = topics(end, latest)
    assert Kafka.recognizes(source)
    assert Kafka().count(source) == rows


@pytest.mark.parametrize("description", ["KafkaV2[SubscribePattern[t.*]]", "KafkaSourceV1[Assign]"])
def test_both_of_sparks_connectors_are_known(description: str) -> None:
    assert Kafka.recognizes(topics({"t": {"0": 4}}, {"t": {"0": 9}}, description))


@pytest.mark.parametrize(
    "source",
    [
        # The shape of Kafka's offsets, and times in milliseconds.
        topics({"in": {"0": 1_764_300_000_000}}, {"in": {"0": 1_764_400_000_000}}, "Mine@7f"),
        # A batch for which Spark did not ask what is there.
        topics({"t": {"0": 4}}, None),
        topics(None, {"t": {"0": 4}}),
        topics([4], [9]),
    ],
)
def test_other_sources_are_not_taken_for_kafka(source: SourceProgress) -> None:
    assert not Kafka.recognizes(source)


@pytest.mark.parametrize(
    "latest",
    [{"t": 9}, {"t": {"0": "9"}}, {"t": {"0": True}}, {"t": {"0": 9.5}}, {"t": {"shard": 9}}],
)
def test_offsets_of_another_shape_are_no_rows(latest: Any) -> None:
    with pytest.raises(ValueError, match=r"offset|partitions"):
        Kafka().count(topics({}, latest))
