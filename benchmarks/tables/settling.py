"""Simulated: how soon a shift of the hot keys is balanced, by the thresholds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import Any

from targets import SETTLING_BATCHES

from tables.markdown import Result, table
from tables.placement import count_until_balanced, list_since_shift


def tabulate_settling(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for result in results:
        case, settings = result["case"], result["settings"]
        runs = result["measured"]
        counted = [count_until_balanced(list_since_shift(run, settings)) for run in runs]
        until = [float("inf") if batches is None else batches for batches in counted]
        rows.append(
            [
                f"{case['noise']:.0%}",
                f"{case['s']:g}",
                f"{case['act_above']:.2f}, {case['stop_at']:.2f}",
                f"{median(until):g}",
                f"{sum(batches <= SETTLING_BATCHES for batches in until)} of {len(runs)}",
                f"{fmean(compare_batches(m, settings['uniform_batches']) for m in runs):.2f}",
                f"{fmean(m['moves'] for m in runs):.1f}",
                f"{fmean(m['plans'] for m in runs):.1f}",
            ]
        )
    yield from table(
        [
            "noise",
            "Zipf s",
            "act_above, stop_at",
            "batches until balanced",
            f"within {SETTLING_BATCHES} batches",
            "batch ÷ vanilla",
            "moves",
            "plans",
        ],
        rows,
    )


def compare_batches(measured: dict[str, Any], uniform_batches: int) -> float:
    """The median batch with hot keys over the same without balancing."""
    batch_s: list[float] = measured["batch_s"][uniform_batches:]
    vanilla_s: list[float] = measured["vanilla_s"][uniform_batches:]
    return median(batch_s) / median(vanilla_s)
