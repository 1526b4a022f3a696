"""Moving state: what each strategy costs the stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from targets import MAX_ADDED_OVER_BUDGET, MAX_SLOWEST_UNMOVED, MIGRATION_BUDGET_S

from tables.markdown import Result, say_whether, spread, table


def tabulate_migration(results: Sequence[Result]) -> Iterator[str]:
    strategies = list(dict.fromkeys(r["case"]["strategy"] for r in results))
    rows = []
    for strategy in strategies:
        runs = [r["measured"] for r in results if r["case"]["strategy"] == strategy]
        for way in ("away", "back"):
            rows.append(
                [
                    strategy,
                    way,
                    str(len(runs)),
                    spread((len(run[way]["steps"]) for run in runs), decimals=0),
                    spread(steady(run, "batch_s") for run in runs),
                    spread(max(run[way]["batch_s"]) for run in runs),
                    spread(longest_over_steady(run, way) for run in runs),
                    spread(slowest_over_steady(run, way) for run in runs),
                    spread((run[way]["total_s"] for run in runs), decimals=1),
                ]
            )
    yield from table(
        [
            "strategy",
            "way",
            "runs",
            "steps",
            "steady batch (s)",
            "longest batch (s)",
            "longest ÷ steady",
            "slowest unmoved task ÷ steady",
            "total (s)",
        ],
        rows,
    )
    yield ""
    gib = spread(r["measured"]["state_bytes"] / 2**30 for r in results)
    yield f"State: {gib} GiB in all."
    yield ""
    both_ways = [
        (r["measured"], way)
        for r in results
        if r["case"]["strategy"] == "budgeted"
        for way in ("away", "back")
    ]
    added_s = [max(run[way]["batch_s"]) - steady(run, "batch_s") for run, way in both_ways]
    slower = [slowest_over_steady(run, way) for run, way in both_ways]
    limit_s = MAX_ADDED_OVER_BUDGET * MIGRATION_BUDGET_S
    yield from table(
        ["target, budgeted", "measured", "met"],
        [
            [
                f"longest batch ≤ steady + {limit_s:g} s",
                f"+{spread(added_s)} s",
                say_whether(median(added_s) <= limit_s),
            ],
            [
                f"slowest unmoved task ≤ {MAX_SLOWEST_UNMOVED} x steady",
                spread(slower),
                say_whether(median(slower) <= MAX_SLOWEST_UNMOVED),
            ],
        ],
    )


def steady(run: Mapping[str, Any], figure: str) -> float:
    return float(median(run["steady"][figure]))


def longest_over_steady(run: Mapping[str, Any], way: str) -> float:
    return float(max(run[way]["batch_s"]) / steady(run, "batch_s"))


def slowest_over_steady(run: Mapping[str, Any], way: str) -> float:
    """The slowest unmoved task of the migration over that of the median steady batch."""
    return float(max(run[way]["slowest_s"]) / steady(run, "slowest_s"))
