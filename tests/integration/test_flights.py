"""The flights example: what its stream leaves equals a batch recomputation, also after a crash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-flights"
DAYS = "5"  # into a week-end: some stations fall silent
AS_A_WRAPPER_RUNS_IT = (
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)

pytestmark = pytest.mark.integration


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a fresh Python that finds its master where a user puts it."""
    conf = {
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    options = " ".join(f"--conf {name}={value}" for name, value in conf.items())
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {options} pyspark-shell",
    }
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def succeeds(*command: str | Path) -> str:
    finished = run(*command)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_results_equal_a_batch_recomputation_across_a_crash_between_sink_and_commit(
    tmp_path: Path,
) -> None:
    everything, so_far, output = tmp_path / "everything", tmp_path / "so-far", tmp_path / "output"
    app = EXAMPLE / "app.py"
    check = (EXAMPLE / "check.py", output, "--days", DAYS)
    succeeds(EXAMPLE / "replay.py", everything, "--files", "3", "--days", DAYS)
    so_far.mkdir()
    *first, last = sorted(everything.iterdir())
    for path in first:
        shutil.copy2(path, so_far)  # with its modification time, the source's order

    succeeds("-c", AS_A_WRAPPER_RUNS_IT, app, so_far, output)
    half_way = run(*check)
    assert half_way.returncode == 1
    assert half_way.stdout.startswith("DIFFERENT")

    for query in ("stations", "hours"):
        commits = sorted((output / "checkpoints" / query / "commits").glob("[0-9]*"), key=by_number)
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
        sorted((output / query).glob("batch-*"))[-1].write_text('{"half": "a batch"}\n')
    shutil.copy2(last, so_far)
    succeeds(app, so_far, output)
    assert succeeds(*check).startswith("EQUAL")

    a_batch = output / "hours" / "batch-000001.jsonl"
    a_batch.write_text(a_batch.read_text().replace('"flights":', '"flights":1', 1))
    changed = run(*check)
    assert changed.returncode == 1
    assert "1 are missing and 1 are unexpected" in changed.stdout


def by_number(path: Path) -> int:
    return int(path.name)
