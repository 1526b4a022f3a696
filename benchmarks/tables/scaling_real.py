"""Ways to choose the number of executors, on real executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from tables.markdown import Result, say_whether, spread, table

PEAK = "fixed at the peak"
WAYS = ("ours", PEAK, "fixed at the mean", "dynamic allocation")


def tabulate_scaling_real(results: Sequence[Result]) -> Iterator[str]:
    """Executor-seconds and lateness of every way; those at the peak are of the same repetition."""
    by_way = {way: group_by_repetition(results, way) for way in WAYS}
    peak_s = {n: executor_s(r) for n, r in by_way[PEAK].items()}
    yield from table(
        [
            "way",
            "executor-seconds",
            "÷ fixed at the peak",
            "rows too late (%)",
            "95th percentile (s)",
            "worst backlog (rows)",
            "actions",
        ],
        [
            [
                way,
                spread((executor_s(r) for r in runs.values()), 0),
                spread(executor_s(r) / peak_s[n] for n, r in runs.items() if n in peak_s),
                spread((late_percent(r) for r in runs.values()), 1),
                spread((r["measured"]["p95_latency_s"] for r in runs.values()), 1),
                spread((r["measured"]["worst_backlog_rows"] for r in runs.values()), 0),
                spread((r["measured"]["actions"] for r in runs.values()), 0),
            ]
            for way, runs in by_way.items()
        ],
    )
    yield ""
    yield from table(["target", "result", "met"], judge_targets(results, by_way))


def judge_targets(
    results: Sequence[Result], by_way: Mapping[str, Mapping[int, Result]]
) -> Iterator[list[str]]:
    """The targets, what was reached, and whether that is enough."""
    ours = by_way["ours"].values()
    best = [
        way
        for way in WAYS[1:]
        if ours
        and (runs := by_way[way].values())
        and median(map(late_percent, runs)) <= median(map(late_percent, ours))
        and median(map(executor_s, runs)) <= median(map(executor_s, ours))
    ]
    text = "fewer executor-seconds than each that is late as seldom"
    yield [text, ", ".join(best) or "all of them", say_whether(not best)]
    reversals = sum(r["measured"]["reversals"] for r in ours)
    text = "no reversal within the stabilization time"
    yield [text, f"{reversals:.0f} in {len(ours)} runs", say_whether(reversals == 0)]
    wrong = sum(r["measured"]["wrong_keys"] for r in results)
    text = "every key's count is that of a recomputation"
    yield [text, f"{wrong} wrong in {len(results)} runs", say_whether(wrong == 0)]


def group_by_repetition(results: Sequence[Result], way: str) -> dict[int, Result]:
    return {r["case"]["repetition"]: r for r in results if r["case"]["way"] == way}


def executor_s(result: Result) -> float:
    return 3600 * float(result["measured"]["executor_hours"])


def late_percent(result: Result) -> float:
    return 100 * float(result["measured"]["late_share"])
