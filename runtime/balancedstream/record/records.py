"""The records of one run: what was observed, decided and done.

In all of them, `query` is the query's stable name or id, `operator` is Spark's operator id within
the query, `batch` is the number of a micro-batch, and `reason` is for a person. Points in time are
in seconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from balancedstream.core.decisions import DecisionKind
from balancedstream.core.samples import KeySample, ShuffleRecord, Trigger


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
        duration_ms: trigger execution, planning and commit included.
        input_rows: rows read from the sources.
        backlog_rows: rows that wait at the sources; None where no source says.
        executors: live executors when the batch finished.
        loads: one per stateful operator that was measured.
        has_state: whether the query keeps state, measured or not.
        trigger: how the query is triggered; only micro-batches are measured.
    """

    query: str
    batch: int
    finished_s: float
    duration_ms: int
    input_rows: int
    backlog_rows: float | None
    executors: int
    loads: tuple[OperatorBatchLoad, ...] = ()
    has_state: bool = False
    trigger: Trigger = "micro-batch"

    def measurements(self) -> int:
        """Returns how many partition measurements this record holds."""
        return sum(len(load.partition_busy_s) for load in self.loads)

    def without_partitions(self) -> BatchRecord:
        """Returns this record with no detail per partition."""
        return replace(self, loads=tuple(load.without_partitions() for load in self.loads))


PreparationOutcome = Literal["used", "wasted", "failed"]
"""What became of state that was loaded ahead of a move.

`used`: the moved task found it. `wasted`: the partition did not move, or moved without it.
`failed`: the target did not get it; the moved task loaded it itself.
"""


@dataclass(slots=True)
class Preparations:
    """State that was loaded ahead of moves, of one outcome."""

    moves: int = 0
    state_bytes: int = 0
    spent_s: float = 0.0

    def add(self, state_bytes: int, spent_s: float) -> None:
        """Adds a move."""
        self.moves += 1
        self.state_bytes += state_bytes
        self.spent_s += spent_s


PreparationTotals = dict[PreparationOutcome, Preparations]


def start_preparation_totals() -> PreparationTotals:
    """Each outcome, with no move yet."""
    return {outcome: Preparations() for outcome in get_args(PreparationOutcome)}


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """One state partition on its way from one executor to another.

    A move ends in one of two ways: it settles, or it is dropped (a newer move of the same
    partition, a lost target, a withdrawn plan). Until then it is under way.

    Attributes:
        partition: state partition, 0-based.
        source: executor that held the partition; "" if none did.
        target: executor that is to hold it.
        decided_after_batch: the last finished batch at that time; the move can show in the next.
        settled_s: when the first batch that ran the partition on the target had finished.
        restore_s: seconds that task spent on loading the partition's state.
        preparing: whether the target loads the state now, beside the batches.
        prepared_s: seconds that this took; None if the moved task must load the state itself.
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
    restore_s: float | None = None
    dropped_s: float | None = None
    dropped_reason: str | None = None
    preparing: bool = False
    prepared_s: float | None = None

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
        key: the key, as text or hashed.
        source: state partition that held the key, 0-based.
        target: state partition that is to hold it.
        decided_after_batch: the last finished batch at that time; the move can show in the next
            but one, since the state is handed over at a batch's end.
        settled_s: when the first batch that had the key in the target had finished.
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
        executors_before: executors at that time.
        executors_after: executors asked for.
        verdict: what was found, for instance "capacity" or "skew".
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
    """One restart of a query inside the run."""

    at_s: float
    query: str
    reason: str


@dataclass(slots=True)
class RunTotals:
    """Counters over the whole run, whatever records are still kept.

    Attributes:
        executor_s: seconds of live executors from the start of the run to its last batch.
        measured_s: seconds from the start of the run to its last batch.
    """

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
    preparations: PreparationTotals = field(default_factory=start_preparation_totals)
    executor_s: float = 0.0
    measured_s: float = 0.0


@dataclass(slots=True)
class QueryTotals:
    """Counters of one query over the whole run.

    Attributes:
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


Record = (
    BatchRecord
    | MoveRecord
    | KeySample
    | KeyMoveRecord
    | ScaleRecord
    | DecisionRecord
    | RestartRecord
    | ShuffleRecord
    | QueryTotals
)
"""What a history keeps, apart from the run itself and its totals."""
