"""The report as one HTML page: no network, no scripts, opened from disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files

from balancedstream.core.money import DailyCost, describe_saving, format_money
from balancedstream.record.history import History
from balancedstream.record.wording import (
    find_change,
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
from balancedstream.report.figures import CostSummary, OperatorSummary, QuerySummary, RunSummary
from balancedstream.report.hot_keys import hot_keys_figure
from balancedstream.report.now import now_section
from balancedstream.report.outcome import (
    TOO_FEW,
    describe_pair,
    describe_what_is_missing,
    split_outcome,
)
from balancedstream.report.placements import partition_figure, placement_figure
from balancedstream.report.summary import QueryRecords, busiest_operators, records_by_query
from balancedstream.report.svg import Figure, clean, element
from balancedstream.report.tables import (
    DRAWN_QUERIES,
    decisions_table,
    key_moves_table,
    moves_table,
    pairs_of,
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
    sections = [
        _heading(summary),
        now_section(summary) if refresh_s else "",
        _result(summary, records),
        _notes(summary),
        *(
            _query_section(
                query,
                figures[query.totals.query],
                history,
                is_only=len(records) == 1,
                is_first=number == 0,
            )
            for number, query in enumerate(records[:DRAWN_QUERIES])
        ),
        queries_table(summary.queries) if len(records) > 1 else "",
        shuffles_table(summary.shuffle_list),
        decisions_table(summary),
        moves_table(summary),
        key_moves_table(summary),
        settings_table(summary),
        _footer(summary) if records else "",
    ]
    return _document(summary.app, sections, refresh_s)


def render_unbalanced_page(app: str, problems: Sequence[str], refresh_s: int) -> str:
    """Writes the page of an application that this Spark does not allow to balance."""
    sections = [
        element("p", clean(app), css="app"),
        element("h1", "This application is not balanced; it runs as without BalancedStream."),
        *(element("p", clean(problem), css="sentence") for problem in problems),
    ]
    return _document(app, sections, refresh_s)


def _document(app: str, sections: Sequence[str], refresh_s: int | None) -> str:
    refresh = f'<meta http-equiv="refresh" content="{refresh_s}">\n' if refresh_s else ""
    style = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"{refresh}"
        f"{element('title', clean(f'BalancedStream: {app}'))}\n<style>\n{style}</style>\n"
        "</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _heading(summary: RunSummary) -> str:
    facts = [f"started {format_clock(summary.started_s)}"]
    if summary.ended_s is not None:
        facts.append(f"ran for {format_duration(summary.ended_s - summary.started_s)}")
    if summary.executors is not None:
        when = "at the end" if summary.ended_s is not None else "now"
        facts.append(
            f"{plural(summary.executors, 'executor')} on {plural(summary.cores, 'core')} {when}"
        )
    facts += [f"Spark {summary.spark_version}", f"Python {summary.python_version}"]
    result, explained = split_outcome(summary)
    return "\n".join(
        (
            element("p", clean(summary.app), css="app"),
            element("p", clean(" · ".join(facts)), css="about"),
            element("h1", clean(result)),
            element("p", clean(explained), css="sentence") if explained else "",
        )
    )


def _result(summary: RunSummary, records: Sequence[QueryRecords]) -> str:
    """Writes the picture of where the load of the busiest query was, beside its figures."""
    if not records:
        return ""
    beside = element("div", *_pairs(summary), *_counts(summary), css="tiles")
    if not records[0].totals.operator_busy_s:
        return beside
    colours = executor_colours(records[0].batches)
    operator = busiest_operators(records[0])[0]
    picture = _figure(placement_figure(records[0], operator, colours))
    return element("div", picture, beside, css="top")


def _pairs(summary: RunSummary) -> list[str]:
    """Writes the figures before and after; one that is known on neither side is left out."""
    tiles = []
    batch_ms = summary.median_batch_ms_before, summary.median_batch_ms_after
    if batch_ms != (None, None):
        median = _before_after(*batch_ms, format_milliseconds)
        tiles.append(_tile("Median batch", median, _detail_p99(summary)))
    imbalance = summary.imbalance_before, summary.imbalance_after
    if imbalance != (None, None):
        bound = f"lowest that placement can reach: {format_ratio(summary.bound)}"
        tiles.append(
            _tile(
                "Imbalance (hottest executor / mean)",
                _before_after(*imbalance, format_ratio),
                clean(bound) if summary.bound is not None else "",
            )
        )
    return tiles


def _detail_p99(summary: RunSummary) -> str:
    before_ms, after_ms = summary.p99_batch_ms_before, summary.p99_batch_ms_after
    if before_ms is None or after_ms is None:
        return ""
    said = f"99th percentile: {describe_pair(before_ms, after_ms, format_milliseconds)}"
    return clean(said) + _change(before_ms, after_ms)


def _counts(summary: RunSummary) -> list[str]:
    """Writes how much there was; what did not happen is left out."""
    tiles = []
    if summary.moves:
        tiles.append(_tile("Moves", format_count(summary.moves), clean(_describe_moves(summary))))
    if summary.key_moves:
        settled = f"{format_count(summary.key_moves_settled)} settled"
        tiles.append(_tile("Moves of keys", format_count(summary.key_moves), clean(settled)))
    if summary.query_restarts:
        tiles.append(_tile("Query restarts", format_count(summary.query_restarts), ""))
    actions = summary.scale_action_list
    if actions:
        counts = f"{actions[0].executors_before} → {actions[-1].executors_after} executors"
        tiles.append(_tile("Scale actions", format_count(summary.scale_actions), clean(counts)))
    read = plural(summary.batches, "micro-batch")
    if len(summary.queries) > 1:
        read += f" of {plural(len(summary.queries), 'query')}, each of which reads its own"
    if summary.cost:
        tiles.append(_cost_tile(summary.cost))
    if summary.rows:
        tiles.append(_tile("Rows", format_count(summary.rows), clean(read)))
    return tiles


def _cost_tile(cost: CostSummary) -> str:
    a_day = DailyCost(cost.spent_a_day, cost.saved_a_day, cost.max_executors, cost.currency)
    price = format_money(cost.executor_hour, cost.currency)
    said = f"{cost.executors:.3g} executors on average, at {price} an hour each"
    saving = describe_saving(a_day)
    detail = f"{saving}; {said}" if saving else said
    return _tile("Cost a day", clean(format_money(a_day.spent, a_day.currency)), clean(detail))


def _describe_moves(summary: RunSummary) -> str:
    parts = []
    if len(summary.queries) > 1:
        headline = summary.queries[0]
        parts.append(f"{format_count(headline.moves)} of them in {headline.query}")
    under_way = summary.moves - summary.moves_settled - summary.moves_dropped
    outcomes = [
        (summary.moves_settled, "settled"),
        (summary.moves_dropped, "dropped"),
        (under_way, "under way"),
    ]
    parts += [f"{format_count(count)} {what}" for count, what in outcomes if count]
    return ", ".join(parts)


def _tile(title: str, figure: str, detail: str) -> str:
    return element(
        "div",
        element("h3", clean(title)),
        element("div", figure, css="figure"),
        *([element("p", detail)] if detail else []),
        css="tile",
    )


def _before_after(
    before: float | None, after: float | None, form: Callable[[float | None], str]
) -> str:
    """Writes a figure before and after with its change; smaller is better."""
    too_few = element("span", TOO_FEW, css="too-few")
    if before == after:
        return too_few if after is None else clean(form(after))
    was = element("span", f"{too_few if before is None else clean(form(before))} →", css="was")
    now = too_few if after is None else clean(form(after))
    return f"{was} {now}{_change(before, after)}"


def _change(before: float | None, after: float | None) -> str:
    """Writes a change in per cent, in the colour of whether it is for the better."""
    if before is None or after is None or before <= 0 or before == after:
        return ""
    percent = find_change(before, after)
    css = "change" if percent == 0 else "change better" if percent < 0 else "change worse"
    return " " + element("span", clean(format_change(before, after)), css=css)


def _notes(summary: RunSummary) -> str:
    # The sentence at the top says it of the busiest query.
    missing = describe_what_is_missing(summary)
    said = {f"{summary.headline_query}: {side}." for side in missing.split("; ")}
    notes = [element("li", clean(note)) for note in summary.notes if note not in said]
    return element("div", element("ul", *notes), css="notes") if notes else ""


def _query_section(
    query: QueryRecords, figures: QuerySummary, history: History, *, is_only: bool, is_first: bool
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
        imbalance = imbalance_figure(query, operator.operator, axis)
        parts += [
            element("h4", clean(_operator_facts(operator))),
            _figure(hot_keys) if hot_keys else "",
            # That of the busiest query is at the top.
            _figure(placement_figure(query, operator.operator, colours))
            if not is_first or operator != figures.operators[0]
            else "",
            _figure(executor_load_figure(query, operator.operator, axis, colours)),
            _figure(imbalance) if imbalance else "",
            _figure(partition_figure(query, operator.operator, colours)),
        ]
    if len(operators) > DRAWN_OPERATORS:
        left_out = plural(len(operators) - DRAWN_OPERATORS, "operator")
        parts.append(element("p", clean(f"Not drawn: {left_out} with less load."), css="about"))
    return element("section", *(part for part in parts if part))


def _operator_facts(operator: OperatorSummary) -> str:
    pair = describe_pair(operator.imbalance_before, operator.imbalance_after, format_ratio)
    imbalance = f"{TOO_FEW} for an imbalance" if pair == TOO_FEW else f"imbalance {pair}"
    bound = f", bound {format_ratio(operator.bound)}" if operator.bound is not None else ""
    moves = f"{plural(operator.moves, 'move')}, " if operator.moves else ""
    return (
        f"Operator {operator.operator} {operator.name}: "
        f"{plural(operator.partitions, 'state partition')}, {moves}{imbalance}{bound}"
    )


def _query_facts(query: QuerySummary) -> str:
    imbalance, _, median = pairs_of(query)
    facts = [f"{format_count(query.rows)} rows in {plural(query.batches, 'batch')}"]
    counts = ((query.moves, "move"), (query.query_restarts, "restart"))
    facts += [plural(count, what) for count, what in counts if count]
    balance = f"imbalance {imbalance}" if query.operators else imbalance
    return f"{', '.join(facts)}; {balance}, median batch {median}"


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
    if mark == "moved":
        return element("rect", x=4.0, y=1.0, width=14.0, height=10.0, css="key-moved")
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
