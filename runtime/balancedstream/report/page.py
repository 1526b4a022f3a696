"""The report as one HTML page: no network, no scripts, opened from disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import median

from balancedstream.core.observations import ShuffleRecord
from balancedstream.record.history import History
from balancedstream.record.records import DecisionRecord, KeyMoveRecord, MoveRecord
from balancedstream.record.wording import (
    DECISION_LABELS,
    format_change,
    format_clock,
    format_count,
    format_duration,
    format_elapsed,
    format_ratio,
    plural,
)
from balancedstream.report.charts import (
    BatchAxis,
    Figure,
    batch_time_figure,
    executor_colours,
    executor_load_figure,
    hot_keys_figure,
    imbalance_figure,
    partition_figure,
    placement_figure,
    supply_figure,
)
from balancedstream.report.summary import (
    QueryRecords,
    QuerySummary,
    RunSummary,
    busiest_operators,
    records_by_query,
)
from balancedstream.report.svg import clean, element

DRAWN_QUERIES = 4
DRAWN_OPERATORS = 3
SHOWN_MOVES = 200
REPORTED_KINDS = ("move", "scale")


def render_page(history: History, summary: RunSummary) -> str:
    """Writes the page.

    Args:
        history: the record of the run.
        summary: its figures, from `summarize`.

    Returns:
        A complete HTML document.
    """
    figures = {query.query: query for query in summary.queries}
    # the history may have grown since the summary was made
    records = [query for query in records_by_query(history) if query.totals.query in figures]
    style = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    title = f"BalancedStream: {summary.app}"
    sections = [
        _heading(summary),
        _tiles(summary),
        _notes(summary.notes),
        *(
            _query_section(query, figures[query.totals.query], history, is_only=len(records) == 1)
            for query in records[:DRAWN_QUERIES]
        ),
        _queries_table(summary.queries) if len(records) > 1 else "",
        _shuffles_table(summary.shuffle_list),
        _decisions_table(summary),
        _moves_table(summary),
        _key_moves_table(summary),
        _settings_table(summary),
        _footer(summary),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"{element('title', clean(title))}\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _heading(summary: RunSummary) -> str:
    facts = [f"started {format_clock(summary.started_s)}"]
    if summary.ended_s is not None:
        facts.append(f"ran for {format_duration(summary.ended_s - summary.started_s)}")
    if summary.executors is not None:
        facts.append(
            f"{plural(summary.executors, 'executor')} on {plural(summary.cores, 'core')} at the end"
        )
    facts += [f"Spark {summary.spark_version}", f"Python {summary.python_version}"]
    return "\n".join(
        (
            element("h1", clean(summary.app)),
            element("p", clean(" · ".join(facts)), css="about"),
            element("p", clean(_sentence(summary)), css="sentence"),
        )
    )


def _sentence(summary: RunSummary) -> str:
    """Says in words what balancing did to the busiest query."""
    if summary.batches == 0:
        return "No micro-batch finished in this run, so there is nothing to report."
    if summary.moves == summary.key_moves == 0:
        if not any(query.operators for query in summary.queries):
            return "Nothing was moved, for there is no state to move."
        least = f", {format_ratio(summary.bound)} being the least that could be reached"
        return (
            f"Nothing was moved: imbalance was {format_ratio(summary.imbalance_before)}"
            f"{least if summary.bound is not None else ''}."
        )
    restarts = (
        "without a restart"
        if summary.query_restarts == 0
        else f"with {plural(summary.query_restarts, 'restart')}"
    )
    said = f"{plural(summary.moves, 'move')} of a state partition"
    if summary.key_moves:
        said += f" and {summary.key_moves} of a key"
    said += f", {restarts}"
    if summary.imbalance_before is not None and summary.imbalance_after is not None:
        said += (
            ". The hottest executor's load went from "
            f"{format_ratio(summary.imbalance_before)} to {format_ratio(summary.imbalance_after)} "
            "times the mean"
        )
    if summary.median_batch_ms_before is not None and summary.median_batch_ms_after is not None:
        said += (
            f"; the median batch from {_milliseconds(summary.median_batch_ms_before)} to "
            f"{_milliseconds(summary.median_batch_ms_after)}"
        )
    return said + "."


def _tiles(summary: RunSummary) -> str:
    actions = summary.scale_action_list
    counts = (
        f"{actions[0].executors_before} → {actions[-1].executors_after} executors"
        if actions
        else "the number of executors stayed"
    )
    tiles = [
        _tile(
            "Imbalance (hottest executor / mean)",
            _before_after(summary.imbalance_before, summary.imbalance_after, format_ratio),
            f"least that could be reached: {format_ratio(summary.bound)}",
            wide=True,
        ),
        _tile(
            "Median batch",
            _before_after(
                summary.median_batch_ms_before, summary.median_batch_ms_after, _milliseconds
            ),
            f"99th percentile: {_milliseconds(summary.p99_batch_ms_before)} → "
            f"{_milliseconds(summary.p99_batch_ms_after)}",
            wide=True,
        ),
        _tile(
            "Moves",
            format_count(summary.moves),
            f"{format_count(summary.moves_settled)} settled, "
            f"{format_count(summary.moves_dropped)} dropped"
            + (f"; and {plural(summary.key_moves, 'key')}" if summary.key_moves else ""),
        ),
        _tile("Query restarts", format_count(summary.query_restarts), "while partitions moved"),
        _tile("Scale actions", format_count(summary.scale_actions), counts),
        _tile("Rows", format_count(summary.rows), plural(summary.batches, "micro-batch")),
    ]
    return element("div", *tiles, css="tiles")


def _tile(title: str, figure: str, detail: str, *, wide: bool = False) -> str:
    return element(
        "div",
        element("h3", clean(title)),
        element("div", figure, css="figure"),
        element("p", clean(detail)),
        css="tile wide" if wide else "tile",
    )


def _before_after(
    before: float | None, after: float | None, form: Callable[[float | None], str]
) -> str:
    """Writes a figure before and after with its change; smaller is better."""
    change = ""
    if before is not None and after is not None and before != after:
        css = "change better" if after < before else "change"
        change = element("span", clean(format_change(before, after)), css=css)
    was = element("span", f"{clean(form(before))} →", css="was")
    return f"{was} {clean(form(after))}{change}"


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return element("div", element("ul", *(element("li", clean(n)) for n in notes)), css="notes")


def _query_section(
    query: QueryRecords, figures: QuerySummary, history: History, *, is_only: bool
) -> str:
    axis = BatchAxis(query.batches, history.run.started_s)
    colours = executor_colours(query.batches)
    parts = [
        element("h2", clean(f"Query {figures.query}")),
        element("p", clean(_query_facts(figures)), css="about") if not is_only else "",
        _figure(batch_time_figure(query, axis, history.scales)),
        _figure(supply_figure(axis)),
    ]
    operators = busiest_operators(query)
    for operator in figures.operators[:DRAWN_OPERATORS]:
        hot_keys = hot_keys_figure(query, operator.operator, axis)
        parts += [
            element(
                "h4",
                clean(
                    f"Operator {operator.operator} {operator.name}: "
                    f"{plural(operator.partitions, 'state partition')}, "
                    f"{plural(operator.moves, 'move')}, imbalance "
                    f"{format_ratio(operator.imbalance_before)} → "
                    f"{format_ratio(operator.imbalance_after)}, "
                    f"bound {format_ratio(operator.bound)}"
                ),
            ),
            _figure(hot_keys) if hot_keys else "",
            _figure(placement_figure(query, operator.operator, colours)),
            _figure(executor_load_figure(query, operator.operator, axis, colours)),
            _figure(imbalance_figure(query, operator.operator, axis)),
            _figure(partition_figure(query, operator.operator, colours)),
        ]
    if len(operators) > DRAWN_OPERATORS:
        left_out = plural(len(operators) - DRAWN_OPERATORS, "operator")
        parts.append(element("p", clean(f"{left_out} with less load not drawn."), css="about"))
    return element("section", *(part for part in parts if part))


def _query_facts(query: QuerySummary) -> str:
    return (
        f"{format_count(query.rows)} rows in {plural(query.batches, 'batch')}, "
        f"{plural(query.moves, 'move')}, {plural(query.query_restarts, 'restart')}; imbalance "
        f"{format_ratio(query.imbalance_before)} → {format_ratio(query.imbalance_after)}, "
        f"median batch {_milliseconds(query.median_batch_ms_before)} → "
        f"{_milliseconds(query.median_batch_ms_after)}"
    )


def _figure(figure: Figure) -> str:
    keys = [
        element("li", element("svg", _key(css), viewBox="0 0 22 12") + clean(label))
        for css, label in figure.legend
    ]
    return element(
        "figure",
        element("h3", clean(figure.title)),
        element("ul", *keys, css="legend") if keys else "",
        figure.svg,
        element("figcaption", clean(figure.caption)) if figure.caption else "",
    )


def _key(css: str) -> str:
    """Draws the sample of a mark that a legend shows."""
    mark = css.removeprefix("key ")
    if mark == "move":
        return element("path", d="M6 1L16 1L11 11Z", css=mark)
    if mark == "scale":
        return element("path", d="M11 0L17 6L11 12L5 6Z", css=mark)
    if mark.startswith(("line", "median")):
        return element("line", x1=0.0, x2=22.0, y1=6.0, y2=6.0, css=mark)
    return element("rect", x=4.0, y=1.0, width=14.0, height=10.0, css=mark)


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


def _queries_table(queries: Sequence[QuerySummary]) -> str:
    columns = [("reason", "query"), *(("number", heading) for heading in (
        "rows", "batches", "restarts", "moves", "imbalance before", "after", "bound",
        "median batch before", "after",
    ))]  # fmt: skip
    rows = [
        (
            clean(query.query),
            format_count(query.rows),
            format_count(query.batches),
            format_count(query.query_restarts),
            format_count(query.moves),
            format_ratio(query.imbalance_before),
            format_ratio(query.imbalance_after),
            format_ratio(query.bound),
            _milliseconds(query.median_batch_ms_before),
            _milliseconds(query.median_batch_ms_after),
        )
        for query in queries
    ]
    left_out = (
        element("p", f"Drawn above: the {DRAWN_QUERIES} busiest.", css="about")
        if len(queries) > DRAWN_QUERIES
        else ""
    )
    return element("h2", "All queries") + left_out + _table(columns, rows)


def _shuffles_table(records: Sequence[ShuffleRecord]) -> str:
    if not records:
        return ""
    columns = [("reason", "shuffle"), ("", "routed by"), *(("number", heading) for heading in (
        "batches", "median dearest partition / mean", "median work of a batch",
        "median error of the estimates", "of equal costs",
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
                    clean(f"after batch {last.batch}: {follows}, for {last.reason}"),
                )
            )
    return (
        element("h2", "Cost-aware shuffles")
        + element("p", "Rows go round robin until their costs were foretold once.", css="about")
        + _table(columns, rows)
    )


def _percent(parts: Sequence[float | None]) -> str:
    known = [part for part in parts if part is not None]
    return f"{100 * median(known):.0f} %" if known else ""


@dataclass(frozen=True, slots=True)
class _Repeated:
    """Decisions in a row about one operator that came to the same: the last one stands for all."""

    last: DecisionRecord
    times: int


def _decisions_table(summary: RunSummary) -> str:
    if not summary.decision_list:
        return ""
    columns = [("time", "time"), ("", "query"), ("", "decision"), ("reason", "reason"),
               ("number", "imbalance"), ("number", "bound"), ("number", "moves")]  # fmt: skip
    rows = []
    for repeated in reversed(_merge_repeated(summary.decision_list)):
        decision = repeated.last
        about = decision.query or "all"
        if decision.operator is not None:
            about += f", operator {decision.operator}"
        times = f" {repeated.times} times" if repeated.times > 1 else ""
        label = DECISION_LABELS[decision.kind]
        rows.append(
            (
                format_elapsed(decision.at_s - summary.started_s),
                clean(about),
                element("span", clean(label), css=f"kind {clean(decision.kind)}") + times,
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
            f"{of_all}Latest first, time since the start; equal ones in a row are one line.",
            css="about",
        )
        + _table(columns, rows)
    )


def _merge_repeated(decisions: Sequence[DecisionRecord]) -> list[_Repeated]:
    """Joins decisions that changed nothing and repeat, however those of others lie between."""
    merged: dict[tuple[str, int | None], list[_Repeated]] = {}
    for decision in decisions:
        about = merged.setdefault((decision.query, decision.operator), [])
        if about and about[-1].last.kind == decision.kind not in REPORTED_KINDS:
            about[-1] = _Repeated(decision, about[-1].times + 1)
        else:
            about.append(_Repeated(decision, 1))
    everything = [repeated for about in merged.values() for repeated in about]
    return sorted(everything, key=lambda repeated: repeated.last.at_s)


def _moves_table(summary: RunSummary) -> str:
    if not summary.move_list:
        return ""
    columns = [("time", "time"), ("", "query"), ("number", "operator"), ("number", "partition"),
               ("", "executor"), ("", "outcome"), ("number", "state loaded in"),
               ("reason", "reason")]  # fmt: skip
    rows = [
        (
            format_elapsed(move.decided_s - summary.started_s),
            clean(move.query),
            str(move.operator),
            str(move.partition),
            clean(f"{move.source or 'nowhere'} → {move.target}"),
            clean(_outcome(move)),
            format_duration(move.restore_s) if move.restore_s is not None else "",
            clean(move.reason),
        )
        for move in reversed(summary.move_list[-SHOWN_MOVES:])
    ]
    return _one_by_one("Moves", columns, rows, summary.moves)


def _key_moves_table(summary: RunSummary) -> str:
    if not summary.key_move_list:
        return ""
    columns = [("time", "time"), ("", "query"), ("number", "operator"), ("reason", "key"),
               ("number", "partition"), ("number", "with batch"), ("", "outcome"),
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
    """Writes a folded table of the latest moves, of so many in all."""
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
    return "under way at the end"


def _settings_table(summary: RunSummary) -> str:
    if not summary.settings:
        return ""
    rows = [(clean(name), clean(str(value))) for name, value in summary.settings.items()]
    return element(
        "details",
        element("summary", "Policy in force"),
        _table([("", "setting"), ("", "value")], rows),
    )


def _footer(summary: RunSummary) -> str:
    return element(
        "footer",
        clean(
            "Before: batches until the first move, without the query's first. After: batches since "
            "the last move settled. Batches without rows count in neither. The same figures, and "
            "more, are in report.json."
        )
        + (
            ""
            if len(summary.queries) < 2
            else clean(
                f" The figures on top are those of the busiest query, {summary.headline_query}."
            )
        ),
    )


def _milliseconds(value: float | None) -> str:
    return format_duration(None if value is None else value / 1_000)
