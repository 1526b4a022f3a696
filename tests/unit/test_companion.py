"""What a failed script leaves for the stream's condition."""

from __future__ import annotations

from pathlib import Path

import pytest

from balancedstream import companion


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
