"""The slots that queries need at once: in Real-Time Mode, or under continuous processing.

All tasks of a batch in Real-Time Mode run at the same time. When one begins, Spark ends the query
if its tasks and those of all other work, running or waiting, do not find a slot each, since Spark
4.3 (`DAGScheduler.rejectUnadmittablePipelinedGroup`). The rest is our own design.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from balancedstream.core.observations import Observation
from balancedstream.core.samples import SlotHolder, StageSample

_MODES = {"real-time": "in Real-Time Mode", "continuous": "under continuous processing"}


@dataclass(frozen=True, slots=True)
class SlotNeed:
    """What queries that hold slots need of the executors.

    Attributes:
        slots: number of slots that must be there, with those that others need beside them.
        executors: the fewest executors that have so many.
        there: slots of the live executors.
        reason: whose need it is, with the number, for people.
    """

    slots: int
    executors: int
    there: int
    reason: str

    @property
    def is_met(self) -> bool:
        """Whether the live executors have so many slots."""
        return self.slots <= self.there


def measure_slots(seen: Observation) -> SlotNeed | None:
    """What queries that hold slots need; None if no query does, or its need is not known yet.

    >>> holder = SlotHolder("live", "real-time", 6)
    >>> need = measure_slots(Observation(9.0, {"a": 4, "b": 1}, holders=(holder,)))
    >>> need.reason, need.there, need.executors
    ('query live in Real-Time Mode needs 6 slots at once', 5, 3)
    """
    known = [(holder, holder.slots) for holder in seen.holders if holder.slots is not None]
    if not known or not seen.executors:
        return None
    held = sum(slots for _, slots in known)
    names = {holder.query for holder in seen.holders}
    others = 0
    if any(holder.trigger == "real-time" for holder, _ in known):
        others = sum(n for query, n in _find_peaks(seen.stages).items() if query not in names)
    said = " and ".join(
        f"query {holder.query} {_MODES[holder.trigger]} needs {slots}" for holder, slots in known
    )
    beside = f", beside up to {others} tasks of others" if others else ""
    there = sum(seen.executors.values())
    cores = there / len(seen.executors)
    # Nobody knows what the next batch of another one needs, so none goes.
    least = seen.asked if len(known) < len(seen.holders) else _count_kept(seen)
    return SlotNeed(
        held + others,
        max(least, math.ceil((held + others) / cores)),
        there,
        f"{said} slots at once{beside}",
    )


def describe_holders(holders: Sequence[SlotHolder]) -> str:
    """Which queries are left alone by the way in which they run, for people; empty if none is.

    >>> describe_holders([SlotHolder("live", "real-time", 6), SlotHolder("flow", "continuous", 2)])
    'query live in Real-Time Mode and query flow under continuous processing are left alone'
    """
    named = [f"query {holder.query} {_MODES[holder.trigger]}" for holder in holders]
    be = "is" if len(named) == 1 else "are"
    return f"{' and '.join(named)} {be} left alone" if named else ""


def list_unknown(holders: Sequence[SlotHolder]) -> list[str]:
    """The queries in Real-Time Mode of which no batch was seen to begin; nothing changes meanwhile.

    >>> list_unknown([SlotHolder("live", "real-time", None), SlotHolder("old", "real-time", 6)])
    ['live']
    """
    return [h.query for h in holders if h.trigger == "real-time" and h.slots is None]


def leave_room(executors: Mapping[str, int], holders: Sequence[SlotHolder]) -> dict[str, int]:
    """The cores that holders leave to other queries, without executors that have none left.

    If none has any left, all of them count as they are: somewhere the others must run.

    Args:
        executors: id to cores.
        holders: queries that hold slots.

    >>> leave_room({"a": 4, "b": 2}, [SlotHolder("live", "real-time", 3, {"a": 1, "b": 2})])
    {'a': 3}
    """
    held: dict[str, int] = defaultdict(int)
    for holder in holders:
        for executor, slots in holder.held.items():
            held[executor] += slots
    free = {e: cores - held[e] for e, cores in executors.items() if cores > held[e]}
    return free or dict(executors)


def _count_kept(seen: Observation) -> int:
    """Executors that cannot go, because tasks run there that do not end."""
    held = {e for holder in seen.holders if holder.trigger == "continuous" for e in holder.held}
    return len(held & seen.executors.keys())


def _find_peaks(stages: Sequence[StageSample]) -> dict[str, int]:
    """The most tasks of each query that ran at the same time, or waited to."""
    peaks: dict[str, int] = defaultdict(int)
    for stage in stages:
        peaks[stage.query] = max(peaks[stage.query], stage.tasks)
    return peaks
