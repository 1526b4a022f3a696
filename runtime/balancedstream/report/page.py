"""The report as one HTML page: no network, no scripts, opened from disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files

from balancedstream.record.history import History
from balancedstream.record.wording import (
    format_change,
    format_clock,
    format_count,
    format_duration,
    format_milliseconds,
    format_ratio,
    plural,
)
from balancedstream.report.axis import BatchAxis
from balancedstream.report.charts import (
    batch_time_figure,
    executor_load_figure,
    imbalance_figure,
    supply_figure,
)
from balancedstream.report.colours import executor_colours
from balancedstream.report.figures import QuerySummary, RunSummary
from balancedstream.report.hot_keys import hot_keys_figure
from balancedstream.report.outcome import say_outcome, say_what_is_missing
from balancedstream.report.placements import partition_figure, placement_figure
from balancedstream.report.summary import QueryRecords, busiest_operators, records_by_query
from balancedstream.report.svg import Figure, clean, element
from balancedstream.report.tables import (
    DRAWN_QUERIES,
    decisions_table,
    key_moves_table,
    moves_table,
    queries_table,
    settings_table,
    shuffles_table,
)
from balancedstream.report.windows import MIN_AFTER_BATCHES, MIN_BEFORE_BATCHES

DRAWN_OPERATORS = 3


def render_page(history: History, summary: RunSummary, refresh_s: int | None = None) -> str:
    """Writes the page.

    Args:
        history: the record of the run.
        summary: its figures, from `summarize`.
        refresh_s: how often a browser fetches the page again, for one of a run that goes on.

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
        queries_table(summary.queries) if len(records) > 1 else "",
        shuffles_table(summary.shuffle_list),
        decisions_table(summary),
        moves_table(summary),
        key_moves_table(summary),
        settings_table(summary),
        _footer(summary),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"{_refresh(refresh_s)}"
        f"{element('title', clean(title))}\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _refresh(refresh_s: int | None) -> str:
    return "" if refresh_s is None else f'<meta http-equiv="refresh" content="{refresh_s}">\n'


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
            element("p", clean(say_outcome(summary)), css="sentence"),
        )
    )


def _tiles(summary: RunSummary) -> str:
    actions = summary.scale_action_list
    counts = (
        f"{actions[0].executors_before} → {actions[-1].executors_after} executors"
        if actions
        else "the number of executors did not change"
    )
    missing = say_what_is_missing(summary)
    tiles = [
        _tile(
            "Imbalance (hottest executor / mean)",
            _before_after(summary.imbalance_before, summary.imbalance_after, format_ratio),
            missing or f"lowest that placement can reach: {format_ratio(summary.bound)}",
            wide=True,
        ),
        _tile(
            "Median batch",
            _before_after(
                summary.median_batch_ms_before, summary.median_batch_ms_after, format_milliseconds
            ),
            missing
            or f"99th percentile: {format_milliseconds(summary.p99_batch_ms_before)} → "
            f"{format_milliseconds(summary.p99_batch_ms_after)}",
            wide=True,
        ),
        _tile(
            "Moves",
            format_count(summary.moves),
            f"{format_count(summary.moves_settled)} settled, "
            f"{format_count(summary.moves_dropped)} dropped"
            + (f"; plus {plural(summary.key_moves, 'key move')}" if summary.key_moves else ""),
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
        parts.append(element("p", clean(f"Not drawn: {left_out} with less load."), css="about"))
    return element("section", *(part for part in parts if part))


def _query_facts(query: QuerySummary) -> str:
    return (
        f"{format_count(query.rows)} rows in {plural(query.batches, 'batch')}, "
        f"{plural(query.moves, 'move')}, {plural(query.query_restarts, 'restart')}; imbalance "
        f"{format_ratio(query.imbalance_before)} → {format_ratio(query.imbalance_after)}, "
        f"median batch {format_milliseconds(query.median_batch_ms_before)} → "
        f"{format_milliseconds(query.median_batch_ms_after)}"
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


def _footer(summary: RunSummary) -> str:
    return element(
        "footer",
        clean(
            "Before: batches until the first move, without the query's first. After: batches since "
            "the last move settled. Batches without rows count in neither, and fewer than "
            f"{MIN_BEFORE_BATCHES} before or {MIN_AFTER_BATCHES} after give no figures. The same "
            "figures, and more, are in report.json."
        )
        + (
            ""
            if len(summary.queries) < 2
            else clean(
                f" The figures at the top are those of the busiest query, {summary.headline_query}."
            )
        ),
    )
