"""What `balancedstream estimate` does."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from balancedstream.core.policy import Policy
from balancedstream.errors import BalancedStreamError, InvalidInputError
from balancedstream.estimate.document import to_json
from balancedstream.estimate.files import EventLog, find_event_log
from balancedstream.estimate.reading import Finding, read_log
from balancedstream.estimate.text import describe

STANDARD_OUTPUT = Path("-")

_BAR_WIDTH = 30
_REFRESH_S = 0.2


def estimate(
    paths: Sequence[Path], json_file: Path | None, say: Callable[[str], None], policy: Policy
) -> bool:
    """Prints the estimate of each log; whether all of them could be read.

    Args:
        paths: of event logs.
        json_file: where JSON goes, `STANDARD_OUTPUT` instead of the text; None for no JSON.
        say: tells a person what is wrong with a log.
        policy: by which balancing and scaling would have decided.

    Raises:
        InvalidInputError: the file for the JSON cannot be written.
    """
    if json_file not in {None, STANDARD_OUTPUT} and json_file.suffix != ".json":
        message = f"json: {json_file} must end in .json, so that no event log is overwritten"
        raise InvalidInputError(message)
    # What a source's kind cannot read, it logs with names of the event log, as they are.
    logging.getLogger("balancedstream").addHandler(logging.NullHandler())
    findings: list[Finding] = []
    for path in paths:
        try:
            finding = _read(path, policy)
        except BalancedStreamError as error:
            say(str(error))
            continue
        if json_file != STANDARD_OUTPUT:
            print(("\n" if findings else "") + describe(finding))
        findings.append(finding)
    if json_file is not None and findings:
        _write(json_file, to_json(findings))
    return len(findings) == len(paths)


def _read(path: Path, policy: Policy) -> Finding:
    log = find_event_log(path)
    bar = _Bar(log)
    try:
        return read_log(log, policy, bar.show)
    finally:
        bar.clear()


def _write(file: Path, text: str) -> None:
    if file == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    try:
        file.write_text(text, "utf-8")
    except (OSError, ValueError) as error:
        message = f"json: {file} cannot be written ({error})"
        raise InvalidInputError(message) from error


class _Bar:
    """How far a log is read, on standard error if that is a terminal."""

    def __init__(self, log: EventLog) -> None:
        self._size = max(1, log.size)
        self._next_s = time.monotonic() + _REFRESH_S
        self._shown = False

    def show(self, at: int) -> None:
        """So many bytes are read."""
        now_s = time.monotonic()
        if now_s < self._next_s or sys.stderr is None or not sys.stderr.isatty():
            return
        self._next_s, self._shown = now_s + _REFRESH_S, True
        part = min(1.0, at / self._size)
        full = int(part * _BAR_WIDTH)
        self._write(f"\r[{'#' * full}{'.' * (_BAR_WIDTH - full)}] {part:4.0%} of the event log")

    def clear(self) -> None:
        """Nothing stays of it."""
        if self._shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()
