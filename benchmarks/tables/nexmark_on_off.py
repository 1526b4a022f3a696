"""NEXMark's queries with balancing off and on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from tables.markdown import Result, spread, table

ARMS = ("vanilla", "balanced")
FIGURES = {
    "p99_latency_s": ("99th percentile of latency (s)", 2),
    "rows_per_s": ("rows a second", 0),
}


def tabulate_nexmark_on_off(results: Sequence[Result]) -> Iterator[str]:
    """A row for each query, way of drawing keys, and load."""
    names = ("query", "keys", "load")
    cases = sorted({tuple(result["case"][name] for name in names) for result in results})
    header = [*names[:2], "events a second", "batch, vanilla (s)", "batch, balanced (s)"]
    header += [f"{what}, {arm}" for what, _ in FIGURES.values() for arm in ARMS]
    rows = []
    for case in cases:
        runs = [r["measured"] for r in results if tuple(r["case"][n] for n in names) == case]
        row = [str(value) for value in case]
        row += [spread(median(run[arm]["batch_s"]) for run in runs) for arm in ARMS]
        row += [
            spread((run[arm][figure] for run in runs), decimals)
            for figure, (_, decimals) in FIGURES.items()
            for arm in ARMS
        ]
        rows.append([*row, spread((run["balanced"]["moves"] for run in runs), 0)])
    yield from table([*header, "moves"], rows)
