"""The version stands in one file; everything that repeats it says the same."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path

import yaml
from repeat_version import PLACES, find_outdated

from balancedstream.version import __version__

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "balancedstream"
CHANGELOG = ROOT / "CHANGELOG.md"
RELEASE = re.compile(r"^## \[?(\d+\.\d+\.\d+[^\]\s]*)", re.M)
IMAGE_TAG = re.compile(r"balancedstream-(?:operator|spark):([\w.-]*\w)")


def read(path: Path) -> str:
    return path.read_text("utf-8")


def test_the_package_takes_its_version_from_the_code() -> None:
    package = tomllib.loads(read(ROOT / "pyproject.toml"))
    assert "version" not in package["project"]
    assert package["project"]["dynamic"] == ["version"]
    assert package["tool"]["hatch"]["version"]["path"] == "runtime/balancedstream/version.py"


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load(read(CHART / "Chart.yaml"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_chart_pulls_the_image_of_its_own_version() -> None:
    assert yaml.safe_load(read(CHART / "values.yaml"))["image"]["tag"] == ""
    helpers = read(CHART / "templates" / "_helpers.tpl")
    assert "(default .Chart.AppVersion $image.tag)" in helpers
    assert "balancedstream-spark:{{ .Chart.AppVersion }}" in read(CHART / "templates" / "NOTES.txt")


def test_both_images_are_labelled_with_the_version() -> None:
    """Each stage that has labels takes the one value of the file."""
    dockerfile = read(ROOT / "Dockerfile")
    assert re.findall(r"^ARG VERSION=(\S+)$", dockerfile, re.M) == [__version__]
    for stage in re.split(r"^FROM ", dockerfile, flags=re.M):
        if "image.version=" in stage:
            assert re.search(r"^ARG VERSION$", stage, re.M)


def test_every_place_that_repeats_the_version_has_it() -> None:
    assert [path for path, _ in find_outdated()] == [], "run python release/repeat_version.py"


def test_no_place_of_the_version_is_gone() -> None:
    for before, patterns in PLACES:
        paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
        stated = re.compile(before + re.escape(__version__), re.M)
        assert any(stated.search(read(path)) for path in paths), before


def test_image_tags_in_docs_and_examples_are_of_this_version() -> None:
    paths = [
        ROOT / "Dockerfile",
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(path for path in (ROOT / "examples").rglob("*") if path.name == "Dockerfile"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "examples").rglob("*.sh"),
    ]
    tags = {tag for path in paths for tag in IMAGE_TAG.findall(read(path))}
    assert tags == {__version__}


def test_the_newest_release_of_the_changelog_is_this_version() -> None:
    releases = RELEASE.findall(read(CHANGELOG))
    assert releases, "the changelog has no release heading such as ## [0.1.0]"
    assert releases[0] == __version__


def test_every_release_of_the_changelog_has_a_day_and_a_link() -> None:
    changelog = read(CHANGELOG)
    days = re.findall(r"^## \[\d[^\]]*\] - (.+)$", changelog, re.M)
    assert len(days) == len(RELEASE.findall(changelog))
    assert sorted(map(date.fromisoformat, days), reverse=True) == [
        date.fromisoformat(day) for day in days
    ]
    for release in ("Unreleased", *RELEASE.findall(changelog)):
        assert re.search(rf"^\[{re.escape(release)}\]: https://", changelog, re.M), release
