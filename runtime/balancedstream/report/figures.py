"""The shape of `report.json`: one class for each kind of object in it.

Every field is described in `docs/reference/report.md`; a test keeps the two in step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from balancedstream.core.samples import ShuffleRecord, Trigger
from balancedstream.record.records import (
    DecisionRecord,
    KeyMoveRecord,
    MoveRecord,
    PreparationTotals,
    RestartRecord,
    ScaleRecord,
)


@dataclass(frozen=True, slots=True)
class Window:
    """The batches that a figure was taken over."""

    first_batch: int
    last_batch: int
    batches: int
    median_rows: float
    executors: float


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """One stateful operator of a query."""

    operator: int
    name: str
    partitions: int
    busy_s: float
    moves: int
    imbalance_before: float | None
    imbalance_after: float | None
    bound: float | None


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """One query of the run."""

    query: str
    rows: int
    batches: int
    query_restarts: int
    busy_s: float
    moves: int
    moves_settled: int
    moves_dropped: int
    key_moves: int
    key_moves_settled: int
    operator: int | None
    imbalance_before: float | None
    imbalance_after: float | None
    bound: float | None
    median_batch_ms_before: float | None
    median_batch_ms_after: float | None
    p99_batch_ms_before: float | None
    p99_batch_ms_after: float | None
    batches_before: int
    batches_after: int
    before: Window | None
    after: Window | None
    has_state: bool
    operators: tuple[OperatorSummary, ...]
    trigger: Trigger = "micro-batch"


@dataclass(frozen=True, slots=True)
class CostSummary:
    """What the run's executors cost, at the policy's price."""

    executor_hour: float
    currency: str
    executor_hours: float
    executors: float
    spent_a_day: float
    saved_a_day: float | None
    max_executors: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run: counts over all queries, and the figures of the busiest query on top."""

    format: int
    app: str
    spark_version: str
    python_version: str
    started_s: float
    ended_s: float | None
    cores: int
    executors: int | None
    rows: int
    batches: int
    query_restarts: int
    moves: int
    moves_settled: int
    moves_dropped: int
    key_moves: int
    key_moves_settled: int
    scale_actions: int
    decisions: int
    preparations: PreparationTotals
    cost: CostSummary | None
    headline_query: str | None
    imbalance_before: float | None
    imbalance_after: float | None
    bound: float | None
    median_batch_ms_before: float | None
    median_batch_ms_after: float | None
    p99_batch_ms_before: float | None
    p99_batch_ms_after: float | None
    queries: tuple[QuerySummary, ...]
    move_list: tuple[MoveRecord, ...]
    key_move_list: tuple[KeyMoveRecord, ...]
    scale_action_list: tuple[ScaleRecord, ...]
    decision_list: tuple[DecisionRecord, ...]
    restart_list: tuple[RestartRecord, ...]
    shuffle_list: tuple[ShuffleRecord, ...]
    notes: tuple[str, ...]
    settings: Mapping[str, str | int | float | bool | None]
