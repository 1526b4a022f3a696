"""What is foretold from the log of a run without balancing comes true when it is balanced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from balancedstream.core.policy import Policy
from balancedstream.estimate.files import find_event_log
from balancedstream.estimate.reading import read_log

pytestmark = [pytest.mark.integration, pytest.mark.turn]


def read_durations(log: Path) -> dict[int, float]:
    """Batch to its seconds, as Spark wrote them."""
    found = {}
    for part in find_event_log(log).parts:
        for line in part.read_text().splitlines():
            event = json.loads(line)
            if event["Event"].endswith("QueryProgressEvent"):
                progress = event["progress"]
                found[progress["batchId"]] = progress["durationMs"]["triggerExecution"] / 1000
    return found


def cut_after(log: Path, batch: int, target: Path) -> Path:
    """The log as it was when a batch had ended."""
    lines = []
    for part in find_event_log(log).parts:
        for line in part.read_text().splitlines(keepends=True):
            lines.append(line)
            event = json.loads(line)
            ended = event["Event"].endswith("QueryProgressEvent")
            if ended and event["progress"]["batchId"] == batch:
                target.write_text("".join(lines))
                return target
    pytest.fail(f"batch {batch} has no end in the log")


def test_what_is_foretold_of_a_job_on_one_of_two_executors_comes_true(tmp_path: Path) -> None:
    app = Path(__file__).with_name("logged_app.py")
    settings = "--conf spark.eventLog.compress=false pyspark-shell"
    ended = subprocess.run(
        [sys.executable, str(app), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_SUBMIT_ARGS": settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    ran = json.loads(ended.stdout.splitlines()[-1])
    (log,) = (p for p in tmp_path.iterdir() if ran["application"] in p.name)
    duration_s = read_durations(log)

    before = cut_after(log, ran["uneven"][-1], tmp_path / "before")
    spread = read_log(find_event_log(before), Policy()).application.queries["logged"].spread
    was_s = fmean(duration_s[batch] for batch in ran["uneven"])
    is_s = fmean(duration_s[batch] for batch in ran["even"][1:])
    # On the batches before, the state was on both executors: nothing is saved there.
    saved_s = (spread.duration_s - spread.balanced_s) / len(ran["uneven"])
    foretold_s = was_s - saved_s
    print(
        f"a batch took {was_s:.2f} s on one executor and {is_s:.2f} s on two; foretold were "
        f"{foretold_s:.2f} s, the error is {foretold_s / is_s - 1.0:+.0%}"
    )
    assert spread.imbalance is not None
    assert spread.imbalance > 1.2
    assert foretold_s < 0.95 * was_s
    assert is_s < was_s
