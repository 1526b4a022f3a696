"""The status of a BalancedStream: conditions, figures and the last decisions; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from balancedstream.core.printing import printable
from balancedstream_operator.api.conditions import KINDS, NAMED
from balancedstream_operator.api.resource import MAX_DECISIONS, MAX_MESSAGE

_FIRST_ROOM = 10
"""Conditions that the first definition of a BalancedStream has room for."""

_EVENTS = {
    "move": "Moving",
    "scale": "Scaling",
    "advise": "Advice",
    "refuse": "ApprovalRefused",
}
"""The reason of the event that a decision makes, by its kind."""

UNMEASURED = "NoLongerMeasured"
"""The reason of the condition Running where batches ended when they were last measured."""

_WORDS = {"reason", "message", "effect", "imbalanceText"}
"""Fields of a status, at any depth, that people read and nobody compares."""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """A Kubernetes event to post; a `warning` needs attention, and the message is printable."""

    reason: str
    message: str
    warning: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", printable(self.message))


@dataclass
class StatusDraft:
    """A new status, built from the last one.

    Args:
        before: the last status.
        generation: of the spec that the pass acted on.
        now_s: seconds since the Unix epoch.
    """

    before: Mapping[str, Any]
    generation: int
    now_s: float
    fields: dict[str, Any] = field(default_factory=dict)
    events: list[StreamEvent] = field(default_factory=list)
    _conditions: dict[str, dict[str, Any]] = field(default_factory=dict)
    _decisions: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for condition in self.before.get("conditions") or []:
            changed_s = parse_time(condition["lastTransitionTime"]) or 0.0
            # A clock that was set back since wrote times that are yet to come.
            known = {"lastTransitionTime": format_time(min(changed_s, self.now_s))}
            self._conditions[condition["type"]] = {**condition, **known}
        self._decisions = [dict(entry) for entry in self.before.get("decisions") or []]

    def recall(self, name: str, default: Any = None) -> Any:
        """A field of the new status, or of the last one if it is not set yet."""
        return recall({**self.before, **self.fields}, name, default)

    def set_condition(self, kind: str, holds: bool | None, reason: str, message: str) -> None:
        """Sets a condition; None is Unknown. A change of state or reason makes an event."""
        state = "Unknown" if holds is None else str(holds)
        old = self._conditions.get(kind, {})
        changed = old.get("status") != state
        known = NAMED[kind]
        if not known.sums_up and (changed or old.get("reason") != reason):
            warning = known.attention == state
            became_known = old.get("status") == "Unknown" and not warning
            quiet = (not old or became_known) and known.quiet == state
            if not quiet and holds is not None:
                self.events.append(StreamEvent(reason, f"{kind} is {state}: {message}", warning))
        self._conditions[kind] = {
            "type": kind,
            "status": state,
            "reason": reason,
            "message": message[:MAX_MESSAGE],
            "lastTransitionTime": format_time(self.now_s) if changed else old["lastTransitionTime"],
            "observedGeneration": self.generation,
        }

    def condition(self, kind: str) -> Mapping[str, Any]:
        """A condition; Unknown until it is set."""
        return self._conditions.get(kind, {"status": "Unknown", "reason": "", "message": ""})

    def add_decision(self, kind: str, epoch: int, reason: str) -> None:
        """Adds a decision, newest first; only the newest MAX_DECISIONS stay."""
        entry = {
            "time": format_time(self.now_s),
            "kind": kind,
            "epoch": epoch,
            "reason": reason[:MAX_MESSAGE],
        }
        self._decisions = [entry, *self._decisions][:MAX_DECISIONS]
        self.events.append(StreamEvent(_EVENTS[kind], reason[:MAX_MESSAGE], kind == "refuse"))

    def set_effect(self, epoch: int, effects: Mapping[str, str]) -> None:
        """Records the effects of a plan's decisions by kind; the first recorded effect stays."""
        for entry in self._decisions:
            if entry.get("epoch") == epoch and "effect" not in entry and entry["kind"] in effects:
                entry["effect"] = effects[entry["kind"]]

    def build(self) -> dict[str, Any]:
        """The complete status; fields that were not set keep their values, and words are printable.

        `kubectl get` and `kubectl describe` show them as they are.
        """
        kept = {
            name: value
            for name, value in self.before.items()
            if name not in {"conditions", "decisions"}
        }
        ordered = [self._conditions[k.name] for k in KINDS if k.name in self._conditions]
        status = {
            **kept,
            **self.fields,
            "observedGeneration": self.generation,
            "conditions": ordered,
            "decisions": self._decisions,
        }
        return {name: _print_words(name, value) for name, value in status.items()}


def _print_words(name: str, value: Any) -> Any:
    """A part of a status with all that is for people printable; names of things stay."""
    if isinstance(value, str):
        return printable(value) if name in _WORDS else value
    if isinstance(value, list):
        return [_print_words(name, entry) for entry in value]
    if isinstance(value, dict):
        return {inner: _print_words(inner, entry) for inner, entry in value.items()}
    return value


def recall(status: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """A field of a status, or the default where it is absent or null.

    >>> recall({"planEpoch": None}, "planEpoch", 0)
    0
    """
    value = status.get(name)
    return default if value is None else value


def format_time(time_s: float) -> str:
    """A time in the format of Kubernetes.

    >>> format_time(0.0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> float | None:
    """Seconds since the Unix epoch from a time in the format of Kubernetes.

    >>> parse_time("1970-01-01T00:01:00Z")
    60.0
    """
    return None if text is None else datetime.fromisoformat(text).timestamp()


def is_ready(status: Mapping[str, Any]) -> bool:
    """Whether a stream is ready, by its condition of that name.

    >>> is_ready({"conditions": [{"type": "Ready", "status": "True"}]}), is_ready({})
    (True, False)
    """
    return _find_condition("Ready", status).get("status") == "True"


def has_batches(status: Mapping[str, Any]) -> bool:
    """Whether the driver of a stream runs and its batches end, as far as is known.

    Unlike a ready one, its spec may just have changed, or it is not measured at present.

    >>> has_batches({"conditions": [{"type": "Running", "status": "True"}]}), has_batches({})
    (True, False)
    """
    running = _find_condition("Running", status)
    return running.get("status") == "True" or running.get("reason") == UNMEASURED


def _find_condition(kind: str, status: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = status.get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == kind), {})


def choose_conditions(conditions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """As many as the first definition has room for; those that say something come first.

    >>> choose_conditions([{"type": "Migrating", "status": "False"}])
    [{'type': 'Migrating', 'status': 'False'}]
    """
    quiet = {(kind.name, kind.quiet) for kind in KINDS}
    return sorted(conditions, key=lambda c: (c["type"], c["status"]) in quiet)[:_FIRST_ROOM]


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that turns one status into the other; None removes a field.

    >>> changed_fields({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4})
    {'b': 3, 'c': 4}
    """
    changes = {name: value for name, value in after.items() if before.get(name) != value}
    return changes | {name: None for name in before if name not in after}


def without_words(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status without the texts that say the same as its other fields.

    >>> without_words({"reason": "x", "conditions": [{"type": "Ready", "message": "y"}]})
    {'conditions': [{'type': 'Ready'}]}
    """
    conditions = [
        {name: value for name, value in condition.items() if name != "message"}
        for condition in status.get("conditions") or []
    ]
    others = {name: value for name, value in status.items() if name != "reason"}
    return {**others, "conditions": conditions}


def waited_s(status: Mapping[str, Any], now_s: float) -> float:
    """For how long a stream has run, or not run, and been measured, or not, in seconds.

    >>> waited_s({"conditions": [{"type": "Running", "lastTransitionTime": format_time(5)}]}, 7)
    2.0
    """
    times = [
        parse_time(condition["lastTransitionTime"]) or 0.0
        for condition in status.get("conditions") or []
        if condition["type"] in {"Running", "MetricsAvailable"}
    ]
    return now_s - max(times, default=now_s)


def summarize(reasons: Sequence[str]) -> str:
    """Several reasons as one text, short enough for a status.

    >>> summarize(["a", "", "b"])
    'a; b'
    """
    return "; ".join(reason for reason in reasons if reason)[:MAX_MESSAGE]
