"""Simulated: how soon a shift of the hot keys is balanced, by the thresholds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import Any

from targets import MAX_OVER_BOUND, SETTLING_BATCHES

from tables.markdown import Result, table


def tabulate_settling(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for result in results:
        case, settings = result["case"], result["settings"]
        shift = settings["uniform_batches"] + settings["first_batches"]
        runs = result["measured"]
        until = [count_batches_until_balanced(measured, shift) for measured in runs]
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


def count_batches_until_balanced(measured: dict[str, Any], shift: int) -> float:
    """How many batches after the shift the first balanced one is; infinite where there is none."""
    pairs = zip(measured["imbalance"][shift:], measured["bound"][shift:], strict=True)
    ratios = enumerate((imbalance / bound for imbalance, bound in pairs), start=1)
    return next((n for n, ratio in ratios if ratio <= MAX_OVER_BOUND), float("inf"))


def compare_batches(measured: dict[str, Any], uniform_batches: int) -> float:
    """The median batch with hot keys over the same without balancing."""
    batch_s: list[float] = measured["batch_s"][uniform_batches:]
    vanilla_s: list[float] = measured["vanilla_s"][uniform_batches:]
    return median(batch_s) / median(vanilla_s)
