"""A spectator for runs that nobody watches."""

from __future__ import annotations

from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    MoveRecord,
    PreparationOutcome,
    ScaleRecord,
)
from balancedstream.record.spectators import Spectator


class SilentView(Spectator):
    """Shows nothing."""

    def on_batch(self, record: BatchRecord) -> None: ...

    def on_decision(self, record: DecisionRecord) -> None: ...

    def on_move(self, record: MoveRecord) -> None: ...

    def on_preparation(
        self, outcome: PreparationOutcome, state_bytes: int, spent_s: float
    ) -> None: ...

    def on_scale(self, record: ScaleRecord) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...
