"""More executors under load, and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from targets import MAX_GROWING, MIN_SHARE, SETTLING_BATCHES, SHARING_BATCHES

from tables.markdown import NONE, Result, say_whether, spread, table

ARMS = ("vanilla", "balanced")


def tabulate_scale(results: Sequence[Result]) -> Iterator[str]:
    kinds: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        kinds[name_kind(result)].append(result)
    for kind, runs in kinds.items():
        rows_per_batch = runs[0]["settings"]["rows_per_batch"]
        yield f"{kind}, repetitions: {len(runs)}."
        yield ""
        rows = []
        for arm in ARMS:
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
        yield from table(["", *ARMS], describe_arms(runs))
        yield ""
    yield from table(
        ["target", "result", "met"],
        [line for kind, runs in kinds.items() for line in judge_kind(kind, runs)],
    )


def describe_arms(runs: Sequence[Result]) -> list[list[str]]:
    """What else both arms did."""
    return [
        [
            "longest batch from the request on ÷ median before",
            *(spread(over_steady(r, arm) for r in runs) for arm in ARMS),
        ],
        [
            "seconds from the request until all executors count",
            *(spread((r["measured"][arm]["joining_s"] for r in runs), decimals=1) for arm in ARMS),
        ],
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
            *(str(sum(r["measured"][arm]["repeated_stages"] for r in runs)) for arm in ARMS),
        ],
    ]


def judge_kind(kind: str, runs: Sequence[Result]) -> Iterator[list[str]]:
    """The targets of one kind of growth."""
    longest = [over_steady(r, "balanced") for r in runs]
    text = f"{kind}: longest batch ≤ {MAX_GROWING} x steady"
    yield [text, spread(longest), say_whether(median(longest) <= MAX_GROWING)]
    batches = [batches_until_shared(r, "balanced") for r in runs]
    within = sum(n is not None and n <= SHARING_BATCHES for n in batches)
    text = f"{kind}: share carried within {SHARING_BATCHES} batches"
    yield [text, f"{within} of {len(runs)} runs", say_whether(within == len(runs))]


def name_kind(result: Result) -> str:
    """How many executors join how many, and what runs on them."""
    case = result["case"]
    return f"{case['executors']} executors, {case['query']}, {case['rows']:,} rows a batch"


def over_steady(result: Result, arm: str) -> float:
    """The longest batch while executors join, over the median before."""
    before, growing = list(cut_phases(result, arm).values())[:2]
    return max(growing) / median(before)


def cut_phases(result: Result, arm: str) -> dict[str, list[float]]:
    """The batch times by phase; growing lasts until the batches allowed for settling are over."""
    measured = result["measured"][arm]
    before, _, after = result["case"]["executors"].partition(" → ")
    batch_s = measured["batch_s"]
    asked = measured["asked"]
    grown = measured["joined"] + SETTLING_BATCHES
    phases = {
        f"{before} before": batch_s[result["settings"]["warm_up_batches"] : asked],
        f"{before} → {after}": batch_s[asked:grown],
        f"{after}": batch_s[grown : measured.get("draining")],
    }
    if arm == "balanced":
        draining, retired = measured["draining"], measured["retired"]
        # The batch that runs when the drain begins was planned before.
        phases[f"{after} → {before}"] = batch_s[draining : retired + 1]
        phases[f"{before} again"] = batch_s[retired + 1 :]
    return {phase: found for phase, found in phases.items() if found}


def batches_until_shared(result: Result, arm: str) -> float | None:
    """Batches since all executors are there until each carries its share; None for never."""
    measured = result["measured"][arm]
    shares = measured["least_share"][measured["joined"] : measured.get("draining")]
    return next((n for n, share in enumerate(shares, start=1) if share >= MIN_SHARE), None)


def drain_batches(result: Result) -> int:
    measured = result["measured"]["balanced"]
    return int(measured["retired"] - measured["draining"])
