"""The shape of `report.json`: one class for each kind of object in it.

Every field is described in `docs/reference/report.md`; a test keeps the two in step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from balancedstream.core.samples import ShuffleRecord
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
    """The batches that a figure was taken over.

    Attributes:
        first_batch: number of the first of them.
        last_batch: number of the last of them.
        batches: how many counted (those that read rows).
        median_rows: median rows a batch.
        executors: median of live executors.
    """

    first_batch: int
    last_batch: int
    batches: int
    median_rows: float
    executors: float


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """One stateful operator of a query.

    Attributes:
        operator: Spark's operator id within the query.
        name: the operator's short name.
        partitions: number of state partitions.
        busy_s: busy seconds over the whole run.
        moves: moves decided, among those still on record.
        imbalance_before: median over the batches before; None if there are too few.
        imbalance_after: median over the batches after; None if there are too few.
        bound: median of the least imbalance that any placement could reach, over the batches
            after (before, if there are none after).
    """

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
    """One query of the run.

    Attributes:
        query: the query's stable name or id.
        rows: rows read from the sources over the whole run.
        batches: finished micro-batches over the whole run.
        query_restarts: restarts inside the run.
        busy_s: busy seconds of stateful operators over the whole run.
        moves: moves decided.
        moves_settled: moves that took effect.
        moves_dropped: moves given up.
        key_moves: moves of keys decided.
        key_moves_settled: moves of keys that took effect.
        operator: the operator with the most busy time; the imbalance figures are its.
        imbalance_before: of that operator.
        imbalance_after: of that operator.
        bound: of that operator.
        median_batch_ms_before: median batch duration before.
        median_batch_ms_after: median batch duration after.
        p99_batch_ms_before: 99th percentile (nearest rank) before.
        p99_batch_ms_after: 99th percentile (nearest rank) after.
        batches_before: warm batches with rows before the first move; too few for figures where
            something moved and they are fewer than `MIN_BEFORE_BATCHES`.
        batches_after: batches with rows after the moves; too few for figures where something moved
            and they are fewer than `MIN_AFTER_BATCHES`.
        before: the batches that the figures before are taken over; None if there are too few.
        after: the batches that the figures after are taken over; None if there are too few.
        has_state: whether it keeps state, measured or not.
        operators: every stateful operator that was measured, the busiest first.
    """

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


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run: counts over all queries, and the figures of the busiest query on top.

    Attributes:
        format: version of this schema.
        app: name of the script or application.
        spark_version: for instance "4.3.0".
        python_version: for instance "3.11.7".
        started_s: seconds since the Unix epoch.
        ended_s: seconds since the Unix epoch; None if the run went on.
        cores: processor cores of the machine or cluster.
        executors: live executors at the last batch; None before the first.
        rows: rows read, over all queries.
        batches: finished micro-batches, over all queries.
        query_restarts: restarts of queries inside the run.
        moves: moves decided.
        moves_settled: moves that took effect.
        moves_dropped: moves given up.
        key_moves: moves of keys decided.
        key_moves_settled: moves of keys that took effect.
        scale_actions: changes of the number of executors.
        decisions: decisions taken, "nothing to do" included.
        preparations: state that was loaded ahead of moves, by outcome.
        headline_query: the query with the most busy time; the seven figures below are its.
        imbalance_before: median imbalance of its busiest operator before the first move.
        imbalance_after: the same after the last move settled.
        bound: median of the least imbalance that any placement could reach.
        median_batch_ms_before: median batch duration before.
        median_batch_ms_after: median batch duration after.
        p99_batch_ms_before: 99th percentile of the batch duration before.
        p99_batch_ms_after: 99th percentile of the batch duration after.
        queries: every query, the busiest first.
        move_list: the latest moves, in order of decision.
        key_move_list: the latest moves of keys, in order of decision.
        scale_action_list: the latest scale actions, in order.
        decision_list: the latest decisions, in order.
        restart_list: the latest restarts, in order.
        shuffle_list: the latest micro-batches of cost-aware shuffles, in order.
        notes: what a reader should know when comparing the figures.
        settings: the policy in force.
    """

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
