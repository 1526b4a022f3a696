"""Links of the documentation lead to a file and a heading; paths that it names exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from artifacts import make_links_absolute

from balancedstream.version import __version__

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/*/*.md", "charts/*/*.md", "tests/*/*.md")
    for path in ROOT.glob(pattern)
)

_FENCE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1`*~* *$", re.M | re.S)
_CODE = re.compile(r"`[^`\n]*`")
_PATH = re.compile(
    r"`((?:benchmarks|charts|crds|docker|docs|examples|operator|runtime|tests)/[a-z0-9_./-]+)`"
)
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)
_HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)? *$", re.M)


def find_broken(page: Path) -> Iterator[str]:
    """What a page links to and is not there."""
    prose = _CODE.sub("``", _FENCE.sub("", page.read_text("utf-8")))
    for link in _LINK.findall(prose):
        if _ELSEWHERE.match(link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            yield f"{page.name}: {link}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in find_anchors(target):
            yield f"{page.name}: {link}: {target.name} has no such heading"


def find_anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the git host makes them."""
    anchors: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text("utf-8"))):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        unique, number = slug, 0
        while unique in anchors:
            number += 1
            unique = f"{slug}-{number}"
        anchors.add(unique)
    return anchors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_and_anchor_resolves(page: Path) -> None:
    assert list(find_broken(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    paths = _PATH.findall(_FENCE.sub("", page.read_text("utf-8")))
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_page_of_the_docs_is_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {
        (index.parent / link.partition("#")[0]).resolve()
        for link in _LINK.findall(index.read_text("utf-8"))
    }
    assert {page for page in (ROOT / "docs").rglob("*.md") if page != index} <= linked


def test_a_release_makes_the_links_absolute_for_an_index_that_shows_the_first_page() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    before, after = (
        _LINK.findall(_FENCE.sub("", page)) for page in (text, make_links_absolute(text))
    )
    host = "https://github.com/balancedstream/balancedstream"
    assert after == [
        link
        if _ELSEWHERE.match(link)
        else f"{host}/{'raw' if link.endswith('.png') else 'blob'}/v{__version__}/{link}"
        for link in before
    ]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One page\n\n## Two `words`, twice\n\n## Two words twice\n\n"
        "[good](#one-page) [good](#two-words-twice-1) [good](page.md#two-words-twice) "
        "[elsewhere](https://example.com/nowhere) `[code](nowhere.md)`\n"
        "![lost](lost.png) [lost](lost.md#one-page) [no heading](#three-words) "
        "[no heading](page.md#two)\n\n"
        "```\n# Three words\n[in a listing](nowhere.md)\n```\n",
        "utf-8",
    )
    assert list(find_broken(page)) == [
        "page.md: lost.png: there is no such file",
        "page.md: lost.md#one-page: there is no such file",
        "page.md: #three-words: page.md has no such heading",
        "page.md: page.md#two: page.md has no such heading",
    ]
