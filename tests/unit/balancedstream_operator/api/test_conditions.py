"""What to do about a condition is what docs/reference/conditions.md says, row by row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from balancedstream_operator.api.conditions import KINDS, NAMED

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reference" / "conditions.md"
VALUES = ROOT / "charts" / "balancedstream" / "values.yaml"

_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_ROW = re.compile(r"^\| (`.*?) \| (.*) \| (.*?) \|$", re.M)
_CONDITION = re.compile(r"`([A-Z][A-Za-z]+)` (True|False|Unknown)(?:, `([A-Z][A-Za-z]+)`)?$")


def read_rows() -> list[tuple[str, str, str, str]]:
    """Condition, state, reason, and what to do, of each row that names one of each."""
    rows = []
    for name, _, to_do in _ROW.findall(PAGE.read_text("utf-8")):
        found = _CONDITION.match(name)
        if found:
            kind, state, reason = found.groups(default="")
            plain = re.sub(r" \(\[how\]\([^)]*\)\)", "", to_do)
            rows.append((kind, state, reason, _LINK.sub(r"\1", plain).replace("`", "")))
    return rows


NOTHING = (
    "Nothing.",
    "As above.",
    "See MetricsAvailable.",
    "If it stays: see Unsplittable, or the",
)
"""Rows of conditions that pass by themselves, or whose cause is another one."""


@pytest.mark.parametrize(("kind", "state", "reason", "to_do"), read_rows())
def test_what_to_do_is_what_the_page_says(kind: str, state: str, reason: str, to_do: str) -> None:
    expected = "" if to_do.startswith(NOTHING) else to_do
    assert NAMED[kind].find_remedy(state, reason) == expected


def test_metrics_that_cannot_be_had_may_be_due_to_the_charts_network_policy() -> None:
    name = "networkPolicy"
    assert name in yaml.safe_load(VALUES.read_text("utf-8"))
    assert f"chart's {name} lets it reach the port" in NAMED["MetricsAvailable"].find_remedy(
        "False", "Unreachable"
    )


def test_the_page_has_such_rows() -> None:
    assert len(read_rows()) > 20


def test_the_page_has_a_row_for_each_remedy() -> None:
    shown = {(k, reason) for k, _, reason, to_do in read_rows() if not to_do.startswith(NOTHING)}
    missing = {(kind.name, reason) for kind in KINDS for reason in kind.remedies} - shown
    assert missing == {("FloorKnown", "")}, "its row names both reasons"
