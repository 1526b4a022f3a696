"""An agent that only watches beside no plugin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from targets import MAX_ATTACHED_OVER_VANILLA

from tables.markdown import Result, say_whether, spread, table


def tabulate_watching(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for batches in dict.fromkeys(str(r["case"]["batches"]) for r in results):
        runs = [r["measured"] for r in results if r["case"]["batches"] == batches]
        ratios = [median(run["watched"]) / median(run["alone"]) for run in runs]
        rows.append(
            [
                batches,
                spread(median(run["alone"]) for run in runs),
                spread(median(run["watched"]) for run in runs),
                spread(ratios),
                say_whether(median(ratios) <= MAX_ATTACHED_OVER_VANILLA),
                spread(max(run["agent_mib"]) for run in runs),
            ]
        )
    ratio = "watched ÷ no plugin"
    target = f"≤ {MAX_ATTACHED_OVER_VANILLA}"
    header = ["batches", "no plugin (s)", "watched (s)", ratio, target, "agent (MiB)"]
    yield from table(header, rows)
