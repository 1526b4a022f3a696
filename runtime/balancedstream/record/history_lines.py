"""The file format of a history: JSON, one object a line, `record` naming what it is.

The first line is the run, the last lines are the counters. Infinite and undefined numbers are
written as JSON's common extension `Infinity` and `NaN`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from balancedstream.core.samples import KeySample, ShuffleRecord
from balancedstream.errors import InvalidInputError
from balancedstream.record.history import History
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    KeyMoveRecord,
    MoveRecord,
    OperatorBatchLoad,
    Preparations,
    QueryTotals,
    Record,
    RestartRecord,
    RunInfo,
    RunTotals,
    ScaleRecord,
    start_preparation_totals,
)

FORMAT = 1


def write_history(history: History) -> Iterator[str]:
    """Yields a history line by line, without line ends."""
    yield _dump("run", history.run)
    for kind, (_, of_history) in _KINDS.items():
        for record in getattr(history, of_history):
            yield _dump(kind, record)
    yield _dump("totals", history.totals)


def read_history(lines: Iterable[str]) -> History:
    """Reads a history back.

    Args:
        lines: what `write_history` yielded; empty lines are skipped.

    Returns:
        A history that equals the one written, record by record and counter by counter.

    Raises:
        InvalidInputError: a line is not a record of this format; the message has its number and
            the field.
    """
    run: RunInfo | None = None
    records: list[Record] = []
    totals: RunTotals | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = _parse_line(number, line, is_first=run is None)
        if isinstance(record, RunInfo):
            run = record
        elif isinstance(record, RunTotals):
            totals = record
        else:
            records.append(record)
    if run is None or totals is None:
        msg = (
            "history: the run or its counters are missing, so the file was cut short; nothing "
            "was read, the stream and its data are not affected. Use a complete history.jsonl."
        )
        raise InvalidInputError(msg)
    history = History(run)
    history.restore(records, totals)
    return history


_KINDS: dict[str, tuple[type[Any], str]] = {
    "batch": (BatchRecord, "batches"),
    "move": (MoveRecord, "moves"),
    "key": (KeySample, "key_samples"),
    "key_move": (KeyMoveRecord, "key_moves"),
    "scale": (ScaleRecord, "scales"),
    "decision": (DecisionRecord, "decisions"),
    "restart": (RestartRecord, "restarts"),
    "shuffle": (ShuffleRecord, "shuffles"),
    "query": (QueryTotals, "queries"),
}
"""What a line is called, to its record and where the history has it."""

_RECORDS = {"run": RunInfo, "totals": RunTotals} | {
    kind: each for kind, (each, _) in _KINDS.items()
}


def _dump(kind: str, record: Any) -> str:
    head = {"record": kind, "format": FORMAT} if kind == "run" else {"record": kind}
    return json.dumps(head | _fields_of(record), default=_fields_of)


def _fields_of(record: Any) -> dict[str, Any]:
    document = {field.name: getattr(record, field.name) for field in fields(record)}
    if isinstance(record, RunInfo):
        document["settings"] = dict(record.settings)
    elif isinstance(record, QueryTotals):  # JSON's keys are strings
        document["operator_busy_s"] = list(record.operator_busy_s.items())
    return document


def _invalid(number: int, field_name: str, problem: str) -> InvalidInputError:
    msg = (
        f"history line {number}: {field_name}: {problem}; nothing was read, the stream and its "
        f"data are not affected. Use a history.jsonl of format {FORMAT}."
    )
    return InvalidInputError(msg)


def _parse_line(number: int, line: str, *, is_first: bool) -> Any:
    try:
        document = json.loads(line)
    except json.JSONDecodeError as error:
        raise _invalid(number, "line", f"not JSON ({error.msg})") from error
    if not isinstance(document, dict):
        raise _invalid(number, "line", "not a JSON object")
    kind = document.pop("record", None)
    if kind not in _RECORDS or (kind == "run") != is_first:
        raise _invalid(number, "record", f"{kind!r} is not expected here")
    if kind == "run" and document.pop("format", None) != FORMAT:
        raise _invalid(number, "format", f"only format {FORMAT} can be read")
    record_type = _RECORDS[kind]
    unknown = sorted(set(document) - {field.name for field in fields(record_type)})
    if unknown:
        raise _invalid(number, unknown[0], f"unknown field of {kind!r}")
    try:
        if kind == "batch":
            document["loads"] = tuple(
                OperatorBatchLoad(
                    **load
                    | {
                        "partition_busy_s": tuple(load["partition_busy_s"]),
                        "partition_executor": tuple(load["partition_executor"]),
                    }
                )
                for load in document["loads"]
            )
        elif kind == "shuffle":
            document |= {name: tuple(document[name]) for name in ("estimated_s", "real_s")}
        elif kind == "query":
            document["operator_busy_s"] = dict(document["operator_busy_s"])
        elif kind == "totals":
            counted = document.get("preparations", {}).items()
            document["preparations"] = start_preparation_totals() | {
                outcome: Preparations(**preparations) for outcome, preparations in counted
            }
        return record_type(**document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _invalid(number, kind, f"field missing or malformed ({error})") from error
