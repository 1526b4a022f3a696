"""The tables of what each version of Spark has say what the code goes by."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from balancedstream.engine.traits import (
    COMMIT_IDS_SINCE,
    FEATURES,
    LOADING_AHEAD_SINCE,
    REPARTITION_SINCE,
    RESTORE_TIMES_SINCE,
    Version,
    read_version,
)
from balancedstream.version import TESTED_SPARK

ROOT = Path(__file__).parents[3]
SINCE = {
    "fenced off": COMMIT_IDS_SINCE,
    "told apart": COMMIT_IDS_SINCE,
    "loaded ahead": LOADING_AHEAD_SINCE,
    "took to load": RESTORE_TIMES_SINCE,
    "`balancedstream repartition`": REPARTITION_SINCE,
    "`shuffle`": FEATURES["shuffle"][0],
    "`balanced(...)`": FEATURES["balanced"][0],
}
"""A part of a row's first cell, to the first version that has it."""


def read_table(page: str) -> dict[str, dict[Version, str]]:
    """The cells of the first table whose columns are versions, by row and version."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("| | 3.5 |"))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    versions = [cell.split(", ") for cell in rows[0][1:]]
    return {
        name: {
            read_version(version): cell
            for of_column, cell in zip(versions, cells, strict=True)
            for version in of_column
        }
        for name, *cells in rows[2:]
    }


@pytest.mark.parametrize("page", ["README.md", "docs/spark-versions.md"])
def test_a_cell_says_yes_from_the_first_version_on_that_has_a_feature(page: str) -> None:
    shown = 0
    for name, cells in read_table(page).items():
        assert [*cells] == [read_version(version) for version in TESTED_SPARK]
        for words, since in SINCE.items():
            if words in name:
                shown += 1
                assert {v for v, cell in cells.items() if cell == "yes"} == {
                    version for version in cells if version >= since
                }, name
    assert shown >= 4


def test_a_cell_that_names_a_version_names_the_first_that_says_yes() -> None:
    for name, cells in read_table("docs/spark-versions.md").items():
        first = min(version for version, cell in cells.items() if cell == "yes")
        named = {
            read_version(v) for cell in cells.values() for v in re.findall(r"Spark (\S+)", cell)
        }
        assert named <= {first}, name
