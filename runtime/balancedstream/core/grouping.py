"""Online Shuffle Grouping: which instance of a stateless operator shall run which record.

Rivetti et al., "Proactive online scheduling for shuffle grouping in distributed stream processing
systems" (Online Shuffle Grouping, OSG): any of k instances may run any record, and what a record
costs depends on its content. The instances measure costs in sketches (`InstanceMeter`); a scheduler
gives each record to the instance that has the least to do by its estimates (`GreedyScheduler`).

Both state machines are read from the authors' code. That greedy assignment is within 2 - 1/k of the
least makespan, for known costs and equal instances, is textbook. Our own design: summed busy time
as the real load, answers of an older epoch dropped in every phase, equal loads told apart by the
records given, instances that join and leave, and paces.

The state machine is made for a stream without end, where load that was left over is still there
when the next record comes. A micro-batch begins with idle instances. So there a scheduler is made
anew for each batch, and what former batches have taught is in its estimates and paces
(`learn_paces`). Where all records of a batch are there before the first of them is assigned, no
scheduler is needed, only its rule (`assign_greedily`).

Nothing is sent from here: what is to be sent is returned.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappush, heapreplace
from math import inf, isfinite
from typing import Generic, NamedTuple, Protocol, TypeVar

from balancedstream.core.sketches import CostSketch, measure_change
from balancedstream.errors import InvalidInputError

WINDOW = 1024
"""Records of an instance between two tests for stability, and a kth of those between two syncs."""

STABLE_CHANGE = 0.05
"""A sketch whose mean costs changed by no more than this part over a window is stable."""

# An instance that takes so many times longer than the others has changed its pace; of a lesser
# difference this part is believed. With small batches and costs that are hardly known, chance alone
# makes differences of a half.
_JUMP = 1.75
_FOLLOWED = 0.1

# No instance is taken to be so many times slower or faster than the one in the middle.
_FARTHEST = 10.0

# A load below this is none: time is measured in nanoseconds.
_SHORTEST_S = 1e-9

Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)


class Estimates(Protocol[Item_contra]):
    """Estimates the cost of records: a `CostSketch`, or what answers as one does."""

    def estimate(self, item: Item_contra, /) -> float:
        """Seconds that a record of the item costs; 0 or more and finite."""


class Phase(StrEnum):
    """What the scheduler is about."""

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
    """Travels with a record and asks its instance how far the estimated load is off.

    Attributes:
        instance: the one that is asked.
        epoch: of the question; an answer bears the same.
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
        delta_s: its real load less the estimated one, in seconds; negative where it had less to do
            than was thought.
    """

    instance: int
    epoch: int
    delta_s: float


class Assignment(NamedTuple):
    """Where a record shall run, and what travels with it.

    Attributes:
        instance: the one that runs it.
        marker: to be answered once the record was run, or None.
    """

    instance: int
    marker: Marker | None


class GreedyScheduler(Generic[Item]):
    """Gives each record to the instance with the least estimated load.

    Instances are numbered from 0 in the order in which they joined; a number is never used again.
    Equal loads are told apart by the number of records given, so that records without any cost are
    spread evenly too.

    An instance that joins is taken to have as much behind it as the least loaded one, and costs it
    as much, until it sends estimates of its own. One that leaves takes its load along: what it was
    given is not shared out anew, for that is the engine's concern. After both, all are asked anew.
    An instance that begins anew has a new number: let the old one leave, and the new one join.

    Args:
        instances: how many there are at first; 1 or more.
        window: a sync follows after so many records an instance; 1 or more.

    Attributes:
        phase: of the state machine.
        epoch: of the newest markers; 0 before there were any.

    Raises:
        InvalidInputError: instances or window below 1; the message names it.

    >>> costs_s = CostSketch(epsilon=0.05, delta=0.1, seed=7)
    >>> for item, cost_s in ((b"long", 0.09), (b"short", 0.01)):
    ...     costs_s.update(item, cost_s)
    >>> scheduler = GreedyScheduler(2)
    >>> [scheduler.assign(b"long").instance for _ in range(3)]  # nothing is known yet: in turn
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
        # The load that each is taken to have had when it joined.
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
        """Take an instance's new estimates in place of its former ones, and ask all anew.

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
        """Let one more instance join.

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
        """Let an instance leave.

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


def assign_greedily(costs_s: Iterable[float], instances: int, *, first: int = 0) -> list[int]:
    """Give each record, in their order, to the instance that has the least to do so far.

    Of equally loaded instances the one with the fewest records is next, so records without any
    cost go round. No instance gets more than the mean load and one record. The makespan is within
    2 - 1/k of the least possible, and within 4/3 - 1/(3k) where the dearest records come first
    (both textbook: Graham).

    Args:
        costs_s: of the records, in seconds; 0 or more.
        instances: how many there are; 1 or more. All are idle.
        first: the one that gets the first record, so that several who assign at once do not all
            begin with the same.

    Returns:
        The instance of each record, counted from 0.

    Raises:
        InvalidInputError: instances below 1.

    >>> assign_greedily([5.0, 4.0, 3.0, 3.0, 3.0], 2)
    [0, 1, 1, 0, 1]
    >>> assign_greedily([0.0] * 5, 3, first=2)
    [2, 0, 1, 2, 0]
    """
    if not instances >= 1:
        message = f"instances: must be at least 1, not {instances}"
        raise InvalidInputError(message)
    # Load, records given, place after the first.
    heap = [(0.0, 0, place) for place in range(instances)]
    assigned = []
    for cost_s in costs_s:
        load_s, given, place = heap[0]
        heapreplace(heap, (load_s + cost_s, given + 1, place))
        assigned.append((first + place) % instances)
    return assigned


class InstanceMeter:
    """Measures what records cost at one instance, and says when its sketch is worth sending.

    Every `window` records the mean costs in the sketch are compared with those a window before.
    Once they have changed by no more than `stable_change`, the sketch is sent and a new one begun.

    Args:
        new_sketch: makes an empty sketch; all instances use the same epsilon, delta and seed.
        window: records between two tests; 1 or more.
        stable_change: mu, the largest change of a stable sketch as a part of all mean costs.

    Attributes:
        busy_s: summed cost of all records since the instance began: its real load. Time in which
            it had nothing to do does not count.

    Raises:
        InvalidInputError: window below 1, or `stable_change` negative or no number.

    >>> meter = InstanceMeter(lambda: CostSketch(0.05, 0.1, seed=7), window=2)
    >>> [meter.record(b"text", 0.003) is not None for _ in range(8)]
    [False, False, False, True, False, False, False, True]
    >>> round(meter.answer(Marker(instance=0, epoch=5, estimated_s=0.02)).delta_s, 3)
    0.004
    """

    def __init__(
        self,
        new_sketch: Callable[[], CostSketch],
        *,
        window: int = WINDOW,
        stable_change: float = STABLE_CHANGE,
    ) -> None:
        if not window >= 1:
            message = f"window: must be at least 1 record, not {window}"
            raise InvalidInputError(message)
        if not stable_change >= 0:
            message = f"stable_change: must be 0 or more, not {stable_change}"
            raise InvalidInputError(message)
        self.busy_s = 0.0
        self._new_sketch = new_sketch
        self._window = window
        self._stable_change = stable_change
        self._sketch = new_sketch()
        # None before the first window of a sketch has ended: START, and then STABILIZING.
        self._snapshot: array[float] | None = None

    def record(self, item: bytes, cost_s: float) -> CostSketch | None:
        """Count a record that was run.

        Args:
            item: what its cost follows from.
            cost_s: how long it took.

        Returns:
            The sketch to be sent to the scheduler, where it has become stable; else None.

        Raises:
            InvalidInputError: the cost is negative, no number, or infinite; nothing was counted.
        """
        self._sketch.update(item, cost_s)
        self.busy_s += cost_s
        if self._sketch.records % self._window:
            return None
        before, self._snapshot = self._snapshot, self._sketch.list_means()
        if before is None or measure_change(before, self._snapshot) > self._stable_change:
            return None
        stable, self._sketch, self._snapshot = self._sketch, self._new_sketch(), None
        return stable

    def answer(self, marker: Marker) -> Answer:
        """Answer a marker; to be called once the record that it came with was run and counted."""
        return Answer(marker.instance, marker.epoch, self.busy_s - marker.estimated_s)


def learn_paces(
    paces: Mapping[int, float], estimated_s: Mapping[int, float], real_s: Mapping[int, float]
) -> dict[int, float]:
    """Learn from a batch how much longer each instance takes than the others.

    Where all instances share one sketch, it cannot tell that one of them is slow. A great
    difference is followed at once, a small one slowly, for it may be chance.

    Args:
        paces: that the batch was scheduled with; 1 for an instance that is not there.
        estimated_s: the load that each instance was given, by the estimates and its pace.
        real_s: how long each of them was busy; one that is not there was not.

    Returns:
        The pace of each instance in `estimated_s`, for `GreedyScheduler.accept_estimates`: 1 for
        the one in the middle, for the others at most 10 and at least a tenth. Nothing is learnt of
        an instance that was given nothing, or was not busy.

    Raises:
        InvalidInputError: a load is negative, no number, or infinite; the message names it.

    >>> learn_paces({}, {0: 10.0, 1: 10.0, 2: 10.0}, {0: 24.0, 1: 12.0, 2: 12.0})
    {0: 2.0, 1: 1.0, 2: 1.0}
    """
    for field, loads_s in (("estimated_s", estimated_s), ("real_s", real_s)):
        for instance, load_s in loads_s.items():
            if not 0 <= load_s < inf:
                message = f"{field}: instance {instance} must have 0 s or more, not {load_s}"
                raise InvalidInputError(message)
    ratios = {
        instance: real_s[instance] / load_s
        for instance, load_s in estimated_s.items()
        if min(load_s, real_s.get(instance, 0.0)) >= _SHORTEST_S
    }
    learnt = {instance: paces.get(instance, 1.0) for instance in estimated_s}
    for instance, ratio in ratios.items():
        # By how much the estimates are off for all alike says nothing of any one instance.
        change = ratio / _middle(ratios)
        is_jump = not 1 / _JUMP <= change <= _JUMP
        learnt[instance] *= change if is_jump else change**_FOLLOWED
    middle = _middle(learnt) if learnt else 1.0
    return {
        instance: min(max(pace / middle, 1 / _FARTHEST), _FARTHEST)
        for instance, pace in learnt.items()
    }


def _middle(values: Mapping[int, float]) -> float:
    return sorted(values.values())[len(values) // 2]
