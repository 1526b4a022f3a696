"""A script under `balancedstream run` sees what it sees under `python`; each runs both ways."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from processes import write_submit_arguments
from pyspark.find_spark_home import _find_spark_home
from script_cases import CASES, SPARK_CASES, STUCK, ScriptCase
from script_runs import LOCAL, PLAIN, RUN, Seen, run_case

pytestmark = pytest.mark.integration

NOTHING = "made no Spark session in its process: there was nothing to balance."


def same(seen: Seen, plain: Seen) -> None:
    assert seen.output == plain.output
    assert seen.errors == plain.errors
    assert seen.files == plain.files
    assert seen.status == plain.status


@pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "-") for case in CASES])
def test_a_script_without_spark_is_as_under_python(case: ScriptCase, tmp_path: Path) -> None:
    folder = tmp_path / "script"
    plain = run_case(case, PLAIN, folder)
    same(run_case(case, RUN, folder), plain)


def test_a_script_without_a_session_is_told_that_there_was_nothing_to_balance(
    tmp_path: Path,
) -> None:
    case = ScriptCase("none", "", "print('done')\n")
    seen = run_case(case, LOCAL, tmp_path / "script")
    assert seen.ours == f"balancedstream: job.py {NOTHING}\n"
    assert seen.status == 0


def test_a_script_with_standard_error_closed_has_nothing_of_ours_in_its_output(
    tmp_path: Path,
) -> None:
    case = ScriptCase("closed", "", "print('done')\n")
    command = ("/bin/sh", "-c", f'exec {shlex.join(RUN)} "$@" 2>&-', "sh")
    seen = run_case(case, command, tmp_path / "script")
    assert (seen.output, seen.status) == ("done\n", 0)


def test_what_ended_a_script_has_the_last_word(tmp_path: Path) -> None:
    seen = run_case(ScriptCase("raises", "", "1 / 0\n"), RUN, tmp_path / "script")
    assert seen.ours == ""
    assert seen.errors.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    "case", SPARK_CASES, ids=[case.name.replace(" ", "-") for case in SPARK_CASES]
)
def test_a_script_with_spark_is_as_under_python(case: ScriptCase, tmp_path: Path) -> None:
    case = with_submit_arguments(case)
    folder, reports = tmp_path / "script", (tmp_path / "report", tmp_path / "local")
    plain = run_case(case, PLAIN, folder)
    # The one without executors of its own needs a JVM only: two more of that are spared.
    commands = (RUN, LOCAL) if not case.sent else (LOCAL,)
    for command, report in zip(commands, reports, strict=False):
        seen = run_case(case, (*command, "--report", str(report)), folder)
        assert seen.output == plain.output, seen
        assert seen.files == plain.files
        assert seen.status == plain.status, seen
        assert (report / "report.html").exists()
        assert ("quota exceeded: 12 of 10" in seen.errors) == ("quota exceeded" in plain.errors)
        assert not list((Path(_find_spark_home()) / "work").glob(f"*-{seen.process}"))
    figures = json.loads((report / "report.json").read_text())
    assert figures["batches"] >= (7 if case.name == "sessions" else 1)


def test_an_impatient_sender_of_signals_gets_the_report_all_the_same(tmp_path: Path) -> None:
    case = ScriptCase("impatient", "", STUCK, sent=(signal.SIGINT, signal.SIGTERM, signal.SIGINT))
    command = (*LOCAL, "--report", str(tmp_path / "report"))
    seen = run_case(with_submit_arguments(case), command, tmp_path / "script")
    assert "query stuck still ran" in seen.ours
    assert seen.status in {-signal.SIGINT, -signal.SIGTERM}
    assert json.loads((tmp_path / "report" / "report.json").read_text())["batches"] >= 1


def with_submit_arguments(case: ScriptCase) -> ScriptCase:
    environment = {
        "PYSPARK_SUBMIT_ARGS": write_submit_arguments(),
        "PYSPARK_PYTHON": sys.executable,
    }
    return replace(case, environment=environment)
