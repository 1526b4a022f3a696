"""What a failed script leaves for the stream's condition, and signals at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from balancedstream.launch import attaching, companion
from balancedstream.launch.run_options import RunOptions


def test_last_words_are_the_error_and_its_causes_without_the_java_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "termination-log"
    monkeypatch.setattr(companion, "TERMINATION_LOG", log)
    stack = "".join(f"\tat org.apache.spark.Frame{n}\n" for n in range(500))
    message = f"calling start.\n: NoSuchBucket: a\n{stack}Caused by: NoSuchKey: b\n\t... 22 more"
    companion._leave_last_words(RuntimeError(message))
    assert log.read_text() == (
        "RuntimeError: calling start.\n: NoSuchBucket: a\nCaused by: NoSuchKey: b"
    )


def test_without_a_place_for_last_words_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companion, "TERMINATION_LOG", tmp_path / "nowhere" / "log")
    companion._leave_last_words(RuntimeError("x"))
    assert not list(tmp_path.iterdir())


def test_a_signal_that_was_ignored_is_ignored_until_spark_has_stopped() -> None:
    numbers = (signal.SIGINT, *companion.SIGNALS)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    signal.signal(signal.SIGTERM, lambda *_: None)  # of the script
    ended = companion.Companion(RunOptions("job.py"))
    ended._open_view = lambda _: None  # type: ignore[assignment, return-value]
    ended._reported.set()
    ended._ended.set()
    try:
        ended._end_with_python()
        found = [signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert found == [signal.SIG_IGN, signal.SIG_DFL]


PRINTING = """
import io, os, signal, sys, threading
from pathlib import Path
from rich.console import Console
from balancedstream.launch import attaching
from balancedstream.launch import companion
from balancedstream.live.streams import LinesAbove
from balancedstream.launch.run_options import RunOptions

class Terminal(io.StringIO):
    def write(self, text):
        signal.raise_signal(signal.SIGTERM)
        return super().write(text)

def end():
    ran._over.wait()
    console.print("the view closes")
    Path(sys.argv[1]).write_text("report")
    ran._ended.set()

companion.MAX_END_S = 5.0
console = Console(file=Terminal())
ran = companion.Companion(RunOptions("job.py"))
ran._open_view = lambda run: None
threading.Thread(target=end, daemon=True).start()
signal.signal(signal.SIGTERM, ran._end_by_signal)
LinesAbove(console, sys.stdout).write("a line\\n")
threading.Event().wait(60)
"""


def test_a_signal_that_interrupts_what_the_script_prints_costs_no_report(tmp_path: Path) -> None:
    report = tmp_path / "report"
    ended = subprocess.run([sys.executable, "-c", PRINTING, str(report)], check=False)
    assert ended.returncode == -signal.SIGTERM
    assert report.exists()


def test_a_script_gets_its_session_where_balancing_cannot_begin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attaching, "attach", mock.Mock(side_effect=RuntimeError("no thread")))
    ran = companion.Companion(RunOptions("job.py"))
    ran._begin_session(mock.MagicMock())
    ran._describe_missing_session()
    said = capsys.readouterr().err
    assert "balancing could not begin (RuntimeError('no thread')): the script runs on" in said
    assert "nothing to balance" not in said


def test_what_a_run_says_has_no_escape_sequences_of_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    companion.Companion(RunOptions("job\x1b[2J.py"))._describe_missing_session()
    said = capsys.readouterr().err
    assert "made no Spark session" in said
    assert "\x1b" not in said


def test_a_sitecustomize_of_the_users_finds_the_environment_as_it_was(tmp_path: Path) -> None:
    shown = "import os; print(sorted(os.environ))"
    (tmp_path / "sitecustomize.py").write_text(shown)
    (tmp_path / "job.py").write_text(shown)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    plain = [sys.executable, "job.py"]
    # The command is a Python itself, so it has the user's, too.
    run = [sys.executable, "-I", "-m", "balancedstream.cli", "run", "job.py"]
    outputs = [
        subprocess.check_output(command, cwd=tmp_path, env=environment, text=True).splitlines()
        for command in (plain, run)
    ]
    own, found = ([line.replace("'PYSPARK_PYTHON', ", "") for line in o] for o in outputs)
    assert len(own) == 2
    assert found == own
