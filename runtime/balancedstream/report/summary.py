"""The figures of one run: what `report.json` holds.

Every field is described in `docs/reference/report.md`; a test keeps the two in step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from balancedstream.core.observations import KeySample, ShuffleRecord
from balancedstream.record.history import History
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    KeyMoveRecord,
    MoveRecord,
    OperatorBatchLoad,
    QueryTotals,
    RestartRecord,
    ScaleRecord,
)
from balancedstream.record.wording import format_change, format_count, format_ratio, plural
from balancedstream.report.windows import QUIET_BATCHES, batches_after, batches_before

FORMAT = 1

LISTED_MOVES = 1_000
LISTED_KEY_MOVES = 1_000
LISTED_DECISIONS = 100
LISTED_SCALE_ACTIONS = 1_000
LISTED_RESTARTS = 100
LISTED_SHUFFLES = 1_000


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
        imbalance_before: median over the batches before; None without such batches.
        imbalance_after: median over the batches after; None without such batches.
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
        before: the batches before; None if there are none.
        after: the batches after; None if there are none.
        operators: every stateful operator, the busiest first.
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
    before: Window | None
    after: Window | None
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


@dataclass(frozen=True, slots=True)
class QueryRecords:
    """The records of one query, as the summary and the charts need them.

    Attributes:
        totals: counters over the whole run.
        batches: the batches kept, in order.
        moves: the moves kept, in order.
        key_moves: the moves of keys kept, in order.
        key_samples: what hot keys cost, as far as kept, in order.
        before: the batches that stand for "before".
        after: the batches that stand for "after".
    """

    totals: QueryTotals
    batches: tuple[BatchRecord, ...]
    moves: tuple[MoveRecord, ...]
    key_moves: tuple[KeyMoveRecord, ...]
    key_samples: tuple[KeySample, ...]
    before: tuple[BatchRecord, ...]
    after: tuple[BatchRecord, ...]


def records_by_query(history: History) -> tuple[QueryRecords, ...]:
    """Splits a history by query, the busiest first.

    Args:
        history: the record of the run.

    Returns:
        One entry for each query that finished a batch.
    """
    batches, moves = _by_query(history.batches), _by_query(history.moves)
    key_moves, key_samples = _by_query(history.key_moves), _by_query(history.key_samples)
    records = [
        QueryRecords(
            totals=totals,
            batches=tuple(batches[totals.query]),
            moves=tuple(moves[totals.query]),
            key_moves=tuple(key_moves[totals.query]),
            key_samples=tuple(key_samples[totals.query]),
            before=batches_before(batches[totals.query], totals.first_move_after_batch),
            after=batches_after(
                batches[totals.query],
                [*moves[totals.query], *key_moves[totals.query]],
                totals.first_move_after_batch,
            ),
        )
        for totals in history.queries
        if totals.query in batches
    ]
    return tuple(sorted(records, key=lambda query: -query.totals.busy_s()))


_Record = TypeVar("_Record", BatchRecord, MoveRecord, KeyMoveRecord, KeySample)


def _by_query(records: Iterable[_Record]) -> defaultdict[str, list[_Record]]:
    found: defaultdict[str, list[_Record]] = defaultdict(list)
    for record in records:
        found[record.query].append(record)
    return found


def summarize(history: History, notes: Sequence[str] = ()) -> RunSummary:
    """Computes the figures of a run.

    Args:
        history: the record of the run.
        notes: what a reader should know when comparing the figures; notes of our own follow.

    Returns:
        The figures; where the record cannot give one it is None, never a guess.
    """
    run, totals = history.run, history.totals
    records = records_by_query(history)
    queries = tuple(_summarize_query(query) for query in records)
    headline = queries[0] if queries else None
    batches = history.batches
    return RunSummary(
        format=FORMAT,
        app=run.app,
        spark_version=run.spark_version,
        python_version=run.python_version,
        started_s=run.started_s,
        ended_s=run.ended_s,
        cores=run.cores,
        executors=batches[-1].executors if batches else None,
        rows=totals.rows,
        batches=totals.batches,
        query_restarts=totals.restarts,
        moves=totals.moves,
        moves_settled=totals.moves_settled,
        moves_dropped=totals.moves_dropped,
        key_moves=totals.key_moves,
        key_moves_settled=totals.key_moves_settled,
        scale_actions=totals.scale_actions,
        decisions=totals.decisions,
        headline_query=headline.query if headline else None,
        imbalance_before=headline.imbalance_before if headline else None,
        imbalance_after=headline.imbalance_after if headline else None,
        bound=headline.bound if headline else None,
        median_batch_ms_before=headline.median_batch_ms_before if headline else None,
        median_batch_ms_after=headline.median_batch_ms_after if headline else None,
        p99_batch_ms_before=headline.p99_batch_ms_before if headline else None,
        p99_batch_ms_after=headline.p99_batch_ms_after if headline else None,
        queries=queries,
        move_list=history.moves[-LISTED_MOVES:],
        key_move_list=history.key_moves[-LISTED_KEY_MOVES:],
        scale_action_list=history.scales[-LISTED_SCALE_ACTIONS:],
        decision_list=history.decisions[-LISTED_DECISIONS:],
        restart_list=history.restarts[-LISTED_RESTARTS:],
        shuffle_list=history.shuffles[-LISTED_SHUFFLES:],
        notes=(*notes, *(note for query in queries for note in _cautions(query))),
        settings=run.settings,
    )


def busiest_operators(query: QueryRecords) -> tuple[int, ...]:
    """Returns the query's operator ids, the one with the most busy time first."""
    busy_s = query.totals.operator_busy_s
    return tuple(sorted(busy_s, key=lambda operator: (-busy_s[operator], operator)))


def loads_of(batches: Sequence[BatchRecord], operator: int) -> tuple[OperatorBatchLoad, ...]:
    """Returns one operator's loads in these batches, in order."""
    return tuple(load for batch in batches for load in batch.loads if load.operator == operator)


def _summarize_query(query: QueryRecords) -> QuerySummary:
    totals = query.totals
    operators = tuple(_summarize_operator(query, operator) for operator in busiest_operators(query))
    busiest = operators[0] if operators else None
    before_ms = [batch.duration_ms for batch in query.before]
    after_ms = [batch.duration_ms for batch in query.after]
    return QuerySummary(
        query=totals.query,
        rows=totals.rows,
        batches=totals.batches,
        query_restarts=totals.restarts,
        busy_s=totals.busy_s(),
        moves=totals.moves,
        moves_settled=totals.moves_settled,
        moves_dropped=totals.moves_dropped,
        key_moves=totals.key_moves,
        key_moves_settled=totals.key_moves_settled,
        operator=busiest.operator if busiest else None,
        imbalance_before=busiest.imbalance_before if busiest else None,
        imbalance_after=busiest.imbalance_after if busiest else None,
        bound=busiest.bound if busiest else None,
        median_batch_ms_before=_median(before_ms),
        median_batch_ms_after=_median(after_ms),
        p99_batch_ms_before=_p99(before_ms),
        p99_batch_ms_after=_p99(after_ms),
        before=_window(query.before),
        after=_window(query.after),
        operators=operators,
    )


def _summarize_operator(query: QueryRecords, operator: int) -> OperatorSummary:
    loads = loads_of(query.batches, operator)
    before = loads_of(query.before, operator)
    after = loads_of(query.after, operator)
    return OperatorSummary(
        operator=operator,
        name=loads[-1].name if loads else "",
        partitions=max((len(load.partition_busy_s) for load in loads), default=0),
        busy_s=query.totals.operator_busy_s[operator],
        moves=sum(move.operator == operator for move in query.moves),
        imbalance_before=_median([load.imbalance for load in before]),
        imbalance_after=_median([load.imbalance for load in after]),
        bound=_median([load.bound for load in after or before]),
    )


def _window(batches: Sequence[BatchRecord]) -> Window | None:
    if not batches:
        return None
    return Window(
        first_batch=batches[0].batch,
        last_batch=batches[-1].batch,
        batches=len(batches),
        median_rows=median(batch.input_rows for batch in batches),
        executors=median(batch.executors for batch in batches),
    )


def _cautions(query: QuerySummary) -> list[str]:
    """Says what keeps the batches before and after from being compared directly."""
    if query.moves == query.key_moves == 0:
        return []
    name, before, after = query.query, query.before, query.after
    if before is None:
        return [f"{name}: no batch is left to compare with: moves began after the first one."]
    if after is None:
        return [f"{name}: no batch ran undisturbed after the moves, so there is no figure after."]
    cautions = []
    for label, window in (("before", before), ("after", after)):
        if window.batches < QUIET_BATCHES:
            cautions.append(
                f"{name}: the figures {label} rest on {plural(window.batches, 'batch')} only."
            )
    if abs(after.median_rows / before.median_rows - 1.0) > 0.1:
        cautions.append(
            f"{name}: batches after hold {format_count(after.median_rows)} rows, batches before "
            f"{format_count(before.median_rows)} "
            f"({format_change(before.median_rows, after.median_rows)}): their durations do not "
            "compare directly."
        )
    if before.executors != after.executors:
        cautions.append(
            f"{name}: {plural(round(before.executors), 'executor')} before, "
            f"{round(after.executors)} after: durations and imbalance do not compare directly."
        )
    if query.bound is not None and query.bound > 1.2:
        cautions.append(
            f"{name}: no placement of operator {query.operator}'s partitions can get below an "
            f"imbalance of {format_ratio(query.bound)}: a hot key, or too few state partitions."
        )
    return cautions


def _median(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return median(finite) if finite else None


def _p99(values: Sequence[float]) -> float | None:
    """Returns the 99th percentile by nearest rank: a value that occurred."""
    if not values:
        return None
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]
