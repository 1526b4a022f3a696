"""What Spark reports of one source of a query in a batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Files(NamedTuple):
    """What Spark knows of the files of a file source.

    Attributes:
        waiting: files that it has listed, and no batch has taken.
        taken: files that batches have taken so far, those before a restart included.
        offset: of the source's log, up to which they were taken.
    """

    waiting: int
    taken: int
    offset: int


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """A source in a batch; each connector has offsets of its own, as any JSON.

    Attributes:
        description: Spark's name of the source, such as `KafkaV2[Subscribe[clicks]]`.
        start: offset from which the batch read; None for the first batch.
        end: offset up to which it read.
        latest: offset of what was there when the batch was planned; None if nobody says.
        rows: that the batch read.
        files: of a file source; None for others, and where Spark does not say.
    """

    description: str
    start: Any = None
    end: Any = None
    latest: Any = None
    rows: int = 0
    files: Files | None = None


def read_source(row: Mapping[str, Any]) -> SourceProgress:
    """A source as `BatchProgress.java` writes it, which leaves offsets as texts of JSON.

    Raises:
        ValueError: an offset is no JSON.
        RecursionError: an offset is nested too deeply.

    >>> read_source({"description": "Mine", "end": '{"shard": "49"}', "rows": 3}).end
    {'shard': '49'}
    """
    start, end, latest = (_read_offset(row.get(name)) for name in ("start", "end", "latest"))
    files = row.get("files") and Files(*row["files"])
    return SourceProgress(row["description"], start, end, latest, row["rows"], files)


def _read_offset(text: str | None) -> Any:
    return None if text is None else json.loads(text)


class SourceKind(Protocol):
    """A kind of source whose backlog is known; there is one object for each source of a query."""

    @staticmethod
    def recognizes(source: SourceProgress) -> bool:
        """Whether a source is of this kind."""

    def count(self, source: SourceProgress) -> float | None:
        """Rows that wait after a batch, at least 0; None as long as nobody knows.

        It is called for each batch, oldest first, and may raise what it likes: then the backlog of
        this source is unknown.
        """
