"""What a run brought, in one sentence: the head of the report, and its last line on a terminal."""

from __future__ import annotations

from collections.abc import Callable

from balancedstream.record.wording import (
    find_change,
    format_milliseconds,
    format_ratio,
    plural,
)
from balancedstream.report.figures import RunSummary
from balancedstream.report.windows import describe_too_few

TOO_FEW = "too few batches"


def describe_outcome(summary: RunSummary) -> str:
    """Says what balancing did to the busiest query, the result first."""
    return " ".join(filter(None, split_outcome(summary)))


def split_outcome(summary: RunSummary) -> tuple[str, str]:
    """Says in one sentence what balancing did to the busiest query, and then what explains it."""
    if summary.batches == 0:
        if summary.ended_s is None:
            return "Waiting for the first micro-batch: figures begin when it has finished.", ""
        return "No micro-batch finished in this run, so there are no figures.", ""
    if summary.moves == summary.key_moves == 0:
        return _describe_imbalance(summary), _describe_reason(summary)
    moves = plural(summary.moves, "state partition move")
    if summary.key_moves:
        keys = plural(summary.key_moves, "key move")
        moves = f"{moves} and {keys}" if summary.moves else keys
    restarts = (
        "without a restart"
        if summary.query_restarts == 0
        else f"with {plural(summary.query_restarts, 'restart')}"
    )
    missing = describe_what_is_missing(summary)
    if missing:
        yet = " yet" if summary.ended_s is None else ""
        return f"What {moves} brought cannot be said{yet}: {missing}.", ""
    said = _describe_batches(summary.median_batch_ms_before, summary.median_batch_ms_after)
    before, after = summary.queries[0].before, summary.queries[0].after
    if said and before and after and before.executors != after.executors:
        count = plural(round(after.executors), "executor")
        said = f"{said[:-1]}, with {count} instead of {round(before.executors)}."
    load = _describe_load(summary.imbalance_before, summary.imbalance_after)
    # Where no batch took any time, the load is the result.
    return said or load, f"{load} {moves}, {restarts}." if said else f"{moves}, {restarts}."


def _describe_load(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "How even the load is was not measured on both sides."
    was, now = format_ratio(before), format_ratio(after)
    if was == now:
        return f"The hottest executor's load stayed at {now} times the mean."
    return f"The hottest executor's load went from {was} to {now} times the mean."


def _describe_reason(summary: RunSummary) -> str:
    """Why nothing moved, in the words of the last decision on the busiest query that has any."""
    for decision in reversed(summary.decision_list):
        if decision.query == summary.headline_query:
            return f"The last decision says why: {decision.reason}."
    return ""


def _describe_imbalance(summary: RunSummary) -> str:
    """Describes how even the load was where nothing moved."""
    nothing = "Nothing moved" if summary.ended_s is not None else "Nothing has moved yet"
    if summary.queries and all(q.trigger != "micro-batch" for q in summary.queries):
        return f"{nothing}: every query is real-time, and left alone."
    if not any(query.has_state for query in summary.queries):
        return f"{nothing}: no query has state."
    if not any(query.operators for query in summary.queries):
        return f"{nothing}: no task of a query with state was seen, so nothing was measured."
    if summary.imbalance_before is None:
        return f"{nothing}, and there are {TOO_FEW} to say how even the load is."
    least = f" (bound {format_ratio(summary.bound)}, the lowest that placement can reach)"
    return (
        f"{nothing}: the imbalance was {format_ratio(summary.imbalance_before)}"
        f"{least if summary.bound is not None else ''}."
    )


def _describe_batches(before_ms: float | None, after_ms: float | None) -> str:
    if before_ms is None or after_ms is None or before_ms <= 0:
        return ""
    before, after = format_milliseconds(before_ms), format_milliseconds(after_ms)
    median = f"the median went from {before} to {after}"
    percent = find_change(before_ms, after_ms)
    if percent == 0:
        return f"Batches take as long as before: {after} in the median."
    return f"Batches take {abs(percent)} % {'less' if percent < 0 else 'more'} time: {median}."


def describe_pair(
    before: float | None, after: float | None, form: Callable[[float | None], str]
) -> str:
    """A figure before and after.

    >>> describe_pair(1.68, 1.2, format_ratio), describe_pair(1.68, None, format_ratio)
    ('1.68 → 1.20', '1.68 → too few batches')
    >>> describe_pair(None, None, format_ratio), describe_pair(1.2, 1.2, format_ratio)
    ('too few batches', '1.20')
    """
    if before == after:
        return TOO_FEW if after is None else form(after)
    return " → ".join(TOO_FEW if each is None else form(each) for each in (before, after))


def describe_what_is_missing(summary: RunSummary) -> str:
    """Why the busiest query has no figures before or after; empty where it has both or no moves."""
    if not summary.queries or summary.queries[0].moves == summary.queries[0].key_moves == 0:
        return ""
    query = summary.queries[0]
    return "; ".join(describe_too_few(query.batches_before, query.batches_after))
