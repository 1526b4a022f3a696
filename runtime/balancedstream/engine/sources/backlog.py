"""The backlog of a query: the sum over its sources, by the kind that each one is."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from balancedstream.engine.sources.delta import Delta
from balancedstream.engine.sources.files import FilesInFolder
from balancedstream.engine.sources.iceberg import Iceberg
from balancedstream.engine.sources.kafka import Kafka
from balancedstream.engine.sources.progress import (
    Planned,
    SourceKind,
    SourceProgress,
    read_source,
)
from balancedstream.engine.sources.python import PythonSource

log = logging.getLogger(__name__)

KINDS: tuple[type[SourceKind], ...] = (
    Kafka,
    FilesInFolder,
    Delta,
    Iceberg,
    PythonSource,
)
"""Every kind of source whose backlog is known, or which takes a bound. Others say nothing of what
waits: those of Delta, Iceberg, Pulsar and Kinesis report no newest offset, or none that counts
rows, and `rate` makes its rows when it is read."""

NEGLIGIBLE = 0.01
"""A batch's rows are known although a source does not tell its own, if those were so small a part
of the last one. `balanced(...)` has such a source."""

_FADES = 0.9
"""What a batch read counts so much one batch later."""

T = TypeVar("T")


class Backlog:
    """Counts the rows that wait at the sources of one run of a query, batch by batch.

    Args:
        query: its name, for the log.
        kinds: of sources that can be counted.

    Attributes:
        waiting: rows that wait by number of the source, as they were last told; others are unknown.
        rows_read: rows of the last batches by number of the source, those of the last one most.

    >>> Backlog("clicks").count([{"description": "RateStreamV2[1]", "rows": 5}])
    """

    def __init__(self, query: str, kinds: Sequence[type[SourceKind]] = KINDS) -> None:
        self._query = query
        self._kinds = kinds
        self._of_source: dict[int, SourceKind] = {}
        self._odd: set[int] = set()
        self._read: dict[int, int] = {}
        self.waiting: dict[int, float] = {}
        self.rows_read: dict[int, float] = {}

    def count(self, sources: Sequence[Mapping[str, Any]]) -> float | None:
        """Rows that wait after a batch at all sources that tell; None if none does.

        Args:
            sources: as `BatchProgress.java` writes them, in the order of Spark.
        """
        self._read = {number: row["rows"] for number, row in enumerate(sources)}
        for number, rows in self._read.items():
            self.rows_read[number] = rows + _FADES * self.rows_read.get(number, 0.0)
        self.waiting.clear()
        for number, row in enumerate(sources):
            self._note(number, self._ask(number, row, lambda kind, source: kind.count(source)))
        return self._sum_waiting()

    def plan(self, sources: Sequence[Mapping[str, Any]]) -> Planned:
        """What a planned batch reads, and what waits behind it, at all sources that tell.

        Args:
            sources: as `Sources.java` writes them, in the same order.
        """
        rows: dict[int, float] = {}
        self.waiting.clear()
        for number, row in enumerate(sources):
            planned = self._ask(number, row, lambda kind, source: kind.plan(source)) or Planned()
            if planned.rows is not None:
                rows[number] = planned.rows
            self._note(number, planned.waiting_rows)
        untold = sum(read for number, read in self._read.items() if number not in rows)
        knows = rows and untold <= NEGLIGIBLE * sum(self._read.values())
        return Planned(sum(rows.values()) if knows else None, self._sum_waiting())

    def ask(self, sources: Sequence[Mapping[str, Any]]) -> float | None:
        """Rows that wait between two batches; for a source that was not asked, as last told.

        Args:
            sources: as `Sources.java` writes them; those that were asked have a newest offset.
        """
        for number, row in enumerate(sources):
            if row["latest"] is not None:
                self._note(number, self._ask(number, row, lambda kind, source: kind.ask(source)))
        return self._sum_waiting()

    def find_kind(self, number: int) -> SourceKind | None:
        """What has counted a source so far; None if nobody has."""
        return self._of_source.get(number)

    def _note(self, number: int, count: float | None) -> None:
        if count is None:
            self.waiting.pop(number, None)
        else:
            self.waiting[number] = count

    def _sum_waiting(self) -> float | None:
        return sum(self.waiting.values()) if self.waiting else None

    def _ask(
        self,
        number: int,
        row: Mapping[str, Any],
        question: Callable[[SourceKind, SourceProgress], T],
    ) -> T | None:
        """What a source's kind makes of it; None if it has none, or if that fails."""
        try:
            source = read_source(row)
            kind = self._of_source.get(number)
            if kind is None:
                found = next((kind for kind in self._kinds if kind.recognizes(source)), None)
                if found is None:
                    return None
                kind = self._of_source[number] = found()
            answer = question(kind, source)
            for count in answer if isinstance(answer, Planned) else (answer,):
                _check(count)
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
        return answer


def _check(count: Any) -> None:
    if count is not None and not 0 <= count < math.inf:
        message = f"a backlog of {count} rows"
        raise ValueError(message)
