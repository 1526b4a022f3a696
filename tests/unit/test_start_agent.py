"""What the plugin hands to any Python: where it is of no use, one line says what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from balancedstream.version import __version__

START = Path(__file__).parents[2] / "spark-plugin/src/io/balancedstream/start_agent.py"
RUNS_ON = "The application runs on, not balanced."


def start(*options: str, before: str = "", version: str = __version__) -> str:
    """Runs it where it must give up; returns the line that it says."""
    ended = subprocess.run(
        [sys.executable, *options, "-c", before + START.read_text("utf-8")],
        env=os.environ | {"BALANCEDSTREAM_PLUGIN_VERSION": version},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 78, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"balancedstream: the agent's Python, {sys.executable}, ")
    assert RUNS_ON in line
    return line


def test_a_python_that_is_too_old_is_named() -> None:
    line = start(before="import sys; sys.version_info = (3, 8, 10)\n")
    assert "is version 3.8, which is too old" in line
    assert "Set spark.balancedstream.python" in line


def test_a_python_without_the_package_is_told_how_to_get_it() -> None:
    line = start("-I", "-S")
    assert "has no balancedstream" in line
    assert f"pip install balancedstream=={__version__}" in line


def test_a_package_of_another_version_than_the_plugin_is_refused() -> None:
    line = start(version="9.9.9")
    assert f"has balancedstream {__version__}, and the plugin is 9.9.9" in line
    assert "pip install balancedstream==9.9.9" in line


@pytest.mark.parametrize("package", ["prometheus_client", "py4j", "pyspark"])
def test_a_package_that_is_missing_is_named(package: str) -> None:
    line = start(before=f"import sys; sys.modules[{package!r}] = None\n")
    assert "lacks a package (" in line
    assert package in line
    assert f"pip install 'balancedstream[spark]=={__version__}'" in line
