"""How many rows a file, or a byte of a file, has: learnt from the batches that read them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from balancedstream.engine.sources.limits import Unit
from balancedstream.engine.sources.progress import Scanned

RECENT_BATCHES = 8
"""Files of last week may have been of another kind."""


@dataclass
class RowsOfFiles:
    """What files held that recent batches have read.

    >>> files = RowsOfFiles()
    >>> files.plan(3, Scanned(2, 1000))
    >>> files.read(3, rows=50)
    >>> files.estimate(500, "bytes"), files.convert(10, "files")
    (25.0, 0.4)
    """

    _planned: tuple[object, Scanned] | None = None
    _read: deque[tuple[Scanned, int]] = field(default_factory=lambda: deque(maxlen=RECENT_BATCHES))

    def plan(self, end: object, scanned: Scanned) -> None:
        """A batch is to read files up to an offset."""
        self._planned = end, scanned

    def read(self, end: object, rows: int) -> None:
        """A batch has read so many rows up to an offset."""
        if self._planned is None or self._planned[0] != end:
            return
        scanned, self._planned = self._planned[1], None
        if scanned.files:
            self._read.append((scanned, rows))

    def estimate(self, amount: float, unit: Unit) -> float | None:
        """Rows in so many files or bytes; None if no file was seen to be read."""
        rows, read = self._sum(unit)
        return amount * rows / read if read else None

    def convert(self, rows: float, unit: Unit) -> float | None:
        """Files or bytes with so many rows; None if no row was seen to be read."""
        known, read = self._sum(unit)
        return rows * read / known if known else None

    def _sum(self, unit: Unit) -> tuple[int, int]:
        rows = sum(rows for _, rows in self._read)
        if unit == "files":
            return rows, sum(scanned.files for scanned, _ in self._read)
        return rows, sum(scanned.size_bytes for scanned, _ in self._read)
