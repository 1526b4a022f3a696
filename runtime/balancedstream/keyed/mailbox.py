"""Messages of the driver to the control source: files in a folder on the driver's machine.

Each file is replaced as a whole, so a reader sees the old or the new content, never a part. Only
exports are added line by line, because there may be thousands in a batch; a part of a line does not
count. The files belong to one driver process and need not survive a crash of the machine, so they
are not flushed to disk: Spark waits while a task report is written.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from balancedstream.core.keys.epochs import Export, Wish, parse_wish
from balancedstream.keyed.objectstores import Access
from balancedstream.workers.files import draft
from balancedstream.workers.names import LOCATION_FILE

log = logging.getLogger(__name__)

_Read = TypeVar("_Read")

CLAIM_TIMEOUT_S = 5.0
"""Time for the process of a stopped or failed query to end."""


class Mailbox:
    """The messages in one folder, which exists."""

    def __init__(self, folder: Path) -> None:
        self._lock = folder / "lock"
        self._location = folder / LOCATION_FILE
        self._checkpoint = folder / "checkpoint"
        self._access = folder / "access.json"
        self._wish = folder / "wish.json"
        self._exports = folder / "exports.jsonl"
        self._read: dict[Path, tuple[tuple[int, int, int], Any]] = {}

    def is_claimed(self) -> bool:
        """Whether a process plans with this folder."""
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT)
        try:
            return not self._take(lock)
        finally:
            os.close(lock)

    def claim(self) -> bool:
        """Reserves this folder for this process as long as it runs.

        Returns:
            False if another process has it.
        """
        if self._lock in _claimed:
            return True
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT)
        deadline_s = time.monotonic() + CLAIM_TIMEOUT_S
        while not self._take(lock):
            if time.monotonic() > deadline_s:
                os.close(lock)
                return False
            time.sleep(0.05)
        _claimed[self._lock] = lock
        return True

    def _take(self, lock: int) -> bool:
        """Locks an open file; False if another process has the lock."""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # This file system has no locks, which a single query does not need.
            log.warning("%s cannot be locked: run each balanced(...) in one query", self._lock)
        return True

    def read_location(self) -> str | None:
        """Location of the checkpoint of the query that started last; None before that."""
        return self._read_once(self._location, str)

    def write_checkpoint(self, checkpoint: str) -> None:
        """Writes the location of the query's checkpoint."""
        _write_whole(self._checkpoint, checkpoint.encode())

    def read_checkpoint(self) -> str | None:
        """Location of the query's checkpoint; None before the first batch ended."""
        return self._read_once(self._checkpoint, str)

    def read_version(self) -> tuple[int, int, int] | None:
        """Changes each time the checkpoint's location is written; None before that."""
        return _find_version(self._checkpoint)

    def write_access(self, access: Access) -> None:
        """Writes how object stores are reached; the folder must be readable by this user alone."""
        _write_whole(self._access, json.dumps(sorted(access.settings)).encode())

    def read_access(self) -> Access:
        """How object stores are reached; by the defaults if nothing was written."""
        return self._read_once(self._access, _parse_access) or Access()

    def write_wish(self, wish: Wish) -> None:
        """Writes where keys must go."""
        _write_whole(self._wish, wish.to_json().encode())

    def read_wish(self) -> Wish | None:
        """Where keys must go; None if nothing was written yet."""
        return self._read_once(self._wish, parse_wish)

    def write_exports(self, exports: tuple[Export, ...]) -> None:
        """Replaces the exports of successful tasks."""
        _write_whole(self._exports, b"".join(map(_format_export, exports)))

    def add_export(self, export: Export) -> None:
        """Adds the export of a task to those that were written last."""
        _append(self._exports, _format_export(export))

    def withdraw_export(self, partition: int) -> None:
        """Takes the export of a partition back."""
        _append(self._exports, f"{json.dumps([partition])}\n".encode())

    def discard_exports(self) -> None:
        """Takes all exports back, also where nothing can be written any more."""
        self._exports.unlink(missing_ok=True)

    def read_exports(self) -> tuple[Export, ...]:
        """The exports that were written last; none at first."""
        return self._read_once(self._exports, _parse_exports) or ()

    def _read_once(self, path: Path, parse: Callable[[str], _Read]) -> _Read | None:
        """The parsed content of a file, read again only after a change; None without the file."""
        version = _find_version(path)
        if version is None:
            return None
        if path not in self._read or self._read[path][0] != version:
            self._read[path] = version, parse(path.read_text("utf-8"))
        read: _Read = self._read[path][1]
        return read


# Open until the process ends. A reader is pickled for tasks, so it cannot have open files.
_claimed: dict[Path, int] = {}


def _write_whole(path: Path, content: bytes) -> None:
    with draft(path.parent, content) as file:
        # A file gets the time of the kernel's last tick and may get the inode number of a deleted
        # file, so two files written within a few milliseconds could look alike.
        now_ns = time.time_ns()
        os.utime(file, ns=(now_ns, now_ns))
        file.replace(path)


def _find_version(path: Path) -> tuple[int, int, int] | None:
    """A value that changes when a file is replaced or grows; None without the file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _append(path: Path, line: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        if file.write(line) < len(line):
            message = f"{path}: no room for a line"
            raise OSError(errno.ENOSPC, message)


def _format_export(export: Export) -> bytes:
    row = export.batch, export.partition, export.file, dict(export.pieces)
    return f"{json.dumps(row)}\n".encode()


def _parse_access(text: str) -> Access:
    return Access(frozenset((name, value) for name, value in json.loads(text)))


def _parse_exports(text: str) -> tuple[Export, ...]:
    """The last word on each partition: its export, or its number alone if it was withdrawn.

    None of them counts if there is a line that nobody wrote as a whole: it may withdraw another.
    """
    exports: dict[int, Export] = {}
    complete, _, _ = text.rpartition("\n")
    try:
        told = [json.loads(line) for line in complete.splitlines()]
    except ValueError:
        return ()
    for each in told:
        match each:
            case [batch, partition, file, pieces]:
                places = {key: (offset, size) for key, (offset, size) in pieces.items()}
                exports[partition] = Export(batch, partition, file, places)
            case [partition]:
                exports.pop(partition, None)
    return tuple(exports.values())
