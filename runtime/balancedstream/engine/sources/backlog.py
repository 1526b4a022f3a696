"""The backlog of a query: the sum over its sources, by the kind that each one is."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from balancedstream.engine.sources.files import FilesInFolder
from balancedstream.engine.sources.kafka import Kafka
from balancedstream.engine.sources.progress import SourceKind, SourceProgress, read_source

log = logging.getLogger(__name__)

KINDS: tuple[type[SourceKind], ...] = (
    Kafka,
    FilesInFolder,
)
"""Every kind of source whose backlog is known. Others say nothing of what waits: those of Delta,
Iceberg, Pulsar and Kinesis report no newest offset, or none that counts rows, and `rate` makes its
rows when it is read."""


class Backlog:
    """Counts the rows that wait at the sources of one run of a query, batch by batch.

    Args:
        query: its name, for the log.
        kinds: of sources that can be counted.

    >>> Backlog("clicks").count([{"description": "RateStreamV2[1]", "rows": 5}])
    """

    def __init__(self, query: str, kinds: Sequence[type[SourceKind]] = KINDS) -> None:
        self._query = query
        self._kinds = kinds
        self._of_source: dict[int, SourceKind] = {}
        self._odd: set[int] = set()

    def count(self, sources: Sequence[Mapping[str, Any]]) -> float | None:
        """Rows that wait after a batch at all sources that tell; None if none does.

        Args:
            sources: as `BatchProgress.java` writes them, in the order of Spark.
        """
        counts = [self._count_one(number, row) for number, row in enumerate(sources)]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def _count_one(self, number: int, row: Mapping[str, Any]) -> float | None:
        try:
            return self._ask(number, read_source(row))
        except Exception as error:
            if number not in self._odd:
                self._odd.add(number)
                log.warning(
                    "%s: what waits at source %s is unknown: %r. Balancing goes on without it",
                    self._query,
                    str(row.get("description"))[:200],
                    error,
                )
            return None

    def _ask(self, number: int, source: SourceProgress) -> float | None:
        kind = self._of_source.get(number)
        if kind is None:
            found = next((kind for kind in self._kinds if kind.recognizes(source)), None)
            if found is None:
                return None
            kind = self._of_source[number] = found()
        count = kind.count(source)
        if count is not None and not 0 <= count < math.inf:
            message = f"a backlog of {count} rows"
            raise ValueError(message)
        return count
