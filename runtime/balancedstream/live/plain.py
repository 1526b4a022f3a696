"""Plain lines: one for each decision that a person would want to read in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from balancedstream.core.printing import printable
from balancedstream.live.moves import MovesUnderWay, describe_ended
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    MoveRecord,
    PreparationOutcome,
    RunInfo,
    ScaleRecord,
    start_preparation_totals,
)
from balancedstream.record.wording import (
    describe_preparations,
    format_clock,
    format_duration,
    plural,
)

REPEAT_AFTER_S = 1_800.0
"""A decision that changes nothing is written again only after this time."""

KEPT_QUERIES = 100


def describe_subject(query: str, operator: int | None) -> str:
    """Names what a line is about: an operator, a query, or the whole application."""
    name = printable(query) or "application"
    return name if operator is None else f"{name}, operator {operator}"


class PlainView:
    """Writes one line for each decision that a person would want to read in a log.

    A decision that changes nothing is written when it is new, after each action, and every half
    hour. Moves are reported once, when the last one of the operator has ended.

    Args:
        run: where and with what the run takes place.
        file: where the lines go; standard error if not given.
        clock: seconds since the Unix epoch.
        prefix: what each line begins with, where others write to the same file.
    """

    def __init__(
        self,
        run: RunInfo,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.time,
        prefix: str = "",
    ) -> None:
        self._run = run
        self._file = sys.stderr if file is None else file
        self._clock = clock
        self._prefix = prefix
        self._lock = threading.RLock()
        self._closed = False
        self._batches = self._rows = self._scale_actions = 0
        self._moves = MovesUnderWay()
        self._preparations = start_preparation_totals()
        self._queries: set[str] = set()
        self._last_written_s: dict[tuple[str, int | None], dict[str, float]] = {}
        self._write(
            run.started_s,
            f"balancing {printable(run.app)}: {plural(run.cores, 'core')}, "
            f"Spark {run.spark_version}, Python {run.python_version}",
        )

    def on_batch(self, record: BatchRecord) -> None:
        """Counts the batch; the first one of a query that was measured is a line."""
        with self._lock:
            self._batches += 1
            self._rows += record.input_rows
            measured = record.trigger == "micro-batch"
            if record.query in self._queries or (
                measured and record.has_state and not record.loads
            ):
                return
            if len(self._queries) >= KEPT_QUERIES:  # at worst a line is written once more
                self._queries.clear()
                self._last_written_s.clear()
            self._queries.add(record.query)
            sizes = ", ".join(
                f"operator {load.operator} ({printable(load.name)}) with "
                f"{plural(len(load.partition_busy_s), 'state partition')}"
                for load in record.loads
            )
            if not measured:
                sizes = f"{record.trigger}, not measured"
            self._write(
                record.finished_s,
                f"{describe_subject(record.query, None)}: first batch on "
                f"{plural(record.executors, 'executor')}: {sizes or 'no stateful operator'}",
            )

    def on_decision(self, record: DecisionRecord) -> None:
        """Writes the decision and its reason, unless it only repeats."""
        if record.kind == "scale":
            return  # on_scale has the numbers
        with self._lock:
            written_s = self._last_written_s.setdefault((record.query, record.operator), {})
            if record.kind == "move":
                written_s.clear()
            elif record.at_s - written_s.get(record.kind, float("-inf")) < REPEAT_AFTER_S:
                return
            else:
                written_s[record.kind] = record.at_s
            about = describe_subject(record.query, record.operator)
            self._write(record.at_s, f"{about}: {printable(record.reason)}")

    def on_move(self, record: MoveRecord) -> None:
        """Writes a line once no move of the operator is under way any more."""
        with self._lock:
            ended = self._moves.take(record)
            if ended:
                ended_s, text = describe_ended(ended)
                self._write(ended_s, f"{describe_subject(record.query, record.operator)}: {text}")

    def on_preparation(self, outcome: PreparationOutcome, state_bytes: int, spent_s: float) -> None:
        """Counts the state."""
        with self._lock:
            self._preparations[outcome].add(state_bytes, spent_s)

    def on_scale(self, record: ScaleRecord) -> None:
        """Writes the change and its reason."""
        with self._lock:
            self._scale_actions += 1
            self._last_written_s.clear()
            self._write(
                record.at_s,
                f"scale from {record.executors_before} to {record.executors_after} executors "
                f"({printable(record.verdict)}): {printable(record.reason)}",
            )

    def note(self, text: str) -> None:
        """Writes the text as a line."""
        self._write(self._clock(), printable(text))

    def close(self) -> None:
        """Writes the totals of the run."""
        with self._lock:
            if self._closed:
                return
            now_s = self._clock()
            totals = [
                plural(self._batches, "batch"),
                plural(self._rows, "row"),
                plural(self._moves.begun, "move"),
                plural(self._scale_actions, "scale action"),
                describe_preparations(self._preparations),
            ]
            took = format_duration(max(0.0, now_s - self._run.started_s))
            self._write(now_s, f"ended after {took}: {', '.join(filter(None, totals))}")
            self._closed = True

    def _write(self, at_s: float, text: str) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                self._file.write(f"{self._prefix}{format_clock(at_s)} {text}\n")
                self._file.flush()
            except (AttributeError, OSError, ValueError):  # it is closed, or its reader went away
                self._closed = True
