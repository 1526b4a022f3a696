"""What the wheel says of itself, and what its commands say where packages are missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_both_packages_have_types() -> None:
    for package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert (ROOT / package / "py.typed").is_file()


def test_the_wheel_says_who_made_it_how_far_it_is_and_what_it_needs() -> None:
    project = PROJECT["project"]
    assert project["authors"]
    assert any(c.startswith("Development Status ::") for c in project["classifiers"])
    assert "Programming Language :: Java" in project["classifiers"]
    assert {"Homepage", "Source", "Issues", "Changelog", "Documentation"} <= {*project["urls"]}


@pytest.mark.parametrize("missing", ["kubernetes", "prometheus_api_client"])
def test_an_operator_without_its_packages_says_so_in_one_sentence(missing: str) -> None:
    module, _, function = PROJECT["project"]["scripts"]["balancedstream-operator"].partition(":")
    code = f"import sys; sys.modules[{missing!r}] = None; import {module}; {module}.{function}()"
    ended = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert f"the package {missing} is not installed" in line
    assert "pip install '.[operator]'" in line
