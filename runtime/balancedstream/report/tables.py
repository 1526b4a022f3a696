"""The tables of the report: queries, shuffles, decisions, moves and the policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from balancedstream.core.samples import ShuffleRecord
from balancedstream.record.records import DecisionRecord, KeyMoveRecord, MoveRecord
from balancedstream.record.wording import (
    DECISION_LABELS,
    describe_preparations,
    format_count,
    format_duration,
    format_elapsed,
    format_milliseconds,
    format_ratio,
)
from balancedstream.report.figures import QuerySummary, RunSummary
from balancedstream.report.outcome import describe_pair
from balancedstream.report.svg import clean, element

DRAWN_QUERIES = 4
SHOWN_MOVES = 200
REPORTED_KINDS = ("move", "scale")


def queries_table(queries: Sequence[QuerySummary]) -> str:
    """Writes the figures of all queries, busiest first."""
    columns = [("reason", "query"), *(("number", heading) for heading in (
        "rows", "batches", "restarts", "moves", "imbalance", "bound", "median batch",
    ))]  # fmt: skip
    rows = [
        (
            clean(query.query),
            format_count(query.rows),
            format_count(query.batches),
            format_count(query.query_restarts),
            format_count(query.moves),
            *pairs_of(query),
        )
        for query in queries
    ]
    left_out = (
        element("p", f"Drawn above: the {DRAWN_QUERIES} busiest.", css="about")
        if len(queries) > DRAWN_QUERIES
        else ""
    )
    return element("h2", "All queries") + left_out + _table(columns, rows)


def pairs_of(query: QuerySummary) -> tuple[str, str, str]:
    """Imbalance, bound and median batch of a query, as text."""
    imbalance, bound = "no state", ""
    if query.trigger != "micro-batch":
        imbalance = query.trigger
    if query.operators:
        imbalance = describe_pair(query.imbalance_before, query.imbalance_after, format_ratio)
        bound = format_ratio(query.bound) if query.bound is not None else ""
    before_ms, after_ms = query.median_batch_ms_before, query.median_batch_ms_after
    return imbalance, bound, describe_pair(before_ms, after_ms, format_milliseconds)


def shuffles_table(records: Sequence[ShuffleRecord]) -> str:
    """Writes what each cost-aware shuffle did, by how its batches were routed."""
    if not records:
        return ""
    columns = [("reason", "shuffle"), ("", "routed by"), *(("number", heading) for heading in (
        "batches", "median of most expensive partition / mean", "median work of a batch",
        "median error of the estimates", "median error of equal costs",
    )), ("reason", "last decision")]  # fmt: skip
    rows = []
    for shuffle in dict.fromkeys(record.shuffle for record in records):
        for by_estimates in (False, True):
            batches = [
                record
                for record in records
                if record.shuffle == shuffle and record.by_estimates is by_estimates
            ]
            if not batches:
                continue
            judged = [batch for batch in batches if batch.error is not None]
            last = batches[-1]
            follows = "estimated costs" if last.trusted else "round robin"
            rows.append(
                (
                    clean(shuffle),
                    "estimated costs" if by_estimates else "round robin",
                    format_count(len(batches)),
                    format_ratio(median(batch.imbalance() for batch in batches)),
                    clean(format_duration(median(sum(batch.real_s) for batch in batches))),
                    _percent([batch.error for batch in judged]),
                    _percent([batch.equal_error for batch in judged]),
                    clean(f"after batch {last.batch}: {follows}, because {last.reason}"),
                )
            )
    return (
        element("h2", "Cost-aware shuffles")
        + element(
            "p", "Rows are routed round robin until estimates have passed one batch.", css="about"
        )
        + _table(columns, rows)
    )


def _percent(parts: Sequence[float | None]) -> str:
    known = [part for part in parts if part is not None]
    return f"{100 * median(known):.0f} %" if known else ""


def decisions_table(summary: RunSummary) -> str:
    """Writes the latest decisions with their reasons, latest first."""
    if not summary.decision_list:
        return ""
    columns = [("time", "time"), ("", "query"), ("", "decision"), ("reason", "reason"),
               ("number", "imbalance"), ("number", "bound"), ("number", "moves")]  # fmt: skip
    rows = []
    for decision, times in reversed(_merge_repeated(summary.decision_list)):
        about = decision.query or "all"
        if decision.operator is not None:
            about += f", operator {decision.operator}"
        repeats = f" {times} times" if times > 1 else ""
        label = DECISION_LABELS[decision.kind]
        rows.append(
            (
                format_elapsed(decision.at_s - summary.started_s),
                clean(about),
                element("span", clean(label), css=f"kind {clean(decision.kind)}") + repeats,
                clean(decision.reason),
                format_ratio(decision.imbalance),
                format_ratio(decision.bound),
                format_count(decision.moves) if decision.moves else "",
            )
        )
    shown = len(summary.decision_list)
    of_all = "" if shown == summary.decisions else f"The last {shown} of {summary.decisions:,}. "
    return (
        element("h2", "Decisions and their reasons")
        + element(
            "p",
            f"{of_all}Latest first, with the time since the start. Repeats share a line.",
            css="about",
        )
        + _table(columns, rows)
    )


def _merge_repeated(decisions: Sequence[DecisionRecord]) -> list[tuple[DecisionRecord, int]]:
    """Joins repeated decisions that changed nothing, also where decisions on others lie between.

    Returns:
        The last one of each, and how many it stands for.
    """
    merged: dict[tuple[str, int | None], list[tuple[DecisionRecord, int]]] = {}
    for decision in decisions:
        about = merged.setdefault((decision.query, decision.operator), [])
        if about and about[-1][0].kind == decision.kind not in REPORTED_KINDS:
            about[-1] = decision, about[-1][1] + 1
        else:
            about.append((decision, 1))
    everything = [repeated for about in merged.values() for repeated in about]
    return sorted(everything, key=lambda repeated: repeated[0].at_s)


def moves_table(summary: RunSummary) -> str:
    """Writes what was loaded ahead of moves, and a folded table of the latest ones."""
    if not summary.move_list:
        return ""
    columns = [("time", "time"), ("", "query"), ("number", "operator"), ("number", "partition"),
               ("", "executor"), ("", "outcome"), ("number", "state loaded ahead in"),
               ("number", "state restored in"), ("reason", "reason")]  # fmt: skip
    rows = [
        (
            format_elapsed(move.decided_s - summary.started_s),
            clean(move.query),
            str(move.operator),
            str(move.partition),
            clean(f"{move.source or 'nowhere'} → {move.target}"),
            clean(_outcome(move)),
            format_duration(move.prepared_s) if move.prepared_s is not None else "",
            format_duration(move.restore_s) if move.restore_s is not None else "",
            clean(move.reason),
        )
        for move in reversed(summary.move_list[-SHOWN_MOVES:])
    ]
    loaded = describe_preparations(summary.preparations)
    about = element("p", clean(f"{loaded[0].upper()}{loaded[1:]}."), css="about") if loaded else ""
    return about + _one_by_one("Moves", columns, rows, summary.moves)


def key_moves_table(summary: RunSummary) -> str:
    """Writes a folded table of the latest moves of keys."""
    if not summary.key_move_list:
        return ""
    columns = [("time", "time"), ("", "query"), ("number", "operator"), ("reason", "key"),
               ("number", "partition"), ("number", "since batch"), ("", "outcome"),
               ("reason", "reason")]  # fmt: skip
    rows = [
        (
            format_elapsed(move.decided_s - summary.started_s),
            clean(move.query),
            str(move.operator),
            clean(move.key),
            f"{move.source} → {move.target}",
            "" if move.settled_batch is None else format_count(move.settled_batch),
            clean(_outcome(move)),
            clean(move.reason),
        )
        for move in reversed(summary.key_move_list[-SHOWN_MOVES:])
    ]
    return _one_by_one("Moves of keys", columns, rows, summary.key_moves)


def _one_by_one(
    title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], count: int
) -> str:
    """Writes a folded table of the latest moves; `count` is how many there were in all."""
    of_all = f"last {len(rows):,} of {count:,}" if len(rows) < count else "all"
    return element(
        "details",
        element("summary", f"{title}, one by one ({of_all})"),
        _table(columns, rows),
    )


def _outcome(move: MoveRecord | KeyMoveRecord) -> str:
    if move.settled_s is not None:
        return f"settled after {format_duration(max(0.0, move.settled_s - move.decided_s))}"
    if move.dropped_s is not None:
        return f"dropped: {move.dropped_reason}"
    return "under way"


def settings_table(summary: RunSummary) -> str:
    """Writes a folded table of the policy."""
    if not summary.settings:
        return ""
    rows = [(clean(name), clean(str(value))) for name, value in summary.settings.items()]
    return element(
        "details",
        element("summary", "Policy"),
        _table([("", "setting"), ("", "value")], rows),
    )


def _table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    """Writes a table; columns are (CSS class, heading), cells are HTML."""
    head = [
        element("th", clean(heading), scope="col", **({"css": css} if css else {}))
        for css, heading in columns
    ]
    body = [
        element(
            "tr",
            *(
                element("td", cell, **({"css": css} if css else {}))
                for (css, _), cell in zip(columns, row, strict=True)
            ),
        )
        for row in rows
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body, ""))
    return element("div", table, css="scroll")
