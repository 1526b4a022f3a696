"""The plugin without the packages that it needs, which is how a bare installation has it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
for hidden in {hidden!r}:
    sys.modules[hidden] = None
from balancedstream_operator.kubectl import run
sys.argv[1:] = ["--help"]
run()
"""


def start(*hidden: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM.format(hidden=hidden)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("hidden", ["kubernetes", "urllib3", "yaml"])
def test_a_package_that_is_missing_is_one_sentence(hidden: str) -> None:
    found = start(hidden)
    assert found.returncode == 2
    missing = f"error: kubectl bst needs {hidden}, which is not installed. Install it, "
    assert found.stderr.startswith(missing)
    assert found.stderr.endswith("pip install '.[plugin]'\n")
    assert found.stderr.count("\n") == 1


def test_with_all_packages_the_program_runs() -> None:
    found = start()
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("usage: kubectl bst")
