"""Files on the checkpoint's storage: epochs, and state that is handed over.

The files of an operator are in `<checkpoint>/balancedstream/<name>/`. A file never changes: the
name of an epoch ends with a random part, that of a handoff contains its task attempt. Spark's
offset log alone says which of them count.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark import TaskContext

from balancedstream.core.keys.epochs import Epoch, parse_epoch
from balancedstream.core.logs import MARK, parse_offsets
from balancedstream.errors import CheckpointError, InvalidInputError
from balancedstream.keyed.objectstores import Access, open_store
from balancedstream.keyed.stores import Upload
from balancedstream.workers.names import (
    BATCH_PROPERTY,
    CHECKPOINT_PROPERTY,
    QUERY_NAME_PROPERTY,
    RUN_PROPERTY,
)

DEFAULT_NAME = "keys"
"""Of an operator that is not given one."""

_METADATA = "metadata"
_OFFSETS = "offsets"

KEPT_EPOCHS = 100
"""Spark itself keeps the offsets of this many batches, unless `minBatchesToRetain` says more."""

_BATCH = re.compile(r"0|[1-9][0-9]{0,17}")
_EPOCH_FILE = re.compile(r"([0-9]{1,18})-[0-9a-f]{12}\.json")
_HANDOFF_FILE = re.compile(r"([0-9]{1,18})-[0-9]+-[0-9]+-[0-9a-f]{12}\.state")
"""What else is in these folders is not ours, and stays."""


def describe_offset(name: str, table: str, number: int) -> dict[str, Any]:
    """The control source's offset, with the epoch of a batch."""
    return {MARK: name, "epoch": number, "table": table}


@dataclass(frozen=True, slots=True)
class Operator:
    """What driver, control source and tasks know of a `balanced(...)`.

    Attributes:
        name: within its query.
        access: to the object store that the checkpoint may be on.
    """

    name: str = DEFAULT_NAME
    access: Access = field(default_factory=Access)


Reaching = Callable[[], AbstractContextManager[None]]
"""Around a use of the storage: turns its failure into a CheckpointError."""


class Home:
    """An operator's folder on the checkpoint's storage.

    Raises:
        CheckpointError: the checkpoint is on storage that Python cannot reach.
    """

    def __init__(self, checkpoint: str, operator: Operator) -> None:
        self._checkpoint = checkpoint
        self._store = open_store(checkpoint, operator.access)
        self._name = operator.name
        self._epochs = f"balancedstream/{operator.name}/epochs"
        self._handoffs = f"balancedstream/{operator.name}/handoffs"

    def check_presence(self) -> None:
        """Checks that this is the checkpoint that Spark writes to, once Spark has begun to.

        Raises:
            CheckpointError: it is not, or the storage cannot be reached.
        """
        try:
            with self._reaching(_METADATA):
                self._store.read(_METADATA)
        except FileNotFoundError as error:
            message = (
                f"{self._store.locate(_METADATA)} was written by Spark, and Python does not find "
                "it; no row was processed: have Python reach the same storage as Spark, with the "
                "settings that docs/key-assignment.md lists"
            )
            raise CheckpointError(message) from error

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
        file = f"{_OFFSETS}/{batch}"
        try:
            with self._reaching(file):
                offsets = [*parse_offsets(self._store.read(file).decode())]
        except (FileNotFoundError, ValueError) as error:
            message = (
                f"{self._store.locate(file)} cannot be read ({error}), so it is unknown where the "
                f"keys of batch {batch} are; no row was processed: put the whole checkpoint back "
                "as it was after a batch that Spark still has"
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
        file = f"{self._epochs}/{table}"
        try:
            with self._reaching(file):
                return parse_epoch(self._store.read(file).decode())
        except (FileNotFoundError, ValueError, RecursionError, InvalidInputError) as error:
            message = (
                f"{self._store.locate(file)} cannot be read ({error}), so it is unknown where the "
                "keys of this batch are; no row was processed, and no state is lost: put the whole "
                "checkpoint back, with its folder balancedstream"
            )
            raise CheckpointError(message) from error

    def write_epoch(self, epoch: Epoch) -> str:
        """Writes an epoch to a file of its own and returns the file's name.

        Raises:
            CheckpointError: the storage cannot be reached.
        """

        def name() -> str:
            return f"{self._epochs}/{epoch.number}-{uuid.uuid4().hex[:12]}.json"

        with self._reaching(self._epochs):
            return _find_name(self._store.write(name, epoch.to_json().encode()))

    def open_handoff(self, batch: int, partition: int, attempt: int) -> HandoffWriter:
        """A file for the state that one task attempt hands over.

        Raises:
            CheckpointError: the storage cannot be reached.
        """

        def name() -> str:
            # Attempts are numbered by application, so a restarted one may use the same numbers.
            return f"{self._handoffs}/{batch}-{partition}-{attempt}-{uuid.uuid4().hex[:12]}.state"

        with self._reaching(self._handoffs):
            upload = self._store.create(name)
        return HandoffWriter(upload, lambda: self._reaching(self._handoffs))

    def read_handoff(self, file: str, offset: int, state_bytes: int) -> bytes:
        """The state of one key in such a file.

        Raises:
            CheckpointError: it is missing or incomplete, or the storage cannot be reached.
        """
        path = f"{self._handoffs}/{file}"
        try:
            with self._reaching(path):
                content = self._store.read_part(path, offset, state_bytes)
        except FileNotFoundError as error:
            planned = self._store.locate(f"{_OFFSETS}/{int(file.partition('-')[0]) + 1}")
            message = (
                f"{self._store.locate(path)} is gone, with the state of a key that arrives in this "
                "batch; the batch was not committed and no state is lost: put the whole checkpoint "
                "back, or go back to a batch in which no key changed its partition, for the file "
                "was removed two batches later. If no batch was planned after this one, you may "
                f"instead stop the query and delete {planned}: it is then planned anew, and asks "
                "for the key again"
            )
            raise CheckpointError(message) from error
        if len(content) < state_bytes:
            message = (
                f"{self._store.locate(path)} ends before byte {offset + state_bytes}, so the state "
                "of a key cannot be taken over; the batch was not committed and no state is lost: "
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
        try:
            stays = self._remove_handoffs(next_batch)
            self._remove_epochs()
        except (OSError, CheckpointError):
            return True
        return stays

    def _remove_handoffs(self, next_batch: int) -> bool:
        """Returns whether some must stay for now."""
        stays = False
        for file, batch in self._list_numbered(self._handoffs, _HANDOFF_FILE):
            # A batch takes in what the batch before wrote. The driver of a newer attempt may run
            # that batch, while this one still plans.
            if batch < next_batch - 2:
                self._remove(file)
            else:
                stays = True
        return stays

    def _remove_epochs(self) -> None:
        epochs = [*self._list_numbered(self._epochs, _EPOCH_FILE)]
        # By number, because one epoch may have many files that no batch was planned with.
        newest = max((number for _, number in epochs), default=0)
        old = [each for each in epochs if each[1] <= newest - KEPT_EPOCHS]
        oldest_needed = self._find_oldest_epoch() if old else 0
        for file, number in old:
            if number < oldest_needed:
                self._remove(file)

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
        """The batches whose offsets Spark keeps.

        Raises:
            CheckpointError: the storage cannot be reached.
        """
        with self._reaching(_OFFSETS):
            return [number for _, number in self._list_numbered(_OFFSETS, _BATCH)]

    def _list_numbered(self, folder: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, int]]:
        """The files of a folder whose whole names fit, each with the number that it begins with.

        Whatever else people, backups and file systems leave there is passed over.
        """
        for name in self._store.list_files(folder):
            if found := pattern.fullmatch(name):
                yield f"{folder}/{name}", int(found[found.lastindex or 0])

    def _remove(self, file: str) -> None:
        with suppress(OSError):
            self._store.remove(file)

    @contextmanager
    def _reaching(self, file: str) -> Iterator[None]:
        """Says what it means if the storage fails; what it means if a file is missing differs."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            message = (
                f"{self._store.locate(file)} cannot be reached ({error}); the batch was not "
                "committed and no state is lost: Spark runs the task again, and if the query has "
                "ended, start it again when driver and executors can read and write there"
            )
            raise CheckpointError(message) from error


class HandoffWriter:
    """Writes the states of keys to a file, one after the other.

    Attributes:
        file: the file's name; empty before it is closed.
        pieces: key to (first byte, length).
    """

    def __init__(self, upload: Upload, reaching: Reaching) -> None:
        self.file = ""
        self.pieces: dict[str, tuple[int, int]] = {}
        self._upload = upload
        self._reaching = reaching

    def add(self, key: str, content: bytes) -> None:
        """Appends a key's state.

        Raises:
            CheckpointError: the storage cannot be reached.
        """
        with self._reaching():
            self.pieces[key] = self._upload.tell(), len(content)
            self._upload.write(content)

    def close(self) -> None:
        """Closes the file; its content is on storage when this returns.

        Raises:
            CheckpointError: the storage cannot be reached.
        """
        with self._reaching():
            self.file = _find_name(self._upload.close())


def _find_name(file: str) -> str:
    """The name of a file in its folder."""
    return file.rpartition("/")[2]


class BatchContext:
    """Query, partition, micro-batch and epoch of the running task.

    Attributes:
        table: file with the epoch of the batch; empty for the first epoch.
        epoch: of the batch, as it holds in this batch.

    Raises:
        CheckpointError: the query was not started in the session that `balanced` was called in.
    """

    def __init__(self, operator: Operator) -> None:
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
        self.home = Home(self.checkpoint, operator)
        self.table, self.epoch = self._read_epoch_once(operator.name)

    def _read_epoch_once(self, name: str) -> tuple[str, Epoch]:
        """Reads the epoch once for all tasks of a batch in one worker."""
        key = self.checkpoint, self.run_id, name, self.batch
        if key not in _epochs:
            _epochs.clear()
            table = self.home.find_epoch_of(self.batch)
            _epochs[key] = table, self.home.read_epoch(table).in_batch(self.batch)
        return _epochs[key]


_epochs: dict[tuple[str, str, str, int], tuple[str, Epoch]] = {}
