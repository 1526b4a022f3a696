"""What a run brought, in one sentence: the head of the report, and its last line on a terminal."""

from __future__ import annotations

from balancedstream.record.wording import (
    format_change,
    format_milliseconds,
    format_ratio,
    plural,
)
from balancedstream.report.figures import RunSummary
from balancedstream.report.windows import say_too_few


def say_outcome(summary: RunSummary) -> str:
    """Says what balancing did to the busiest query."""
    if summary.batches == 0:
        return "No micro-batch finished in this run, so there is nothing to report."
    if summary.moves == summary.key_moves == 0:
        if not any(query.operators for query in summary.queries):
            return "Nothing moved: no query has state."
        least = f" (bound {format_ratio(summary.bound)}, the lowest that placement can reach)"
        return (
            f"Nothing moved: the imbalance was {format_ratio(summary.imbalance_before)}"
            f"{least if summary.bound is not None else ''}."
        )
    restarts = (
        "without a restart"
        if summary.query_restarts == 0
        else f"with {plural(summary.query_restarts, 'restart')}"
    )
    said = plural(summary.moves, "state partition move")
    if summary.key_moves:
        said += f" and {plural(summary.key_moves, 'key move')}"
    said += f", {restarts}"
    missing = say_what_is_missing(summary)
    if missing:
        return f"{said}. There is nothing to compare: {missing}."
    if summary.imbalance_before is not None and summary.imbalance_after is not None:
        said += (
            ". The hottest executor's load went from "
            f"{format_ratio(summary.imbalance_before)} to {format_ratio(summary.imbalance_after)} "
            "times the mean"
        )
    before_ms, after_ms = summary.median_batch_ms_before, summary.median_batch_ms_after
    if before_ms is not None and after_ms is not None:
        said += (
            f"; the median batch from {format_milliseconds(before_ms)} to "
            f"{format_milliseconds(after_ms)} ({format_change(before_ms, after_ms)})"
        )
    return said + "."


def say_what_is_missing(summary: RunSummary) -> str:
    """Why the busiest query has no figures before or after; empty where it has both or no moves."""
    if not summary.queries or summary.queries[0].moves == summary.queries[0].key_moves == 0:
        return ""
    query = summary.queries[0]
    return "; ".join(say_too_few(query.batches_before, query.batches_after))
