"""What all tables share: figures with their range, answers to targets, and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

NONE = "-"
Result = Mapping[str, Any]


def spread(values: Iterable[float | None], decimals: int = 2) -> str:
    """The median with its range; "never" counts as more than any number.

    >>> spread([1.0, 2.0, 4.0]), spread([3], 0), spread([2, None, 5], 0), spread([None], 0)
    ('2.00 [1.00 to 4.00]', '3', '5 [2 to never]', 'never')
    """
    known = sorted(float("inf") if value is None else float(value) for value in values)
    if not known:
        return NONE

    def write(value: float) -> str:
        return "never" if value == float("inf") else f"{value:,.{decimals}f}"

    middle, least, most = write(median(known)), write(known[0]), write(known[-1])
    return middle if least == most else f"{middle} [{least} to {most}]"


def say_whether(met: bool) -> str:
    return "yes" if met else "**no**"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown, line by line."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def settle(result: Result, arm: str, figure: str) -> float:
    """The median of the last batches."""
    figures: list[float] = result["measured"][arm][figure]
    return median(figures[-result["settings"]["measured_batches"] :])
