"""What passed on which version of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from balancedstream.engine.traits import (
    FEATURES,
    LOADING_AHEAD_SINCE,
    OLDEST,
    Version,
    name_version,
    read_version,
)
from tables.markdown import Result, table

PLACED = "test_engine::test_every_partition_runs_where_it_was_placed_from_the_very_next_batch"
LEGEND = (
    "`yes (9)`: all of nine tests and [schedules](exactness.md) passed that show it; **7 of 9**:",
    "two did not; `not run`: none ran. `Spark 4.1`: the version that has what it takes.",
)


@dataclass(frozen=True)
class Feature:
    """A row of the table.

    Attributes:
        name: what it says.
        shown_by: how the names of the tests and kinds that show it begin.
        first: the first version of Spark that has what it takes.
    """

    name: str
    shown_by: tuple[str, ...]
    first: Version = OLDEST


def place(kinds: Sequence[str], schedules: Sequence[str]) -> tuple[str, ...]:
    """The tests of kinds of operators that are placed, and the schedules of the harness."""
    return (*(f"{PLACED}[{kind}]" for kind in kinds), *(f"exactness::{each}" for each in schedules))


ROWS = (
    Feature("`run`, report", ("test_cli::",)),
    Feature("metrics", ("test_exporter::",)),
    Feature("[attaching by settings](attach-by-settings.md)", ("test_plugin",)),
    Feature(
        "aggregation, `dropDuplicates` and stream-stream join are placed, and keep their results",
        place(
            ("aggregation", "dropDuplicates", "stream-stream join"),
            ("aggregation", "drop-duplicates", "join"),
        ),
    ),
    Feature(
        "several operators in a query, several queries",
        (
            *place(
                ("two operators in a row", "two operators side by side"),
                ("chained-aggregations", "union-of-stateful-branches", "several-queries"),
            ),
            "test_engine::test_two_queries_",
        ),
    ),
    Feature(
        "`applyInPandasWithState`",
        place(("applyInPandasWithState",), ("apply-in-pandas-with-state",)),
    ),
    Feature(
        "`transformWithStateInPandas`",
        place(("transformWithStateInPandas",), ("transform-with-state-pandas",)),
        (4, 0),
    ),
    Feature(
        "`transformWithState` with rows",
        place(("transformWithState",), ("transform-with-state-row", "processing-time-timers")),
        (4, 1),
    ),
    Feature(
        "executors are retired, and replaced when lost",
        ("test_engine::test_a_drained_", "test_engine::test_the_stream_goes_on_"),
    ),
    Feature(
        "load is measured, placements are planned and withdrawn",
        (
            "test_engine::test_records_",
            "test_engine::test_a_placement_",
            "test_engine_",
        ),
    ),
    Feature(
        "[state is loaded ahead of moves](how-it-works.md)",
        ("test_prepared_moves::", "test_hand_overs::"),
        LOADING_AHEAD_SINCE,
    ),
    Feature("[`shuffle`](shuffle.md)", ("test_shuffle",), FEATURES["shuffle"][0]),
    Feature(
        "[`balanced(...)`](key-assignment.md), `read_state`",
        ("test_keyed_", "test_aggregate::", "test_routes::", "exactness::reassigned-keys-"),
        FEATURES["balanced"][0],
    ),
    Feature("all that ran", ("",)),
)


def tabulate_compatibility(
    results: Sequence[Result], features: Sequence[Feature] = ROWS
) -> Iterator[str]:
    """A row for each feature, a column for each version."""
    newest: dict[str, dict[str, Mapping[str, str]]] = {}
    for result in results:
        case = result["case"]
        newest.setdefault(case["spark"], {})[case["part"]] = result["measured"]["outcomes"]
    versions = sorted(newest, key=read_version)
    outcomes = {
        version: {test: said for part in newest[version].values() for test, said in part.items()}
        for version in versions
    }
    yield from table(
        ["", *versions],
        [
            [each.name, *(_judge(each, version, outcomes[version]) for version in versions)]
            for each in features
        ],
    )
    yield from ("", *LEGEND)


def _judge(feature: Feature, version: str, outcomes: Mapping[str, str]) -> str:
    if read_version(version) < feature.first:
        return f"Spark {name_version(feature.first)}"
    ran = [
        said
        for test, said in outcomes.items()
        if test.startswith(feature.shown_by) and said != "skipped"
    ]
    passed = ran.count("passed")
    if not ran:
        return "not run"
    return f"yes ({passed})" if passed == len(ran) else f"**{passed} of {len(ran)}**"
