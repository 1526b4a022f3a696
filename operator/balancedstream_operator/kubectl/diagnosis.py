"""From a BalancedStream to what is wrong, what is being done, and what to do: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from balancedstream_operator.api.conditions import NAMED, RUNNING
from balancedstream_operator.api.status import parse_time, recall


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
    """What a BalancedStream's status says, and what follows from it.

    Args:
        resource: the BalancedStream.
        now_s: seconds since the Unix epoch.
    """
    metadata, status = resource["metadata"], resource.get("status") or {}
    name = metadata["name"]
    stream = f"{metadata['namespace']}/{name}"
    if recall(status, "observedGeneration", -1) < 0:
        unseen = "no operator has looked at this stream yet"
        remedy = f"If it stays: kubectl bst doctor {name}."
        return Diagnosis(stream, "no status", (unseen,), ("nothing",), (remedy,))
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    wrong: list[str] = []
    doing: list[str] = []
    to_do: list[str] = []
    if recall(status, "observedGeneration", 0) < metadata.get("generation", 0):
        wrong.append("the operator has not acted on the newest spec yet")
        to_do.append(f"If it stays: kubectl bst doctor {name}.")
    comes = conditions.get("Reconciling", {}).get("status") == "True"
    for name_of_kind, found in conditions.items():
        kind = NAMED.get(name_of_kind)
        if kind is None or kind.sums_up:
            continue
        remedy = kind.find_remedy(found["status"], found["reason"])
        if not remedy and kind.attention != found["status"]:
            continue
        if kind is RUNNING and comes and not remedy:
            doing.append(found.get("message", ""))
            continue
        wrong.append(_describe(found, now_s))
        if remedy:
            to_do.append(remedy.replace("NAME", name))
    stalled, running = (conditions.get(kind, {}) for kind in ("Stalled", "Running"))
    # What runs, although an object of it is refused, has no other condition that says so.
    if stalled.get("reason") == "Refused" != running.get("reason"):
        wrong.append(_describe(stalled, now_s))
        to_do.append(RUNNING.find_remedy("False", stalled["reason"]))
    doing += _describe_work(status, conditions)
    proposal = status.get("proposal")
    if proposal:
        to_do.append(
            f"Proposal {proposal['id']}: {proposal['reason']}. To carry it out: "
            f"kubectl bst approve {name} {proposal['id']}"
        )
    return Diagnosis(
        stream, _describe_state(status), tuple(wrong), tuple(doing) or ("nothing",), tuple(to_do)
    )


def _describe(condition: Mapping[str, str], now_s: float) -> str:
    since_s = parse_time(condition.get("lastTransitionTime"))
    age = "" if since_s is None else f", for {describe_age(now_s - since_s)}"
    kind, state, reason = condition["type"], condition["status"], condition["reason"]
    return f"{kind} is {state} ({reason}){age}: {condition.get('message', '')}"


def _describe_state(status: Mapping[str, Any]) -> str:
    parts = [status.get("phase", "no phase"), f"mode {status.get('mode', 'unknown')}"]
    executors, desired = status.get("executors"), status.get("desiredExecutors")
    if executors is not None and desired is not None:
        parts.append(f"{executors} of {desired} executors")
    if status.get("utilization") is not None:
        parts.append(f"{status['utilization']:.0%} busy")
    if status.get("imbalanceText"):
        parts.append(f"imbalance {status['imbalanceText']}")
    if status.get("backlogRows") is not None:
        parts.append(f"backlog {status['backlogRows']:,} rows")
    return ", ".join(parts)


def _describe_work(
    status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, str]]
) -> list[str]:
    doing = []
    migrating = conditions.get("Migrating", {})
    if migrating.get("status") == "True":
        doing.append(migrating.get("message", ""))
    planned, applied = recall(status, "planEpoch", 0), recall(status, "appliedEpoch", 0)
    if planned > applied:
        doing.append(f"the driver takes over plan {planned}")
    missing = recall(status, "desiredExecutors", 0) - recall(status, "executors", 0)
    if status.get("phase") == "Running" and missing > 0:
        doing.append(f"{missing} more executors start")
    elif status.get("phase") == "Running" and missing < 0:
        doing.append(f"{-missing} executors are drained and leave")
    reason = recall(status, "reason", "")
    if reason and not any(reason in c.get("message", "") for c in conditions.values()):
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
