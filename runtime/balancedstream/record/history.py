"""The history of one run, kept in bounded memory.

The loop appends to a `History` while the stream runs, and the report is made from it. A stream runs
for months, so memory is bounded: counters cover the whole run; records cover its opening and its
latest part.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeVar

from balancedstream.core.samples import KeySample, ShuffleRecord
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    KeyMoveRecord,
    MoveRecord,
    PreparationOutcome,
    QueryTotals,
    Record,
    RestartRecord,
    RunInfo,
    RunTotals,
    ScaleRecord,
)
from balancedstream.record.stores import BatchStore, MoveLedger

KEPT_MOVES = 10_000
KEPT_KEY_MOVES = 10_000
KEPT_QUERIES = 100
KEPT: dict[type, int] = {
    KeySample: 20_000,
    ScaleRecord: 1_000,
    DecisionRecord: 1_000,
    RestartRecord: 1_000,
    ShuffleRecord: 1_000,
}
"""How many of the latest records are kept of each kind that is only appended."""

Place = tuple[str, int, int]
"""What moves: query, operator and state partition (0-based)."""

_Kept = TypeVar("_Kept", KeySample, ScaleRecord, DecisionRecord, RestartRecord, ShuffleRecord)


class History:
    """What happened in one run; every method may be called from any thread.

    Kept are each query's first 200 batches, the latest 20,000 batches of all queries, the latest
    10,000 moves of partitions and of keys each, the latest 20,000 measurements of hot keys, and the
    latest 1,000 decisions, scale actions, restarts and shuffled batches, for the 100 queries heard
    of last. Loads per partition are the bulk: 1.2 million of them are kept; beyond that the older
    batches keep their imbalance and bound only. All this together takes about 50 MB, which a small
    job never reaches. Counters are exact throughout.
    """

    def __init__(self, run: RunInfo) -> None:
        self._lock = threading.Lock()
        self._run = run
        self._totals = RunTotals()
        self._queries: dict[str, QueryTotals] = {}
        self._store = BatchStore()
        self._moves: MoveLedger[MoveRecord] = MoveLedger(KEPT_MOVES)
        self._key_moves: MoveLedger[KeyMoveRecord] = MoveLedger(KEPT_KEY_MOVES)
        self._latest: dict[type, deque[Any]] = {
            kind: deque(maxlen=most) for kind, most in KEPT.items()
        }

    def add_batch(self, record: BatchRecord) -> None:
        """Appends a finished micro-batch."""
        with self._lock:
            self._totals.batches += 1
            self._totals.rows += record.input_rows
            self._count_executors(record)
            query = self._query(record.query)
            query.batches += 1
            query.rows += record.input_rows
            query.last_seen = self._totals.batches
            for load in record.loads:
                busy_s = query.operator_busy_s.get(load.operator, 0.0)
                query.operator_busy_s[load.operator] = busy_s + sum(load.partition_busy_s)
            self._store.add(self._totals.batches, record)

    def add_move(self, record: MoveRecord) -> None:
        """Appends a move that was decided; an older one of that partition is then dropped."""
        with self._lock:
            why = "a newer move of the same partition was decided"
            self._drop(record.place, record.decided_s, why)
            query = self._moved_query(record)
            query.moves += 1
            query.moves_settled += record.settled_s is not None
            query.moves_dropped += record.dropped_s is not None
            self._totals.moves += 1
            self._totals.moves_settled += record.settled_s is not None
            self._totals.moves_dropped += record.dropped_s is not None
            self._moves.add(record)

    def change_move(
        self, place: Place, *, preparing: bool, prepared_s: float | None = None
    ) -> MoveRecord | None:
        """Notes whether a move's target loads the state now, or in how many seconds it did.

        Returns:
            The changed move; None if no move of that partition is under way.
        """
        with self._lock:
            return self._moves.change(place, preparing=preparing, prepared_s=prepared_s)

    def settle_move(
        self, place: Place, *, settled_s: float, restore_s: float | None
    ) -> MoveRecord | None:
        """Marks the partition's move as in effect; the fields are as in `MoveRecord`.

        Returns:
            The settled move; None if no move of that partition was under way.
        """
        with self._lock:
            ended = {"settled_s": settled_s, "restore_s": restore_s, "preparing": False}
            settled = self._moves.end(place, **ended)
            if settled is not None:
                self._query(settled.query).moves_settled += 1
                self._totals.moves_settled += 1
            return settled

    def drop_move(self, place: Place, *, dropped_s: float, reason: str) -> MoveRecord | None:
        """Marks the partition's move as given up.

        Returns:
            The dropped move; None if no move of that partition was under way.
        """
        with self._lock:
            return self._drop(place, dropped_s, reason)

    def add_preparation(
        self, outcome: PreparationOutcome, state_bytes: int, spent_s: float
    ) -> None:
        """Counts state that was loaded ahead of a move, once its outcome is known."""
        with self._lock:
            self._totals.preparations[outcome].add(state_bytes, spent_s)

    def add_key_samples(self, samples: Iterable[KeySample]) -> None:
        """Appends what the hottest keys of a batch cost."""
        with self._lock:
            self._latest[KeySample].extend(samples)

    def add_key_move(self, record: KeyMoveRecord) -> None:
        """Appends a move of a key that was decided; an older one of that key is then dropped."""
        with self._lock:
            why = "a newer move of the same key was decided"
            self._key_moves.end(record.place, dropped_s=record.decided_s, dropped_reason=why)
            query = self._moved_query(record)
            query.key_moves += 1
            query.key_moves_settled += record.settled_s is not None
            self._totals.key_moves += 1
            self._totals.key_moves_settled += record.settled_s is not None
            self._key_moves.add(record)

    def settle_key_move(
        self, query: str, key: str, *, settled_s: float, settled_batch: int
    ) -> KeyMoveRecord | None:
        """Marks the key's move as in effect; the fields are as in `KeyMoveRecord`.

        Returns:
            The settled move; None if no move of that key was under way.
        """
        with self._lock:
            ended = {"settled_s": settled_s, "settled_batch": settled_batch}
            settled = self._key_moves.end((query, key), **ended)
            if settled is not None:
                self._query(query).key_moves_settled += 1
                self._totals.key_moves_settled += 1
            return settled

    def drop_key_move(
        self, query: str, key: str, *, dropped_s: float, reason: str
    ) -> KeyMoveRecord | None:
        """Marks the key's move as given up.

        Returns:
            The dropped move; None if no move of that key was under way.
        """
        with self._lock:
            return self._key_moves.end((query, key), dropped_s=dropped_s, dropped_reason=reason)

    def add_scale(self, record: ScaleRecord) -> None:
        """Appends a change of the number of executors."""
        with self._lock:
            self._totals.scale_actions += 1
            self._latest[ScaleRecord].append(record)

    def add_decision(self, record: DecisionRecord) -> None:
        """Appends a decision, "nothing to do" included."""
        with self._lock:
            self._totals.decisions += 1
            self._latest[DecisionRecord].append(record)

    def add_restart(self, record: RestartRecord) -> None:
        """Appends a restart of a query."""
        with self._lock:
            self._totals.restarts += 1
            self._query(record.query).restarts += 1
            self._latest[RestartRecord].append(record)

    def add_shuffle(self, record: ShuffleRecord) -> None:
        """Appends a micro-batch of a cost-aware shuffle."""
        with self._lock:
            self._latest[ShuffleRecord].append(record)

    def end(self, ended_s: float) -> None:
        """Notes when the run ended, seconds since the Unix epoch."""
        with self._lock:
            self._run = replace(self._run, ended_s=ended_s)

    @property
    def run(self) -> RunInfo:
        """Where and with what the run takes place."""
        with self._lock:
            return self._run

    @property
    def totals(self) -> RunTotals:
        """Counters over the whole run, a copy."""
        with self._lock:
            return deepcopy(self._totals)

    @property
    def queries(self) -> tuple[QueryTotals, ...]:
        """Counters per query, copies, in order of appearance."""
        with self._lock:
            return tuple(
                replace(query, operator_busy_s=dict(query.operator_busy_s))
                for query in self._queries.values()
            )

    @property
    def batches(self) -> tuple[BatchRecord, ...]:
        """The batches kept, in order of arrival."""
        with self._lock:
            return self._store.records()

    @property
    def moves(self) -> tuple[MoveRecord, ...]:
        """The moves kept, in order of decision."""
        with self._lock:
            return self._moves.records()

    @property
    def key_moves(self) -> tuple[KeyMoveRecord, ...]:
        """The moves of keys kept, in order of decision."""
        with self._lock:
            return self._key_moves.records()

    @property
    def key_samples(self) -> tuple[KeySample, ...]:
        """What hot keys cost in the batches kept, in order of arrival."""
        return self._list(KeySample)

    @property
    def scales(self) -> tuple[ScaleRecord, ...]:
        """The scale actions kept, in order."""
        return self._list(ScaleRecord)

    @property
    def decisions(self) -> tuple[DecisionRecord, ...]:
        """The decisions kept, in order."""
        return self._list(DecisionRecord)

    @property
    def restarts(self) -> tuple[RestartRecord, ...]:
        """The restarts kept, in order."""
        return self._list(RestartRecord)

    @property
    def shuffles(self) -> tuple[ShuffleRecord, ...]:
        """The micro-batches of cost-aware shuffles kept, in order."""
        return self._list(ShuffleRecord)

    def restore(self, records: Iterable[Record], totals: RunTotals) -> None:
        """Puts records back that an earlier history held.

        Args:
            records: of a run, in the order in which they were kept.
            totals: its counters, which cover more than what was kept.
        """
        with self._lock:
            for record in records:
                self._restore(record)
            self._totals = totals

    def _list(self, kind: type[_Kept]) -> tuple[_Kept, ...]:
        with self._lock:
            return tuple(self._latest[kind])

    def _query(self, name: str) -> QueryTotals:
        query = self._queries.get(name)
        if query is None:
            if len(self._queries) >= KEPT_QUERIES:
                silent = min(self._queries.values(), key=lambda totals: totals.last_seen)
                del self._queries[silent.query]
                self._store.forget_query(silent.query)
            query = self._queries[name] = QueryTotals(name, last_seen=self._totals.batches)
        return query

    def _moved_query(self, move: MoveRecord | KeyMoveRecord) -> QueryTotals:
        """The counters of a query that has a new move, which may be its first."""
        query = self._query(move.query)
        if query.first_move_after_batch is None:
            query.first_move_after_batch = move.decided_after_batch
        return query

    def _count_executors(self, record: BatchRecord) -> None:
        """Takes the executors of a batch for those since the last batch of any query."""
        passed_s = record.finished_s - self._run.started_s - self._totals.measured_s
        if passed_s > 0:
            self._totals.measured_s += passed_s
            self._totals.executor_s += passed_s * record.executors

    def _drop(self, place: Place, dropped_s: float, reason: str) -> MoveRecord | None:
        ended = {"dropped_s": dropped_s, "dropped_reason": reason, "preparing": False}
        dropped = self._moves.end(place, **ended)
        if dropped is not None:
            self._query(dropped.query).moves_dropped += 1
            self._totals.moves_dropped += 1
        return dropped

    def _restore(self, record: Record) -> None:
        match record:
            case BatchRecord():
                self._totals.batches += 1
                self._store.add(self._totals.batches, record)
            case MoveRecord():
                self._moves.add(record)
            case KeyMoveRecord():
                self._key_moves.add(record)
            case QueryTotals():
                self._queries[record.query] = record
            case _:
                self._latest[type(record)].append(record)
