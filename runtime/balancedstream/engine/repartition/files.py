"""The files of a checkpoint: what they say, whether they still change, and which ones to remove."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from balancedstream.core.logs import parse_commit, parse_operator, parse_planned
from balancedstream.core.repartition import (
    Checkpoint,
    Operator,
    choose_quiet_s,
)
from balancedstream.engine.session.filemanagers import is_posix
from balancedstream.errors import RepartitionError

Record = TypeVar("Record")

_ESCAPED = re.compile(r'[\s"<>\\^`{|}%#?]')
"""What Hadoop escapes in a path, and the source of states does not read again."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_STATE_FILE = re.compile(r"([0-9]{1,18})(_[0-9a-f-]+)?\.(zip|changelog|delta|snapshot)")
"""A version of a partition, in format 2 with an id. Version n + 1 is the state after batch n."""

_METADATA_FOLDER = "_metadata"

_WRITES = "a query writes to this checkpoint. Stop the query, and type this command again"

SEEN_BATCHES = 6
"""Of so many commits, the gaps tell how often the query commits."""


def find_checkpoint(location: str) -> Path:
    """The folder of a checkpoint.

    Args:
        location: a path, or an URI that begins with `file:`.

    Raises:
        RepartitionError: it is elsewhere, or no checkpoint.
    """
    if not is_posix(location, "file:///"):
        _refuse(
            f"{location} is not on a mounted file system. Copy the checkpoint to one, change it "
            "there, and copy it back"
        )
    path = Path(re.sub(r"^file:(//[^/]*)?(?=/)", "", location)).absolute()
    if not (path / "offsets").is_dir() or not (path / "commits").is_dir():
        _refuse(
            f"{path} is no checkpoint of a query: it has no folders offsets and commits. Name the "
            "query's checkpointLocation"
        )
    if _ESCAPED.search(str(path)):
        _refuse(
            f"{path} has a space or another character that URIs escape, and Spark does not find "
            "state there. Name the checkpoint by a link without one (ln -s)"
        )
    return path


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads what Spark has written of the query's batches and operators.

    Raises:
        RepartitionError: a file is cut off, or of a version of Spark that is not known here.
    """
    planned = max(_list_batches(path / "offsets"), default=None)
    committed = max(_list_batches(path / "commits"), default=None)
    if planned is None or committed is None:
        return Checkpoint(planned, committed, {}, (), 0, None, "1", (), has_written=False)
    found_format = _read(path / "commits" / str(committed), parse_commit)
    last = _read(path / "offsets" / str(planned), parse_planned)
    before = path / "offsets" / str(planned - 1)
    partitions_before = _read(before, parse_planned).partitions if before.exists() else None
    operators = [*_read_operators(path / "state")]
    return Checkpoint(
        planned,
        committed,
        last.conf,
        last.offsets,
        last.partitions,
        partitions_before,
        found_format,
        tuple(operator for operator, _ in operators),
        has_written=any(planned + 1 in versions for _, versions in operators),
    )


def await_quiet(path: Path) -> None:
    """Waits until nothing has been committed for as long as the query took between its batches.

    Raises:
        RepartitionError: a batch was begun or committed meanwhile.
    """
    commits = sorted(_list_batches(path / "commits"))[-SEEN_BATCHES:]
    try:
        written_at_s = [(path / "commits" / str(n)).stat().st_mtime for n in commits]
    except FileNotFoundError:
        _refuse(_WRITES)
    before = _list_newest(path)
    age_s = max(time.time() - max(written_at_s, default=0.0), 0.0)
    left_s = choose_quiet_s(written_at_s) - age_s
    if left_s > 0:
        time.sleep(left_s)
    if _list_newest(path) != before:
        _refuse(_WRITES)


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Keeps other repartitions of this machine from the checkpoint, and leaves no file behind.

    Raises:
        RepartitionError: another one is at work.
    """
    folder = os.open(path / "offsets", os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _refuse("another repartition of this checkpoint is at work. Wait until it ends")
        except OSError:
            # Storage without locks: Spark's own logs still let one repartition in only.
            pass
        yield
    finally:
        os.close(folder)


def remove_repartition(path: Path, found: Checkpoint) -> None:
    """Removes the batch of a repartition from the logs: the query goes on with the batch before.

    At any moment the checkpoint is done, half-done or as before, so it can be called again. State
    files of the batch stay: they have ids that no commit names.

    Raises:
        RepartitionError: a file cannot be removed.
    """
    batch = str(found.planned)
    metadata = [
        folder / _METADATA_FOLDER / "v2" / batch for _, folder in _list_numbered(path / "state")
    ]
    # The commit first, so that no query starts on what is left; the offsets last, for they tell it.
    for file in (path / "commits" / batch, *metadata, path / "offsets" / batch):
        _remove(file.with_name(f".{batch}.crc"))
        _remove(file)


def withdraw_commit(path: Path, found: Checkpoint) -> None:
    """Removes the commit of a repartition: Spark starts no query on what is left.

    Raises:
        RepartitionError: the file cannot be removed.
    """
    batch = str(found.planned)
    for name in (f".{batch}.crc", batch):
        _remove(path / "commits" / name)


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        message = (
            f"{file} cannot be removed ({error}). The query does not start on what is left, and "
            "nothing is lost: mend it, and type this command again"
        )
        raise RepartitionError(message) from error


def _read(file: Path, parse: Callable[[str], Record]) -> Record:
    try:
        return parse(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        _refuse(f"{file} cannot be read ({error})")


def _list_newest(path: Path) -> tuple[int, int]:
    return (
        max(_list_batches(path / "offsets"), default=-1),
        max(_list_batches(path / "commits"), default=-1),
    )


def _list_batches(folder: Path) -> list[int]:
    return [int(name) for name in os.listdir(folder) if _NUMBER.fullmatch(name)]


def _list_numbered(folder: Path) -> list[tuple[int, Path]]:
    """Folders whose names are numbers, by number."""
    if not folder.is_dir():
        return []
    return sorted((n, folder / str(n)) for n in _list_batches(folder))


def _read_operators(state: Path) -> Iterator[tuple[Operator, set[int]]]:
    """Each operator, and the versions of its state that there are files of."""
    for _, folder in _list_numbered(state):
        metadata = folder / _METADATA_FOLDER
        # In its second format, there is a file for each batch in which the operator changed.
        newer = _list_numbered(metadata / "v2")
        file = newer[-1][1] if newer else metadata / "metadata"
        record = _read(file, parse_operator)
        files = [*_list_versions(folder)]
        state_bytes = sum(file_bytes for file_bytes, _ in files)
        versions = {version for _, version in files if version >= 0}
        yield Operator(record.id, record.name, record.stores, state_bytes, len(versions)), versions


def _list_versions(folder: Path) -> Iterator[tuple[int, int]]:
    """Size and version of each file of state; version -1 for files that versions share."""
    for directory, _, names in os.walk(folder):
        for name in names:
            found = _STATE_FILE.fullmatch(name)
            try:
                file_bytes = (Path(directory) / name).stat().st_size
            except FileNotFoundError:
                continue  # whoever writes state renames and removes files
            yield file_bytes, int(found[1]) if found else -1


def _refuse(problem: str) -> NoReturn:
    message = f"{problem}. Nothing was changed."
    raise RepartitionError(message)
