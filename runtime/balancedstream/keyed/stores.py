"""The storage of a checkpoint: one port, and the folder of a mounted file system behind it.

Object stores are in `objectstores`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from balancedstream.workers.files import draft


class Upload(Protocol):
    """A file that is being written, piece by piece."""

    def tell(self) -> int:
        """The number of bytes so far."""

    def write(self, content: bytes) -> None:
        """Appends to it."""

    def close(self) -> str:
        """Ends it; the name of the file that has all of its content on storage by then."""


Naming = Callable[[], str]
"""Gives a file a name that no other has: a new one each time that a store is asked."""


class Store(Protocol):
    """The files of one checkpoint, each named by its path from there. A file never changes.

    Every method raises OSError if the storage fails, and FileNotFoundError only if it answers that
    there is no such file.
    """

    def locate(self, file: str) -> str:
        """The file's whole name, for people."""

    def read(self, file: str) -> bytes:
        """The content of a file."""

    def read_part(self, file: str, offset: int, size: int) -> bytes:
        """So many bytes of a file; fewer where it ends before."""

    def write(self, name: Naming, content: bytes) -> str:
        """A new file, which is on storage when this returns its name."""

    def create(self, name: Naming) -> Upload:
        """A new file that nobody reads before it is closed."""

    def list_files(self, folder: str) -> list[str]:
        """The names of the files in a folder; none if there is no such folder."""

    def remove(self, file: str) -> None:
        """Removes a file."""


class MountedStore:
    """A folder of a file system that driver and executors mount."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def locate(self, file: str) -> str:
        """As in `Store`."""
        return str(self._folder / file)

    def read(self, file: str) -> bytes:
        """As in `Store`."""
        return (self._folder / file).read_bytes()

    def read_part(self, file: str, offset: int, size: int) -> bytes:
        """As in `Store`."""
        with (self._folder / file).open("rb") as stream:
            stream.seek(offset)
            return stream.read(size)

    def write(self, name: Naming, content: bytes) -> str:
        """As in `Store`."""
        file = name()
        path = self._make_room(file)
        with draft(path.parent, content, durable=True) as complete:
            complete.replace(path)
        return file

    def create(self, name: Naming) -> Upload:
        """As in `Store`."""
        file = name()
        return _DurableFile(file, self._make_room(file).open("xb"))

    def list_files(self, folder: str) -> list[str]:
        """As in `Store`."""
        path = self._folder / folder
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_file()]
        return []

    def remove(self, file: str) -> None:
        """As in `Store`."""
        (self._folder / file).unlink()

    def _make_room(self, file: str) -> Path:
        path = self._folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class _DurableFile:
    def __init__(self, file: str, stream: BinaryIO) -> None:
        self._file = file
        self._stream = stream

    def tell(self) -> int:
        return self._stream.tell()

    def write(self, content: bytes) -> None:
        self._stream.write(content)

    def close(self) -> str:
        with self._stream:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        return self._file
