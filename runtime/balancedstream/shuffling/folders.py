"""Stores versions of the learned costs, and pins each micro-batch to one of them.

With any routing, each row comes out right and once: learned costs are only a hint. But all attempts
of a map task must route alike, also when a batch runs again. The rule: *a batch is routed by the
version that was the newest one from an earlier batch when the batch was pinned.*

- The driver writes the version of batch n, `after-<n>`, when all tasks of that batch have reported.
  A file gets its name when it is complete, and never changes.
- At the same time the driver pins the next batch to it: `pinned-<n + 1>` is the same file. If there
  is no pin, the first task that looks copies the newest version before its batch and links the
  complete copy to that name. The file system allows only one link with that name; all other tasks
  and all later attempts read that file. Nothing depends on tasks seeing new files in the folder at
  the same time, which shared storage does not guarantee.
- The driver or task that pins a batch removes pins more than three batches older, so there are few
  pins even if nothing is ever learned. Those batches are committed, because Spark runs one at a
  time; an attempt that still runs can change nothing. Only the driver removes versions, when it
  writes one: until then, an old version is the newest.
- If a stream goes back to an older checkpoint, the driver removes the versions of forgotten
  batches. Pins for the numbers of future batches stay and hold.
- A file that cannot be removed stays, and nothing fails.

So a batch that runs again after a restart of the driver finds its pin. A DataFrame that is no
stream is one batch; its tasks get the version with the function itself.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pyspark import TaskContext

from balancedstream.core.shuffle.costs import LearntCosts
from balancedstream.errors import InvalidInputError, SharedFolderError
from balancedstream.workers.files import DRAFT, draft
from balancedstream.workers.names import BATCH_PROPERTY, QUERY_ID_PROPERTY, find_folder

log = logging.getLogger(__name__)

KEPT_BATCHES = 3
"""Number of latest versions that stay, and of pins before the newest one."""

ABANDONED_S = 3600.0
"""A task writes a file in a moment; a draft this old belongs to a killed task."""

ABANDONED_QUERY_S = 30 * 86_400.0
"""A query that ran no batch for this long has no attempt that a pin must hold for."""

_QUERY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"(?P<kind>after|pinned)-(?P<batch>0|[1-9][0-9]{0,17})")
"""What else is in these folders is not ours, and stays."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a shuffle.

    Attributes:
        folder: where its versions are, for the driver and the tasks.
        number: micro-batch number.
    """

    folder: str
    number: int


FindBatch = Callable[[], Batch]
"""Finds the batch of the running task."""

FindCosts = Callable[[], LearntCosts | None]
"""Finds the costs that route the batch of the running task, the same in all attempts; None if
nothing is known."""


@dataclass(frozen=True, slots=True)
class PinnedCosts:
    """Finds both for streams: only the running task knows its batch."""

    root: str
    name: str

    def find_batch(self) -> Batch:
        """Ask the running task.

        Raises:
            InvalidInputError: the task does not know its query and batch.
        """
        context = TaskContext.get()
        query, batch = (context.getLocalProperty(p) for p in (QUERY_ID_PROPERTY, BATCH_PROPERTY))
        if query is None or batch is None:
            message = (
                f"shuffle {self.name}: its task does not know its micro-batch, because a thread in "
                "foreachBatch did not inherit Spark's local properties. The batch fails and no row "
                "is lost. Start the thread with pyspark.inheritable_thread_target."
            )
            raise InvalidInputError(message)
        return Batch(str(Path(self.root) / query / self.name), int(batch))

    def find_costs(self) -> LearntCosts | None:
        """Read the batch's pin.

        Raises:
            InvalidInputError: the task does not know of which query and batch it is.
            SharedFolderError: the folder cannot be written or has no hard links.
        """
        batch = self.find_batch()
        return CostFolder(Path(batch.folder)).pin(batch.number)


class CostFolder:
    """The versions of one shuffle in one query; the folder is created if needed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def newest(
        self, before: int | None = None, *, known: LearntCosts | None = None
    ) -> LearntCosts | None:
        """The newest version from a batch before this one; None if there is none.

        Args:
            before: the batch; None for any.
            known: a version that was published here; it is not read again.
        """
        newest = self.find_newest(before)
        if newest is None:
            return None
        if known is not None and known.batch == newest:
            return known
        return read_costs(self._read_newest(before))

    def find_newest(self, before: int | None = None) -> int | None:
        """The batch of that version, even if it cannot be read."""
        batches = (b for b in self._list("after") if before is None or b < before)
        return max(batches, default=None)

    def has_seen(self, batch: int) -> bool:
        """Whether there is, or was, a version from this batch.

        A DataFrame that is no stream may run again at any time. A stream that went back to an older
        checkpoint has new batches with old numbers: those are pinned.
        """
        if self._file("after", batch).exists():
            return True
        is_behind = any(newer > batch for newer in self._list("after"))
        return is_behind and not self._file("pinned", batch).exists()

    def publish(self, learnt: LearntCosts) -> None:
        """Add a version, pin the next batch to it, and remove files that no batch needs.

        Newer versions are removed too: they belong to batches that the stream forgot when it went
        back to an older checkpoint. Pins stay, because a running batch may have one.

        Raises:
            SharedFolderError: the folder cannot be written.
        """
        with self._explaining(), self._draft(learnt.to_bytes()) as complete:
            # The clock of the storage, as for the other files.
            now_s = complete.stat().st_mtime
            # If this fails, tasks pin the batch, and report if they cannot.
            with suppress(OSError):
                self._file("pinned", learnt.batch + 1).hardlink_to(complete)
            complete.replace(self._file("after", learnt.batch))
        self._clean_up(learnt.batch + 1, now_s, is_learnt=True)

    def pin(self, batch: int) -> LearntCosts | None:
        """The costs that route this batch: the first call of any task decides, for good.

        Raises:
            SharedFolderError: the folder cannot be written or has no hard links.
        """
        pinned = self._file("pinned", batch)
        with self._explaining():
            if not pinned.exists():
                data = self._read_newest(batch)
                # If it exists now, another task was faster.
                with self._draft(data) as complete, suppress(FileExistsError):
                    now_s = complete.stat().st_mtime
                    pinned.hardlink_to(complete)
                    self._clean_up(batch, now_s, is_learnt=False)
            data = pinned.read_bytes()
        return read_costs(data)

    def find_costs_of(self, batch: int, *, newest: LearntCosts | None) -> LearntCosts | None:
        """The costs that routed a batch: its pin or, without a pin, the given version.

        Args:
            batch: a batch that ran.
            newest: the newest version from a batch before it, from `newest`. If the pin equals it,
                this very object is returned.
        """
        try:
            data = self._file("pinned", batch).read_bytes()
            if newest is not None and data == self._file("after", newest.batch).read_bytes():
                return newest
        except FileNotFoundError:
            return newest
        return read_costs(data)

    def _read_newest(self, before: int | None) -> bytes:
        """The newest version from a batch before this one as bytes; none if there is none."""
        while (newest := self.find_newest(before)) is not None:
            # A driver that another one has replaced may remove it now.
            with suppress(FileNotFoundError):
                return self._file("after", newest).read_bytes()
        return b""

    def _file(self, kind: str, batch: int) -> Path:
        return self._path / f"{kind}-{batch}"

    def _list(self, kind: str) -> list[int]:
        with suppress(FileNotFoundError):
            with os.scandir(self._path) as entries:
                found = [_NAME.fullmatch(entry.name) for entry in entries if entry.is_file()]
            return [int(match["batch"]) for match in found if match and match["kind"] == kind]
        return []

    def _clean_up(self, pinned: int, now_s: float, *, is_learnt: bool) -> None:
        """Remove files that no batch needs, after a batch was pinned, as far as possible.

        `now_s` is by the clock of the storage. `is_learnt`: the batch before has a version.
        """

        def is_needless(file: Path) -> bool:
            if match := _NAME.fullmatch(file.name):
                batch = int(match["batch"])
                is_old = batch < pinned - KEPT_BATCHES
                if match["kind"] == "pinned":
                    return is_old
                return is_learnt and (is_old or batch >= pinned)
            is_draft = DRAFT.fullmatch(file.name) is not None
            return is_draft and file.stat().st_mtime < now_s - ABANDONED_S

        with suppress(OSError):
            for name in os.listdir(self._path):
                # Another process may remove it at the same time.
                with suppress(OSError):
                    if is_needless(file := self._path / name):
                        file.unlink()

    def _draft(self, data: bytes) -> AbstractContextManager[Path]:
        self._path.mkdir(parents=True, exist_ok=True)
        return draft(self._path, data)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = (
                f"folder: {self._path} cannot be used ({error}). The batch fails and no row is "
                "lost. It must be a folder that the driver and all executors share and can write, "
                "on storage with hard links."
            )
            raise SharedFolderError(message) from error


def remove_abandoned(folder: Path) -> None:
    """Removes what was learned by queries beside this one that ran no batch for a long time.

    A query that starts without its checkpoint gets a new id, and with it a new folder. One that
    comes back after all learns again. What is not ours stays.

    Args:
        folder: of a shuffle of a query that runs: `<root>/<query id>/<shuffle>`.
    """
    own = folder.parent
    if not _QUERY_ID.fullmatch(own.name):
        return
    with suppress(OSError):
        # The clock of the storage: a task has just written here.
        now_s = folder.stat().st_mtime
        others = [q for q in own.parent.iterdir() if q != own and _QUERY_ID.fullmatch(q.name)]
        for query in others:
            with suppress(OSError):
                shuffles = [*query.iterdir()]
                if all(s.stat().st_mtime < now_s - ABANDONED_QUERY_S for s in (query, *shuffles)):
                    for shuffle in shuffles:
                        _remove_versions(shuffle)
                    query.rmdir()


def _remove_versions(shuffle: Path) -> None:
    for file in shuffle.iterdir():
        if _NAME.fullmatch(file.name) or DRAFT.fullmatch(file.name):
            file.unlink()
    shuffle.rmdir()


def find_root(folder: str) -> Path:
    """The folder as an absolute path; a relative one is in the driver's working directory.

    Raises:
        InvalidInputError: it is on storage that is no mounted file system.

    >>> find_root("file:///checkpoints/_shuffle").as_posix()
    '/checkpoints/_shuffle'
    """
    # Without a scheme it may be relative, like Spark's checkpoints. Executors have other working
    # directories.
    found = find_folder(folder) if ":" in folder else Path(folder).absolute()
    if found is None:
        message = f"folder: must be on a file system that all executors mount, not at {folder}"
        raise InvalidInputError(message)
    return found


# A Python worker may run several tasks of a batch.
@lru_cache(maxsize=4)
def read_costs(data: bytes) -> LearntCosts | None:
    """The costs in the bytes of a version; None without bytes, or if they cannot be read."""
    try:
        return LearntCosts.from_bytes(data) if data else None
    except InvalidInputError as error:
        # It is only a hint, and the file is the same for all tasks and attempts.
        log.warning("learned costs cannot be read, so learning starts again: %s", error)
        return None
