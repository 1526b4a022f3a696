"""Reads the events of an event log: one line of JSON each, of which only some are wanted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from balancedstream.errors import InvalidInputError
from balancedstream.estimate.codecs import DamagedError, read_chunks
from balancedstream.estimate.files import EventLog

MAX_LINE_BYTES = 64 << 20
"""A longer line is no event of Spark's: it is left out, and never held as a whole."""

_NAME = re.compile(rb'\s*\{\s*"Event"\s*:\s*"(?:[\w.]*[.$])?(\w+)"')
"""Spark writes the name first (`JsonProtocol`); of a class, the last part counts."""

_HEAD_BYTES = 512

LOG_START = "SparkListenerLogStart"


@dataclass(slots=True)
class Reading:
    """What became of a log while it was read.

    Attributes:
        events: lines that are events, wanted or not.
        unreadable: lines that are not, or that lack what such an event has.
        cut: why the rest of a file could not be read; "" if all was.
        at: bytes of the files that were read so far, as they are on disk.
    """

    events: int = 0
    unreadable: int = 0
    cut: str = ""
    at: int = 0


def read_events(
    log: EventLog,
    wanted: frozenset[str],
    reading: Reading,
    tell: Callable[[int], None] = lambda at: None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of a log with these names, in order.

    A log that was cut off ends where it was; what cannot be read is counted.

    Args:
        log: the files.
        wanted: names of events, without the packages of their classes.
        reading: is told what becomes of the log.
        tell: is called now and then, with `Reading.at`.

    Raises:
        InvalidInputError: the file is no event log, or cannot be read.
    """
    for line in _read_lines(log, reading, tell):
        named = _NAME.match(line[:_HEAD_BYTES])
        if named is None:
            if not line.strip():
                continue
            if not reading.events:
                message = (
                    f"event log: {log.path} is no event log of Spark, its first line is no event"
                )
                raise InvalidInputError(message)
            reading.unreadable += 1
            continue
        name = named[1].decode()
        if name not in wanted:
            reading.events += 1
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            reading.unreadable += 1
            continue
        reading.events += 1
        yield name, event


def _read_lines(log: EventLog, reading: Reading, tell: Callable[[int], None]) -> Iterator[bytes]:
    for part in log.parts:
        before = reading.at
        split = _Splitter()
        try:
            with part.open("rb") as file:
                for chunk in read_chunks(file, part):
                    reading.at = before + file.tell()
                    tell(reading.at)
                    yield from split.take(chunk)
        except DamagedError as error:
            reading.cut = str(error)
        except OSError as error:
            message = f"event log: {part} cannot be read ({error})"
            raise InvalidInputError(message) from error
        reading.unreadable += split.too_long
        last = split.end()
        if _is_whole(last) or not reading.events:
            yield last
        elif last:
            reading.cut = reading.cut or "the last line is not whole"


class _Splitter:
    """Splits chunks into lines, and never holds one that is too long."""

    def __init__(self) -> None:
        self.too_long = 0
        self._pieces: list[bytes] = []
        self._held = 0

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end in a chunk."""
        first, *lines = chunk.split(b"\n")
        self._add(first)
        for line in lines:
            yield self.end()
            self._add(line)

    def end(self) -> bytes:
        """The line so far; empty if it is too long."""
        line = b"".join(self._pieces)
        self.too_long += self._held > MAX_LINE_BYTES
        self._pieces, self._held = [], 0
        return line

    def _add(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > MAX_LINE_BYTES:
            self._pieces.clear()
        else:
            self._pieces.append(piece)


def _is_whole(line: bytes) -> bool:
    """Whether a line without an end is an event nevertheless."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
