"""Finds the files of an event log: Spark writes one, or a folder of them that it rolls over."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from balancedstream.errors import InvalidInputError

RUNNING = ".inprogress"
"""Ends the name of the log of an application that has not ended."""

_COMPACT = ".compact"

_PART = re.compile(r"events_(\d{1,9})_.*")
"""`events_<number>_<application>[.<codec>][.compact]`, see Spark's `RollingEventLogFilesWriter`."""


@dataclass(frozen=True, slots=True)
class EventLog:
    """The event log of one application.

    Attributes:
        path: as the user named it.
        parts: its files, oldest first.
        running: whether the application had not ended, by the names of its files.
        size: bytes of all files.
    """

    path: Path
    parts: tuple[Path, ...]
    running: bool
    size: int


def find_event_log(path: Path) -> EventLog:
    """The files of an event log.

    Of a folder in which Spark has compacted old files, the last compact file is the first that
    counts: it stands for all before it.

    Args:
        path: a file, or a folder `eventlog_v2_<application>`.

    Raises:
        InvalidInputError: there is nothing at the path that can be an event log.
    """
    try:
        if path.is_dir():
            return _find_rolled(path)
        return EventLog(path, (path,), path.name.endswith(RUNNING), path.stat().st_size)
    except (OSError, ValueError) as error:
        message = f"event log: {path} cannot be read ({error})"
        raise InvalidInputError(message) from error


def _find_rolled(folder: Path) -> EventLog:
    # A compact file that is not complete repeats what the files before it still say.
    unfinished = f"{_COMPACT}{RUNNING}"
    names = [f for f in folder.iterdir() if f.is_file() and not f.name.endswith(unfinished)]
    found = [(int(match[1]), file) for file in names if (match := _PART.fullmatch(file.name))]
    if not found:
        message = (
            f"event log: {folder} is a folder without events; name a file that Spark has written "
            "to spark.eventLog.dir, or a folder eventlog_v2_... in it"
        )
        raise InvalidInputError(message)
    parts = sorted(found, key=lambda part: (part[0], part[1].name.endswith(_COMPACT)))
    first = max((n for n, file in parts if file.name.endswith(_COMPACT)), default=0)
    kept = tuple(
        file
        for number, file in parts
        if number > first or (number == first and (not first or file.name.endswith(_COMPACT)))
    )
    running = any(f.name.startswith("appstatus_") and f.name.endswith(RUNNING) for f in names)
    return EventLog(folder, kept, running, sum(file.stat().st_size for file in kept))
