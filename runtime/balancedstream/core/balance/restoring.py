"""Learns the cost of restoring state and of handing off keys from earlier moves.

Our own design. Restoring a partition takes a fixed time, plus its size divided by a rate. Each key
takes the same time to hand off. All three numbers are exponentially weighted means. The cost of a
move decides whether it pays off, and how many moves fit into a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from balancedstream.core.samples import TaskSample

_WEIGHT_OF_NEWEST = 0.3

# Restores of less state teach the fixed time only; restores of more state teach the rate only. With
# the default costs, both parts take the same time at this size. RocksDB reports 1 MB for a handful
# of rows.
_SMALL_BYTES = 5_000_000

# Spark's own measure counts if it is at least this fraction of the time that a moved task lost.
_TOLD = 0.1

# Every task of a batch reads the epoch: more keys would slow all of them down.
_MAX_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class RestoreCost:
    """Seconds to restore a partition, `fixed_s + state_bytes / bytes_per_s`, and to move a key.

    The defaults are a prior for shared POSIX storage; they hold until the first measured move.

    Attributes:
        fixed_s: seconds that a partition of any size takes.
        bytes_per_s: bytes of state restored per second.
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
    """Learn from the restores in one batch of an operator whose state is not loaded ahead.

    Spark before 4.1 does not report how long a restore took. Later versions report almost nothing
    for an aggregation: its task opens the store twice, which clears the measure. So the function
    compares the task of a moved partition with the task before the move. If it took longer for
    about as many rows, and Spark reports less than a tenth of the difference, the whole difference
    was the restore. Tasks on an executor that ran none in the batch before are not compared,
    because first tasks take long anyway.

    Args:
        cost: the costs known so far.
        samples: tasks of the batch.
        before: tasks of the batch before, by partition; empty if there is none.

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
    """Seconds of a moved partition's restore, by Spark or by its task before the move."""
    if not 0 < last.records <= 2 * moved.records <= 4 * last.records:
        return moved.restore_s
    more_s = moved.busy_s - moved.records / last.records * last.work_s
    return more_s if _TOLD * more_s > moved.restore_s else moved.restore_s


def learn_restore(cost: RestoreCost, state_bytes: int, load_s: float) -> RestoreCost:
    """Learn from one load of a partition's state, in a task or ahead of a move.

    If an operator loads state ahead of moves, only these loads count, not the restores in tasks.
    `cost` is what was known so far.

    >>> round(learn_restore(RestoreCost(fixed_s=0.1), 500_000, 0.2).fixed_s, 2)
    0.13
    """
    if state_bytes < _SMALL_BYTES:
        fixed_s = cost.fixed_s + _WEIGHT_OF_NEWEST * (load_s - cost.fixed_s)
        return replace(cost, fixed_s=fixed_s)
    # Seconds per byte add up and bytes per second do not, so the mean is over seconds per byte.
    seen_s = max(load_s - cost.fixed_s, 0.1 * load_s)
    before_s_per_byte = 1 / cost.bytes_per_s
    s_per_byte = before_s_per_byte + _WEIGHT_OF_NEWEST * (seen_s / state_bytes - before_s_per_byte)
    return replace(cost, bytes_per_s=1 / s_per_byte)


def learn_key_cost(cost: RestoreCost, keys: int, spent_s: float) -> RestoreCost:
    """Learn from the time that one micro-batch spent on keys that arrived or left.

    Args:
        cost: the costs known so far.
        keys: number of keys; a key counts once where it leaves and once where it arrives.
        spent_s: seconds that all tasks together spent on these keys.

    >>> learn_key_cost(RestoreCost(key_s=0.002), keys=100, spent_s=0.4).key_s
    0.0026
    """
    if keys < 1:
        return cost
    key_s = cost.key_s + _WEIGHT_OF_NEWEST * (spent_s / keys - cost.key_s)
    return replace(cost, key_s=key_s)


def fit_keys(cost: RestoreCost, budget_s: float) -> int:
    """How many keys may move in one micro-batch, at least 1.

    Within the budget, one task can hand over this many keys and take over as many. This limits all
    keys that an epoch asks for. It also limits the keys that one task hands over because a record
    touched them. So if several tasks hand keys to one partition, that batch may exceed the budget.

    >>> fit_keys(RestoreCost(key_s=0.005), budget_s=1.0)
    100
    """
    return max(1, min(_MAX_KEYS, int(budget_s / (2 * max(cost.key_s, 1e-6)))))
