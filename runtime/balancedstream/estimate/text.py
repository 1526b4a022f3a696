"""An estimate as text for a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from balancedstream.core.estimates.application import HOUR_S, Fleet, QueryEstimate, Spread, Use
from balancedstream.core.estimates.worth import judge
from balancedstream.core.printing import printable
from balancedstream.estimate.reading import Finding
from balancedstream.record.wording import (
    NOTHING,
    format_change,
    format_count,
    format_duration,
    format_ratio,
    plural,
)

MAX_HOURS = 24
_HEADER = (
    "hour (UTC)",
    "executors",
    "needed",
    "query",
    "batches",
    "imbalance",
    "least",
    "batch",
    "balanced",
)


def describe(finding: Finding) -> str:
    """All lines about one application."""
    return "\n".join(printable(line) for line in _list_lines(finding))


def describe_state(finding: Finding) -> list[str]:
    """What keeps the log from being whole, a sentence each."""
    reading, found = finding.reading, []
    if reading.cut:
        found.append(f"the log is cut off ({reading.cut}); what comes before was used")
    elif not finding.ended:
        found.append("the log has no end of the application, which may still run")
    if reading.unreadable:
        found.append(f"{plural(reading.unreadable, 'line')} of the log could not be read")
    for query in sorted(finding.real_time):
        found.append(
            f"query {query} runs in Real-Time Mode and is left out: the time of its tasks says "
            "nothing of their load"
        )
    if finding.unnamed:
        found.append(
            f"the start of {plural(len(finding.unnamed), 'executor')} is not in the log, so that "
            f"their number is not known at all times"
        )
    return found


def _list_lines(finding: Finding) -> Iterator[str]:
    application = finding.application
    begun = datetime.fromtimestamp(finding.first_s or 0.0, UTC)
    lasted = format_duration((finding.last_s or 0.0) - (finding.first_s or 0.0))
    yield (
        f"{finding.name or 'application'} ({finding.id or 'no id'}), Spark "
        f"{finding.spark or 'unknown'}: {lasted} from {begun:%Y-%m-%d %H:%M} UTC"
    )
    for sentence in describe_state(finding):
        yield f"  note: {sentence}"
    yield f"  {_describe_fleet(application.fleet, dynamic=finding.dynamic_allocation)}"
    for query in application.queries.values():
        yield ""
        yield from _describe_query(query)
    yield ""
    yield from _list_hours(application.fleet, application.queries)
    yield ""
    use = application.fleet.use
    yield f"executor-hours: {use.used_s / HOUR_S:.3g} used{_describe_need(use)}"
    yield f"worth it? {judge(application.queries, application.fleet).sentence}"


def _describe_need(use: Use) -> str:
    if use.needed is None:
        return ""
    judged, needed = use.judged_s / HOUR_S, use.needed_s / HOUR_S
    return f"; where the need is known, {judged:.3g} used and {needed:.3g} needed"


def _describe_fleet(fleet: Fleet, *, dynamic: bool) -> str:
    fewest = fleet.fewest or 0
    count = f"{fewest}" if fewest == fleet.most else f"{fewest} to {fleet.most}"
    allocation = "dynamic allocation" if dynamic else "no dynamic allocation"
    lost = f", {fleet.lost} were lost" if fleet.lost else ""
    return (
        f"executors: {count}, {plural(fleet.cores, 'core')} each; {allocation}: after the first "
        f"batch {fleet.added} joined, {fleet.removed} were removed{lost}"
    )


def _describe_query(query: QueryEstimate) -> Iterator[str]:
    spread = query.spread
    yield (
        f"query {query.query}: {plural(query.batches, 'batch')}, {format_count(query.rows)} rows"
    )
    if not spread.batches:
        yield "  none of its batches after the first one has rows and state: nothing to balance"
    else:
        yield (
            f"  imbalance   {format_ratio(spread.imbalance)}, the least that any placement allows "
            f"is {format_ratio(spread.bound)}; balanced {format_ratio(spread.balanced_imbalance)}, "
            f"by {plural(query.moves, 'move')}"
        )
        change = format_change(spread.batch_s, spread.balanced_batch_s)
        yield (
            f"  batch       {format_duration(spread.batch_s)}, balanced "
            f"{format_duration(spread.balanced_batch_s)} ({change})"
        )
    if query.unsplittable and query.heaviest:
        operator, partition = query.heaviest
        yield (
            f"  hot         in {plural(query.unsplittable, 'batch')} one partition alone "
            f"had more than an executor's share (last: operator {operator}, partition {partition})"
        )
    if query.limit is not None:
        yield f"  limited by  {query.limit.verdict}: {query.limit.sentence}"
    elif query.unjudged:
        yield "  limited by  unknown: too few batches in a row"
    else:
        yield "  limited by  its executors: more of them make batches shorter"


def _list_hours(fleet: Fleet, queries: dict[str, QueryEstimate]) -> Iterator[str]:
    hours = sorted({hour for hour, use in fleet.hours.items() if use.used_s})
    if len(hours) > MAX_HOURS:
        yield f"the last {MAX_HOURS} of {len(hours)} hours; --json has all"
    rows = [_HEADER]
    for hour in hours[-MAX_HOURS:]:
        use = fleet.hours[hour]
        head = (
            f"{datetime.fromtimestamp(hour * HOUR_S, UTC):%Y-%m-%d %H:%M}",
            f"{use.used_s / use.seconds:.1f}" if use.seconds else NOTHING,
            NOTHING if use.needed is None else f"{use.needed}",
        )
        spreads = [(q.query, q.hours[hour]) for q in queries.values() if hour in q.hours]
        for name, spread in spreads or [(NOTHING, Spread())]:
            rows.append(
                (
                    *head,
                    printable(name)[:24],
                    format_count(spread.batches),
                    format_ratio(spread.imbalance),
                    format_ratio(spread.bound),
                    format_duration(spread.batch_s),
                    format_duration(spread.balanced_batch_s),
                )
            )
            head = ("", "", "")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if number in {0, 3} else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
