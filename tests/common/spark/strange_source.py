"""A Python data source whose offsets are like nobody else's: nested maps of texts and of times."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 60

Offset = dict[str, Any]


def write_offset(count: int) -> Offset:
    """The offset after so many batches: of the shape of Kafka's, and no row counts."""
    return {
        "times": {"0": 1_764_300_000_000 + 100_000_000 * count},
        "shards": {"0": {"sequence": f"495{count}", "open": True}},
        "count": count,
    }


class StrangeSource(DataSource):  # type: ignore[misc]
    """Gives the same rows in each batch, and says that more is there than it reads."""

    @classmethod
    def name(cls) -> str:
        return "strange"

    def schema(self) -> str:
        return "key long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StrangeReader()


class StrangeReader(DataSourceStreamReader):  # type: ignore[misc]
    """One step further in each batch."""

    def initialOffset(self) -> Offset:
        return write_offset(0)

    def latestOffset(self, start: Offset, limit: Any) -> Offset:
        return write_offset(start["count"] + 1)

    def reportLatestOffset(self) -> Offset:
        return write_offset(1_000)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [InputPartition(end["count"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter([(key,) for key in range(ROWS)])
