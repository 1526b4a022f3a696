"""What limits the rows that a batch reads of a source, and which bound of ours it takes.

Most sources throw on a limit of a type that they do not know, and that ends the query. So a source
is bounded only if its class and its own limits are known (`SourceKind.choose_unit`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from balancedstream.errors import BalancedStreamError

Unit = Literal["rows", "files", "bytes", "python"]
"""Of a bound; `python` is rows, for a source that is written in Python."""

_PACKAGE = "org.apache.spark.sql.connector.read.streaming."
MAX_ROWS = f"{_PACKAGE}ReadMaxRows"
MIN_ROWS = f"{_PACKAGE}ReadMinRows"
MAX_FILES = f"{_PACKAGE}ReadMaxFiles"
MAX_BYTES = f"{_PACKAGE}ReadMaxBytes"
PYTHON = "org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceReadLimit"


class UnboundedError(BalancedStreamError):
    """A source takes no bound; the message says why."""


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """A source of a query that runs, and the limits that its user has set.

    Attributes:
        java_class: its full name.
        own: class of a limit to its number, or to its JSON; empty if the user has set none.
        latest_first: whether it reads the newest files first.
        has_max_bytes: whether this version of Spark can limit the bytes of a batch.
    """

    java_class: str
    own: Mapping[str, int | str | None]
    latest_first: bool = False
    has_max_bytes: bool = True

    def check_own(self, *known: str) -> None:
        """Checks that the user has set no limits but these.

        Raises:
            UnboundedError: the user has; the source may take no other type.

        >>> SourceLimits("Mine", {MAX_ROWS: 9}).check_own(MAX_ROWS, MIN_ROWS)
        """
        if unknown := self.own.keys() - set(known):
            name = min(unknown).rpartition(".")[2]
            message = f"it has a limit of a kind that cannot be lowered ({name})"
            raise UnboundedError(message)


def read_limits(row: Mapping[str, Any], *, has_max_bytes: bool) -> SourceLimits:
    """A source as `Admission.java` describes it.

    Raises:
        UnboundedError: no source of its class takes a bound.

    >>> row = {"kind": "Mine", "is_limited": True, "own": [[MAX_ROWS, 9]], "latest_first": False}
    >>> read_limits(row, has_max_bytes=True).own == {MAX_ROWS: 9}
    True
    """
    if not row["is_limited"]:
        message = "Spark lets nobody limit it"
        raise UnboundedError(message)
    if row["own"] is None:
        message = "no batch of it is planned yet"
        raise UnboundedError(message)
    return SourceLimits(row["kind"], dict(row["own"]), row["latest_first"], has_max_bytes)


def read_python_rows(limit: int | str | None) -> int | None:
    """The rows of a batch to which a source in Python limits itself; None if it has another limit.

    >>> read_python_rows('{"max_rows": 5000, "_type": "ReadMaxRows"}')
    5000
    >>> read_python_rows('{"_type": "ReadAllAvailable"}')
    """
    found = json.loads(str(limit))
    return int(found["max_rows"]) if found.get("_type") == "ReadMaxRows" else None
