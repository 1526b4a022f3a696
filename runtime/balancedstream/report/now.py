"""What a run that goes on waits for, what it does next, and which moves are under way."""

from __future__ import annotations

from collections.abc import Sequence

from balancedstream.core.decisions import DecisionKind
from balancedstream.record.records import DecisionRecord, KeyMoveRecord, MoveRecord
from balancedstream.record.wording import plural
from balancedstream.report.figures import RunSummary
from balancedstream.report.svg import clean, element
from balancedstream.report.windows import MIN_AFTER_BATCHES, MIN_BEFORE_BATCHES

LISTED_SUBJECTS = 6
LISTED_MOVES = 8

_PHRASES: dict[DecisionKind, str] = {
    "move": "measures what its last moves bring",
    "scale": "measures what the change of executors brings",
    "advise": "would act, but the policy only advises",
    "limited": "can do nothing here",
    "hold": "waits",
    "none": "changes nothing",
}


def now_section(summary: RunSummary) -> str:
    """Writes what a run waits for, what it does next and what is under way; "" once it ended."""
    if summary.ended_s is not None:
        return ""
    said = [("Waits for", [_describe_wait(summary)]), ("Next", _describe_next(summary))]
    moves = _describe_moves(summary)
    if moves:
        said.append(("Under way", moves))
    return element(
        "dl",
        *(
            element("dt", word) + "".join(element("dd", clean(line)) for line in lines)
            for word, lines in said
        ),
        css="now",
    )


def _describe_wait(summary: RunSummary) -> str:
    if not summary.queries:
        return (
            "the first micro-batch of a streaming query to finish. Spark starts the query and its "
            "Python workers, which takes longer than a batch"
        )
    query = summary.queries[0]
    moved = query.moves + query.key_moves > 0
    missing = MIN_AFTER_BATCHES - query.batches_after
    if moved and query.batches_before >= MIN_BEFORE_BATCHES and missing > 0:
        return f"{plural(missing, 'more batch')} after the moves of {query.query}, to compare"
    measured = query.trigger == "micro-batch"
    if measured and query.has_state and not query.operators:
        return f"a batch of {query.query} whose tasks are measured"
    return "the next micro-batch" if measured else f"the next batch of {query.query}"


def _describe_next(summary: RunSummary) -> list[str]:
    """What the latest decision on each operator, query or the application comes to."""
    latest: dict[tuple[str, int | None], DecisionRecord] = {}
    for decision in summary.decision_list:
        about = decision.query, decision.operator
        latest.pop(about, None)
        latest[about] = decision
    if not latest:
        return ["decides as soon as loads are measured; a query's first batch is warm-up"]
    lines = [_describe_decision(decision) for decision in reversed(latest.values())]
    return _crop(lines, LISTED_SUBJECTS)


def _describe_decision(decision: DecisionRecord) -> str:
    about = decision.query or "executors"
    if decision.operator is not None:
        about += f", operator {decision.operator}"
    return f"{about}: {_PHRASES[decision.kind]} ({decision.reason})"


def _describe_moves(summary: RunSummary) -> list[str]:
    moves = [_describe_move(move) for move in summary.move_list if move.under_way()]
    moves += [_describe_key_move(move) for move in summary.key_move_list if move.under_way()]
    return _crop(moves, LISTED_MOVES)


def _describe_move(move: MoveRecord) -> str:
    if move.preparing:
        how = "the target loads the state, beside the batches"
    elif move.prepared_s is not None:
        how = "the target has the state, and runs the partition from the next batch on"
    else:
        how = "the first batch on the target restores the state"
    return (
        f"partition {move.partition} of {move.query}, operator {move.operator}: "
        f"executor {move.source or 'unknown'} to {move.target}; {how}"
    )


def _describe_key_move(move: KeyMoveRecord) -> str:
    return (
        f"key {move.key} of {move.query}, operator {move.operator}: "
        f"partition {move.source} to {move.target}, between two batches"
    )


def _crop(lines: Sequence[str], most: int) -> list[str]:
    """The first lines, and how many are left out.

    >>> _crop(["a", "b", "c"], 1)
    ['a', 'and 2 more']
    """
    left_out = len(lines) - most
    return [*lines[:most], *([f"and {left_out:,} more"] if left_out > 0 else [])]
