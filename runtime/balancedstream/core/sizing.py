"""Sizes that a local run and the operator choose by the same rule."""

from __future__ import annotations

PARTITIONS_PER_EXECUTOR = 8
"""State partitions for each executor of the largest size: what balance to 1.1 x needs."""


def parse_mib(size: str) -> int:
    """A JVM memory size, as Spark's settings write it, in MiB.

    >>> parse_mib("2g"), parse_mib("512m")
    (2048, 512)
    """
    scale = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2}
    text = size.lower().removesuffix("b")
    unit = text[-1]
    number = float(text[:-1]) * scale[unit] if unit in scale else float(text) / 1024**2
    return int(number)
