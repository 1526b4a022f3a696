"""Skewed keys: Spark alone beside Spark balanced, and an attached but idle loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from targets import (
    MAX_ATTACHED_OVER_VANILLA,
    MAX_BALANCED_OVER_VANILLA,
    MAX_OVER_BOUND,
    SETTLING_BATCHES,
)

from tables.markdown import Result, say_whether, spread, table


def tabulate_placement(results: Sequence[Result]) -> Iterator[str]:
    pairs = [r for r in results if "s" in r["case"]]
    idle = [r for r in results if "idle" in r["case"]]
    rows = []
    for s in sorted({r["case"]["s"] for r in pairs}):
        runs = [r for r in pairs if r["case"]["s"] == s]
        rows.append(
            [
                f"{s:g}",
                spread(skewed_batch_s(r, "vanilla") for r in runs),
                spread(skewed_batch_s(r, "balanced") for r in runs),
                spread(batch_ratio(r) for r in runs),
                spread(settled_imbalance(r, "vanilla") for r in runs),
                spread(settled_imbalance(r, "balanced") for r in runs),
                spread((batches_until_balanced(r) for r in runs), decimals=0),
                spread((r["measured"]["balanced"]["moves"] for r in runs), decimals=0),
            ]
        )
    yield from table(
        [
            "Zipf s",
            "batch, vanilla (s)",
            "batch, balanced (s)",
            "balanced ÷ vanilla",
            "imbalance ÷ bound, vanilla",
            "imbalance ÷ bound, balanced",
            "batches until balanced",
            "moves",
        ],
        rows,
    )
    yield ""
    settled = [r for r in pairs if is_settled_in_time(r)]
    in_time = f"within {SETTLING_BATCHES} batches of the shift"
    targets = [
        [
            f"imbalance ≤ {MAX_OVER_BOUND:.2f} x bound {in_time}",
            f"{len(settled)} of {len(pairs)} runs",
            say_whether(len(settled) == len(pairs)),
        ]
    ]
    for s, limit in MAX_BALANCED_OVER_VANILLA.items():
        ratios = [batch_ratio(r) for r in pairs if r["case"]["s"] == s]
        if ratios:
            met = say_whether(median(ratios) <= limit)
            targets.append([f"batch ≤ {limit} x vanilla at s = {s:g}", spread(ratios), met])
    if idle:
        ratios = [median(r["measured"]["attached"]) / median(r["measured"]["alone"]) for r in idle]
        met = say_whether(median(ratios) <= MAX_ATTACHED_OVER_VANILLA)
        text = f"attached but idle ≤ {MAX_ATTACHED_OVER_VANILLA} x not attached"
        targets.append([text, spread(ratios), met])
    yield from table(["target", "measured", "met"], targets)


def skewed_batch_s(result: Result, arm: str) -> float:
    """The median batch of all in which keys are hot: those of settling included."""
    batch_s: list[float] = result["measured"][arm]["batch_s"]
    return median(batch_s[result["settings"]["uniform_batches"] :])


def batch_ratio(result: Result) -> float:
    return skewed_batch_s(result, "balanced") / skewed_batch_s(result, "vanilla")


def imbalance_since_shift(result: Result, arm: str) -> list[float]:
    """Imbalance over its bound, of each batch since the other keys became hot."""
    return list_since_shift(result["measured"][arm], result["settings"])


def list_since_shift(measured: Mapping[str, Any], settings: Mapping[str, Any]) -> list[float]:
    """The same of one run's figures."""
    shift = settings["uniform_batches"] + settings["first_batches"]
    pairs = zip(measured["imbalance"][shift:], measured["bound"][shift:], strict=True)
    return [imbalance / bound for imbalance, bound in pairs]


def settled_imbalance(result: Result, arm: str) -> float:
    """The median over the batches after those that settling may take."""
    since = imbalance_since_shift(result, arm)
    return median(since[SETTLING_BATCHES:] or since[-1:])


def batches_until_balanced(result: Result) -> float | None:
    """How many batches after the shift the first balanced one is; None where there is none."""
    return count_until_balanced(imbalance_since_shift(result, "balanced"))


def count_until_balanced(since: Sequence[float]) -> int | None:
    """The number of the first balanced batch, from 1; None where there is none."""
    return next((n for n, ratio in enumerate(since, start=1) if ratio <= MAX_OVER_BOUND), None)


def is_settled_in_time(result: Result) -> bool:
    until = batches_until_balanced(result)
    settled = settled_imbalance(result, "balanced") <= MAX_OVER_BOUND
    return until is not None and until <= SETTLING_BATCHES and settled
