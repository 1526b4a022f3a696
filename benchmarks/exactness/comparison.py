"""Tells whether a disturbed run did what the undisturbed one did, and what was done to it; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Happened = Mapping[str, Any]
"""One line of what happened during a schedule; see `disturbing`."""


def find_difference(expected: Iterable[str], found: Iterable[str]) -> str | None:
    """The first difference between two multisets of rows in words, or None where they are equal.

    >>> find_difference(["a", "b"], ["b", "a"])
    >>> find_difference(["a", "b"], ["a", "a"])
    'of 2 rows 1 missing, such as b; 1 too many, such as a'
    """
    want, got = Counter(expected), Counter(found)
    missing, surplus = want - got, got - want
    parts = []
    if missing:
        parts.append(f"{missing.total()} missing, such as {min(missing)}")
    if surplus:
        parts.append(f"{surplus.total()} too many, such as {min(surplus)}")
    return f"of {want.total()} rows {'; '.join(parts)}" if parts else None


def check_timers(rows: Iterable[Mapping[str, Any]], keys: Iterable[int], rounds: int) -> str | None:
    """What is wrong with timers that ought to fire once each, and never early; None if nothing.

    Args:
        rows: with `key`, `event` ("set" or "fired"), `round`, `due_ms`, `batch_ms` (Spark's time of
            the batch) and `seen_ms` (the clock when the sink had the row).
        keys: that set timers.
        rounds: how often each key's timer is set.

    >>> row = {"key": 1, "round": 1, "due_ms": 20, "batch_ms": 10, "seen_ms": 11}
    >>> was_set, fired = row | {"event": "set"}, row | {"event": "fired", "batch_ms": 25}
    >>> check_timers([was_set, fired | {"seen_ms": 26}], [1], rounds=1)
    >>> check_timers([was_set], [1], rounds=1)
    'timer 1 of key 1 was set once and fired 0 times'
    """
    due: dict[tuple[int, int], list[int]] = defaultdict(list)
    fired: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows:
        timer = row["key"], row["round"]
        if row["event"] == "set":
            due[timer].append(row["due_ms"])
            continue
        fired[timer].append(row["due_ms"])
        early_ms = row["due_ms"] - min(row["batch_ms"], row["seen_ms"])
        if early_ms > 0:
            return f"timer {timer[1]} of key {timer[0]} fired {early_ms} ms early"
    wanted = {(key, number) for key in keys for number in range(1, rounds + 1)}
    for timer in sorted(wanted | due.keys() | fired.keys()):
        key, number = timer
        times = len(due[timer]) if timer in wanted else 0
        if times != 1:
            return f"timer {number} of key {key} was set {len(due[timer])} times"
        if len(fired[timer]) != 1:
            return f"timer {number} of key {key} was set once and fired {len(fired[timer])} times"
        if due[timer] != fired[timer]:
            return f"timer {number} of key {key} fired for another time than it was set for"
    return None


def summarize(happened: Sequence[Happened]) -> dict[str, int]:
    """Counts what was done to a run, and how many of the moves came true.

    A move is a partition that was wanted on another executor than it last ran on. It settled if a
    later batch ran it there before anything else was wanted of it. It was prepared if its new
    executor had loaded its state before. `killed_loading` are partitions whose load ended with the
    executor.
    """
    counts: Counter[str] = Counter()
    ran_on: dict[tuple[str, int, int], str] = {}
    wanted: dict[tuple[str, int, int], str] = {}
    for line in happened:
        counts[line["what"]] += 1
        counts["killed_loading"] += line.get("loading", 0)
        if line["what"] == "batch":
            counts["handoffs"] += line["handoffs"]
            due = {(o, p) for o, p, *state in line["preparations"] if state == ["due", ""]}
            for operator, partition, executor in line["ran_on"]:
                place = line["query"], operator, partition
                ran_on[place] = executor
                if wanted.get(place) == executor:
                    counts["settled"] += 1
                    counts["prepared"] += (operator, partition) in due
                    del wanted[place]
        elif line["what"] == "move":
            for partition, executor in line["targets"]:
                place = line["query"], line["operator"], partition
                wanted.pop(place, None)
                if ran_on.get(place) != executor:
                    wanted[place] = executor
                    counts["moves"] += 1
    return {
        "batches": counts["batch"],
        "moves": counts["moves"],
        "settled": counts["settled"],
        "prepared": counts["prepared"],
        "handoffs": counts["handoffs"],
        "executors_killed": counts["kill-executor"],
        "killed_loading": counts["killed_loading"],
        "executors_retired": counts["retired"],
        "executors_added": counts["added"],
        "driver_restarts": counts["kill-driver"],
        "failed_tasks": counts["failed-task"],
    }


def summarize_reassignments(happened: Sequence[Happened]) -> dict[str, Any]:
    """How keys were wanted elsewhere, and at which steps of a handoff the driver was killed."""
    lines = [line for line in happened if line["what"] == "reassign"]
    return {
        "reassignments": dict(Counter(line["strategy"] for line in lines if line["keys"])),
        "withdrawn": sum(1 for line in lines if not line["keys"]),
        "prepared_ahead": sum(1 for line in lines if line["ahead"]),
        "steps_killed": [line["step"] for line in happened if line["what"] == "kill-driver"],
    }
