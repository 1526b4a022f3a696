"""The file of outcomes: one JSON line for each schedule that was run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
MEASURED_CODE = ("runtime/balancedstream", "benchmarks/exactness", "benchmarks/nexmark")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file; none where there is no such file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_outcome(path: Path, outcome: dict[str, Any]) -> None:
    """Appends a line to the file, and shows it."""
    line = json.dumps(outcome)
    with path.open("a") as out:
        out.write(line + "\n")
    print(line, flush=True)


def read_commit() -> str:
    """The commit that is run, marked as dirty where the code that matters here differs from it."""
    commit = _ask_git("rev-parse", "--short=12", "HEAD")
    changes = _ask_git("status", "--porcelain", "--", *MEASURED_CODE)
    return f"{commit}-dirty" if changes else commit


def _ask_git(*arguments: str) -> str:
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
