"""Reads the results of benchmarks; nothing of Spark is imported here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"

RENAMED = {"load_s": "restore_s", "load_s_per_move": "restore_s_per_move"}
"""Fields that results of before 2026-11-25 have by another name; no other field has these names."""

Case = Mapping[str, str | int | float]


def read_results(file: Path) -> list[dict[str, Any]]:
    """The results in a file, oldest first, with today's names; none where there is no file."""
    if not file.exists():
        return []
    return [parse_result(line) for line in file.read_text().splitlines()]


def parse_result(line: str) -> dict[str, Any]:
    """One result.

    >>> parse_result('{"measured": {"away": {"load_s": [0.1], "moved": [4]}}}')
    {'measured': {'away': {'restore_s': [0.1], 'moved': [4]}}}
    """

    def rename(fields: dict[str, Any]) -> dict[str, Any]:
        return {RENAMED.get(name, name): value for name, value in fields.items()}

    result: dict[str, Any] = json.loads(line, object_hook=rename)
    return result
