"""Rows that arrive at a pace of their own, whatever the stream does with them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time

TICK_S = 0.5
"""A file holds the rows that arrived in so many seconds: a stream sees them up to so much later."""


class Producer(ABC):
    """Writes rows when they arrive.

    Attributes:
        tick_s: rows are written at such intervals.
    """

    tick_s: float = TICK_S

    @abstractmethod
    def write(self, rows: int, arrived_s: float) -> None:
        """Writes the next rows, which have arrived by a second since the begin."""

    @contextmanager
    def produce(
        self, count_until: Callable[[float], float], begin_s: float, length_s: float
    ) -> Iterator[threading.Thread]:
        """Writes the rows of a trace in real time, from a thread of its own, until all are there.

        Args:
            count_until: rows that have arrived, by the second since the begin.
            begin_s: when the trace begins, seconds since the Unix epoch.
            length_s: of the trace.
        """
        stopping = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(count_until, begin_s, length_s, stopping), daemon=True
        )
        thread.start()
        try:
            yield thread
        finally:
            stopping.set()
            thread.join()

    def _run(
        self,
        count_until: Callable[[float], float],
        begin_s: float,
        length_s: float,
        stopping: threading.Event,
    ) -> None:
        written, at_s = 0, 0.0
        while at_s < length_s and not stopping.wait(self.tick_s):
            at_s = min(time() - begin_s, length_s)
            due = round(count_until(at_s))
            self.write(due - written, at_s)
            written = due


class FileProducer(Producer):
    """Writes files of one key a line into a folder that a stream reads.

    Args:
        folder: of the files; exists.
        draw_key: the key of the next row, by the second of its arrival.

    Attributes:
        counts: rows of each key so far: what a stream has to count.
    """

    def __init__(self, folder: Path, draw_key: Callable[[float], str]) -> None:
        self._folder = folder
        self._draw_key = draw_key
        self._files = 0
        self.counts: Counter[str] = Counter()

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self.counts.total()

    def write(self, rows: int, arrived_s: float) -> None:
        """Writes one file of so many rows."""
        if rows <= 0:
            return
        keys = [self._draw_key(arrived_s) for _ in range(rows)]
        write_whole(self._folder / f"{self._files:06}.txt", keys)
        self._files += 1
        self.counts.update(keys)


def write_whole(file: Path, lines: Iterable[str]) -> None:
    """Writes a file that Spark sees whole or not at all."""
    hidden = file.with_name(f".{file.name}")
    hidden.write_text("".join(f"{line}\n" for line in lines))
    hidden.rename(file)
