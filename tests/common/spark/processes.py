"""The processes of Spark that tests start, look for and kill."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CLASSES = Path(sys.prefix) / "spark.jsa"
"""Spark's classes, as `make` archives them (`docker/archive_classes.py`)."""

SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" + (
    f" -XX:SharedArchiveFile={CLASSES} -Xlog:cds=off" if CLASSES.exists() else ""
)
"""In their few minutes these processes would spend most of their time on loading and compiling."""

SETTINGS = {
    # Spark searches an interrupted batch's error by a regular expression that recurses.
    "spark.driver.extraJavaOptions": f"{SHORT_LIVED_JVM} -Xss8m",
    "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What every session of these tests has."""


def write_submit_arguments(settings: Mapping[str, str] = SETTINGS) -> str:
    """Settings as `PYSPARK_SUBMIT_ARGS` has them, for a script that runs in its own process."""
    options = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in settings.items()]
    return " ".join([*options, "pyspark-shell"])


def run_script(script: Path, folder: Path, timeout_s: float) -> Any:
    """Runs an application of the tests in a process of its own; returns the JSON that it prints."""
    ended = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": write_submit_arguments(),
        },
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def find_own_executor() -> int:
    """In a task: its executor, whose child is the daemon, whose child is the Python worker."""
    daemon = os.getppid()
    return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])


def find_executor_pids(application_id: str) -> dict[str, int]:
    """Executor id to process id, of one application's executors on this machine."""
    pids = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except OSError:
            continue
        if "--executor-id" in words and application_id in words:
            pids[words[words.index("--executor-id") + 1]] = int(path.parent.name)
    return pids
