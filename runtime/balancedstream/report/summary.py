"""Computes the figures of one run, those of `report.json`, from its record."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from balancedstream.core.money import Price, cost_a_day
from balancedstream.core.samples import KeySample
from balancedstream.record.history import History
from balancedstream.record.records import (
    BatchRecord,
    KeyMoveRecord,
    MoveRecord,
    OperatorBatchLoad,
    QueryTotals,
    RunTotals,
)
from balancedstream.record.wording import format_change, format_count, format_ratio, plural
from balancedstream.report.figures import (
    CostSummary,
    OperatorSummary,
    QuerySummary,
    RunSummary,
    Window,
)
from balancedstream.report.windows import Windows, describe_too_few, find_windows

FORMAT = 1
HOUR_S = 3_600.0

LISTED_MOVES = 1_000
LISTED_KEY_MOVES = 1_000
LISTED_DECISIONS = 100
LISTED_SCALE_ACTIONS = 1_000
LISTED_RESTARTS = 100
LISTED_SHUFFLES = 1_000

COUNTS = (
    *("rows", "batches", "moves", "moves_settled", "moves_dropped"),
    *("key_moves", "key_moves_settled"),
)
OF_OPERATOR = ("imbalance_before", "imbalance_after", "bound")
OF_BATCHES = tuple(
    f"{figure}_batch_ms_{side}" for figure in ("median", "p99") for side in ("before", "after")
)
"""Figures that a query has, and the run has of its busiest query."""


@dataclass(frozen=True, slots=True)
class QueryRecords:
    """The records of one query, as the summary and the charts need them.

    Attributes:
        totals: counters over the whole run.
        batches: the batches kept, in order.
        moves: the moves kept, in order.
        key_moves: the moves of keys kept, in order.
        key_samples: what hot keys cost, as far as kept, in order.
        windows: the batches that stand for "before" and for "after".
    """

    totals: QueryTotals
    batches: tuple[BatchRecord, ...]
    moves: tuple[MoveRecord, ...]
    key_moves: tuple[KeyMoveRecord, ...]
    key_samples: tuple[KeySample, ...]
    windows: Windows

    @property
    def before(self) -> tuple[BatchRecord, ...]:
        """The batches that figures before are taken over; none if there are too few."""
        return self.windows.before

    @property
    def after(self) -> tuple[BatchRecord, ...]:
        """The batches that figures after are taken over; none if there are too few."""
        return self.windows.after


def records_by_query(history: History) -> tuple[QueryRecords, ...]:
    """Splits a history by query, the busiest first, without those that finished no batch."""
    batches, moves = _by_query(history.batches), _by_query(history.moves)
    key_moves, key_samples = _by_query(history.key_moves), _by_query(history.key_samples)
    records = [
        QueryRecords(
            totals=totals,
            batches=tuple(batches[totals.query]),
            moves=tuple(moves[totals.query]),
            key_moves=tuple(key_moves[totals.query]),
            key_samples=tuple(key_samples[totals.query]),
            windows=find_windows(
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
        query_restarts=totals.restarts,
        **_pick(COUNTS, totals),
        scale_actions=totals.scale_actions,
        decisions=totals.decisions,
        preparations=totals.preparations,
        cost=_summarize_cost(run.settings, totals),
        headline_query=headline.query if headline else None,
        **_pick((*OF_OPERATOR, *OF_BATCHES), headline),
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


def _pick(names: Iterable[str], source: object) -> dict[str, Any]:
    """These attributes; None where there is no source."""
    return {name: getattr(source, name, None) for name in names}


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
        **_pick(OF_OPERATOR, busiest),
        median_batch_ms_before=_median(before_ms),
        median_batch_ms_after=_median(after_ms),
        p99_batch_ms_before=_p99(before_ms),
        p99_batch_ms_after=_p99(after_ms),
        batches_before=query.windows.batches_before,
        batches_after=query.windows.batches_after,
        before=_window(query.before),
        after=_window(query.after),
        has_state=bool(operators) or any(batch.has_state for batch in query.batches),
        operators=operators,
        trigger=query.batches[-1].trigger if query.batches else "micro-batch",
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


def _summarize_cost(
    settings: Mapping[str, str | int | float | bool | None], totals: RunTotals
) -> CostSummary | None:
    """What executors cost until the last batch; None without a price, or before the first batch."""
    hour, currency = settings.get("cost.executor_hour"), settings.get("cost.currency", "")
    most = settings.get("scaling.max_executors", 0)
    if not isinstance(hour, int | float) or not hour or not totals.measured_s:
        return None
    price = Price(hour, str(currency))
    executors = totals.executor_s / totals.measured_s
    a_day = cost_a_day(price, executors, most if isinstance(most, int) else 0)
    return CostSummary(
        executor_hour=price.executor_hour,
        currency=price.currency,
        executor_hours=totals.executor_s / HOUR_S,
        executors=executors,
        spent_a_day=a_day.spent,
        saved_a_day=a_day.saved,
        max_executors=a_day.max_executors,
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
    too_few = describe_too_few(query.batches_before, query.batches_after)
    cautions = [f"{name}: {side}." for side in too_few]
    if before and after:
        cautions += _compare(name, before, after)
    if query.bound is not None and query.bound > 1.2:
        cautions.append(
            f"{name}: no placement of operator {query.operator}'s partitions can get below an "
            f"imbalance of {format_ratio(query.bound)}: a hot key, or too few state partitions."
        )
    return cautions


def _compare(name: str, before: Window, after: Window) -> list[str]:
    """Says how the batches before and after differ beside their placement."""
    cautions = []
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
    return cautions


def _median(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return median(finite) if finite else None


def _p99(values: Sequence[float]) -> float | None:
    """Returns the 99th percentile by nearest rank: a value that occurred."""
    if not values:
        return None
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]
