"""Builds a status from the last one: a change gets a time, and makes an event."""

from __future__ import annotations

from dataclasses import dataclass, replace

from balancedstream_operator.api.conditions import KINDS, Condition
from balancedstream_operator.api.resource import MAX_DECISIONS, MAX_MESSAGE
from balancedstream_operator.api.status import (
    DecisionKind,
    PastDecision,
    Status,
    StatusCondition,
    StreamEvent,
    format_time,
)

_EVENTS: dict[DecisionKind, str] = {
    "move": "Moving",
    "scale": "Scaling",
    "advise": "Advice",
    "refuse": "ApprovalRefused",
    "repartition": "Repartitioned",
}
"""The reason of the event that a decision makes, by its kind."""


@dataclass(frozen=True, slots=True)
class Report:
    """The status of a stream after a pass, and the new events."""

    status: Status
    events: tuple[StreamEvent, ...]


class StatusDraft:
    """A new status, built from the last one.

    Attributes:
        before: the last status, without times in the future: the clock was set back since.
        status: the new one without its conditions; unchanged fields stay.
        events: of the pass.
    """

    def __init__(self, before: Status, generation: int, now_s: float) -> None:
        conditions = tuple(
            replace(c, last_transition_time=format_time(now_s)) if c.changed_s > now_s else c
            for c in before.conditions
        )
        self.before = self.status = replace(before, conditions=conditions)
        self.events: list[StreamEvent] = []
        self._generation = generation
        self._now_s = now_s
        self._conditions = {condition.type: condition for condition in conditions}

    def set(self, *conditions: Condition) -> None:
        """Sets conditions. A change of state or reason makes an event, unless nobody needs it."""
        for condition in conditions:
            old = self._conditions.get(condition.kind.name)
            changed = old is None or old.status != condition.state
            if changed or (old is not None and old.reason != condition.reason):
                self._tell(condition, old)
            self._conditions[condition.kind.name] = StatusCondition(
                type=condition.kind.name,
                status=condition.state,
                reason=condition.reason,
                message=condition.message[:MAX_MESSAGE],
                last_transition_time=(
                    format_time(self._now_s) if changed or old is None else old.last_transition_time
                ),
                observed_generation=self._generation,
            )

    def _tell(self, condition: Condition, old: StatusCondition | None) -> None:
        kind, state = condition.kind, condition.state
        warning = kind.attention == state
        became_known = old is None or (old.status == "Unknown" and not warning)
        if kind.sums_up or condition.holds is None or (became_known and kind.quiet == state):
            return
        message = f"{kind.name} is {state}: {condition.message}"
        self.events.append(StreamEvent(condition.reason, message, warning))

    def add_decision(self, kind: DecisionKind, epoch: int, reason: str) -> None:
        """Adds a decision and its event; the newest MAX_DECISIONS stay, newest first."""
        reason = reason[:MAX_MESSAGE]
        made = PastDecision(time=format_time(self._now_s), kind=kind, epoch=epoch, reason=reason)
        decisions = (made, *self.status.decisions)[:MAX_DECISIONS]
        self.status = replace(self.status, decisions=decisions)
        self.events.append(StreamEvent(_EVENTS[kind], reason, kind == "refuse"))

    def build(self) -> Report:
        """The complete status, and the events."""
        conditions = [self._conditions[k.name] for k in KINDS if k.name in self._conditions]
        status = replace(
            self.status,
            observed_generation=self._generation,
            conditions=tuple(conditions),
        )
        return Report(status, tuple(self.events))
