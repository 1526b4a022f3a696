"""Each benchmark starts from its file alone, without the paths that pytest adds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
MAIN = '__name__ == "__main__"'


def is_command(text: str) -> bool:
    """Whether a file is a command that needs nothing but what `make test` installs."""
    has_options = "ArgumentParser(" in text or "prepare(" in text
    return MAIN in text and has_options and "matplotlib" not in text


COMMANDS = sorted(
    path.relative_to(BENCHMARKS).as_posix()
    for path in BENCHMARKS.rglob("*.py")
    if is_command(path.read_text())
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_benchmark_says_what_it_does(command: str) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, BENCHMARKS / command, "--help"],
        capture_output=True, text=True, check=False, env=clean,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "usage: " in found.stdout
