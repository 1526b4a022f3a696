"""Rows that wait at the sources of a query, as far as Spark knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


def count_backlog(sources: Sequence[Mapping[str, Any]]) -> float | None:
    """Rows that wait at the sources: Kafka's latest minus processed offsets; None if unknown.

    Every connector has offsets of its own shape. Only those count that are as Kafka's are, by topic
    and number of partition: others are texts, times or versions, and no rows.

    >>> count_backlog([{"latestOffset": {"t": {"0": 9, "1": 5}}, "endOffset": {"t": {"0": 4}}}])
    10.0
    >>> count_backlog([{"latestOffset": {"f": {"mtime": 99}}, "endOffset": {"f": {"mtime": 9}}}])
    """
    total: float | None = None
    for source in sources:
        latest = _read_offsets(source.get("latestOffset"))
        done = _read_offsets(source.get("endOffset"))
        if latest is None or done is None:
            continue
        rows = sum(max(0, end - done.get(place, 0)) for place, end in latest.items())
        total = (total or 0.0) + rows
    return total


def _read_offsets(offsets: object) -> dict[tuple[str, str], int] | None:
    """Offset by topic and partition; None if these are no offsets as Kafka has them."""
    if not isinstance(offsets, dict):
        return None
    found = {}
    for topic, partitions in offsets.items():
        if not isinstance(partitions, dict):
            return None
        for partition, offset in partitions.items():
            if not str(partition).isdecimal() or type(offset) is not int:
                return None
            found[topic, partition] = offset
    return found


def add_known(*counts: float | None) -> float | None:
    """The sum of the counts that are known; None if none is.

    >>> add_known(3.0, None), add_known(None, None)
    (3.0, None)
    """
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


@dataclass
class _Reading:
    """What is known to be read of a source's files."""

    offset: int
    """Of the source's log, up to which it is read."""
    taken: float
    """Files that Spark had taken up to there, those before a restart included."""
    files: float = 0.0
    rows: int = 0

    def advance(self, end: int, rows: int, current: int, taken: int) -> None:
        """A batch read rows up to an offset, when Spark had taken files up to the current one."""
        if end <= self.offset:
            return
        files = (taken - self.taken) * (end - self.offset) / (current - self.offset)
        self.offset = end
        self.taken += files
        # Spark forgets the oldest files (`maxFileAge`).
        self.files += max(0.0, files)
        self.rows += rows


@dataclass
class FileBacklog:
    """Estimates the rows in files that wait at file sources, from the rows of files already read.

    Spark lists files ahead (`FileStreamSource`), but knows the rows of none before it is read.

    >>> backlog = FileBacklog()
    >>> source = {"startOffset": None, "endOffset": {"logOffset": 0}, "numInputRows": 60}
    >>> backlog.count_rows([source], [(9, 1, 0)])
    540.0
    """

    _readings: dict[int, _Reading] = field(default_factory=dict)

    def count_rows(
        self, sources: Sequence[Mapping[str, Any]], files: Sequence[Sequence[int] | None]
    ) -> float | None:
        """Rows that wait after a batch; None if no source has files, or none was read since.

        What the files held that were read before a restart is not known. Where Spark has taken
        files of later batches already when it reports one, these batches share them evenly.

        Args:
            sources: of the batch's progress.
            files: for each source the files that wait, those ever taken, and the offset up to which
                they were taken; None for other sources.
        """
        total: float | None = None
        for number, (source, found) in enumerate(zip(sources, files, strict=False)):
            if found is None:
                continue
            waiting, taken, current = found
            if number not in self._readings:
                first = source["startOffset"] is None
                self._readings[number] = _Reading(-1, 0) if first else _Reading(current, taken)
            reading = self._readings[number]
            # A folder that has had no file has no offset.
            if source["endOffset"] is not None:
                end = source["endOffset"]["logOffset"]
                reading.advance(end, source["numInputRows"], current, taken)
            unread = waiting + max(0.0, taken - reading.taken)
            if unread and reading.files:
                total = add_known(total, unread * reading.rows / reading.files)
            elif not unread:
                total = add_known(total, 0.0)
        return total
