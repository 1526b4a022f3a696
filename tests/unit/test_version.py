"""The version stands in one file; everything that repeats it says the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

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
    versions = re.findall(r"^ARG VERSION=(\S+)$", read(ROOT / "Dockerfile"), re.M)
    assert versions == [__version__] * 2


def test_image_tags_in_docs_and_examples_are_of_this_version() -> None:
    paths = [
        ROOT / "Dockerfile",
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(path for path in (ROOT / "examples").rglob("*") if path.name == "Dockerfile"),
        *(ROOT / "examples").rglob("*.md"),
    ]
    tags = {tag for path in paths for tag in IMAGE_TAG.findall(read(path))}
    assert tags == {__version__}


def test_the_newest_release_of_the_changelog_is_this_version() -> None:
    if not CHANGELOG.exists():
        pytest.skip("there is no changelog yet")
    releases = RELEASE.findall(read(CHANGELOG))
    assert releases, "the changelog has no release heading such as ## [0.1.0]"
    assert releases[0] == __version__
