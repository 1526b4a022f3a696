"""The scheduler of Online Shuffle Grouping: it gives each record to the least loaded instance.

Rivetti et al., "Online scheduling for shuffle grouping in distributed stream processing
systems" (Online Shuffle Grouping, OSG): any of k instances may run any record, and what a record
costs depends on its content. The instances measure costs in sketches (`measuring.InstanceMeter`);
the scheduler estimates each record's cost with them.

The state machine follows the authors' code. Greedy assignment is within 2 - 1/k of the least
makespan for known costs and equal instances (textbook). Our own additions: summed busy time as the
real load, answers of an older epoch dropped in every phase, equal loads told apart by the number of
records given, instances that join and leave, and paces.

The state machine is made for a stream without batches, where load that is left over is still there
when the next record comes. A micro-batch begins with idle instances, so a simulation of batches
makes a new scheduler for each one. A running job needs only the rule
(`balancedstream.core.shuffle.grouping.assign_greedily`).

The scheduler sends nothing itself: it returns what the caller has to send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappush, heapreplace
from math import inf, isfinite
from typing import Generic, NamedTuple, Protocol, TypeVar

from balancedstream.errors import InvalidInputError

WINDOW = 1024
"""Records of an instance between two tests for stability; k times as many are between two syncs."""

Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)


class Estimates(Protocol[Item_contra]):
    """Estimates the cost of records: a `CostSketch`, or what answers as one does."""

    def estimate(self, item: Item_contra, /) -> float:
        """Seconds that a record of the item costs; 0 or more and finite."""


class Phase(StrEnum):
    """What the scheduler does now."""

    ROUND_ROBIN = "round robin"
    """Not every instance has sent estimates yet: records are given in turn."""
    SEND_ALL = "send all"
    """Each instance is given a record with a marker, in turn."""
    WAIT_ALL = "wait all"
    """Greedy, until every instance has answered its marker."""
    RUN = "run"
    """Greedy, until it is time for the next markers."""


@dataclass(frozen=True, slots=True)
class Marker:
    """Goes with a record and asks its instance how far the estimated load is off.

    Attributes:
        instance: the one that is asked.
        epoch: of the question; an answer has the same.
        estimated_s: the instance's load by the estimates since it joined, this record included.
    """

    instance: int
    epoch: int
    estimated_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What an instance answers to a marker.

    Attributes:
        instance: the one that was asked.
        epoch: of the marker.
        delta_s: its real load less the estimated one, in seconds; negative where it has less to do
            than estimated.
    """

    instance: int
    epoch: int
    delta_s: float


class Assignment(NamedTuple):
    """Where a record runs, and what goes with it.

    Attributes:
        instance: the one that runs it.
        marker: the instance answers it once the record has run; or None.
    """

    instance: int
    marker: Marker | None


class GreedyScheduler(Generic[Item]):
    """Gives each record to the instance with the least estimated load.

    Instances are numbered from 0 in the order in which they joined; a number is never used again.
    Of equally loaded instances the one with the fewest records is next, so that records without any
    cost are spread evenly too.

    An instance that joins starts with the load and the estimates of the least loaded one, until it
    sends estimates of its own. One that leaves takes its load along: the engine decides where its
    records run again. After both, all instances are asked again. An instance that restarts has a
    new number: the old one leaves, and the new one joins.

    Args:
        instances: the number at the start; 1 or more.
        window: records an instance between two syncs; 1 or more.

    Attributes:
        phase: of the state machine.
        epoch: of the latest markers; 0 before the first ones.

    Raises:
        InvalidInputError: instances or window below 1; the message names it.

    >>> from balancedstream.core.shuffle.sketches import CostSketch
    >>> costs_s = CostSketch(epsilon=0.05, delta=0.1, seed=7)
    >>> for item, cost_s in ((b"long", 0.09), (b"short", 0.01)):
    ...     costs_s.update(item, cost_s)
    >>> scheduler = GreedyScheduler(2)
    >>> [scheduler.assign(b"long").instance for _ in range(3)]  # no estimates yet: in turn
    [0, 1, 0]
    >>> for instance in (0, 1):
    ...     used = scheduler.accept_estimates(instance, costs_s)
    >>> scheduler.assign(b"long").marker
    Marker(instance=0, epoch=1, estimated_s=0.09)
    >>> scheduler.assign(b"short").marker
    Marker(instance=1, epoch=1, estimated_s=0.01)
    >>> [scheduler.assign(b"short").instance for _ in range(3)]
    [1, 1, 1]
    >>> scheduler.accept_answer(Answer(instance=0, epoch=1, delta_s=-0.09))
    True
    >>> scheduler.accept_answer(Answer(instance=1, epoch=1, delta_s=0.0))
    True
    >>> scheduler.phase.value, scheduler.assign(b"short").instance
    ('run', 0)
    """

    def __init__(self, instances: int, *, window: int = WINDOW) -> None:
        if not instances >= 1:
            message = f"instances: must be at least 1, not {instances}"
            raise InvalidInputError(message)
        if not window >= 1:
            message = f"window: must be at least 1 record, not {window}"
            raise InvalidInputError(message)
        self.phase = Phase.ROUND_ROBIN
        self.epoch = 0
        self._window = window
        # Estimated load, records given, instance: the least runs the next record.
        self._heap = [(0.0, 0, instance) for instance in range(instances)]
        # The load that each one started with when it joined.
        self._joined_at_s = dict.fromkeys(range(instances), 0.0)
        self._next_instance = instances
        # How to estimate for an instance, and its pace.
        self._estimates: dict[int, tuple[Callable[[Item], float], float]] = {}
        self._unmarked: deque[int] = deque()
        self._deltas_s: dict[int, float] = {}
        self._until_sync = 0

    @property
    def instances(self) -> tuple[int, ...]:
        """The instances that are there."""
        return tuple(self._joined_at_s)

    @property
    def loads_s(self) -> dict[int, float]:
        """Estimated load of each instance in seconds; only their differences mean something.

        >>> GreedyScheduler(2).loads_s
        {0: 0.0, 1: 0.0}
        """
        by_instance = {instance: load_s for load_s, _, instance in self._heap}
        return {instance: by_instance[instance] for instance in self._joined_at_s}

    def assign(self, item: Item) -> Assignment:
        """Decide where the next record runs.

        Greedy takes O(log k), and the k records with markers O(k) each.
        """
        if self.phase is Phase.SEND_ALL:
            return self._assign_marked(item)
        load_s, given, instance = self._heap[0]
        # Without estimates all loads stay equal, and the least of them goes round.
        if self.phase is not Phase.ROUND_ROBIN:
            estimate, pace = self._estimates[instance]
            load_s += pace * estimate(item)
        heapreplace(self._heap, (load_s, given + 1, instance))
        if self.phase is Phase.RUN:
            self._until_sync -= 1
            if not self._until_sync:
                self._send_all()
        return Assignment(instance, None)

    def accept_estimates(
        self, instance: int, estimates: Estimates[Item], *, pace: float = 1.0
    ) -> bool:
        """Replace an instance's estimates, and ask all instances again.

        Args:
            instance: whose costs they are.
            estimates: such as its sketch; it must not change afterwards.
            pace: how many times longer than estimated the instance takes; 1 where the estimates
                are its own.

        Returns:
            Whether they are used; those of an instance that has left are not.

        Raises:
            InvalidInputError: the pace is not a positive number.
        """
        if not 0 < pace < inf:
            message = f"pace: must be a positive number, not {pace}"
            raise InvalidInputError(message)
        if instance not in self._joined_at_s:
            return False
        self._estimates[instance] = estimates.estimate, pace
        if len(self._estimates) == len(self._joined_at_s):
            self._send_all()
        return True

    def accept_answer(self, answer: Answer) -> bool:
        """Take an answer; with the last one of an epoch, estimated loads become the real ones.

        Returns:
            Whether it is used: it is not if it is of an older epoch, a repetition, or of an
            instance that has left.

        Raises:
            InvalidInputError: `delta_s` is no number or infinite.
        """
        if not isfinite(answer.delta_s):
            message = f"delta_s: instance {answer.instance} is off by {answer.delta_s}, no time"
            raise InvalidInputError(message)
        asked = (
            self.phase in (Phase.SEND_ALL, Phase.WAIT_ALL)
            and answer.epoch == self.epoch
            and answer.instance in self._joined_at_s
            and answer.instance not in self._unmarked
        )
        if not asked or answer.instance in self._deltas_s:
            return False
        self._deltas_s[answer.instance] = answer.delta_s
        if len(self._deltas_s) == len(self._joined_at_s):
            self._synchronize()
        return True

    def add_instance(self) -> int:
        """Add an instance.

        Returns:
            Its number.
        """
        load_s, given, least = self._heap[0]
        instance = self._next_instance
        self._next_instance += 1
        self._joined_at_s[instance] = load_s
        heappush(self._heap, (load_s, given, instance))
        if self.phase is not Phase.ROUND_ROBIN:
            self._estimates[instance] = self._estimates[least]
            self._send_all()
        return instance

    def remove_instance(self, instance: int) -> None:
        """Remove an instance.

        Raises:
            InvalidInputError: it is not there, or it is the last one.
        """
        if instance not in self._joined_at_s:
            message = f"instance: there is no {instance}"
            raise InvalidInputError(message)
        if len(self._joined_at_s) == 1:
            message = f"instance: {instance} is the last one, and the records must run somewhere"
            raise InvalidInputError(message)
        del self._joined_at_s[instance]
        self._estimates.pop(instance, None)
        self._heap = [entry for entry in self._heap if entry[2] != instance]
        heapify(self._heap)
        if len(self._estimates) == len(self._joined_at_s):
            self._send_all()

    def _send_all(self) -> None:
        self.phase = Phase.SEND_ALL
        self.epoch += 1
        self._unmarked = deque(self._joined_at_s)
        self._deltas_s = {}

    def _assign_marked(self, item: Item) -> Assignment:
        instance = self._unmarked.popleft()
        at = next(i for i, entry in enumerate(self._heap) if entry[2] == instance)
        load_s, given, _ = self._heap[at]
        estimate, pace = self._estimates[instance]
        load_s += pace * estimate(item)
        self._heap[at] = (load_s, given + 1, instance)
        heapify(self._heap)
        if not self._unmarked:
            self.phase = Phase.WAIT_ALL
        estimated_s = load_s - self._joined_at_s[instance]
        return Assignment(instance, Marker(instance, self.epoch, estimated_s))

    def _synchronize(self) -> None:
        self._heap = [
            (load_s + self._deltas_s[instance], given, instance)
            for load_s, given, instance in self._heap
        ]
        heapify(self._heap)
        self.phase = Phase.RUN
        self._until_sync = self._window * len(self._heap)
