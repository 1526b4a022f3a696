"""Files in a folder: rows that wait are estimated from the rows of the files that were read.

Spark lists files ahead (`FileStreamSource`), but knows the rows of none before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from balancedstream.engine.sources.limits import (
    MAX_BYTES,
    MAX_FILES,
    SourceLimits,
    UnboundedError,
    Unit,
)
from balancedstream.engine.sources.progress import Files, Planned, SourceKind, SourceProgress
from balancedstream.engine.sources.rates import RowsOfFiles


@dataclass
class FilesInFolder(SourceKind):
    """Counts the files that wait, times the rows that files had so far.

    What the files held that were read before a restart is not known. Where Spark has taken files of
    later batches already when it reports one, these batches share them evenly.
    """

    java_classes = (
        "org.apache.spark.sql.execution.streaming.FileStreamSource",
        "org.apache.spark.sql.execution.streaming.runtime.FileStreamSource",
    )

    _offset: int | None = None
    """Of the source's log, up to which it is read."""
    _taken: float = 0.0
    """Files that Spark had taken up to there, those before a restart included."""
    _files: float = 0.0
    """That were seen to be read; and their rows."""
    _rows: int = 0
    _sizes: RowsOfFiles = field(default_factory=RowsOfFiles)

    @staticmethod
    def recognizes(source: SourceProgress) -> bool:
        """Whether Spark knows the source's files."""
        return source.files is not None

    def count(self, source: SourceProgress) -> float | None:
        """Rows that wait after a batch; None if no file was seen to be read yet.

        >>> source = SourceProgress("FileStreamSource[/in]", None, {"logOffset": 0}, None, 60,
        ...                         Files(waiting=9, taken=1, offset=0))
        >>> FilesInFolder().count(source)
        540.0
        """
        files = source.files
        if files is None:
            return None
        if self._offset is None:
            first = source.start is None
            self._offset, self._taken = (-1, 0.0) if first else (files.offset, files.taken)
        # A folder that has had no file has no offset.
        if source.end is not None:
            self._sizes.read(source.end["logOffset"], source.rows)
        if source.end is not None and source.end["logOffset"] > self._offset:
            self._advance(source.end["logOffset"], self._offset, source.rows, files)
        unread = files.waiting + max(0.0, files.taken - self._taken)
        if not unread:
            return 0.0
        return unread * self._rows / self._files if self._files else None

    def plan(self, source: SourceProgress) -> Planned:
        """What the files hold that a batch reads, and those that are listed behind them."""
        if source.end is None or source.files is None:
            return Planned()
        if source.scanned is None:
            return Planned(0.0, self._estimate_waiting(source.files))
        self._sizes.plan(source.end["logOffset"], source.scanned)
        rows = self._sizes.estimate(source.scanned.size_bytes, "bytes")
        return Planned(rows, self._estimate_waiting(source.files))

    def _estimate_waiting(self, files: Files) -> float | None:
        if not files.waiting:
            return 0.0
        if files.waiting_bytes is not None:
            return self._sizes.estimate(files.waiting_bytes, "bytes")
        return self._sizes.estimate(files.waiting, "files")

    @staticmethod
    def choose_unit(limits: SourceLimits) -> Unit:
        """Bytes; files where the user limits those, and where Spark cannot limit bytes.

        Raises:
            UnboundedError: with `latestFirst`, older files could grow older than `maxFileAge` while
                newer ones are read, and be left out for good.
        """
        if limits.latest_first:
            message = "it reads the newest files first"
            raise UnboundedError(message)
        limits.check_own(MAX_FILES, MAX_BYTES)
        return "files" if MAX_FILES in limits.own or not limits.has_max_bytes else "bytes"

    def convert(self, rows: float, unit: Unit) -> float | None:
        """Files or bytes with so many rows."""
        return self._sizes.convert(rows, unit)

    def _advance(self, end: int, start: int, rows: int, known: Files) -> None:
        """A batch read rows up to an offset."""
        files = (known.taken - self._taken) * (end - start) / (known.offset - start)
        self._offset = end
        self._taken += files
        # Spark forgets the oldest files (`maxFileAge`).
        self._files += max(0.0, files)
        self._rows += rows
