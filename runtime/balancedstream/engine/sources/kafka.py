"""Kafka: an offset is the number of a row, by topic and partition."""

from __future__ import annotations

from typing import Any

from balancedstream.engine.sources.limits import MAX_ROWS, MIN_ROWS, SourceLimits, Unit
from balancedstream.engine.sources.progress import Planned, SourceKind, SourceProgress

_DESCRIPTIONS = ("KafkaV2[", "KafkaSourceV1[")
"""Of Spark's `KafkaMicroBatchStream` and `KafkaSource`. Offsets of other sources may have the same
shape, and be times or versions."""


class Kafka(SourceKind):
    """Counts the rows between the end of a batch and the end of the topics.

    Spark's connector shares a limit of rows among the partitions by what waits in each, and reads
    at least one row of each that has one (`KafkaMicroBatchStream.rateLimit`).
    """

    java_classes = (
        "org.apache.spark.sql.kafka010.KafkaMicroBatchStream",
        "org.apache.spark.sql.kafka010.KafkaSource",
    )

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

    def plan(self, source: SourceProgress) -> Planned:
        """What a batch reads between its offsets, and what is behind it.

        Raises:
            ValueError: the offsets are not those of Kafka.

        >>> batch = SourceProgress("KafkaV2[]", {"t": {"0": 1}}, {"t": {"0": 4}}, {"t": {"0": 9}})
        >>> Kafka().plan(batch)
        Planned(rows=3.0, waiting_rows=5.0)
        """
        begins, ends = _by_partition(source.start or {}), _by_partition(source.end)
        rows = sum(max(0, end - begins.get(place, 0)) for place, end in ends.items())
        return Planned(float(rows), self.count(source))

    def ask(self, source: SourceProgress) -> float:
        """Rows behind those that batches read, when the ends of the topics were asked for."""
        return self.count(source)

    @staticmethod
    def choose_unit(limits: SourceLimits) -> Unit:
        """Rows, beside a least number of them."""
        limits.check_own(MAX_ROWS, MIN_ROWS)
        return "rows"


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
