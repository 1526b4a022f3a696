"""How the driver speaks to the control source: files in a folder on the driver's machine.

Each is replaced as a whole, so whoever reads sees one state or the next, never half of one. They
are of one driver process, so nothing has to outlast the machine: Spark waits while a task's report
is written.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from balancedstream.core.epochs import Export, Wish, parse_wish
from balancedstream.workers.files import draft
from balancedstream.workers.names import LOCATION_FILE

log = logging.getLogger(__name__)

CLAIM_TIMEOUT_S = 5.0
"""The process of a query that was stopped or failed ends soon after it."""


class Mailbox:
    """The folder.

    Args:
        folder: exists.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = folder / "lock"
        self._location = folder / LOCATION_FILE
        self._checkpoint = folder / "checkpoint"
        self._wish = folder / "wish.json"
        self._exports = folder / "exports.json"
        self._read: dict[Path, tuple[tuple[int, int], Any]] = {}

    def is_claimed(self) -> bool:
        """Whether a process plans by this folder."""
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT)
        try:
            return not self._take(lock)
        finally:
            os.close(lock)

    def claim(self) -> bool:
        """Have no other process plan by this folder as long as this one runs.

        Returns:
            False where another one goes on.
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
        """Lock an open descriptor; False where another process has the lock."""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # This file system knows no locks, and nobody needs one who runs a single query.
            log.warning("%s cannot be locked: run each balanced(...) in one query", self._lock)
        return True

    def read_location(self) -> str | None:
        """Where the checkpoint of the query is that started last; None before."""
        found: str | None = self._read_once(self._location, str)
        return found

    def write_checkpoint(self, checkpoint: str) -> None:
        """Where the query's checkpoint is."""
        _write_whole(self._checkpoint, checkpoint.encode())

    def read_checkpoint(self) -> str | None:
        """None while it is unknown: no batch has run yet."""
        found: str | None = self._read_once(self._checkpoint, str)
        return found

    def read_version(self) -> tuple[int, int] | None:
        """Changes whenever the checkpoint is told anew; None while it is unknown."""
        return _find_version(self._checkpoint)

    def write_wish(self, wish: Wish) -> None:
        """Where keys shall be."""
        _write_whole(self._wish, wish.to_json().encode())

    def read_wish(self) -> Wish | None:
        """None while nobody said."""
        found: Wish | None = self._read_once(self._wish, parse_wish)
        return found

    def write_exports(self, exports: tuple[Export, ...]) -> None:
        """What successful tasks wrote down."""
        rows = [(e.batch, e.partition, e.file, dict(e.pieces)) for e in exports]
        _write_whole(self._exports, json.dumps(rows).encode())

    def read_exports(self) -> tuple[Export, ...]:
        """What was written last; nothing at first."""
        found: tuple[Export, ...] | None = self._read_once(self._exports, _parse_exports)
        return found or ()

    def _read_once(self, path: Path, parse: Callable[[str], Any]) -> Any:
        """What a file holds, parsed once for as long as nobody replaces it; None without one."""
        version = _find_version(path)
        if version is None:
            return None
        if path not in self._read or self._read[path][0] != version:
            self._read[path] = version, parse(path.read_text("utf-8"))
        return self._read[path][1]


# Descriptors, held until the process ends: a reader, which travels to tasks, could not hold them.
_claimed: dict[Path, int] = {}


def _write_whole(path: Path, content: bytes) -> None:
    with draft(path.parent, content) as file:
        # A file gets the time of the kernel's last tick and may get the inode number of a deleted
        # file, so two files written within a few milliseconds could look alike.
        now_ns = time.time_ns()
        os.utime(file, ns=(now_ns, now_ns))
        file.replace(path)


def _find_version(path: Path) -> tuple[int, int] | None:
    """What is another one once a file was replaced; None without one."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _parse_exports(text: str) -> tuple[Export, ...]:
    return tuple(
        Export(batch, partition, file, {key: (o, n) for key, (o, n) in pieces.items()})
        for batch, partition, file, pieces in json.loads(text)
    )
