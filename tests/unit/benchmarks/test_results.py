"""What the benchmarks wrote: old results are read, and the pages have their tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import summarize
from harness.results import RESULTS, read_results

PAGES = summarize.PAGES


def test_a_file_that_is_not_there_has_no_results(tmp_path: Path) -> None:
    assert read_results(tmp_path / "none.jsonl") == []


def test_fields_of_old_results_have_todays_names(tmp_path: Path) -> None:
    old = {"measured": {"load_s_per_move": 2.0, "back": {"load_s": [3.0]}}}
    new = {"measured": {"restore_s_per_move": 2.0, "back": {"restore_s": [3.0]}}}
    file = tmp_path / "results.jsonl"
    file.write_text(f"{json.dumps(old)}\n{json.dumps(new)}\n")
    assert read_results(file) == [new, new]


@pytest.mark.parametrize("name", summarize.TABLES)
def test_every_table_has_its_place_on_the_page(name: str) -> None:
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    assert pages.count(f"<!-- {name}: begin -->") == 1
    assert pages.count(f"<!-- {name}: end -->") == 1


def test_each_page_of_a_benchmark_has_the_table_of_its_name() -> None:
    for page in summarize.BENCHMARKS.glob("*.md"):
        has_table = f"<!-- {page.stem}: begin -->" in page.read_text("utf-8")
        assert has_table == (page.stem != "method"), page.name


def test_the_tables_of_the_pages_are_those_of_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = [tmp_path / page.name for page in PAGES]
    for page, copy in zip(PAGES, copies, strict=True):
        copy.write_text(page.read_text("utf-8"))
    monkeypatch.setattr(summarize, "PAGES", copies)
    monkeypatch.setattr(sys, "argv", ["summarize.py", "--results", str(RESULTS)])
    summarize.main()
    for page, copy in zip(PAGES, copies, strict=True):
        assert copy.read_text() == page.read_text("utf-8")
