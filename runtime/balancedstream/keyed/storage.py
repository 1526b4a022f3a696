"""Files on the checkpoint's storage: epochs, and state that is handed over.

The files of an operator are in `<checkpoint>/balancedstream/<name>/`. A file never changes: the
name of an epoch ends with a random part, that of a handoff contains its task attempt. Spark's
offset log alone says which of them count.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from balancedstream.core.keys.epochs import Epoch, parse_epoch
from balancedstream.core.logs import MARK, parse_offsets
from balancedstream.errors import CheckpointError, InvalidInputError
from balancedstream.workers.files import draft
from balancedstream.workers.names import (
    BATCH_PROPERTY,
    CHECKPOINT_PROPERTY,
    QUERY_NAME_PROPERTY,
    RUN_PROPERTY,
    find_folder,
)

DEFAULT_NAME = "keys"
"""Of an operator that is not given one."""

KEPT_EPOCHS = 100
"""Spark itself keeps the offsets of this many batches, unless `minBatchesToRetain` says more."""

_BATCH = re.compile(r"0|[1-9][0-9]{0,17}")
_EPOCH_FILE = re.compile(r"([0-9]{1,18})-[0-9a-f]{12}\.json")
_HANDOFF_FILE = re.compile(r"([0-9]{1,18})-[0-9]+-[0-9]+-[0-9a-f]{12}\.state")
"""What else is in these folders is not ours, and stays."""


def describe_offset(name: str, table: str, number: int) -> dict[str, Any]:
    """The control source's offset, with the epoch of a batch."""
    return {MARK: name, "epoch": number, "table": table}


class Home:
    """An operator's folder on the checkpoint's storage.

    Raises:
        CheckpointError: the checkpoint is not on a mounted file system.
    """

    def __init__(self, checkpoint: str, name: str) -> None:
        self._checkpoint = _find_mounted(checkpoint)
        self._name = name
        self._folder = self._checkpoint / "balancedstream" / name
        self._epochs = self._folder / "epochs"
        self._handoffs = self._folder / "handoffs"
        self._offsets = self._checkpoint / "offsets"

    def find_next_batch(self) -> int:
        """The micro-batch that is planned next: Spark writes the offsets of a batch to plan it."""
        return 1 + max(self._list_planned(), default=-1)

    def read_epoch_of(self, batch: int) -> Epoch:
        """The epoch of a planned micro-batch.

        Raises:
            CheckpointError: as `find_epoch_of`.
        """
        return self.read_epoch(self.find_epoch_of(batch))

    def find_epoch_of(self, batch: int) -> str:
        """The file with the epoch of a planned micro-batch; empty for the first epoch.

        Raises:
            CheckpointError: the batch was planned without this operator, or with two of this name;
                or what Spark wrote cannot be read.
        """
        path = self._offsets / str(batch)
        try:
            offsets = [*parse_offsets(path.read_text("utf-8"))]
        except (OSError, ValueError) as error:
            message = (
                f"{path} cannot be read ({error}), so it is unknown where the keys of batch "
                f"{batch} are; no row was processed: put the whole checkpoint back as it was after "
                "a batch that Spark still has"
            )
            raise CheckpointError(message) from error
        found = [o for o in offsets if isinstance(o, dict) and o.get(MARK) == self._name]
        if len(found) != 1:
            count = "no" if not found else "more than one"
            message = (
                f"batch {batch} of the checkpoint {self._checkpoint} was planned with {count} "
                f"balanced operator named {self._name!r}; no row was processed: give each "
                "balanced(...) of a query its own name, and a query that was not balanced before "
                "a new checkpoint"
            )
            raise CheckpointError(message)
        table: str = found[0]["table"]
        return table

    def read_epoch(self, table: str) -> Epoch:
        """The epoch in a file; an empty name stands for the first epoch.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        if not table:
            return Epoch()
        path = self._epochs / table
        try:
            return parse_epoch(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError, InvalidInputError) as error:
            message = (
                f"{path} cannot be read ({error}), so it is unknown where the keys of this batch "
                "are; no row was processed, and no state is lost: put the whole checkpoint back, "
                "with its folder balancedstream"
            )
            raise CheckpointError(message) from error

    def write_epoch(self, epoch: Epoch) -> str:
        """Writes an epoch to a file of its own and returns the file's name."""
        self._epochs.mkdir(parents=True, exist_ok=True)
        name = f"{epoch.number}-{uuid.uuid4().hex[:12]}.json"
        with draft(self._epochs, epoch.to_json().encode(), durable=True) as file:
            file.replace(self._epochs / name)
        return name

    def open_handoff(self, batch: int, partition: int, attempt: int) -> HandoffWriter:
        """A file for the state that one task attempt hands over."""
        self._handoffs.mkdir(parents=True, exist_ok=True)
        # Attempts are numbered by application, so a restarted one may use the same numbers.
        name = f"{batch}-{partition}-{attempt}-{uuid.uuid4().hex[:12]}.state"
        return HandoffWriter(self._handoffs / name)

    def read_handoff(self, file: str, offset: int, state_bytes: int) -> bytes:
        """The state of one key in such a file.

        Raises:
            CheckpointError: it is missing or incomplete.
        """
        try:
            with (self._handoffs / file).open("rb") as handoff:
                handoff.seek(offset)
                content = handoff.read(state_bytes)
        except FileNotFoundError as error:
            planned = self._offsets / str(int(file.partition("-")[0]) + 1)
            message = (
                f"{self._handoffs / file} is gone, with the state of a key that arrives in this "
                "batch; the batch was not committed and no state is lost: put the whole checkpoint "
                "back, or go back to a batch in which no key changed its partition, for the file "
                "was removed two batches later. If no batch was planned after this one, you may "
                f"instead stop the query and delete {planned}: it is then planned anew, and asks "
                "for the key again"
            )
            raise CheckpointError(message) from error
        if len(content) < state_bytes:
            message = (
                f"{self._handoffs / file} ends before byte {offset + state_bytes}, so the state of "
                "a key cannot be taken over; the batch was not committed and no state is lost: "
                "look at the storage, and start the query again"
            )
            raise CheckpointError(message)
        return content

    def remove_outdated(self, next_batch: int) -> bool:
        """Removes files that no batch needs any more: finished handoffs and old epochs.

        What cannot be removed stays.

        Returns:
            Whether there are handoffs that a later batch can remove.
        """
        stays = False
        for path, batch in _list_numbered(self._handoffs, _HANDOFF_FILE):
            # A batch takes in what the batch before wrote. The driver of a newer attempt may run
            # that batch, while this one still plans.
            if batch < next_batch - 2:
                _remove(path)
            else:
                stays = True
        epochs = [*_list_numbered(self._epochs, _EPOCH_FILE)]
        # By number, because one epoch may have many files that no batch was planned with.
        newest = max((number for _, number in epochs), default=0)
        old = [each for each in epochs if each[1] <= newest - KEPT_EPOCHS]
        oldest_needed = self._find_oldest_epoch() if old else 0
        for path, number in old:
            if number < oldest_needed:
                _remove(path)
        return stays

    def _find_oldest_epoch(self) -> int:
        """Number of the epoch of the oldest batch that Spark may go back to; 0 if unknown."""
        oldest = min(self._list_planned(), default=None)
        if oldest is None:
            return 0
        try:
            found = _EPOCH_FILE.fullmatch(self.find_epoch_of(oldest))
        except CheckpointError:
            # Spark has just removed it, or it is of a query that was not balanced.
            return 0
        return int(found[1]) if found else 0

    def _list_planned(self) -> list[int]:
        """The batches whose offsets Spark keeps."""
        return [number for _, number in _list_numbered(self._offsets, _BATCH)]


def _list_numbered(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[Path, int]]:
    """The files of a folder whose whole names fit, each with the number that its name begins with.

    Whatever else people, backups and file systems leave there is passed over.
    """
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            found = pattern.fullmatch(entry.name)
            if found and entry.is_file():
                yield folder / entry.name, int(found[found.lastindex or 0])


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


class HandoffWriter:
    """Writes the states of keys to a file, one after the other.

    Attributes:
        file: the file's name.
        pieces: key to (first byte, length).
    """

    def __init__(self, path: Path) -> None:
        self.file = path.name
        self.pieces: dict[str, tuple[int, int]] = {}
        self._stream = path.open("xb")

    def add(self, key: str, content: bytes) -> None:
        """Appends a key's state."""
        self.pieces[key] = self._stream.tell(), len(content)
        self._stream.write(content)

    def close(self) -> None:
        """Closes the file; its content is on storage when this returns."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()


class BatchContext:
    """Query, partition, micro-batch and epoch of the running task.

    Attributes:
        table: file with the epoch of the batch; empty for the first epoch.
        epoch: of the batch, as it holds in this batch.

    Raises:
        CheckpointError: the query was not started in the session that `balanced` was called in.
    """

    def __init__(self, name: str) -> None:
        task: Any = TaskContext.get()
        self.batch = int(task.getLocalProperty(BATCH_PROPERTY) or 0)
        self.query: str = task.getLocalProperty(QUERY_NAME_PROPERTY) or ""
        self.run_id: str = task.getLocalProperty(RUN_PROPERTY) or ""
        self.partition: int = task.partitionId()
        self.attempt: int = task.taskAttemptId()
        self.checkpoint: str = task.getLocalProperty(CHECKPOINT_PROPERTY) or ""
        if not self.checkpoint:
            message = (
                "this task does not know where the query's checkpoint is, so it cannot find the "
                "routes of keys; no row was processed: start the query in the session that "
                "balanced(...) was called in"
            )
            raise CheckpointError(message)
        self.home = Home(self.checkpoint, name)
        self.table, self.epoch = self._read_epoch_once(name)

    def _read_epoch_once(self, name: str) -> tuple[str, Epoch]:
        """Reads the epoch once for all tasks of a batch in one worker."""
        key = self.checkpoint, self.run_id, name, self.batch
        if key not in _epochs:
            _epochs.clear()
            table = self.home.find_epoch_of(self.batch)
            _epochs[key] = table, self.home.read_epoch(table).in_batch(self.batch)
        return _epochs[key]


_epochs: dict[tuple[str, str, str, int], tuple[str, Epoch]] = {}


def _find_mounted(checkpoint: str) -> Path:
    found = find_folder(checkpoint)
    if found is None:
        message = (
            f"the checkpoint {checkpoint} is not on a mounted file system, where balanced(...) "
            "keeps the state that is handed over; no row was processed: put the checkpoint on "
            "shared storage that is mounted (a volume claim), or leave out balanced(...)"
        )
        raise CheckpointError(message)
    return found
