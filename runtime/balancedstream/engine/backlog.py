"""Rows that wait at the sources of a query, as far as Spark knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


def count_backlog(sources: Sequence[Mapping[str, Any]]) -> float | None:
    """Rows that wait at the sources: Kafka's latest minus processed offsets; None if unknown.

    >>> count_backlog([{"latestOffset": {"t": {"0": 9, "1": 5}}, "endOffset": {"t": {"0": 4}}}])
    10.0
    >>> count_backlog([{"latestOffset": None, "endOffset": {"logOffset": 3}}]) is None
    True
    """
    total: float | None = None
    for source in sources:
        latest, done = source.get("latestOffset"), source.get("endOffset")
        if not isinstance(latest, dict) or not isinstance(done, dict):
            continue
        for topic, ends in latest.items():
            if not isinstance(ends, dict):
                continue
            reached = done.get(topic, {})
            total = (total or 0.0) + sum(end - reached.get(p, 0) for p, end in ends.items())
    return total


def add_known(*counts: float | None) -> float | None:
    """The sum of the counts that are known; None if none is.

    >>> add_known(3.0, None), add_known(None, None)
    (3.0, None)
    """
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


@dataclass
class FileBacklog:
    """Estimates the rows in files that wait at file sources, from the rows of files already read.

    Spark lists files ahead (`FileStreamSource`), but knows the rows of none before it is read.

    >>> backlog = FileBacklog()
    >>> backlog.count_rows(7, [{"numInputRows": 50}], [[9, 1]]) is None
    True
    >>> backlog.count_rows(8, [{"numInputRows": 60}], [[6, 4]])
    120.0
    """

    _rows: dict[int, int] = field(default_factory=dict)
    _seen_first: dict[int, int] = field(default_factory=dict)

    def count_rows(
        self,
        batch: int,
        sources: Sequence[Mapping[str, Any]],
        files: Sequence[Sequence[int] | None],
    ) -> float | None:
        """Rows that wait after a batch; None if no source has files, or none was read since.

        What the files held that were read before a restart is not known. Spark may be reading the
        next batch's files already when it reports a batch, so the estimate is low at first.

        Args:
            batch: its number.
            sources: of the batch's progress.
            files: for each source the files that wait and those ever read; None for other sources.
        """
        total: float | None = None
        for number, (source, found) in enumerate(zip(sources, files, strict=False)):
            if found is None:
                continue
            waiting, seen = found
            if number not in self._seen_first:
                self._seen_first[number] = seen if batch else 0
                self._rows[number] = -source["numInputRows"] if batch else 0
            self._rows[number] += source["numInputRows"]
            read = seen - self._seen_first[number]
            if waiting and read > 0:
                total = add_known(total, waiting * self._rows[number] / read)
            elif not waiting:
                total = add_known(total, 0.0)
        return total
