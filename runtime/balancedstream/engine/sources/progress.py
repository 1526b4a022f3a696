"""What Spark reports of a source of a query in a batch, and what its kind makes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from balancedstream.engine.sources.limits import SourceLimits, UnboundedError, Unit


class Files(NamedTuple):
    """What Spark knows of the files of a file source.

    Attributes:
        waiting: files that it has listed, and no batch has taken.
        taken: files that batches have taken so far, those before a restart included.
        offset: of the source's log, up to which they were taken.
        waiting_bytes: size of those that wait; None where Spark does not keep it.
    """

    waiting: int
    taken: int
    offset: int
    waiting_bytes: int | None = None


class Scanned(NamedTuple):
    """What a planned batch reads of a source of files.

    Attributes:
        files: their number.
        size_bytes: of all of them.
    """

    files: int
    size_bytes: int


class Planned(NamedTuple):
    """A source in a planned batch.

    Attributes:
        rows: that the batch reads; None if nobody knows.
        waiting_rows: that wait behind it; None if nobody knows.
    """

    rows: float | None = None
    waiting_rows: float | None = None


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """A source in a batch; each connector has offsets of its own, as any JSON.

    Attributes:
        description: Spark's name of the source, such as `KafkaV2[Subscribe[clicks]]`.
        start: offset from which the batch read; None for the first batch.
        end: offset up to which it read.
        latest: offset of what was there when the batch was planned; None if nobody says.
        rows: that the batch read; 0 before it has.
        files: of a file source; None for others, and where Spark does not say.
        scanned: what a planned batch reads of files; None if it does not, and for other sources.
    """

    description: str
    start: Any = None
    end: Any = None
    latest: Any = None
    rows: int = 0
    files: Files | None = None
    scanned: Scanned | None = None


def read_source(row: Mapping[str, Any]) -> SourceProgress:
    """A source as `BatchProgress.java` or `Sources.java` writes it: offsets are texts of JSON.

    Raises:
        ValueError: an offset is no JSON.
        RecursionError: an offset is nested too deeply.

    >>> read_source({"description": "Mine", "end": '{"shard": "49"}', "rows": 3}).end
    {'shard': '49'}
    """
    start, end, latest = (_read_offset(row.get(name)) for name in ("start", "end", "latest"))
    files = row.get("files") and Files(*row["files"])
    scanned = row.get("scanned") and Scanned(*row["scanned"])
    return SourceProgress(row["description"], start, end, latest, row["rows"], files, scanned)


def _read_offset(text: str | None) -> Any:
    return None if text is None else json.loads(text)


class SourceKind:
    """A kind of source; there is one object for each source of a query.

    What a kind does not override, nobody knows of its sources.

    Attributes:
        java_classes: full names of Spark's or the connector's classes that take a bound.
    """

    java_classes: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def recognizes(source: SourceProgress) -> bool:
        """Whether a source is of this kind."""
        return False

    def count(self, source: SourceProgress) -> float | None:
        """Rows that wait after a batch, at least 0; None as long as nobody knows.

        It is called for each batch, oldest first, and may raise what it likes: then the backlog of
        this source is unknown.
        """
        return None

    def plan(self, source: SourceProgress) -> Planned:
        """What a planned batch reads; called before its `count`, if at all. It may raise, too."""
        return Planned()

    def ask(self, source: SourceProgress) -> float | None:
        """Rows that wait between two batches; called where the source was asked for its newest."""
        return None

    @staticmethod
    def choose_unit(limits: SourceLimits) -> Unit:
        """What a source of `java_classes` can be bounded by.

        Raises:
            UnboundedError: it cannot be.
        """
        message = "it takes no bound"
        raise UnboundedError(message)

    def convert(self, rows: float, unit: Unit) -> float | None:
        """So many rows in the unit; None as long as nobody knows."""
        return rows
