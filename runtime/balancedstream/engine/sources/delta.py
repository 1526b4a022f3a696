"""Tables of Delta Lake: what waits is unknown, but batches can be bounded by files."""

from __future__ import annotations

from dataclasses import dataclass, field

from balancedstream.engine.sources.limits import MAX_FILES, SourceLimits, Unit
from balancedstream.engine.sources.progress import Planned, SourceKind, SourceProgress
from balancedstream.engine.sources.rates import RowsOfFiles


@dataclass
class Delta(SourceKind):
    """Reads files in the order of the table's log; `maxFilesPerTrigger` is 1000 by default.

    `DeltaSource` throws on a limit of Spark's that is none of files; it has its own one of bytes.
    """

    java_classes = ("org.apache.spark.sql.delta.sources.DeltaSource",)

    _sizes: RowsOfFiles = field(default_factory=RowsOfFiles)

    @staticmethod
    def recognizes(source: SourceProgress) -> bool:
        """Whether a scan of the table says how many files a batch reads.

        >>> Delta.recognizes(SourceProgress("DeltaSource[file:/table]"))
        True
        """
        return source.description.startswith("DeltaSource[")

    def count(self, source: SourceProgress) -> None:
        """Nothing is known of what waits."""
        self._sizes.read(source.end, source.rows)

    def plan(self, source: SourceProgress) -> Planned:
        """What the files hold that a batch reads."""
        if source.scanned is None:
            return Planned()
        self._sizes.plan(source.end, source.scanned)
        return Planned(self._sizes.estimate(source.scanned.size_bytes, "bytes"))

    @staticmethod
    def choose_unit(limits: SourceLimits) -> Unit:
        """Files, if the user limits nothing else."""
        limits.check_own(MAX_FILES)
        return "files"

    def convert(self, rows: float, unit: Unit) -> float | None:
        """Files with so many rows."""
        return self._sizes.convert(rows, unit)
