"""`balancedstream estimate` as a person uses it."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from event_logs import CODECS, LOGS
from pages import ROOT, read_blocks, read_commands

from balancedstream.cli import main
from balancedstream.estimate import command

LOG = LOGS / "grown.zstd"


def test_a_log_gives_a_screen_of_text_with_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", str(LOG)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.startswith("grown job (app-")
    assert "\nquery clicks: " in said.out
    assert said.out.splitlines()[-1].startswith("worth it? yes: balanced, a batch of clicks would")
    assert len(said.out.splitlines()) < 25


def test_json_goes_to_standard_output_or_beside_the_text_to_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", str(LOG), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    file = tmp_path / "estimate.json"
    assert main(["estimate", str(LOG), "--json", str(file)]) == 0
    assert capsys.readouterr().out.startswith("grown job")
    assert json.loads(file.read_text()) == printed
    (application,) = printed["applications"]
    (query,) = application["queries"]
    assert query["measured_batches"] == sum(h["measured_batches"] for h in query["hours"])
    assert query["imbalance"] >= query["bound"] >= 1.0
    assert application["worth"]["balancing"] is True
    assert application["executors"]["used_hours"] > 0


def test_several_logs_are_estimated_one_by_one_and_a_bad_one_does_not_stop_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "notes.txt"
    bad.write_text("no event\n")
    assert main(["estimate", str(bad), *(str(LOGS / f"grown.{codec}") for codec in CODECS)]) == 2
    said = capsys.readouterr()
    assert said.out.count("worth it?") == len(CODECS)
    (line,) = said.err.splitlines()
    assert line.startswith(f"balancedstream: event log: {bad} is no event log of Spark")


def test_no_event_log_is_overwritten_with_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "app-1.zstd"
    shutil.copy(LOG, log)
    assert main(["estimate", str(LOG), "--json", str(log)]) == 2
    said = capsys.readouterr()
    assert "must end in .json" in said.err
    assert said.out == ""
    assert log.read_bytes() == LOG.read_bytes()


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", str(LOG), "--json", str(tmp_path / "none" / "x.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_terminal_sees_how_far_a_log_is_read_and_nothing_of_it_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(command, "_REFRESH_S", -1.0)
    assert main(["estimate", str(LOG)]) == 0
    shown = terminal.getvalue()
    assert shown.startswith("\r[")
    assert "100% of the event log" in shown
    assert shown.endswith("\r\x1b[K")


def test_the_screen_on_the_page_is_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [
        command
        for block in read_blocks(ROOT / "docs" / "estimate.md")
        if block.is_shell
        for command in read_commands(block.text)
        if command.words[:2] == ("balancedstream", "estimate")
    ]
    (shown,) = typed
    monkeypatch.chdir(ROOT)
    assert main(list(shown.words[1:])) == 0
    assert capsys.readouterr().out.strip() == shown.output.strip()


def test_no_package_of_an_extra_is_needed() -> None:
    log = LOGS / "grown.zstd"
    extras = ("pyspark", "py4j", "numpy", "pandas", "pyarrow", "rich")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({extras!r})); "
        f"from balancedstream.cli import main; sys.exit(main(['estimate', {str(log)!r}]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "worth it?" in ended.stdout
