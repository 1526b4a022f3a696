"""What the live view remembers of a run, in bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from balancedstream.core.printing import printable
from balancedstream.live.moves import MovesUnderWay, describe_ended
from balancedstream.live.plain import KEPT_QUERIES, describe_subject
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    MoveRecord,
    OperatorBatchLoad,
    PreparationOutcome,
    RunInfo,
    ScaleRecord,
    start_preparation_totals,
)
from balancedstream.record.wording import crop, plural

RECENT_BATCHES = 20
KEPT_ENTRIES = 24
NAME_WIDTH = 32

EntryKind = Literal["move", "settled", "scale", "note"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log under the frame's tables; its text is printable."""

    at_s: float
    kind: EntryKind
    text: str


@dataclass(slots=True)
class QueryState:
    """A query's latest batch, and what its earlier ones add up to."""

    latest: BatchRecord
    durations_ms: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_BATCHES))
    busy_s: dict[int, float] = field(default_factory=dict)

    def median_s(self) -> float:
        """Returns the median duration of the last batches, in seconds."""
        return median(self.durations_ms) / 1_000


def describe_briefly(query: str, operator: int | None) -> str:
    """Names an operator, a query or the application, a long name cut short."""
    return describe_subject(crop(query, NAME_WIDTH), operator)


class RunState:
    """Takes in the records of a run, as a `Spectator` does, and answers what the frame shows."""

    def __init__(self, run: RunInfo) -> None:
        self.run = run
        self.moves = MovesUnderWay()
        self.decisions: dict[tuple[str, int | None], DecisionRecord] = {}  # the latest ones
        self.entries: deque[Entry] = deque(maxlen=KEPT_ENTRIES)  # oldest first
        self.latest: BatchRecord | None = None
        self.batches = self.rows = self.scale_actions = 0
        self.preparations = start_preparation_totals()
        self.ended_s: float | None = None  # since the Unix epoch; None while the run goes on
        self._queries: dict[str, QueryState] = {}
        # A warning that Python prints while a record is taken in draws the frame, too.
        self._lock = threading.RLock()

    def on_batch(self, record: BatchRecord) -> None:
        """Takes the batch as the query's present state."""
        with self._lock:
            self.batches += 1
            self.rows += record.input_rows
            self.latest = record
            query = self._queries.pop(record.query, QueryState(record))
            self._queries[record.query] = query  # the latest is last
            if len(self._queries) > KEPT_QUERIES:
                self._forget(next(iter(self._queries)))
            query.latest = record
            query.durations_ms.append(record.duration_ms)
            for load in record.loads:
                busy_s = query.busy_s.get(load.operator, 0.0)
                query.busy_s[load.operator] = busy_s + sum(load.partition_busy_s)

    def on_decision(self, record: DecisionRecord) -> None:
        """Shows the decision until the next one on its operator; logs one to move."""
        with self._lock:
            self.decisions[record.query, record.operator] = record
            if record.kind == "move":
                about = describe_briefly(record.query, record.operator)
                self._log(record.at_s, "move", f"{about}: {record.reason}")

    def on_move(self, record: MoveRecord) -> None:
        """Shows the move while it is under way; logs when the operator's moves have all ended."""
        with self._lock:
            ended = self.moves.take(record)
            if ended:
                at_s, text = describe_ended(ended)
                about = describe_briefly(record.query, record.operator)
                self._log(at_s, "settled", f"{about}: {text}")

    def on_preparation(self, outcome: PreparationOutcome, state_bytes: int, spent_s: float) -> None:
        """Counts state that was loaded ahead of a move."""
        with self._lock:
            self.preparations[outcome].add(state_bytes, spent_s)

    def on_scale(self, record: ScaleRecord) -> None:
        """Counts the action and logs it."""
        with self._lock:
            self.scale_actions += 1
            counts = f"{record.executors_before} → {plural(record.executors_after, 'executor')}"
            self._log(record.at_s, "scale", f"{counts} ({record.verdict}): {record.reason}")

    def queries(self) -> list[QueryState]:
        """Returns the queries, the one with most load first."""
        return sorted(self._queries.values(), key=lambda query: -sum(query.busy_s.values()))

    def loads(self) -> list[tuple[BatchRecord, OperatorBatchLoad]]:
        """Returns each operator's load in its query's last batch, the busiest operator first."""
        loads = [
            (query.busy_s[load.operator], query.latest, load)
            for query in self._queries.values()
            for load in query.latest.loads
            if load.partition_busy_s
        ]
        loads.sort(key=lambda entry: -entry[0])
        return [(batch, load) for _, batch, load in loads]

    def subjects(self) -> list[tuple[str, int | None]]:
        """Returns what is decided on, by query and operator: the busiest operator first.

        The number of executors comes last, as ("", None).
        """
        known = [(batch.query, load.operator) for batch, load in self.loads()]
        subjects = dict.fromkeys([*known, *self.moves.operators(), *self.decisions])
        return sorted(subjects, key=lambda subject: subject[1] is None)

    def _forget(self, name: str) -> None:
        del self._queries[name]
        for query, operator in list(self.decisions):
            if query == name:
                del self.decisions[query, operator]

    def _log(self, at_s: float, kind: EntryKind, text: str) -> None:
        self.entries.append(Entry(at_s, kind, printable(text)))
