"""What a person reads after a run: `report.json`, `report.html` and the record behind them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from balancedstream.errors import InvalidInputError
from balancedstream.record.history import History
from balancedstream.record.history_lines import write_history
from balancedstream.report.figures import RunSummary
from balancedstream.report.outcome import describe_outcome
from balancedstream.report.page import render_page, render_unbalanced_page
from balancedstream.report.summary import summarize

__all__ = [
    "RunSummary",
    "describe_outcome",
    "prepare_directory",
    "publish_report",
    "render_json",
    "render_live_page",
    "render_unbalanced_live_page",
    "summarize",
    "write_report",
]

REFRESH_S = 5
"""Some batches; to draw the page takes the driver a fraction of a second."""


def prepare_directory(directory: str | Path, option: str = "report") -> Path:
    """Makes sure, before the run starts, that a report can be written; makes a missing directory.

    Raises:
        InvalidInputError: the directory cannot be made or written to.
    """
    path = Path(directory)
    probe = path / ".writable"
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        msg = (
            f"{option}: {path} cannot be written to ({error.strerror}). No stream was started and "
            "no data touched. Name a directory that you may write to."
        )
        raise InvalidInputError(msg) from error
    return path


def publish_report(
    history: History, directory: Path, say: Callable[[str], None], notes: Sequence[str] = ()
) -> None:
    """Writes the report and says its outcome, or says why it could not be written."""
    try:
        summary = write_report(history, directory, notes)
    except OSError as error:
        say(f"the report could not be written to {directory}: {error.strerror}")
        return
    say(describe_outcome(summary))
    say(f"report: {directory / 'report.html'}")


def write_report(history: History, directory: str | Path, notes: Sequence[str] = ()) -> RunSummary:
    """Writes `report.json`, `report.html` and `history.jsonl`; each appears whole or not at all.

    Args:
        history: the record of the run; it may still grow meanwhile.
        directory: made if it is missing; files of an earlier report are replaced.
        notes: what a reader should know when comparing the figures, one sentence each.

    Returns:
        The figures, as in `report.json`.

    Raises:
        OSError: the directory cannot be written to.
    """
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    summary = summarize(history, notes)
    _write_whole(path / "report.json", [render_json(summary)])
    _write_whole(path / "report.html", [render_page(history, summary)])
    _write_whole(path / "history.jsonl", (f"{line}\n" for line in write_history(history)))
    return summary


def render_live_page(history: History, problems: Sequence[str] = ()) -> str:
    """The report of a run that goes on, as a page that a browser fetches again and again.

    Args:
        history: what happened so far.
        problems: what this Spark cannot do, one sentence each.
    """
    return render_page(history, summarize(history, problems), REFRESH_S)


def render_unbalanced_live_page(history: History, problems: Sequence[str]) -> str:
    """The page of a run in which nothing is measured, since this Spark does not allow it."""
    return render_unbalanced_page(history.run.app, problems, REFRESH_S)


def render_json(summary: RunSummary) -> str:
    """Writes the figures as strict JSON; a number that is not finite becomes null."""
    return json.dumps(_plain(summary), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _write_whole(path: Path, parts: Iterable[str]) -> None:
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8", errors="replace") as file:
        file.writelines(parts)
    os.replace(part, path)
