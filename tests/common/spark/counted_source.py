"""A Python data source with so many rows, of which a batch reads a limited number (Spark 4.2)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark import cloudpickle

cloudpickle.register_pickle_by_value(sys.modules[__name__])

try:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadMaxRows
except ModuleNotFoundError:  # Spark 4.1 has no limits, 3.5 no such sources
    DataSource = DataSourceStreamReader = InputPartition = ReadMaxRows = object

ROWS = 4000
OWN_LIMIT = 500


class CountedSource(DataSource):  # type: ignore[misc]
    """The numbers from 0 on."""

    @classmethod
    def name(cls) -> str:
        return "counted"

    def schema(self) -> str:
        return "id long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return CountedReader()


class Span(InputPartition):  # type: ignore[misc]
    """Numbers between two."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end


class CountedReader(DataSourceStreamReader):  # type: ignore[misc]
    """Knows no limit but one of rows, and fails with any other."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def getDefaultReadLimit(self) -> Any:
        return ReadMaxRows(OWN_LIMIT)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"at": min(ROWS, start["at"] + limit.max_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Span]:
        return [Span(start["at"], end["at"])]

    def read(self, partition: Span) -> Iterator[tuple[int]]:
        return iter([(number,) for number in range(partition.begin, partition.end)])

    def commit(self, end: dict[str, int]) -> None:
        pass
