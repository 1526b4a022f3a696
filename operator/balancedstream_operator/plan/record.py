"""The record that the operator writes with each plan, so that no decision needs the status: pure.

The status may be lost at any moment: a write fails, the operator dies before it, a backup lacks it.
So the record holds everything that the next decision needs. The ConfigMap of the plan holds both,
and one write replaces both.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from balancedstream.core.observations import ScaleOut
from balancedstream.core.past import Past
from balancedstream.core.wire.plan import Plan
from balancedstream_operator.plan.answers import Control
from balancedstream_operator.repartition.steps import Repartition, read_repartition

RECORD_KEY = "record.json"
"""Key of the record in the plan's ConfigMap; the driver does not read it."""

MAX_REFUSED_KEYS = 100
"""If the driver refuses more keys than this, it gets none."""

RETRY_S = 60.0
MAX_RETRY_S = 3600.0
"""Pause after a second refusal in a row; it doubles with each further one, up to the limit."""

_SPREAD = re.compile(r"plan\.(budget_s|effective_batch|standing)\b")


@dataclass(frozen=True, slots=True)
class Refusals:
    """What a driver refused, which the next plans avoid.

    Attributes:
        driver: uid of its pod; another driver may take what this one refuses.
        count: plans refused in a row.
        keys: (query, key) of keys that the driver cannot place.
        all_keys: whether plans leave out all key placements.
        plain: whether plans leave out how to spread moves, and what the driver may do by itself.
    """

    driver: str = ""
    count: int = 0
    keys: tuple[tuple[str, str], ...] = ()
    all_keys: bool = False
    plain: bool = False

    def add(self, plan: Plan, reason: str) -> Refusals:
        """These refusals and that of one more plan, by the driver's reason.

        >>> plan = Plan(1, ("a",), {})
        >>> Refusals().add(plan, "plan.budget_s: unknown field, allowed are epoch").plain
        True
        """
        more = replace(self, count=self.count + 1)
        if _SPREAD.match(reason):
            return replace(more, plain=True)
        named = {(p.query, p.key) for p in plan.key_placements if _names(reason, p.key)}
        keys = tuple(sorted({*self.keys, *named}))
        if named and len(keys) <= MAX_REFUSED_KEYS:
            return replace(more, keys=keys)
        # A refused epoch is not about the plan's content; any other reason may be about keys.
        return replace(more, all_keys=self.all_keys or not reason.startswith("plan.epoch"))

    def follow(self, driver: str, control: Control, plan: Plan | None) -> Refusals:
        """The refusals that the next plan must heed, after a driver's answer to the newest plan."""
        known = self if self.driver == driver else Refusals(driver)
        if control.refusal and plan is not None:
            return known.add(plan, control.refusal)
        return replace(known, count=0) if control.follows else known

    @property
    def pause_s(self) -> float:
        """Pause before the next plan after refused ones, in seconds; none after the first."""
        return 0.0 if self.count < 2 else min(RETRY_S * 2.0 ** (self.count - 2), MAX_RETRY_S)


def _names(reason: str, key: str) -> bool:
    """Whether a reason names a key, which it may cut."""
    return any(f"key {said}{end}" in reason for said in {key, key[:80]} for end in ": ")


_PAST = {
    "desired": "requested",
    "scaled_s": "scaled_at_s",
    "scale_outs": "scale_outs",
    "planned_after": "planned_after",
    "moved": "moved",
    "removed": "removed",
    "promised": "promised",
    "delay_s": "delay_s",
    "room": "room",
    "start_s": "start_s",
    "starting": "starting",
}
"""Name in JSON to the attribute of `Past`."""


@dataclass(frozen=True, slots=True)
class Record:
    """What the next decision needs.

    Attributes:
        partitions: state partitions of the stream.
        epoch: of its plan; after a loss, an epoch above any used one; 0 before the first plan.
        past: memory of earlier decisions.
        planned_s: when the operator wrote the plan, seconds since the Unix epoch.
        known_refusal: how the driver had refused an older plan by then; empty if it had not.
        refusals: heeded by this plan.
        approved: id of the last proposal that a plan carried out; empty for none.
        application: Spark's id of the application that plans are for; empty if any driver of the
            stream may follow them.
        repartition: a change of `partitions`, under way or over; None if none was asked for.
    """

    partitions: int
    epoch: int = 0
    past: Past = field(default_factory=Past)
    planned_s: float = 0.0
    known_refusal: str = ""
    refusals: Refusals = field(default_factory=Refusals)
    approved: str = ""
    application: str = ""
    repartition: Repartition | None = None

    def write(self) -> str:
        """As JSON, in which the past is flat, under the names of release 0.1.0."""
        written = asdict(self)
        past = written.pop("past")
        if self.repartition is None:
            del written["repartition"]
        written |= {name: past[of_past] for name, of_past in _PAST.items()}
        return json.dumps(written, sort_keys=True, separators=(",", ":"))


def heed_clock(record: Record, now_s: float) -> Record:
    """A record without times in the future: the clock was set back since.

    >>> heed_clock(Record(8, planned_s=7200.0), 60.0).planned_s
    60.0
    """
    past = record.past.set_back(now_s)
    return replace(record, planned_s=min(record.planned_s, now_s), past=past)


def read_record(text: str) -> Record | None:
    """A record of any release; None for unreadable text.

    >>> read_record(Record(48, epoch=3).write())
    Record(partitions=48, epoch=3, past=Past(requested=None, scaled_at_s=None, scale_outs=(), \
planned_after={}, moved=False, removed=False, promised={}, delay_s=60.0, \
room=1.1, start_s=20.0, starting=False), \
planned_s=0.0, known_refusal='', refusals=Refusals(driver='', count=0, \
keys=(), all_keys=False, plain=False), \
approved='', application='', repartition=None)
    >>> read_record("rubbish")
    """
    try:
        found = json.loads(text)
        known = {entry.name: found[entry.name] for entry in fields(Record) if entry.name in found}
        past = {_PAST[name]: found[name] for name in _PAST if name in found}
        if "scale_outs" in past:
            past["scale_outs"] = tuple(ScaleOut(**each) for each in past["scale_outs"])
        if "refusals" in known:
            given = known["refusals"]
            keys = tuple((str(query), str(key)) for query, key in given["keys"])
            known["refusals"] = Refusals(**{**given, "keys": keys})
        known["repartition"] = read_repartition(known.get("repartition"))
        record = Record(**{**known, "past": Past(**past)})
        # A clock may be wrong by any time, and what is written must be read again all the same.
        counts = (record.partitions, record.epoch, record.past.requested or 0)
        return record if _fits(Record, record) and min(counts) >= 0 else None
    # Only the operator reads records, so it does without an unreadable one.
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _fits(form: Any, value: Any) -> bool:
    """Whether a value, and each of its fields, is of a type; a number must be finite."""
    kind, parts = get_origin(form) or form, get_args(form)
    if kind is UnionType:
        return any(_fits(part, value) for part in parts)
    if kind is Literal:
        return value in parts
    if kind is Mapping:
        return isinstance(value, dict) and all(_fits(parts[1], each) for each in value.values())
    if kind is tuple and isinstance(value, tuple):
        if parts[-1] is ...:
            return all(_fits(parts[0], each) for each in value)
        return len(value) == len(parts) and all(map(_fits, parts, value))
    if kind is float:
        return type(value) in {int, float} and math.isfinite(value)
    if is_dataclass(form):
        hints = get_type_hints(form)
        return isinstance(value, kind) and all(
            _fits(hint, getattr(value, name)) for name, hint in hints.items()
        )
    return type(value) is kind


@dataclass(frozen=True, slots=True)
class PlanFound:
    """Findings about the plan's ConfigMap.

    Attributes:
        overwritten: whether something else replaced the plan.
        adopted: whether the other plan is newer, and in force now.
        unreadable: why the operator cannot use the plan; empty if it can.
        foreign: whether the ConfigMap of that name belongs to somebody else.
    """

    overwritten: bool = False
    adopted: bool = False
    unreadable: str = ""
    foreign: bool = False
