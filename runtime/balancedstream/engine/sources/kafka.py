"""Kafka: an offset is the number of a row, by topic and partition."""

from __future__ import annotations

from typing import Any

from balancedstream.engine.sources.progress import SourceProgress

_DESCRIPTIONS = ("KafkaV2[", "KafkaSourceV1[")
"""Of Spark's `KafkaMicroBatchStream` and `KafkaSource`. Offsets of other sources may have the same
shape, and be times or versions."""


class Kafka:
    """Counts the rows between the end of a batch and the end of the topics."""

    @staticmethod
    def recognizes(source: SourceProgress) -> bool:
        """Whether it is Spark's connector for Kafka, as far as it says what is there.

        >>> Kafka.recognizes(SourceProgress("KafkaV2[Assign[t-0]]", end={}, latest={"t": {"0": 9}}))
        True
        """
        known = isinstance(source.latest, dict) and isinstance(source.end, dict)
        return known and source.description.startswith(_DESCRIPTIONS)

    def count(self, source: SourceProgress) -> float:
        """Rows that wait after a batch.

        Raises:
            ValueError: the offsets are not those of Kafka.

        >>> topics = {"t": {"0": 9, "1": 5}}
        >>> Kafka().count(SourceProgress("KafkaV2[]", end={"t": {"0": 4}}, latest=topics))
        10.0
        """
        read = _by_partition(source.end)
        latest = _by_partition(source.latest)
        # A partition that no batch has read begins at 0. A topic made anew ends before the batch.
        return float(sum(max(0, end - read.get(place, 0)) for place, end in latest.items()))


def _by_partition(offsets: dict[str, Any]) -> dict[tuple[str, str], int]:
    found = {}
    for topic, partitions in offsets.items():
        if not isinstance(partitions, dict):
            message = f"{topic} has no partitions"
            raise ValueError(message)
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int:
                message = f"{topic}, {partition}: no offset of Kafka"
                raise ValueError(message)
            found[topic, partition] = offset
    return found
