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
NEEDED = ("balancedstream", "prometheus_client", "py4j", "pyspark", "yaml")

ONLY_NEEDED = f"""
import sys

class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        known = sys.stdlib_module_names.union({NEEDED})
        if name.partition(".")[0] not in known and not name.startswith("_sysconfigdata_"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Finder)
"""


def run(code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def start(*options: str, before: str = "", version: str = __version__) -> str:
    """Runs it where it must give up; returns the line that it says."""
    code = before + START.read_text("utf-8")
    ended = run(code, *options, BALANCEDSTREAM_PLUGIN_VERSION=version)
    assert ended.returncode == 78, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"balancedstream: the agent's Python, {sys.executable}, ")
    assert RUNS_ON in line
    return line


def test_a_python_that_is_too_old_is_named() -> None:
    line = start(before="import sys; sys.version_info = (3, 8, 10)\n")
    assert "is version 3.8, which is too old" in line
    assert "Set spark.balancedstream.python" in line
    assert "or run the agent in a sidecar (spark.balancedstream.sidecar)" in line


def test_a_python_without_the_package_is_told_how_to_get_it() -> None:
    line = start("-I", "-S")
    assert "has no balancedstream" in line
    assert f"repository at version {__version__}: pip install ." in line


def test_a_package_of_another_version_than_the_plugin_is_refused() -> None:
    line = start(version="9.9.9")
    assert f"has balancedstream {__version__}, and the plugin is 9.9.9" in line
    assert "repository at version 9.9.9: pip install ." in line


@pytest.mark.parametrize("package", NEEDED[1:])
def test_a_package_that_is_missing_is_named(package: str) -> None:
    line = start(before=f"import sys; sys.modules[{package!r}] = None\n")
    assert "lacks a package (" in line
    assert package in line
    assert f"repository at version {__version__}: pip install '.[spark]'" in line


def test_nothing_else_is_needed_neither_numpy_nor_pandas_nor_arrow() -> None:
    for package in ("numpy", "pandas", "pyarrow"):
        assert package in run(ONLY_NEEDED + f"import {package}").stderr, "the finder hides it"
    ended = run(ONLY_NEEDED + "from balancedstream.launch.agent import main")
    assert (ended.returncode, ended.stderr) == (0, "")
