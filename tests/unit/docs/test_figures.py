"""Every figure that was measured is generated, or says at which commit or on which day.

A paragraph that tells of a measurement, by one of the words below beside a number with a unit,
stands in a section that has a generated table, a commit, a date or a link to the measurement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import FENCE, PAGES, ROOT

MEASURED = re.compile(
    r"\b(took (?:\S+ ){0,4}?[\d.]+|took \[?half|(?:was|were|but) measured|(?:was|were) seen to"
    r"|came out|spared|in (?:one|a|the) run|median (?:was|batch took))\b"
)
FIGURE = re.compile(
    r"(?<![\w.])\d[\d,.]*(?:\s|\u00a0)?(?:s|ms|min|minutes|seconds|hours|MB|MiB|GiB|%|x|times)(?!\w)"
    r"|\b\d+\.\d+ \[|\b(?:half as long|two thirds)\b"
)
ORIGIN = re.compile(
    r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{7,12}\b|<!-- \w+: begin -->|\b20\d\d-\d\d-\d\d\b"
    r"|\]\([\w./-]*(?:performance|benchmarks/\w+|exactness|last-run)\.md[#)]|last-run\.md"
)
_HEADING = re.compile(r"(?m)^(?=#{1,6} )")


def read_sections(text: str) -> Iterator[str]:
    """The parts of a page between headings, without listings."""
    yield from _HEADING.split(FENCE.sub("", text))


def find_figures_without_origin(text: str) -> list[str]:
    """Paragraphs that tell of a measurement and not of which."""
    found = []
    for section in read_sections(text):
        if ORIGIN.search(section):
            continue
        for paragraph in re.split(r"\n\s*\n", section):
            joined = " ".join(paragraph.split())
            if MEASURED.search(joined) and FIGURE.search(joined):
                found.append(joined[:120])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_figure_that_was_measured_has_an_origin(page: Path) -> None:
    assert find_figures_without_origin(page.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A batch took 3.2 s.", 1),
        ("The median was 1.04 [1.02 to 1.10].", 1),
        ("A batch took half as long.", 1),
        ("A batch took 3.2 s, at commit 1bad376.", 0),
        ("A batch took 3.2 s: [the figures](docs/benchmarks/scale.md).", 0),
        ("# A\n\nA batch took 3.2 s.\n\n# B\n\nAt 1bad376.", 1),
        ("A task waits 3 s by default.", 0),
        ("```\ntook 3 s\n```\n", 0),
    ],
)
def test_a_figure_without_an_origin_is_found(text: str, found: int) -> None:
    assert len(find_figures_without_origin(text)) == found
