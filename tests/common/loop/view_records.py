"""What the tests of the views tell them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from balancedstream.core.decisions import DecisionKind
from balancedstream.record.history import History
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    MoveRecord,
    RunInfo,
    ScaleRecord,
)
from balancedstream.record.spectators import Spectator

RUN = RunInfo("jobs/flights.py", 1_700_000_000.0, 2, "4.3.0", "3.11.7")


NOW_S = RUN.started_s + 90.0


def replay(history: History, view: Spectator, *, until_s: float = float("inf")) -> None:
    """Tells a view what the controller would have told it."""
    events: list[tuple[float, int, object]] = []
    events += [(record.finished_s, 0, record) for record in history.batches]
    events += [(record.at_s, 3, record) for record in history.decisions]
    events += [(record.at_s, 4, record) for record in history.scales]
    for move in history.moves:
        events.append((move.decided_s, 2, replace(move, settled_s=None, restore_s=None)))
        if move.settled_s is not None:
            events.append((move.settled_s, 1, move))
    for at_s, _, record in sorted(events, key=lambda event: event[:2]):
        if at_s > until_s:
            break
        match record:
            case BatchRecord():
                view.on_batch(record)
            case MoveRecord():
                view.on_move(record)
            case DecisionRecord():
                view.on_decision(record)
            case ScaleRecord():
                view.on_scale(record)


def decision(kind: DecisionKind = "none", at_s: float = NOW_S, **changes: Any) -> DecisionRecord:
    return replace(
        DecisionRecord(at_s, "delays", 0, kind, f"reason to {kind}"),
        **changes,
    )


def move(partition: int = 7, **changes: Any) -> MoveRecord:
    return replace(
        MoveRecord("delays", 0, partition, "1", "3", NOW_S - 4.0, "1.58 is above 1.20", 12),
        **changes,
    )
