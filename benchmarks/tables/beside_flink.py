"""The same query beside Flink: what changes of the number of workers do, and skewed keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tables.markdown import Result, say_whether, spread, table

BALANCED = "BalancedStream"
RESTARTED = "Spark, restarted"
IN_PLACE = "Flink, in place"
SAVEPOINT = "Flink, by a savepoint"
ARMS = (BALANCED, RESTARTED, IN_PLACE, SAVEPOINT)
RESCALE, SKEW = "1 → 3 → 1", "skew"
DIRECTIONS = {"out": "1 → 3", "in": "3 → 1"}

CHANGE_COLUMNS: Mapping[str, tuple[str, int]] = {
    "no result for (s)": ("silent_s", 1),
    "usually (s)": ("usual_silent_s", 1),
    "longest latency (s)": ("longest_s", 1),
    "asked until done (s)": ("change_s", 1),
    "asked until caught up (s)": ("caught_up_s", 1),
    "rows/s after": ("rows_per_s", 0),
}
SKEW_COLUMNS: Mapping[str, tuple[str, int]] = {
    "rows/s": ("rows_per_s", 0),
    "median latency (s)": ("median_s", 1),
    "longest latency (s)": ("longest_s", 1),
    "no result for (s)": ("silent_s", 1),
}


def tabulate_beside_flink(results: Sequence[Result]) -> Iterator[str]:
    """Each change by itself, then skewed keys, then whether all rows were counted once."""
    yield from table(
        ["change", "arm", *CHANGE_COLUMNS],
        [
            [words, arm, *fill(CHANGE_COLUMNS, [run["measured"][way] for run in runs])]
            for way, words in DIRECTIONS.items()
            for arm in ARMS
            if (runs := choose(results, RESCALE, arm))
        ],
    )
    yield ""
    yield from table(
        ["skewed keys, three workers", *SKEW_COLUMNS],
        [
            [arm, *fill(SKEW_COLUMNS, [run["measured"]["skew"] for run in runs])]
            for arm in ARMS
            if (runs := choose(results, SKEW, arm))
        ],
    )
    yield ""
    yield from table(["target", "result", "met"], [judge_exactness(results)])


def choose(results: Sequence[Result], scenario: str, arm: str) -> list[Result]:
    """The runs of an arm in a scenario."""
    return [r for r in results if (r["case"]["scenario"], r["case"]["arm"]) == (scenario, arm)]


def fill(
    columns: Mapping[str, tuple[str, int]], measured: Sequence[Mapping[str, float]]
) -> list[str]:
    """The cells of a row."""
    return [
        spread((figures[name] for figures in measured), decimals)
        for name, decimals in columns.values()
    ]


def judge_exactness(results: Sequence[Result]) -> list[str]:
    """Whether each bidder's last result is that of a recomputation."""
    wrong = sum(result["measured"]["wrong_keys"] for result in results)
    lost, doubled = (sum(r["measured"][name] for r in results) for name in ("lost", "doubled"))
    return [
        "every key's result is that of a recomputation",
        f"{lost} rows lost, {doubled} doubled, {wrong} keys wrong in {len(results)} runs",
        say_whether(wrong == 0),
    ]
