"""An attached but idle loop beside none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from targets import MAX_ATTACHED_OVER_VANILLA

from tables.markdown import Result, say_whether, spread, table


def tabulate_idle(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for batches in dict.fromkeys(str(r["case"]["batches"]) for r in results):
        runs = [r["measured"] for r in results if r["case"]["batches"] == batches]
        ratios = [median(run["attached"]) / median(run["alone"]) for run in runs]
        rows.append(
            [
                batches,
                spread(median(run["alone"]) for run in runs),
                spread(median(run["attached"]) for run in runs),
                spread(ratios),
                say_whether(median(ratios) <= MAX_ATTACHED_OVER_VANILLA),
            ]
        )
    header = ["batches", "not attached (s)", "attached but idle (s)", "attached ÷ not attached"]
    yield from table([*header, f"≤ {MAX_ATTACHED_OVER_VANILLA}"], rows)
