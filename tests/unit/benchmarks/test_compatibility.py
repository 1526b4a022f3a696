"""The table of Spark's versions says what the newest run of the tests found, and nothing better."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "exactness"))

import kinds
import stateful_queries
from tables.compatibility import PLACED, ROWS, Feature, tabulate_compatibility

ROW = [Feature("a row", ("test_a::", "exactness::join"), (4, 0))]


def record(spark: str, part: str, **outcomes: str) -> dict[str, Any]:
    named = {name.replace("__", "::"): said for name, said in outcomes.items()}
    return {"case": {"spark": spark, "part": part}, "measured": {"outcomes": named}}


def tabulate(*results: dict[str, Any]) -> list[str]:
    """The cells of the row, those of the oldest version first."""
    (row,) = [line for line in tabulate_compatibility(results, ROW) if "| a row |" in line]
    return row.strip("| ").split(" | ")[1:]


def test_a_feature_is_there_where_all_tests_passed_that_show_it() -> None:
    tests = record("4.0.5", "tests", test_a__x="passed", test_b__y="failed", test_a__z="skipped")
    kinds = record("4.0.5", "exactness", exactness__join="passed")
    assert tabulate(tests, kinds) == ["yes (2)"]


def test_one_that_failed_is_counted_in_bold() -> None:
    tests = record("4.0.5", "tests", test_a__x="passed", test_a__y="failed")
    kinds = record("4.0.5", "exactness", exactness__join="unmoved")
    assert tabulate(tests, kinds) == ["**1 of 3**"]


def test_the_newest_run_of_a_part_counts() -> None:
    before = record("4.0.5", "tests", test_a__x="failed", test_a__gone="failed")
    assert tabulate(before, record("4.0.5", "tests", test_a__x="passed")) == ["yes (1)"]


def test_what_did_not_run_is_no_yes_and_what_a_version_lacks_names_the_one_that_has_it() -> None:
    newer = record("4.3.0", "tests", test_b__y="passed")
    older = record("3.5.9", "tests", test_a__x="skipped")
    assert tabulate(newer, older) == ["Spark 4.0", "not run"]


def test_each_row_is_shown_by_tests_and_kinds_that_there_are() -> None:
    known = [f"exactness::{kind}" for kind in kinds.KINDS]
    known += [f"{PLACED}[{kind.id}]" for kind in stateful_queries.KINDS]
    for path in (Path(__file__).parents[2] / "integration").glob("test_*.py"):
        names = re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.M)
        known += [f"{path.stem}::{name}" for name in names]
    for row in ROWS:
        for begin in row.shown_by:
            assert any(name.startswith(begin) for name in known), begin
