"""Moving state: what each strategy costs the stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from targets import (
    MAX_ADDED_OVER_BUDGET,
    MAX_PREPARED,
    MAX_SLOWEST_UNMOVED,
    MIGRATION_BUDGET_S,
)

from tables.markdown import Result, say_whether, spread, table


def tabulate_migration(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for (storage, partitions, strategy), runs in group(
        results, "storage", "partitions", "strategy"
    ):
        for way in ("away", "back"):
            rows.append(
                [
                    f"{storage}, {partitions} partitions",
                    strategy,
                    way,
                    str(len(runs)),
                    spread((len(run[way]["steps"]) for run in runs), decimals=0),
                    spread(steady(run, "batch_s") for run in runs),
                    spread(longest_steady(run) for run in runs),
                    spread(max(run[way]["batch_s"]) for run in runs),
                    spread(longest_over_steady(run, way) for run in runs),
                    spread(slowest_over_steady(run, way) for run in runs),
                    spread((run[way]["total_s"] for run in runs), decimals=1),
                ]
            )
    yield from table(
        [
            "state",
            "strategy",
            "way",
            "runs",
            "steps",
            "steady batch (s)",
            "longest steady ÷ steady",
            "longest batch (s)",
            "longest ÷ steady",
            "slowest unmoved task ÷ steady",
            "total (s)",
        ],
        rows,
    )
    yield ""
    if held := [*list_held(results)]:
        yield from table(["state", "strategy", "most memory ÷ steady", "most disk ÷ steady"], held)
        yield ""
    yield from table(["target", "measured", "met"], list_targets(results))


def list_held(results: Sequence[Result]) -> Iterator[list[str]]:
    """What all executors hold at most while state moves, where that was measured."""
    measured = [result for result in results if "held" in result["measured"]]
    for (storage, partitions, strategy), runs in group(
        measured, "storage", "partitions", "strategy"
    ):
        yield [
            f"{storage}, {partitions} partitions",
            strategy,
            *(
                spread(
                    max(run["away"]["held"][name], run["back"]["held"][name]) / run["held"][name]
                    for run in runs
                )
                for name in ("memory_mib", "disk_mib")
            ),
        ]


def list_targets(results: Sequence[Result]) -> Iterator[list[str]]:
    """What is reached with state that is loaded ahead; before that, of the budget without it."""
    limit_s = MAX_ADDED_OVER_BUDGET * MIGRATION_BUDGET_S
    for (storage, partitions, strategy), runs in group(
        results, "storage", "partitions", "strategy"
    ):
        both = [(run, way) for run in runs for way in ("away", "back")]
        slower = [slowest_over_steady(run, way) for run, way in both]
        where = f"{strategy}, {storage}, {partitions} partitions"
        if strategy == "budgeted" and storage == "disk":
            added_s = [max(run[way]["batch_s"]) - steady(run, "batch_s") for run, way in both]
            met = say_whether(median(added_s) <= limit_s)
            yield [f"{where}: longest batch ≤ steady + {limit_s:g} s", f"+{spread(added_s)} s", met]
            met = say_whether(median(slower) <= MAX_SLOWEST_UNMOVED)
            text = f"{where}: slowest unmoved task ≤ {MAX_SLOWEST_UNMOVED} x steady"
            yield [text, spread(slower), met]
        if strategy == "prepared":
            longest = [longest_over_steady(run, way) for run, way in both]
            for text, found in (("longest batch", longest), ("slowest unmoved task", slower)):
                met = say_whether(median(found) <= MAX_PREPARED)
                yield [f"{where}: {text} ≤ {MAX_PREPARED:.2f} x steady", spread(found), met]


def group(results: Sequence[Result], *names: str) -> list[tuple[tuple[Any, ...], list[Any]]]:
    """What was measured, by these parts of the case, in the order of the results."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for result in results:
        key = tuple(result["case"][name] for name in names)
        found.setdefault(key, []).append(result["measured"])
    return list(found.items())


def steady(run: Mapping[str, Any], figure: str) -> float:
    return float(median(run["steady"][figure]))


def longest_steady(run: Mapping[str, Any]) -> float:
    """The longest batch without moves over the median one."""
    return float(max(run["steady"]["batch_s"]) / steady(run, "batch_s"))


def longest_over_steady(run: Mapping[str, Any], way: str) -> float:
    return float(max(run[way]["batch_s"]) / steady(run, "batch_s"))


def slowest_over_steady(run: Mapping[str, Any], way: str) -> float:
    """The slowest unmoved task of the migration over that of the median steady batch."""
    return float(max(run[way]["slowest_s"]) / steady(run, "slowest_s"))
