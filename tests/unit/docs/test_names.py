"""Names that the pages give exist: fields, knobs, metrics, conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from page_commands import CRD
from pages import PAGES, ROOT, read_inline

from balancedstream.core.policy import knobs
from balancedstream.core.removed import REMOVED
from balancedstream.metrics.catalogue import METRICS
from balancedstream_operator.api.conditions import KINDS
from balancedstream_operator.api.schema import camel

SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
KNOBS = {knob.path for knob in knobs()}
REMOVED_KNOBS = {knob.path for knob in REMOVED}
"""Only the page of all knobs names them."""
REMOVED_FIELDS = {camel(path.partition(".")[2]) for path in REMOVED_KNOBS}
"""The same in a manifest; only its reference names them."""
SECTIONS = {path.partition(".")[0] for path in KNOBS}
FIELD = re.compile(r"(spec|status)((?:\.\w+(?:\[\])?)+)")
OF_OTHERS = re.compile(
    r"spec\.(applicationTolerations|deps|driver\.template|driverSpec|dynamicAllocation|executor)\b|.*\.py$"
)
"""Fields of SparkApplications, and files."""
ALSO = {
    *("balancedstream_route", "balancedstream_expires_ms"),  # columns
    "balancedstream_batch_duration_seconds",  # the histogram
}


def has_field(path: str, schema: Mapping[str, Any]) -> bool:
    """Whether a schema has a field; what is free in it has all."""
    for name in path.replace("[]", "").strip(".").split("."):
        while schema.get("type") == "array":
            schema = schema["items"]
        if name in schema.get("properties", {}):
            schema = schema["properties"][name]
        else:
            return "properties" not in schema and schema.get("type") == "object"
    return True


def find_lost_names(page: Path) -> Iterator[str]:
    """Names on a page that nothing has."""
    for code in read_inline(page):
        field = FIELD.fullmatch(code)
        if field and not OF_OTHERS.match(code) and not has_field(field[2], SCHEMA[field[1]]):
            yield f"`{code}`: a BalancedStream has no such field"
        _, of_section, last = code.rpartition(".")
        if of_section and last in REMOVED_FIELDS and page.parent.name != "reference":
            yield f"`{code}`: it has no effect any more"
        section, _, name = code.partition(".")
        is_knob = section in SECTIONS and re.fullmatch(r"[a-z]+(_[a-z]+)+", name)
        known = KNOBS | REMOVED_KNOBS if page.name == "policy.md" else KNOBS
        if is_knob and code not in known:
            yield f"`{code}`: there is no such knob"
        metric = re.fullmatch(r"balancedstream_[a-z_]+", code)
        if metric and not code.startswith("balancedstream_operator") and not is_metric(code):
            yield f"`{code}`: there is no such metric"


def is_metric(name: str) -> bool:
    """Whether a driver serves a metric, or it is a module or column of ours."""
    base = re.sub(r"_(bucket|sum|count|total|info)$", "", name)
    return bool({name, base} & METRICS.keys()) or name in ALSO


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_field_knob_and_metric_that_a_page_names_exists(page: Path) -> None:
    assert list(find_lost_names(page)) == []


def test_every_condition_of_its_page_exists_and_none_is_left_out() -> None:
    page = (ROOT / "docs" / "reference" / "conditions.md").read_text("utf-8")
    shown = set(re.findall(r"^\| `([A-Z]\w+)` ", page, re.M))
    conditions = {kind.name for kind in KINDS}
    assert shown <= conditions
    assert conditions - shown <= {"Ready", "Reconciling", "Stalled"}


def test_a_name_that_nothing_has_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`spec.executors.least`, `status.phases`, `balance.act_over`, `balancedstream_x`"
    )
    assert len(list(find_lost_names(page))) == 4
