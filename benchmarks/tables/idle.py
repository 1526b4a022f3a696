"""An attached but idle loop beside none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from targets import MAX_ATTACHED_OVER_VANILLA

from tables.markdown import Result, say_whether, spread, table

TARGET = f"≤ {MAX_ATTACHED_OVER_VANILLA}"


def tabulate_idle(results: Sequence[Result]) -> Iterator[str]:
    rows = [row for row, _ in compare_with_alone(results, "attached")]
    header = ["batches", "not attached (s)", "attached but idle (s)", "attached ÷ not attached"]
    yield from table([*header, TARGET], rows)


def compare_with_alone(
    results: Sequence[Result], arm: str
) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """For each length of batches: batch times alone and of an arm, their ratio, and the runs."""
    for batches in dict.fromkeys(str(r["case"]["batches"]) for r in results):
        runs = [r["measured"] for r in results if r["case"]["batches"] == batches]
        ratios = [median(run[arm]) / median(run["alone"]) for run in runs]
        row = [
            batches,
            spread(median(run["alone"]) for run in runs),
            spread(median(run[arm]) for run in runs),
            spread(ratios),
            say_whether(median(ratios) <= MAX_ATTACHED_OVER_VANILLA),
        ]
        yield row, runs
