"""The benchmarks run and their results become a page; what they measure is not looked at here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PAGE = "Before.\n<!-- placement: begin -->\nold\n<!-- placement: end -->\nAfter.\n"


def run(script: str, *arguments: str) -> None:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    subprocess.run(command, check=True, timeout=600)


def test_a_smoke_run_measures_both_arms_once_and_becomes_a_table(tmp_path: Path) -> None:
    run("placement.py", "--smoke", "--work", str(tmp_path))
    run("placement.py", "--smoke", "--work", str(tmp_path))

    lines = (tmp_path / "results" / "placement.jsonl").read_text().splitlines()
    pair, idle = [json.loads(line) for line in lines]
    settings, measured = pair["settings"], pair["measured"]
    batches = sum(settings[f"{part}_batches"] for part in ("uniform", "first", "second"))
    for arm in ("vanilla", "balanced"):
        assert len(measured[arm]["batch_s"]) == batches
        assert all(
            imbalance >= bound >= 1
            for imbalance, bound in zip(
                measured[arm]["imbalance"], measured[arm]["bound"], strict=True
            )
        )
    assert len(idle["measured"]["attached"]) == len(idle["measured"]["alone"])
    assert {"commit", "dirty"} == set(pair["code"])
    assert {"cores", "memory_gib", "java", "spark", "python"} == set(pair["machine"])

    page = tmp_path / "performance.md"
    page.write_text(PAGE)
    run("summarize.py", "--results", str(tmp_path / "results"), "--page", str(page))
    assert page.read_text().startswith("Before.\n<!-- placement: begin -->\n2 runs; ")
    assert page.read_text().endswith("<!-- placement: end -->\nAfter.\n")
    assert "old" not in page.read_text()
