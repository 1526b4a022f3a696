"""Sizes that a local run and the operator choose by the same rule."""

from __future__ import annotations

import re

PARTITIONS_PER_EXECUTOR = 8
"""State partitions for each executor of the largest size, or each of its cores if it has several:
what balance to 1.1 x needs."""


_SIZE = re.compile(r"([0-9]+)([a-z]*)")
_KIB = {"": 1024, "b": 1 / 1024, "k": 1, "m": 1024, "g": 1024**2, "t": 1024**3, "p": 1024**4}


def parse_mib(size: str) -> int:
    """A JVM memory size, as Spark's settings write it, in MiB.

    Without a unit it counts MiB, as in `spark.executor.memory` (`JavaUtils.byteStringAsMb`).

    Raises:
        ValueError: it is none.

    >>> parse_mib("2g"), parse_mib("512m"), parse_mib("2048"), parse_mib(" 1GB ")
    (2048, 512, 2048, 1024)
    """
    found = _SIZE.fullmatch(size.strip().lower())
    unit = (found[2] if found[2] == "b" else found[2].removesuffix("b")) if found else "?"
    if found is None or unit not in _KIB:
        message = f"not a size such as 512m or 2g: {size!r}"
        raise ValueError(message)
    return int(int(found[1]) * _KIB[unit] / 1024)
