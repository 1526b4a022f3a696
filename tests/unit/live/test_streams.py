from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from rich.console import Console
from view_records import RUN

from balancedstream.live.plain import PlainView
from balancedstream.live.streams import LinesAbove, open_view


def test_output_that_is_no_terminal_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = open_view(RUN)
    view.close()
    assert isinstance(view, PlainView)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "balancing jobs/flights.py" in captured.err


PROGRAM = """
import sys
from balancedstream.record.records import BatchRecord, OperatorBatchLoad, RunInfo
from balancedstream.live.streams import open_view

view = open_view(RunInfo("flights.py", 0.0, 2, "4.3.0", "3.11.7"))
for number in range(5):
    load = OperatorBatchLoad(0, "save", (1.0, 2.0), ("0", "1"), 1.33, 1.33)
    view.on_batch(BatchRecord("delays", number, float(number), 900, 10, None, 2, (load,)))
    print(f"printed by the job: {number}")
    print(f"warned by the job: {number}", file=sys.stderr)
if "close" in sys.argv:
    view.close()
    view.close()
    print(type(view).__name__)
"""


def run_on_terminal(
    *arguments: str,
    program: str = PROGRAM,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    terminal: str = "xterm",
) -> str:
    """Runs a program on a pseudo-terminal of 80 x 24 and returns all that it wrote there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=theirs,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs if stderr is None else stderr,
        env=os.environ
        | {
            "PYTHONPATH": str(Path(__file__).parents[3] / "runtime"),
            "PYTHONUTF8": "1",
            "TERM": terminal,
            "COLUMNS": "80",
            "LINES": "24",
        },
    )
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 65_536):
            written += chunk
    except OSError:  # Linux's way to say that the other side is closed
        pass
    os.close(ours)
    assert process.wait() == 0
    return written.decode()


def cursor_is_back(written: str) -> bool:
    return written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


def test_on_a_terminal_the_view_is_live_and_the_jobs_own_lines_stay_whole() -> None:
    written = run_on_terminal("close")
    for number in range(5):
        assert re.search(rf"printed by the job: {number}\r?\n", written)
        assert re.search(rf"warned by the job: {number}\r?\n", written)
    assert "delays, operator 0 save: load of 2 partitions in batch 4" in written
    assert written.rstrip().endswith("LiveView")
    assert cursor_is_back(written)


def test_a_job_that_ends_without_closing_its_view_gives_the_terminal_back() -> None:
    written = run_on_terminal()
    assert "load of 2 partitions in batch 4" in written
    assert cursor_is_back(written)


def test_output_that_the_user_sent_to_a_file_goes_there_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    with (tmp_path / "out").open("wb") as file:
        written = run_on_terminal("close", stdout=file)
    assert (tmp_path / "out").read_text().splitlines() == [
        *(f"printed by the job: {number}" for number in range(5)), "LiveView",
    ]  # fmt: skip
    assert "load of 2 partitions in batch 4" in written


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines() -> None:
    assert run_on_terminal("close", terminal="dumb").rstrip().endswith("PlainView")


JOB = """
import logging, os, subprocess, sys
from pathlib import Path
from balancedstream.live.streams import open_terminal
from balancedstream.record.records import BatchRecord, OperatorBatchLoad, RunInfo

logging.basicConfig(format="%(message)s")  # keeps the terminal's
with open_terminal(Path(sys.argv[1])) as open_view:
    kept = logging.StreamHandler()  # keeps the stream that there is now
    print("printed before the view")
    view = open_view(RunInfo("flights.py", 0.0, 2, "4.3.0", "3.11.7"))
    load = OperatorBatchLoad(0, "save", (1.0, 2.0), ("0", "1"), 1.33, 1.33)
    view.on_batch(BatchRecord("delays", 4, 4.0, 900, 10, None, 2, (load,)))
    os.write(2, b"raw error\\n")
    os.write(1, b"raw output\\n")
    subprocess.run(["sh", "-c", "echo child error >&2; echo child output"])
    print("printed to a buffer")
    print("warned", file=sys.stderr)
    logging.warning("logged")
    print("a line without an end", end="")
    if not os.fork():
        print("printed by a fork", flush=True)
        print("warned by a fork", file=sys.stderr, flush=True)
        os._exit(0)
    os.wait()
    if "fail" in sys.argv:
        raise SystemExit(0)
    view.close()
    print()
    print("printed after the view")
print("printed at the end")
os.write(2, b"error at the end\\n")
kept.handle(logging.makeLogRecord({"msg": "logged at the end"}))
"""
SHOWN = [
    "raw error", "child error", "warned by a fork", "logged at the end",
    "printed before the view", "raw output", "child output", "printed to a buffer", "warned",
    "logged", "printed by a fork", "a line without an end", "printed after the view",
    "printed at the end", "error at the end",
]  # fmt: skip


def test_what_goes_past_python_is_above_the_frame_while_the_view_has_the_terminal(
    tmp_path: Path,
) -> None:
    written = run_on_terminal(str(tmp_path / "spark.log"), program=JOB)
    for text in SHOWN:
        assert len(re.findall(rf"(?m)(?:^|\x1b\[[?0-9]*[A-Za-z]){text}\r?$", written)) == 1, text
    assert "load of 2 partitions in batch 4" in written
    assert cursor_is_back(written)


def test_a_job_that_fails_gives_the_terminal_and_its_streams_back(tmp_path: Path) -> None:
    written = run_on_terminal(str(tmp_path / "spark.log"), "fail", program=JOB)
    assert re.search(r"a line without an end\r?\n", written)
    assert "load of 2 partitions in batch 4" in written
    assert cursor_is_back(written)


def test_standard_error_that_the_user_sent_to_a_file_goes_there_and_not_to_the_log(
    tmp_path: Path,
) -> None:
    log = tmp_path / "spark.log"
    with (tmp_path / "err").open("wb") as file:
        written = run_on_terminal(str(log), program=JOB, stderr=file)
    errors = (tmp_path / "err").read_text().splitlines()
    assert errors == [
        "raw error", "child error", "warned", "logged", "warned by a fork", "error at the end",
        "logged at the end",
    ]  # fmt: skip
    assert not log.exists()
    assert "raw output" in written
    assert not any(error in written for error in errors)


def test_standard_output_that_the_user_sent_to_a_file_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with (tmp_path / "out").open("wb") as file:
        written = run_on_terminal(str(log), program=JOB, stdout=file)
    output = (tmp_path / "out").read_text()
    for text in ("raw output", "child output", "printed to a buffer", "printed by a fork"):
        assert text in output
    assert "output" not in written
    assert not log.exists()
    assert "raw error" in written
    assert re.search(r"warned\r?\n", written)


def test_while_spark_starts_the_terminal_says_so(tmp_path: Path) -> None:
    written = run_on_terminal(str(tmp_path / "spark.log"), program=JOB)
    assert "waiting for Spark" in written
    assert written.index("waiting for Spark") < written.index("BalancedStream\x1b[0m flights")


def test_a_line_above_the_frame_stays_one_line_and_cannot_move_the_cursor() -> None:
    file = io.StringIO()
    above = LinesAbove(Console(file=file, width=20), sys.__stdout__ or sys.stdout)
    path = "/a/path/that/is/longer/than/the/terminal/is/wide"
    above.write(f"see {path}")
    assert file.getvalue() == ""
    above.write("\r\n[bold]\x1b[2J\x1b[Hnot markup, not a command\n10 %\r20 %\r")
    above.flush()
    assert file.getvalue() == f"see {path}\n[bold]not markup, not a command\n20 %\n"
