"""Streams whose bounds change in every batch, and what Spark has in force for them."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patience import PATIENCE_S
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import (
    BatchFinished,
    BatchPlanned,
    Event,
    QueryEnded,
    RowsWaiting,
)


@dataclass
class Bounder:
    """Sets a new bound after each batch of a query, and keeps what it was told.

    Attributes:
        engine: of the application.
        query: its name.
        chance: draws the bounds.
        most: rows of the highest bound.
        finished: batches so far.
        planned: the same, as they were planned.
        waiting: what its sources said between them.
        reasons: why no source took a bound.
        errors: what ended it; a test may start it again.
    """

    engine: SparkEngine
    query: str
    chance: random.Random
    most: int
    finished: list[BatchFinished] = field(default_factory=list)
    planned: list[BatchPlanned] = field(default_factory=list)
    waiting: list[RowsWaiting] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    def read_until(self, is_over: Callable[[], bool], *, bounds: bool = True) -> None:
        """Goes on until it is over; fails if that never comes."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_over():
            assert time.monotonic() < deadline_s, (
                f"{self.query}: {self.finished[-3:]} {self.errors}"
            )
            event = self.engine.wait(0.5)
            self._take_in(event)
            if bounds and isinstance(event, BatchFinished) and event.query == self.query:
                reason = self.engine.bound(self.query, self.chance.randint(1, self.most))
                self.reasons.add(reason)

    def wait_for_tick(self, trigger_s: float = 1.0) -> None:
        """Lets a trigger pass: no batch is being planned, and none is about to be.

        Spark's triggers are at the whole multiples of their interval, since 1970.
        """
        until_s = (time.time() // trigger_s + 1.0) * trigger_s + 1.0
        self.read_until(lambda: time.time() >= until_s, bounds=False)

    def count_rows(self) -> int:
        """That all batches have read."""
        return sum(batch.sample.input_rows for batch in self.finished)

    def _take_in(self, event: Event | None) -> None:
        match event:
            case BatchFinished(query=self.query):
                self.finished.append(event)
            case BatchPlanned(query=self.query):
                self.planned.append(event)
            case RowsWaiting(query=self.query):
                self.waiting.append(event)
            case QueryEnded(query=self.query, error=str(error)):
                self.errors.append(error)


Begin = Callable[..., StreamingQuery]
"""Starts a query: a frame, its name, and the sink and trigger by name."""

MakeBounder = Callable[[str, int], Bounder]
"""Makes a bounder: the name of a query, and the rows of the highest bound."""


def read_limits(spark: SparkSession, query: StreamingQuery) -> list[str]:
    """The limits that Spark has in force for the sources of a query, as it writes them."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    execution = (
        session.sharedState()
        .activeStreamingQueries()
        .get(jvm.java.util.UUID.fromString(str(query.id)))
    )
    limits = execution.uniqueSources().values().iterator()
    found = []
    while limits.hasNext():
        found.append(str(limits.next().toString()))
    return sorted(found)


def write_files(folder: Path, numbers: range, rows: int) -> list[str]:
    """Files of so many lines each; returns the lines."""
    folder.mkdir(exist_ok=True)
    lines = []
    for number in numbers:
        of_file = [f"{number}-{row}" for row in range(rows)]
        hidden = folder / f".{number:05}"
        hidden.write_text("".join(f"{line}\n" for line in of_file))
        hidden.rename(folder / f"{number:05}.txt")
        lines.extend(of_file)
    return lines


def read_output(spark: SparkSession, folder: Path) -> Counter[str]:
    """The values that a query's sink holds, and how often."""
    rows = spark.read.schema("value string").json(str(folder)).collect()
    return Counter(row.value for row in rows)
