"""Event logs that Spark wrote (`logs/make.py`), whole and in other shapes."""

from __future__ import annotations

from pathlib import Path

from balancedstream.core.policy import Policy
from balancedstream.estimate.codecs import read_chunks
from balancedstream.estimate.files import find_event_log
from balancedstream.estimate.reading import Finding, read_log

LOGS = Path(__file__).parents[1] / "unit" / "estimate" / "logs"
CODECS = ("zstd", "lz4", "snappy")


def read_text(codec: str = "zstd") -> bytes:
    """The log without compression."""
    with (LOGS / f"grown.{codec}").open("rb") as file:
        return b"".join(read_chunks(file))


def read(path: Path) -> Finding:
    """What a log says."""
    return read_log(find_event_log(path), Policy())
