"""Skewed keys on executors with a CPU quota each: Spark alone, balanced, and the ideal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from tables.markdown import Result, spread, table
from tables.placement import batch_ratio, settled_imbalance, skewed_batch_s


def tabulate_computing(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for s in sorted({r["case"]["s"] for r in results}):
        runs = [r for r in results if r["case"]["s"] == s]
        rows.append(
            [
                f"{s:g}",
                spread(skewed_batch_s(r, "vanilla") for r in runs),
                spread(skewed_batch_s(r, "balanced") for r in runs),
                spread(batch_ratio(r) for r in runs),
                spread(ideal_ratio(r) for r in runs),
                spread(settled_imbalance(r, "vanilla") for r in runs),
                spread(settled_imbalance(r, "balanced") for r in runs),
                spread((r["measured"]["balanced"]["moves"] for r in runs), decimals=0),
            ]
        )
    yield from table(
        [
            "Zipf s",
            "batch, vanilla (s)",
            "batch, balanced (s)",
            "balanced ÷ vanilla",
            "ideal ÷ vanilla",
            "imbalance ÷ bound, vanilla",
            "imbalance ÷ bound, balanced",
            "moves",
        ],
        rows,
    )


def ideal_ratio(result: Result) -> float:
    """What batches of Spark alone would take, if the hottest executor had the mean's work."""
    measured, settings = result["measured"]["vanilla"], result["settings"]
    begin, executors = settings["uniform_batches"], settings["executors"]
    ideal_s: list[float] = [
        batch_s - busy_s / executors * (imbalance - 1)
        for batch_s, busy_s, imbalance in zip(
            measured["batch_s"][begin:],
            measured["busy_s"][begin:],
            measured["imbalance"][begin:],
            strict=True,
        )
    ]
    return median(ideal_s) / skewed_batch_s(result, "vanilla")
