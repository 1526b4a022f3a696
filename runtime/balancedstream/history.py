"""The record of one run: what was observed, decided and done, in the order it happened.

The controller appends to a `History` while the stream runs; the report is made from it. A stream
runs for months, so memory is bounded: counters cover the whole run, records its opening and its
latest part. A history can be written as JSON lines and read back, to rebuild a report elsewhere.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain, count
from operator import itemgetter
from typing import Any, Generic, Literal, TypeVar

from balancedstream.core.observations import KeySample
from balancedstream.errors import InvalidInputError

FORMAT = 1

OPENING_BATCHES = 200
"""Batches kept for good from each query's start: what the run is later compared with."""

RECENT_BATCHES = 20_000
"""Batches kept from the end of the run, over all queries."""

OPENING_MEASUREMENTS = 200_000
"""Partition measurements kept with the opening batches, about 32 bytes each."""

RECENT_MEASUREMENTS = 1_000_000
"""Partition measurements kept with the latest batches, about 32 bytes each."""

KEPT_MOVES = 10_000
KEPT_KEY_MOVES = 10_000
KEPT_KEY_SAMPLES = 20_000
KEPT_DECISIONS = 1_000
KEPT_SCALES = 1_000
KEPT_RESTARTS = 1_000
KEPT_SHUFFLES = 1_000
KEPT_QUERIES = 100

DecisionKind = Literal["move", "scale", "unsplittable", "hold", "none"]
"""What a decision came to.

`move`: partitions get another executor. `scale`: the number of executors changes. `unsplittable`:
one partition alone exceeds an executor's share. `hold`: there is cause to act, and a reason to
wait. `none`: nothing to do.
"""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Where and with what a run took place.

    Attributes:
        app: name of the script or application.
        started_s: seconds since the Unix epoch.
        cores: processor cores of the machine, or of the cluster's executors in all.
        spark_version: for instance "4.3.0".
        python_version: for instance "3.11.7".
        settings: the policy in force, knob to value; JSON scalars.
        ended_s: seconds since the Unix epoch; None while the run goes on.
    """

    app: str
    started_s: float
    cores: int
    spark_version: str
    python_version: str
    settings: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    ended_s: float | None = None


@dataclass(frozen=True, slots=True)
class OperatorBatchLoad:
    """What one stateful operator's partitions cost in one micro-batch, and where they ran.

    Attributes:
        operator: Spark's operator id within the query.
        name: the operator's short name, for instance "stateStoreSave".
        partition_busy_s: busy seconds, indexed by state partition; 0.0 where no task reported.
            Empty once the history has let go of this detail.
        partition_executor: the executor that ran each partition; "" where no task reported.
        imbalance: max / mean of busy seconds per core over the executors, at least 1.
        bound: the least imbalance that any placement of these partitions could reach.
    """

    operator: int
    name: str
    partition_busy_s: tuple[float, ...]
    partition_executor: tuple[str, ...]
    imbalance: float
    bound: float

    def executor_busy_s(self) -> dict[str, float]:
        """Returns busy seconds per executor; executors that ran no partition are absent."""
        busy_s: dict[str, float] = {}
        for executor, partition_s in zip(
            self.partition_executor, self.partition_busy_s, strict=True
        ):
            if executor:
                busy_s[executor] = busy_s.get(executor, 0.0) + partition_s
        return busy_s

    def without_partitions(self) -> OperatorBatchLoad:
        """Returns this load with its two figures and no detail per partition."""
        return replace(self, partition_busy_s=(), partition_executor=())


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One finished micro-batch.

    Attributes:
        query: the query's stable name or id.
        batch: micro-batch number.
        finished_s: seconds since the Unix epoch.
        duration_ms: trigger execution, planning and commit included.
        input_rows: rows read from the sources.
        backlog_rows: rows that wait at the sources; None where no source says.
        executors: live executors when the batch finished.
        loads: one per stateful operator.
    """

    query: str
    batch: int
    finished_s: float
    duration_ms: int
    input_rows: int
    backlog_rows: float | None
    executors: int
    loads: tuple[OperatorBatchLoad, ...] = ()

    def measurements(self) -> int:
        """Returns how many partition measurements this record holds."""
        return sum(len(load.partition_busy_s) for load in self.loads)

    def without_partitions(self) -> BatchRecord:
        """Returns this record with no detail per partition."""
        return replace(self, loads=tuple(load.without_partitions() for load in self.loads))


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """One state partition on its way from one executor to another.

    A move ends in one of two ways: it settles, or it is dropped (a newer move of the same
    partition, a lost target, a withdrawn plan). Until then it is under way.

    Attributes:
        query: the query's stable name or id.
        operator: Spark's operator id within the query.
        partition: state partition, 0-based.
        source: executor that held the partition; "" if none did.
        target: executor that shall hold it.
        decided_s: seconds since the Unix epoch.
        reason: why it moves, for a person.
        decided_after_batch: the last finished batch at that time; the move can show in the next.
        settled_s: when the first batch that ran the partition on the target had finished.
        load_s: seconds that task spent on loading the partition's state.
        dropped_s: when the move was given up.
        dropped_reason: why it was given up.
    """

    query: str
    operator: int
    partition: int
    source: str
    target: str
    decided_s: float
    reason: str
    decided_after_batch: int
    settled_s: float | None = None
    load_s: float | None = None
    dropped_s: float | None = None
    dropped_reason: str | None = None

    @property
    def place(self) -> tuple[str, int, int]:
        """What moves: query, operator and partition. One move of it is under way at most."""
        return self.query, self.operator, self.partition

    def under_way(self) -> bool:
        """Returns whether the move has neither settled nor been dropped."""
        return self.settled_s is None and self.dropped_s is None


@dataclass(frozen=True, slots=True)
class KeyMoveRecord:
    """One key on its way from one state partition to another, with its state.

    It ends as a `MoveRecord` does.

    Attributes:
        query: the query's stable name or id.
        operator: Spark's operator id within the query.
        key: the key, as text or hashed.
        source: state partition that held the key, 0-based.
        target: state partition that shall hold it.
        decided_s: seconds since the Unix epoch.
        reason: why it moves, for a person.
        decided_after_batch: the last finished batch at that time; the move can show in the next
            but one, since the state is handed over at a batch's end.
        settled_s: when the first batch that had the key in the target had finished.
        settled_batch: number of that batch.
        dropped_s: when the move was given up.
        dropped_reason: why it was given up.
    """

    query: str
    operator: int
    key: str
    source: int
    target: int
    decided_s: float
    reason: str
    decided_after_batch: int
    settled_s: float | None = None
    settled_batch: int | None = None
    dropped_s: float | None = None
    dropped_reason: str | None = None

    @property
    def place(self) -> tuple[str, str]:
        """What moves: query and key. One move of it is under way at most."""
        return self.query, self.key

    def under_way(self) -> bool:
        """Returns whether the move has neither settled nor been dropped."""
        return self.settled_s is None and self.dropped_s is None


@dataclass(frozen=True, slots=True)
class ScaleRecord:
    """One change of the number of executors.

    Attributes:
        at_s: seconds since the Unix epoch.
        executors_before: executors at that time.
        executors_after: executors asked for.
        verdict: what was found, for instance "capacity" or "skew".
        reason: why, for a person.
    """

    at_s: float
    executors_before: int
    executors_after: int
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision, "nothing to do" included.

    Attributes:
        at_s: seconds since the Unix epoch.
        query: the query's stable name or id; "" for one about the whole application.
        operator: Spark's operator id; None for a decision about the query or application.
        kind: what the decision came to.
        reason: why, for a person, with the numbers it rests on.
        imbalance: imbalance that was seen; None where it plays no part.
        bound: the least imbalance any placement could reach; None where it plays no part.
        moves: how many moves were decided.
    """

    at_s: float
    query: str
    operator: int | None
    kind: DecisionKind
    reason: str
    imbalance: float | None = None
    bound: float | None = None
    moves: int = 0


@dataclass(frozen=True, slots=True)
class RestartRecord:
    """One restart of a query inside the run.

    Attributes:
        at_s: seconds since the Unix epoch.
        query: the query's stable name or id.
        reason: why it restarted, as far as known.
    """

    at_s: float
    query: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShuffleRecord:
    """A micro-batch that went through a cost-aware shuffle.

    Attributes:
        at_s: when its last task had ended, seconds since the Unix epoch.
        shuffle: the function's name and the cost key; numbered where queries share them.
        batch: number of the micro-batch.
        records: rows whose costs were learnt from it.
        by_estimates: whether it was routed by estimated costs; else by round robin.
        estimated_s: load of each partition by the estimates; 0 where there were none yet.
        real_s: what the function took for the rows of each partition.
        error: of the estimates in this batch, as a part of all cost; None where nothing was judged.
        equal_error: the same if all rows were taken to cost the same.
        trusted: whether the next batch is routed by estimated costs.
        reason: why.
    """

    at_s: float
    shuffle: str
    batch: int
    records: int
    by_estimates: bool
    estimated_s: tuple[float, ...]
    real_s: tuple[float, ...]
    error: float | None
    equal_error: float | None
    trusted: bool
    reason: str

    def imbalance(self) -> float:
        """Returns the dearest partition's real load over the mean; 1 is level."""
        total_s = sum(self.real_s)
        return max(self.real_s) * len(self.real_s) / total_s if total_s else 1.0


@dataclass(slots=True)
class RunTotals:
    """Counters over the whole run, whatever records are still kept."""

    rows: int = 0
    batches: int = 0
    restarts: int = 0
    moves: int = 0
    moves_settled: int = 0
    moves_dropped: int = 0
    key_moves: int = 0
    key_moves_settled: int = 0
    scale_actions: int = 0
    decisions: int = 0


@dataclass(slots=True)
class QueryTotals:
    """Counters of one query over the whole run.

    Attributes:
        query: the query's stable name or id.
        rows: rows read from the sources.
        batches: finished micro-batches.
        restarts: restarts inside the run.
        moves: moves decided.
        moves_settled: moves that took effect.
        moves_dropped: moves given up.
        key_moves: moves of keys decided.
        key_moves_settled: moves of keys that took effect.
        first_move_after_batch: the last batch that finished before the first move, of a partition
            or a key, was decided.
        operator_busy_s: busy seconds per operator id.
        last_seen: ordinal of the latest batch; says which query was silent for longest.
    """

    query: str
    rows: int = 0
    batches: int = 0
    restarts: int = 0
    moves: int = 0
    moves_settled: int = 0
    moves_dropped: int = 0
    key_moves: int = 0
    key_moves_settled: int = 0
    first_move_after_batch: int | None = None
    operator_busy_s: dict[int, float] = field(default_factory=dict)
    last_seen: int = 0

    def busy_s(self) -> float:
        """Returns busy seconds over all operators."""
        return sum(self.operator_busy_s.values())


_Numbered = tuple[int, BatchRecord]


class _BatchStore:
    """The opening of each query and the latest batches of all, within the budgets above."""

    def __init__(self) -> None:
        self._opening: dict[str, list[_Numbered]] = {}
        self._opening_measurements = 0
        self._detailed: deque[_Numbered] = deque()
        self._plain: deque[_Numbered] = deque()  # older than every detailed one
        self._recent_measurements = 0
        self._placements: dict[tuple[str, int], tuple[str, ...]] = {}  # latest per operator

    def add(self, number: int, record: BatchRecord) -> None:
        record = self._share_placements(record)
        size = record.measurements()
        opening = self._opening.setdefault(record.query, [])
        if (
            len(opening) < OPENING_BATCHES
            and self._opening_measurements + size <= OPENING_MEASUREMENTS
        ):
            opening.append((number, record))
            self._opening_measurements += size
            return
        self._detailed.append((number, record))
        self._recent_measurements += size
        # the newest batch keeps its detail, however large
        while self._recent_measurements > RECENT_MEASUREMENTS and len(self._detailed) > 1:
            self._strip_oldest()
        if len(self._plain) + len(self._detailed) > RECENT_BATCHES:
            if not self._plain:
                self._strip_oldest()
            oldest_number, oldest = self._plain.popleft()
            opening = self._opening.get(oldest.query, [])
            if len(opening) < OPENING_BATCHES:  # its opening was too large to keep in detail
                opening.append((oldest_number, oldest))

    def forget_query(self, query: str) -> None:
        for _, record in self._opening.pop(query, []):
            self._opening_measurements -= record.measurements()
        for key in [key for key in self._placements if key[0] == query]:
            del self._placements[key]

    def records(self) -> tuple[BatchRecord, ...]:
        numbered = chain(*self._opening.values(), self._plain, self._detailed)
        return tuple(record for _, record in sorted(numbered, key=itemgetter(0)))

    def _share_placements(self, record: BatchRecord) -> BatchRecord:
        """Lets batches share one tuple of executors for as long as nothing moves."""
        loads = []
        for load in record.loads:
            key = record.query, load.operator
            if self._placements.get(key) != load.partition_executor:
                self._placements[key] = load.partition_executor
            loads.append(replace(load, partition_executor=self._placements[key]))
        return replace(record, loads=tuple(loads))

    def _strip_oldest(self) -> None:
        number, oldest = self._detailed.popleft()
        self._recent_measurements -= oldest.measurements()
        self._plain.append((number, oldest.without_partitions()))


_Move = TypeVar("_Move", MoveRecord, KeyMoveRecord)


class _MoveLedger(Generic[_Move]):
    """The latest moves of one kind, and which of them are under way."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._numbers = count()
        self._moves: dict[int, _Move] = {}  # by number, oldest first
        self._under_way: dict[tuple[str | int, ...], int] = {}  # place to number of its move

    def add(self, move: _Move) -> None:
        number = next(self._numbers)
        self._moves[number] = move
        if move.under_way():
            self._under_way[move.place] = number
        if len(self._moves) > self._kept:
            oldest = self._moves.pop(next(iter(self._moves)))
            if oldest.under_way():
                del self._under_way[oldest.place]

    def end(self, place: tuple[str | int, ...], **outcome: Any) -> _Move | None:
        """Writes the outcome into the move of a place; None if none was under way."""
        number = self._under_way.pop(place, None)
        if number is None:
            return None
        ended = self._moves[number] = replace(self._moves[number], **outcome)
        return ended

    def records(self) -> tuple[_Move, ...]:
        return tuple(self._moves.values())


class History:
    """What happened in one run; every method may be called from any thread.

    Kept are each query's first 200 batches, the latest 20,000 batches of all queries, the latest
    10,000 moves of partitions and of keys each, the latest 20,000 measurements of hot keys, and the
    latest 1,000 decisions, scale actions, restarts and shuffled batches, for the 100 queries heard
    of last. Loads per partition are the bulk: 1.2 million of them are kept; beyond that the older
    batches keep their imbalance and bound only. All this together takes about 50 MB, which a small
    job never reaches. Counters are exact throughout.

    Args:
        run: where and with what the run takes place.
    """

    def __init__(self, run: RunInfo) -> None:
        self._lock = threading.Lock()
        self._run = run
        self._totals = RunTotals()
        self._queries: dict[str, QueryTotals] = {}
        self._store = _BatchStore()
        self._moves: _MoveLedger[MoveRecord] = _MoveLedger(KEPT_MOVES)
        self._key_moves: _MoveLedger[KeyMoveRecord] = _MoveLedger(KEPT_KEY_MOVES)
        self._key_samples: deque[KeySample] = deque(maxlen=KEPT_KEY_SAMPLES)
        self._scales: deque[ScaleRecord] = deque(maxlen=KEPT_SCALES)
        self._decisions: deque[DecisionRecord] = deque(maxlen=KEPT_DECISIONS)
        self._restarts: deque[RestartRecord] = deque(maxlen=KEPT_RESTARTS)
        self._shuffles: deque[ShuffleRecord] = deque(maxlen=KEPT_SHUFFLES)

    def add_batch(self, record: BatchRecord) -> None:
        """Appends a finished micro-batch."""
        with self._lock:
            self._totals.batches += 1
            self._totals.rows += record.input_rows
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

    def settle_move(
        self, query: str, operator: int, partition: int, *, settled_s: float, load_s: float | None
    ) -> MoveRecord | None:
        """Marks the partition's move as in effect.

        Args:
            query: the query's stable name or id.
            operator: Spark's operator id within the query.
            partition: state partition, 0-based.
            settled_s: when the first batch that ran the partition on the target had finished.
            load_s: seconds spent on loading its state; None if unknown.

        Returns:
            The settled move; None if no move of that partition was under way.
        """
        with self._lock:
            place = query, operator, partition
            settled = self._moves.end(place, settled_s=settled_s, load_s=load_s)
            if settled is not None:
                self._query(query).moves_settled += 1
                self._totals.moves_settled += 1
            return settled

    def drop_move(
        self, query: str, operator: int, partition: int, *, dropped_s: float, reason: str
    ) -> MoveRecord | None:
        """Marks the partition's move as given up.

        Args:
            query: the query's stable name or id.
            operator: Spark's operator id within the query.
            partition: state partition, 0-based.
            dropped_s: seconds since the Unix epoch.
            reason: why it was given up, for a person.

        Returns:
            The dropped move; None if no move of that partition was under way.
        """
        with self._lock:
            return self._drop((query, operator, partition), dropped_s, reason)

    def add_key_samples(self, samples: Iterable[KeySample]) -> None:
        """Appends what the hottest keys of a batch cost."""
        with self._lock:
            self._key_samples.extend(samples)

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
        """Marks the key's move as in effect.

        Args:
            query: the query's stable name or id.
            key: the key, as in its move.
            settled_s: when the first batch that had the key in the target had finished.
            settled_batch: number of that batch.

        Returns:
            The settled move; None if no move of that key was under way.
        """
        with self._lock:
            settled = self._key_moves.end(
                (query, key), settled_s=settled_s, settled_batch=settled_batch
            )
            if settled is not None:
                self._query(query).key_moves_settled += 1
                self._totals.key_moves_settled += 1
            return settled

    def drop_key_move(
        self, query: str, key: str, *, dropped_s: float, reason: str
    ) -> KeyMoveRecord | None:
        """Marks the key's move as given up.

        Args:
            query: the query's stable name or id.
            key: the key, as in its move.
            dropped_s: seconds since the Unix epoch.
            reason: why it was given up, for a person.

        Returns:
            The dropped move; None if no move of that key was under way.
        """
        with self._lock:
            return self._key_moves.end((query, key), dropped_s=dropped_s, dropped_reason=reason)

    def add_scale(self, record: ScaleRecord) -> None:
        """Appends a change of the number of executors."""
        with self._lock:
            self._totals.scale_actions += 1
            self._scales.append(record)

    def add_decision(self, record: DecisionRecord) -> None:
        """Appends a decision, "nothing to do" included."""
        with self._lock:
            self._totals.decisions += 1
            self._decisions.append(record)

    def add_restart(self, record: RestartRecord) -> None:
        """Appends a restart of a query."""
        with self._lock:
            self._totals.restarts += 1
            self._query(record.query).restarts += 1
            self._restarts.append(record)

    def add_shuffle(self, record: ShuffleRecord) -> None:
        """Appends a micro-batch of a cost-aware shuffle."""
        with self._lock:
            self._shuffles.append(record)

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
            return replace(self._totals)

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
        with self._lock:
            return tuple(self._key_samples)

    @property
    def scales(self) -> tuple[ScaleRecord, ...]:
        """The scale actions kept, in order."""
        with self._lock:
            return tuple(self._scales)

    @property
    def decisions(self) -> tuple[DecisionRecord, ...]:
        """The decisions kept, in order."""
        with self._lock:
            return tuple(self._decisions)

    @property
    def restarts(self) -> tuple[RestartRecord, ...]:
        """The restarts kept, in order."""
        with self._lock:
            return tuple(self._restarts)

    @property
    def shuffles(self) -> tuple[ShuffleRecord, ...]:
        """The micro-batches of cost-aware shuffles kept, in order."""
        with self._lock:
            return tuple(self._shuffles)

    def to_json_lines(self) -> Iterator[str]:
        """Yields this history as JSON, one object a line, `record` naming what it is.

        The first line is the run, the last lines are the counters. Infinite and undefined
        numbers are written as JSON's common extension `Infinity` and `NaN`.
        """
        yield _dump("run", self.run)
        for kind, records in (
            ("batch", self.batches),
            ("move", self.moves),
            ("key", self.key_samples),
            ("key_move", self.key_moves),
            ("scale", self.scales),
            ("decision", self.decisions),
            ("restart", self.restarts),
            ("shuffle", self.shuffles),
            ("query", self.queries),
            ("totals", (self.totals,)),
        ):
            for record in records:
                yield _dump(kind, record)

    @classmethod
    def from_json_lines(cls, lines: Iterable[str]) -> History:
        """Reads a history back.

        Args:
            lines: what `to_json_lines` yielded; empty lines are skipped.

        Returns:
            A history that equals the one written, record by record and counter by counter.

        Raises:
            InvalidInputError: a line is not a record of this format; the message has its number
                and the field.
        """
        history: History | None = None
        totals: RunTotals | None = None
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            record = _parse_line(number, line, is_first=history is None)
            if history is None:
                history = cls(record)
            elif isinstance(record, RunTotals):
                totals = record
            else:
                history._restore(record)
        if history is None or totals is None:
            msg = (
                "history: the run or its counters are missing, so the file was cut short; nothing "
                "was read, the stream and its data are not affected. Use a complete history.jsonl."
            )
            raise InvalidInputError(msg)
        history._totals = totals
        return history

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

    def _drop(
        self, place: tuple[str, int, int], dropped_s: float, reason: str
    ) -> MoveRecord | None:
        dropped = self._moves.end(place, dropped_s=dropped_s, dropped_reason=reason)
        if dropped is not None:
            self._query(dropped.query).moves_dropped += 1
            self._totals.moves_dropped += 1
        return dropped

    def _restore(self, record: Any) -> None:
        """Puts one record back; counters, which cover more than what was kept, follow later."""
        if isinstance(record, BatchRecord):
            self._totals.batches += 1
            self._store.add(self._totals.batches, record)
        elif isinstance(record, MoveRecord):
            self._moves.add(record)
        elif isinstance(record, KeySample):
            self._key_samples.append(record)
        elif isinstance(record, KeyMoveRecord):
            self._key_moves.add(record)
        elif isinstance(record, ScaleRecord):
            self._scales.append(record)
        elif isinstance(record, DecisionRecord):
            self._decisions.append(record)
        elif isinstance(record, RestartRecord):
            self._restarts.append(record)
        elif isinstance(record, ShuffleRecord):
            self._shuffles.append(record)
        elif isinstance(record, QueryTotals):
            self._queries[record.query] = record


_RECORDS: dict[str, type[Any]] = {
    "run": RunInfo,
    "batch": BatchRecord,
    "move": MoveRecord,
    "key": KeySample,
    "key_move": KeyMoveRecord,
    "scale": ScaleRecord,
    "decision": DecisionRecord,
    "restart": RestartRecord,
    "shuffle": ShuffleRecord,
    "query": QueryTotals,
    "totals": RunTotals,
}


def _dump(kind: str, record: Any) -> str:
    head = {"record": kind, "format": FORMAT} if kind == "run" else {"record": kind}
    return json.dumps(head | _fields_of(record), default=_fields_of)


def _fields_of(record: Any) -> dict[str, Any]:
    document = {field.name: getattr(record, field.name) for field in fields(record)}
    if isinstance(record, RunInfo):
        document["settings"] = dict(record.settings)
    elif isinstance(record, QueryTotals):  # JSON's keys are strings
        document["operator_busy_s"] = list(record.operator_busy_s.items())
    return document


def _invalid(number: int, field_name: str, problem: str) -> InvalidInputError:
    msg = (
        f"history line {number}: {field_name}: {problem}; nothing was read, the stream and its "
        f"data are not affected. Use a history.jsonl of format {FORMAT}."
    )
    return InvalidInputError(msg)


def _parse_line(number: int, line: str, *, is_first: bool) -> Any:
    try:
        document = json.loads(line)
    except json.JSONDecodeError as error:
        raise _invalid(number, "line", f"not JSON ({error.msg})") from error
    if not isinstance(document, dict):
        raise _invalid(number, "line", "not a JSON object")
    kind = document.pop("record", None)
    if kind not in _RECORDS or (kind == "run") != is_first:
        raise _invalid(number, "record", f"{kind!r} is not expected here")
    if kind == "run" and document.pop("format", None) != FORMAT:
        raise _invalid(number, "format", f"only format {FORMAT} can be read")
    record_type = _RECORDS[kind]
    unknown = sorted(set(document) - {field.name for field in fields(record_type)})
    if unknown:
        raise _invalid(number, unknown[0], f"unknown field of {kind!r}")
    try:
        if kind == "batch":
            document["loads"] = tuple(
                OperatorBatchLoad(
                    **load
                    | {
                        "partition_busy_s": tuple(load["partition_busy_s"]),
                        "partition_executor": tuple(load["partition_executor"]),
                    }
                )
                for load in document["loads"]
            )
        elif kind == "shuffle":
            document |= {name: tuple(document[name]) for name in ("estimated_s", "real_s")}
        elif kind == "query":
            document["operator_busy_s"] = dict(document["operator_busy_s"])
        return record_type(**document)
    except (KeyError, TypeError, ValueError) as error:
        raise _invalid(number, kind, f"field missing or malformed ({error})") from error
