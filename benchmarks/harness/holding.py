"""The most that the executors of an application hold: memory, and files on their disks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.counting import find_executors, read_held_mib
from harness.polling import polling

POLL_S = 0.5


class Most:
    """The most of each figure since it was taken last.

    Args:
        application_id: of an application whose executors are processes of this machine.
        disk: the folder in which they keep their files.
    """

    def __init__(self, application_id: str, disk: Path) -> None:
        self._application_id = application_id
        self._disk = disk
        self._lock = threading.Lock()
        self._most = {"memory_mib": 0.0, "disk_mib": 0.0}

    def look(self) -> None:
        """Takes in what all executors hold now."""
        held = {
            "memory_mib": sum(map(_read_memory, find_executors(self._application_id))),
            "disk_mib": _sum_files(self._disk),
        }
        with self._lock:
            self._most = {name: max(held[name], most) for name, most in self._most.items()}

    def take(self) -> dict[str, float]:
        """The most of all executors together, each by itself, in MiB; the next begins anew."""
        self.look()
        with self._lock:
            taken, self._most = self._most, dict.fromkeys(self._most, 0.0)
        return {name: round(most, 1) for name, most in taken.items()}


@contextmanager
def holding(application_id: str, disk: Path) -> Iterator[Most]:
    """Looks twice a second as long as it is open."""
    most = Most(application_id, disk)
    with polling(most.look, POLL_S):
        yield most


def _read_memory(pid: int) -> float:
    with suppress(OSError):
        return read_held_mib(str(pid))
    return 0.0  # it ended meanwhile


def _sum_files(folder: Path) -> float:
    size_bytes = 0
    for place, _, names in os.walk(folder):
        for name in names:
            # RocksDB deletes files while they are counted.
            with suppress(OSError):
                size_bytes += Path(place, name).stat().st_size
    return size_bytes / 2**20
