"""What the restore of state and the handoff of keys cost, learned from earlier moves.

Our own design: the restore of a partition takes a fixed time plus its size over a steady rate, the
handoff of a key takes the mean of all keys, and each is an exponentially weighted mean. The cost of
a move decides whether it pays off, and how many moves fit into a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from balancedstream.core.samples import TaskSample

_WEIGHT_OF_NEWEST = 0.3

# Below this size, a restore shows the fixed time only; above it, the rate only. Storage as assumed
# takes as long for either at this size. RocksDB reports 1 MB for a handful of rows.
_SMALL_BYTES = 5_000_000

# Spark's measure counts if it is at least this part of what a moved task took longer.
_TOLD = 0.1

# With more keys in an epoch, every task of its batch takes long to read it.
_MAX_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class RestoreCost:
    """Seconds to restore a partition, `fixed_s + state_bytes / bytes_per_s`, and to move a key.

    The defaults are a prior for shared POSIX storage, used until the first move is measured.

    Attributes:
        fixed_s: seconds for a partition of any size.
        bytes_per_s: rate for its state.
        key_s: seconds for one key that leaves a partition or arrives at one.
    """

    fixed_s: float = 0.1
    bytes_per_s: float = 50e6
    key_s: float = 0.005

    def estimate_s(self, state_bytes: int) -> float:
        """Seconds to restore one partition's state.

        >>> RestoreCost(fixed_s=0.1, bytes_per_s=1e6).estimate_s(2_000_000)
        2.1
        """
        return self.fixed_s + state_bytes / self.bytes_per_s


def learn_restore_cost(
    cost: RestoreCost, samples: Iterable[TaskSample], before: Mapping[int, TaskSample]
) -> RestoreCost:
    """Learn from the restores in one batch of an operator whose moves are not prepared.

    Spark before 4.1 does not say what a restore took. Later ones say next to nothing of an
    aggregation's: its store is opened twice in a task, which clears the measure. So where a moved
    partition's task took much more than the one before, for about as many rows, and Spark names
    less than a tenth of that, it was the restore. An executor's first tasks take long anyway.

    Args:
        cost: what is known before.
        samples: of the batch.
        before: the tasks of the batch before, by partition; empty if there is none.

    >>> stayed = TaskSample("q", 0, 0, 7, "1", 3.0, 10, 40_000_000, 0.0)
    >>> other = TaskSample("q", 0, 1, 7, "2", 3.0, 10, 40_000_000, 0.0)
    >>> moved = TaskSample("q", 0, 0, 8, "2", 5.1, 10, 40_000_000, 0.0)
    >>> learnt = learn_restore_cost(RestoreCost(0.1, 50e6), [moved], {0: stayed, 1: other})
    >>> round(learnt.bytes_per_s / 1e6)
    34
    """
    begun = {task.executor for task in before.values()}
    for sample in samples:
        restore_s = sample.restore_s
        last = before.get(sample.partition)
        if last is not None and last.executor != sample.executor and sample.executor in begun:
            restore_s = _judge_restore_s(sample, last)
        if restore_s > 0:
            cost = learn_restore(cost, sample.state_bytes, restore_s)
    return cost


def _judge_restore_s(moved: TaskSample, last: TaskSample) -> float:
    """What a moved partition's restore took, as Spark says or by its task before the move."""
    if not 0 < last.records <= 2 * moved.records <= 4 * last.records:
        return moved.restore_s
    more_s = moved.busy_s - moved.records / last.records * last.work_s
    return more_s if _TOLD * more_s > moved.restore_s else moved.restore_s


def learn_restore(cost: RestoreCost, state_bytes: int, load_s: float) -> RestoreCost:
    """Learn from one load of a partition's state, in a task or ahead of a move.

    Where moves are prepared, only their loads are learnt from.

    Args:
        cost: what is known before.
        state_bytes: size of the state.
        load_s: seconds that the load took.

    >>> round(learn_restore(RestoreCost(fixed_s=0.1), 500_000, 0.2).fixed_s, 2)
    0.13
    """
    if state_bytes < _SMALL_BYTES:
        fixed_s = cost.fixed_s + _WEIGHT_OF_NEWEST * (load_s - cost.fixed_s)
        return replace(cost, fixed_s=fixed_s)
    # Seconds per byte add up, so the mean is over those.
    seen_s = max(load_s - cost.fixed_s, 0.1 * load_s)
    before_s_per_byte = 1 / cost.bytes_per_s
    s_per_byte = before_s_per_byte + _WEIGHT_OF_NEWEST * (seen_s / state_bytes - before_s_per_byte)
    return replace(cost, bytes_per_s=1 / s_per_byte)


def learn_key_cost(cost: RestoreCost, keys: int, spent_s: float) -> RestoreCost:
    """Learn from the time that one micro-batch spent on keys that arrived or left.

    Args:
        cost: what is known before.
        keys: number of keys; each counts where it leaves and where it arrives.
        spent_s: seconds of all tasks together.

    >>> learn_key_cost(RestoreCost(key_s=0.002), keys=100, spent_s=0.4).key_s
    0.0026
    """
    if keys < 1:
        return cost
    key_s = cost.key_s + _WEIGHT_OF_NEWEST * (spent_s / keys - cost.key_s)
    return replace(cost, key_s=key_s)


def fit_keys(cost: RestoreCost, budget_s: float) -> int:
    """How many keys may move in one micro-batch, at least 1.

    One task can hand over this many keys and take over as many within the budget. It is the limit
    for all keys that an epoch asks for. Of keys that a record touches, each task hands over at most
    this many: if several tasks hand keys to one partition, that batch may exceed the budget.

    Args:
        cost: of a key.
        budget_s: seconds that handoffs may add to a micro-batch.

    >>> fit_keys(RestoreCost(key_s=0.005), budget_s=1.0)
    100
    """
    return max(1, min(_MAX_KEYS, int(budget_s / (2 * max(cost.key_s, 1e-6)))))
