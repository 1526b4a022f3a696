"""Event-time windows in a key: which columns they are, and what they need."""

from __future__ import annotations

from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

from balancedstream.errors import InvalidInputError

DELAY = "spark.watermarkDelayMs"
"""Spark marks the column of its watermark with this entry in the column's metadata."""


def has_watermark(column: StructField) -> bool:
    """Whether Spark's watermark belongs to a column.

    >>> has_watermark(StructField("at", TimestampType(), metadata={DELAY: 1000}))
    True
    """
    return DELAY in column.metadata


def check_window(window: str, keys: StructType, ttl_s: float | None) -> None:
    """Check that a column of the key is a window that an aggregation can use.

    Raises:
        InvalidInputError: the column is no window with a watermark, or has a time to live too.
    """
    if ttl_s is not None:
        message = (
            "ttl_s: Spark counts a time to live in processing time only, and a window ends in "
            "event time; nothing was started: use one of the two"
        )
        raise InvalidInputError(message)
    if window not in keys.names:
        message = (
            f"window: {window!r} is no column of the key, which is {', '.join(keys.names)}; "
            "nothing was started: group by the window, too"
        )
        raise InvalidInputError(message)
    column = keys[window]
    fields = column.dataType.fieldNames() if isinstance(column.dataType, StructType) else []
    is_window = "end" in fields and isinstance(
        column.dataType["end"].dataType, TimestampType | TimestampNTZType
    )
    if not is_window or not has_watermark(column):
        message = (
            f"window: the column {window!r} is no window with a watermark; nothing was "
            "started: create it with df.withWatermark(time, delay) and, after that, "
            "pyspark.sql.functions.window(time, length)"
        )
        raise InvalidInputError(message)
