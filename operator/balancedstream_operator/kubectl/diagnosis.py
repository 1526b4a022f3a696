"""From a BalancedStream to what is wrong, what is being done, and what to do: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from balancedstream.core.money import DailyCost, describe_saving, format_money
from balancedstream_operator.api.conditions import MIGRATING, NAMED, RECONCILING, RUNNING, STALLED
from balancedstream_operator.api.status import UNSEEN, Cost, Status, StatusCondition, read_status


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One stream on one screen.

    Attributes:
        stream: `namespace/name`.
        state: phase, mode and figures.
        wrong: sentences; empty if all is well.
        doing: what the operator and the driver are doing about the stream.
        to_do: what a person can do; empty for nothing.
    """

    stream: str
    state: str
    wrong: tuple[str, ...]
    doing: tuple[str, ...]
    to_do: tuple[str, ...]


def diagnose(resource: Mapping[str, Any], now_s: float) -> Diagnosis:
    """What a BalancedStream's status says, and what follows from it."""
    metadata, status = resource["metadata"], read_status(resource)
    name = metadata["name"]
    stream = f"{metadata['namespace']}/{name}"
    if status.observed_generation == UNSEEN:
        unseen = "no operator has looked at this stream yet"
        remedy = f"If it stays: kubectl bst doctor {name}."
        return Diagnosis(stream, "no status", (unseen,), ("nothing",), (remedy,))
    wrong: list[str] = []
    doing: list[str] = []
    to_do: list[str] = []
    if status.observed_generation < metadata.get("generation", 0):
        wrong.append("the operator has not acted on the newest spec yet")
        to_do.append(f"If it stays: kubectl bst doctor {name}.")
    comes = status.recall(RECONCILING).holds
    for found in status.conditions:
        kind = NAMED.get(found.type)
        remedy = kind.find_remedy(found.status, found.reason) if kind else ""
        if kind is None or not (remedy or kind.attention == found.status):
            continue
        if kind is RUNNING and comes and not remedy:
            doing.append(found.message or "")
            continue
        wrong.append(_describe(found, now_s))
        if remedy:
            to_do.append(remedy.replace("NAME", name))
    stalled, running = status.find(STALLED), status.recall(RUNNING)
    # If the driver runs, or nobody may look for it, no other condition says what is refused.
    told = running.holds is False and running.reason == "Refused"
    if stalled and stalled.reason == "Refused" and not told:
        wrong.append(_describe(stalled, now_s))
        to_do.append(RUNNING.find_remedy("False", stalled.reason))
    doing += _describe_work(status)
    if status.proposal is not None:
        to_do.append(
            f"Proposal {status.proposal.id}: {status.proposal.reason}. To carry it out: "
            f"kubectl bst approve {name} {status.proposal.id}"
        )
    return Diagnosis(
        stream, _describe_state(status), tuple(wrong), tuple(doing) or ("nothing",), tuple(to_do)
    )


def _describe(condition: StatusCondition, now_s: float) -> str:
    age = ""
    if condition.last_transition_time:
        age = f", for {describe_age(now_s - condition.changed_s)}"
    kind, state, reason = condition.type, condition.status, condition.reason
    return f"{kind} is {state} ({reason}){age}: {condition.message or ''}"


def _describe_state(status: Status) -> str:
    parts = [status.phase or "no phase", f"mode {status.mode or 'unknown'}"]
    if status.executors is not None and status.desired_executors is not None:
        parts.append(f"{status.executors} of {status.desired_executors} executors")
    if status.utilization is not None:
        parts.append(f"{status.utilization:.0%} busy")
    if status.imbalance_text:
        parts.append(f"imbalance {status.imbalance_text}")
    if status.backlog_rows is not None:
        parts.append(f"backlog {status.backlog_rows:,} rows")
    if status.cost is not None:
        parts.append(_describe_cost(status.cost))
    return ", ".join(parts)


def _describe_cost(found: Cost) -> str:
    cost = DailyCost(found.spent_per_day, found.saved_per_day, found.max_executors, found.currency)
    saving = describe_saving(cost)
    return f"{format_money(cost.spent, cost.currency)} a day{f' ({saving})' if saving else ''}"


def _describe_work(status: Status) -> list[str]:
    doing = []
    migrating = status.recall(MIGRATING)
    if migrating.holds:
        doing.append(migrating.message)
    planned = status.plan_epoch or 0
    if planned > (status.applied_epoch or 0):
        doing.append(f"the driver takes over plan {planned}")
    missing = (status.desired_executors or 0) - (status.executors or 0)
    if status.phase == "Running" and missing > 0:
        doing.append(f"{missing} more executors start")
    elif status.phase == "Running" and missing < 0:
        doing.append(f"{-missing} executors are drained and leave")
    reason = status.reason
    if reason and not any(reason in (c.message or "") for c in status.conditions):
        doing.append(reason)
    return doing


def describe_age(age_s: float) -> str:
    """A time that passed, in one unit.

    >>> describe_age(59.0), describe_age(600.0), describe_age(90_000.0)
    ('59 s', '10 min', '25 h')
    """
    if age_s < 120:
        return f"{max(age_s, 0):.0f} s"
    return f"{age_s / 60:.0f} min" if age_s < 7200 else f"{age_s / 3600:.0f} h"
