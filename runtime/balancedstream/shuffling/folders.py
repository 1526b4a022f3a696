"""Where versions of what is known of costs are kept, and which of them a micro-batch is routed by.

Any routing gives the right rows, each once: what is known of costs is only a hint. What must hold
is that all attempts of a map task route alike, in a batch that is run again too. The rule: *a batch
is routed by the newest version made from an earlier batch, when it was pinned.*

- The driver writes the version of batch n, `after-<n>`, once all of that batch's tasks have
  reported. A file gets its name when it is complete and is never changed.
- With it the driver pins the next batch to it: `pinned-<n + 1>` is the same file. Where there is no
  pin, the first task that looks copies the newest version before its batch and links the finished
  copy to that name. The file system allows one link of a name; all others, and all attempts later,
  read what is there. Nothing depends on tasks seeing new files of the folder at the same time,
  which shared storage does not promise.
- Whoever pins a batch, the driver or a task, removes the pins of those more than three before it,
  so there are few also where nothing is ever learnt. Those batches are committed, for Spark runs
  one at a time; an attempt that still runs can no longer change anything. Versions are removed by
  the driver alone, when it writes one: as long as it writes none, an old one is the newest.
- Where a stream has gone back to an older checkpoint, the driver removes the versions of batches
  that are forgotten. Pins with the numbers of batches to come are kept, and hold.
- What cannot be removed stays there, and nothing fails for it.

So a batch that is run again after the driver was restarted finds its pin as well. A DataFrame that
is no stream is one batch, and its tasks are given the version with the function itself.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from pyspark import TaskContext

from balancedstream.core.costs import LearntCosts
from balancedstream.errors import InvalidInputError, SharedFolderError
from balancedstream.workers.files import DRAFT, draft
from balancedstream.workers.names import BATCH_PROPERTY, QUERY_ID_PROPERTY, find_folder

log = logging.getLogger(__name__)

KEPT_BATCHES = 3
"""So many of the last versions stay, and so many pins before the newest one."""

ABANDONED_S = 3600.0
"""A task that writes its file takes a moment; one so old is of a task that was killed."""

_NAME = re.compile(r"(?P<kind>after|pinned)-(?P<batch>\d+)")


@dataclass(frozen=True, slots=True)
class Batch:
    """Which batch of a shuffle it is.

    Attributes:
        folder: where its versions are, as the driver and the tasks see it.
        number: of the batch.
    """

    folder: str
    number: int


class BatchSource(Protocol):
    """Finds, in a task, which batch it is of."""

    def find_batch(self) -> Batch:
        """Which batch the running task is of."""


class CostSource(Protocol):
    """Finds, in a task, what its batch is routed by: the same in all tasks and attempts."""

    def find_costs(self) -> LearntCosts | None:
        """What that batch is routed by; None for nothing."""


@dataclass(frozen=True, slots=True)
class PinnedCosts:
    """For streams, both sources: which batch it is, only the running task knows.

    Attributes:
        root: on storage that all executors share.
        name: of the shuffle in its query.
    """

    root: str
    name: str

    def find_batch(self) -> Batch:
        """Ask the running task.

        Raises:
            InvalidInputError: the task does not know of which query and batch it is.
        """
        context = TaskContext.get()
        query, batch = (context.getLocalProperty(p) for p in (QUERY_ID_PROPERTY, BATCH_PROPERTY))
        if query is None or batch is None:
            message = (
                f"shuffle {self.name}: its task knows no micro-batch, so it was started by a "
                "thread of foreachBatch that has not inherited Spark's local properties. The batch "
                "fails and no row is lost. Start the thread's work through "
                "pyspark.inheritable_thread_target."
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


@dataclass(frozen=True, slots=True)
class GivenBatch:
    """For DataFrames that are no streams: numbered by the driver when the plan was made.

    Attributes:
        batch: in whose folder only the driver reads and writes.
    """

    batch: Batch

    def find_batch(self) -> Batch:
        """What was given."""
        return self.batch


@dataclass(frozen=True, slots=True)
class GivenCosts:
    """For DataFrames that are no streams: chosen by the driver when the plan was made.

    Attributes:
        data: of the version; None for nothing.
    """

    data: bytes | None

    def find_costs(self) -> LearntCosts | None:
        """Unpack what was given."""
        return _read(self.data) if self.data else None


class CostFolder:
    """The versions of one shuffle in one query.

    Args:
        path: of the folder; it is made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def newest(
        self, before: int | None = None, *, known: LearntCosts | None = None
    ) -> LearntCosts | None:
        """The newest version made from a batch before this one; None for none.

        Args:
            before: the batch; None for any.
            known: a version that was published here, and is not read again.
        """
        newest = self.find_newest(before)
        if newest is None:
            return None
        if known is not None and known.batch == newest:
            return known
        return _read(self._file("after", newest).read_bytes())

    def find_newest(self, before: int | None = None) -> int | None:
        """The batch of that version, whether or not it can be read."""
        batches = (b for b in self._list("after") if before is None or b < before)
        return max(batches, default=None)

    def has_seen(self, batch: int) -> bool:
        """Whether a version was made from this batch, be it removed by now.

        A DataFrame that is no stream may be run again at any time. A stream that has gone back to
        an older checkpoint has new batches with numbers that were: those are pinned.
        """
        if self._file("after", batch).exists():
            return True
        is_behind = any(newer > batch for newer in self._list("after"))
        return is_behind and not self._file("pinned", batch).exists()

    def publish(self, learnt: LearntCosts) -> None:
        """Add a version, pin the next batch to it, and remove what no batch will ask for again.

        Newer versions, too: they are of batches that a stream has forgotten which has gone back to
        an older checkpoint. Pins stay, for a batch that runs may have one.

        Raises:
            SharedFolderError: the folder cannot be written.
        """
        with self._explaining(), self._draft(learnt.to_bytes()) as complete:
            # The clock of the storage, which is that of the other files.
            now_s = complete.stat().st_mtime
            # Tasks pin what this does not, and say so where they cannot.
            with suppress(OSError):
                self._file("pinned", learnt.batch + 1).hardlink_to(complete)
            complete.replace(self._file("after", learnt.batch))
        self._clean_up(learnt.batch + 1, now_s, is_learnt=True)

    def pin(self, batch: int) -> LearntCosts | None:
        """What this batch is routed by: decided by the first call of all tasks, for good.

        Raises:
            SharedFolderError: the folder cannot be written or has no hard links.
        """
        pinned = self._file("pinned", batch)
        with self._explaining():
            if not pinned.exists():
                newest = self.find_newest(batch)
                data = b"" if newest is None else self._file("after", newest).read_bytes()
                # Where it exists by now, another task was quicker.
                with self._draft(data) as complete, suppress(FileExistsError):
                    now_s = complete.stat().st_mtime
                    pinned.hardlink_to(complete)
                    self._clean_up(batch, now_s, is_learnt=False)
            data = pinned.read_bytes()
        return _read(data) if data else None

    def find_costs_of(self, batch: int, *, newest: LearntCosts | None) -> LearntCosts | None:
        """What a batch was routed by: what it is pinned to or, where there is no pin, was given.

        Args:
            batch: that has run.
            newest: the newest version made from a batch before it, as `newest` has it. It is given
                back, and not another one that is equal, if it was that.
        """
        try:
            data = self._file("pinned", batch).read_bytes()
            if newest is not None and data == self._file("after", newest.batch).read_bytes():
                return newest
        except FileNotFoundError:
            return newest
        return _read(data) if data else None

    def _file(self, kind: str, batch: int) -> Path:
        return self._path / f"{kind}-{batch}"

    def _list(self, kind: str) -> list[int]:
        with suppress(FileNotFoundError):
            found = (_NAME.fullmatch(name) for name in os.listdir(self._path))
            return [int(match["batch"]) for match in found if match and match["kind"] == kind]
        return []

    def _clean_up(self, pinned: int, now_s: float, *, is_learnt: bool) -> None:
        """Remove what no batch will ask for, as far as it can be removed.

        Args:
            pinned: the batch that was pinned just now.
            now_s: the clock of the storage.
            is_learnt: whether there is a version of the batch before it.
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
                # Another may be just removing it, too.
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


def find_root(folder: str) -> Path:
    """The folder as an absolute path; a relative one is below the driver's working directory.

    Raises:
        InvalidInputError: it is on storage that is no file system of the machine.

    >>> find_root("file:///checkpoints/_shuffle").as_posix()
    '/checkpoints/_shuffle'
    """
    # One that is named without a scheme may be relative, as Spark's checkpoints may. Executors have
    # working directories of their own.
    found = find_folder(folder) if ":" in folder else Path(folder).absolute()
    if found is None:
        message = f"folder: must be on a file system that all executors mount, not at {folder}"
        raise InvalidInputError(message)
    return found


# Several tasks of a batch may run in a Python worker.
@lru_cache(maxsize=4)
def _read(data: bytes) -> LearntCosts | None:
    try:
        return LearntCosts.from_bytes(data)
    except InvalidInputError as error:
        # It is only a hint, and the same file says the same to all tasks and attempts.
        log.warning("what was learnt of costs cannot be read, and is learnt anew: %s", error)
        return None
