"""Tables of Iceberg: what waits is unknown, but batches can be bounded by rows."""

from __future__ import annotations

from balancedstream.engine.sources.limits import MAX_FILES, MAX_ROWS, SourceLimits, Unit
from balancedstream.engine.sources.progress import SourceKind


class Iceberg(SourceKind):
    """Reads whole files, at least one, as long as their rows are below a limit (Iceberg 1.10)."""

    java_classes = ("org.apache.iceberg.spark.source.SparkMicroBatchStream",)

    @staticmethod
    def choose_unit(limits: SourceLimits) -> Unit:
        """Rows, beside a limit of files."""
        limits.check_own(MAX_ROWS, MAX_FILES)
        return "rows"
