"""Keys with timers change hands in every time zone, unless Spark confuses them with others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S
from processes import SETTINGS, write_submit_arguments

pytestmark = [pytest.mark.integration, pytest.mark.turn]

FILES = 6
HOUR_US = 3600 * 1_000_000
BACK_US = {
    "Europe/Berlin": 1_729_990_800 * 1_000_000,
    "America/New_York": 1_730_613_600 * 1_000_000,
}
"""When clocks were set back by an hour."""


@pytest.mark.parametrize(
    ("zone", "session", "log_format"),
    [("Europe/Berlin", "Europe/Berlin", "1"), ("America/New_York", "UTC", "2")],
    ids=["in the zone of the session, too", "in the zone of the machine"],
)
def test_a_key_is_handed_over_after_its_timers_with_its_own_state(
    tmp_path: Path, zone: str, session: str, log_format: str
) -> None:
    twice = [BACK_US[zone] - HOUR_US // 2, BACK_US[zone] + HOUR_US // 2]
    once = [BACK_US[zone] - 2 * HOUR_US, BACK_US[zone] + 2 * HOUR_US, 0, -(10**16) + 1]
    settings = {
        **SETTINGS,
        "spark.sql.session.timeZone": session,
        "spark.sql.streaming.offsetLog.formatVersion": log_format,
    }
    command = [sys.executable, str(Path(__file__).parent / "zones_app.py"), str(tmp_path)]
    ended = subprocess.run(
        [*command, *map(str, (FILES, *twice, *once))],
        env={
            **os.environ,
            "TZ": zone,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": write_submit_arguments(settings),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    log = (tmp_path / "checkpoint" / "offsets" / "0").read_text()
    assert log.startswith(f"v{log_format}\n")
    found = json.loads(ended.stdout.splitlines()[-1])
    # In the first batch there is no watermark, and so no timer.
    moved = [(key, rows, timers) for key, route, rows, timers in found if route]
    assert sorted(moved) == [(key, FILES, FILES - 1) for key in sorted(once)]
    stayed = [(key, rows) for key, route, rows, _ in found if not route]
    assert {key for key, _ in stayed} == {*twice}
    # Spark itself may give rows or timers of the one to the other.
    assert sum(rows for _, rows in stayed) == len(twice) * FILES
