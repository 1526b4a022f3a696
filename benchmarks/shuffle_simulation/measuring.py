"""What the instances of Online Shuffle Grouping measure: costs of records, and their own pace.

Part of the state machine in `scheduling`, which names the paper.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from math import fsum, inf
from operator import sub

from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.errors import InvalidInputError
from shuffle_simulation.scheduling import WINDOW, Answer, Marker

STABLE_CHANGE = 0.05
"""A sketch whose mean costs changed by no more than this part over a window is stable."""

# An instance that takes this many times longer than the others has changed its pace. Smaller
# differences are followed slowly, with this exponent: in small batches with rough estimates, chance
# alone makes differences of a half.
_MIN_JUMP = 1.75
_FOLLOWED = 0.1

# No pace is further than this factor from the one in the middle.
_MAX_PACE = 10.0

# A smaller load counts as none: time is measured in nanoseconds.
_MIN_LOAD_S = 1e-9


def list_means(sketch: CostSketch) -> array[float]:
    """The mean cost of every cell: W / F in nanoseconds, row by row; 0.0 where F is 0."""
    cells = zip(sketch.costs_ns, sketch.counts, strict=True)
    # W is 0 wherever F is 0, so any divisor gives 0 there.
    return array("d", [float(cost_ns) / (count or 1) for cost_ns, count in cells])


def measure_change(before: Sequence[float], after: Sequence[float]) -> float:
    """How far the mean costs moved: eta = sum |after - before| / sum after, over all cells.

    Args:
        before: the earlier mean costs, from `list_means`.
        after: the later mean costs, of the same length.

    Returns:
        0.0 if nothing changed, or if all costs are 0.

    >>> measure_change([1.0, 0.0, 2.0], [1.0, 1.0, 2.0])
    0.25
    """
    total = fsum(after)
    return fsum(map(abs, map(sub, after, before))) / total if total else 0.0


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
        """Count a record that has run.

        Args:
            item: what its cost depends on.
            cost_s: how long it took.

        Returns:
            The sketch to send to the scheduler if it has become stable; else None.

        Raises:
            InvalidInputError: the cost is negative, no number, or infinite; nothing was counted.
        """
        self._sketch.update(item, cost_s)
        self.busy_s += cost_s
        if self._sketch.records % self._window:
            return None
        before, self._snapshot = self._snapshot, list_means(self._sketch)
        if before is None or measure_change(before, self._snapshot) > self._stable_change:
            return None
        stable, self._sketch, self._snapshot = self._sketch, self._new_sketch(), None
        return stable

    def answer(self, marker: Marker) -> Answer:
        """Answer a marker; call it once the record that came with it has run and is counted."""
        return Answer(marker.instance, marker.epoch, self.busy_s - marker.estimated_s)


def learn_paces(
    paces: Mapping[int, float], estimated_s: Mapping[int, float], real_s: Mapping[int, float]
) -> dict[int, float]:
    """Learn from a batch how much longer each instance takes than the others.

    A sketch that all instances share cannot tell that one of them is slow. A large difference is
    followed at once, a small one slowly, because it may be chance.

    Args:
        paces: those that the batch was scheduled with; a missing instance has 1.
        estimated_s: the load that each instance was given, by the estimates and its pace.
        real_s: how long each of them was busy; a missing instance was not.

    Returns:
        The pace of each instance in `estimated_s`, for `GreedyScheduler.accept_estimates`: 1 for
        the one in the middle, for the others at most 10 and at least a tenth. An instance that was
        given nothing or was not busy keeps its pace.

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
        if min(load_s, real_s.get(instance, 0.0)) >= _MIN_LOAD_S
    }
    learnt = {instance: paces.get(instance, 1.0) for instance in estimated_s}
    for instance, ratio in ratios.items():
        # An error that all instances share says nothing about any one of them.
        change = ratio / _middle(ratios)
        is_jump = not 1 / _MIN_JUMP <= change <= _MIN_JUMP
        learnt[instance] *= change if is_jump else change**_FOLLOWED
    middle = _middle(learnt) if learnt else 1.0
    return {
        instance: min(max(pace / middle, 1 / _MAX_PACE), _MAX_PACE)
        for instance, pace in learnt.items()
    }


def _middle(values: Mapping[int, float]) -> float:
    return sorted(values.values())[len(values) // 2]
