"""From one executor to three under load, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from targets import MIN_SHARE, SETTLING_BATCHES

from tables.markdown import NONE, Result, spread, table

ARMS = ("vanilla", "balanced")


def tabulate_scale(results: Sequence[Result]) -> Iterator[str]:
    for rows_per_batch in sorted({r["settings"]["rows_per_batch"] for r in results}):
        runs = [r for r in results if r["settings"]["rows_per_batch"] == rows_per_batch]
        yield f"{rows_per_batch:,} rows a batch, repetitions: {len(runs)}."
        yield ""
        rows = []
        for arm in ("vanilla", "balanced"):
            phases = [cut_phases(r, arm) for r in runs]
            for phase in phases[0]:
                batches = [of_run[phase] for of_run in phases]
                rows.append(
                    [
                        arm,
                        phase,
                        spread((rows_per_batch / median(b) for b in batches), decimals=0),
                        spread(median(b) for b in batches),
                        spread(max(b) for b in batches),
                    ]
                )
        yield from table(
            ["arm", "phase", "rows a second", "median batch (s)", "longest batch (s)"], rows
        )
        yield ""
        yield from table(
            ["", "vanilla", "balanced"],
            [
                [
                    "batches until each new executor carries its share",
                    *(spread((batches_until_shared(r, arm) for r in runs), 0) for arm in ARMS),
                ],
                [
                    "batches from drain to departure",
                    NONE,
                    spread((drain_batches(r) for r in runs), decimals=0),
                ],
                [
                    "failed tasks, all repetitions",
                    *(str(sum(r["measured"][arm]["failed_tasks"] for r in runs)) for arm in ARMS),
                ],
                [
                    "stages computed again, all repetitions",
                    *(
                        str(sum(r["measured"][arm]["repeated_stages"] for r in runs))
                        for arm in ARMS
                    ),
                ],
            ],
        )
        yield ""


def cut_phases(result: Result, arm: str) -> dict[str, list[float]]:
    """The batch times by phase; growing lasts until the batches allowed for settling are over."""
    measured = result["measured"][arm]
    batch_s = measured["batch_s"]
    asked = measured["asked"]
    grown = measured["joined"] + SETTLING_BATCHES
    phases = {
        "1 executor": batch_s[result["settings"]["warm_up_batches"] : asked],
        "1 → 3": batch_s[asked:grown],
        "3 executors": batch_s[grown : measured.get("draining")],
    }
    if arm == "balanced":
        draining, retired = measured["draining"], measured["retired"]
        # The batch that runs when the drain begins was planned before.
        phases["3 → 1"] = batch_s[draining : retired + 1]
        phases["1 executor again"] = batch_s[retired + 1 :]
    return {phase: found for phase, found in phases.items() if found}


def batches_until_shared(result: Result, arm: str) -> float | None:
    """Batches since all executors are there until each carries its share; None for never."""
    measured = result["measured"][arm]
    shares = measured["least_share"][measured["joined"] : measured.get("draining")]
    return next((n for n, share in enumerate(shares, start=1) if share >= MIN_SHARE), None)


def drain_batches(result: Result) -> int:
    measured = result["measured"]["balanced"]
    return int(measured["retired"] - measured["draining"])
