"""What handing state over costs, learnt from the moves that were made.

Our own design: loading a partition is taken to cost a fixed time and then to run at a steady rate,
a key to cost what keys cost in the mean, and all are followed by an exponentially weighted mean.
What a move costs divides the benefit that it must bring, and says how many fit into a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from balancedstream.core.observations import TaskSample

_WEIGHT_OF_NEWEST = 0.3

# Below this size a load says something of the fixed time only, above it of the rate only.
_SMALL_BYTES = 1_000_000

# An epoch that names more keys makes every task of its batch read long.
_MAX_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class RestoreCost:
    """Seconds to load a partition's state, `fixed_s + state_bytes / bytes_per_s`, and a key's.

    The defaults are a prior for shared POSIX storage, until the first move was measured.

    Attributes:
        fixed_s: for a partition, however small.
        bytes_per_s: for what it holds.
        key_s: for one key that leaves a partition, or comes to one.
    """

    fixed_s: float = 0.1
    bytes_per_s: float = 50e6
    key_s: float = 0.005

    def estimate_s(self, state_bytes: int) -> float:
        """Seconds that one partition's state takes to load.

        >>> RestoreCost(fixed_s=0.1, bytes_per_s=1e6).estimate_s(2_000_000)
        2.1
        """
        return self.fixed_s + state_bytes / self.bytes_per_s


def learn_restore_cost(cost: RestoreCost, samples: Iterable[TaskSample]) -> RestoreCost:
    """Follow the loads among `samples` (those with `restore_s` above 0), oldest first.

    >>> task = TaskSample("q", 0, 0, 7, "1", 3.0, 10, 40_000_000, 0.0, restore_s=2.1)
    >>> learnt = learn_restore_cost(RestoreCost(fixed_s=0.1, bytes_per_s=50e6), [task])
    >>> round(learnt.bytes_per_s / 1e6)
    34
    """
    for sample in samples:
        if sample.restore_s <= 0:
            continue
        if sample.state_bytes < _SMALL_BYTES:
            fixed_s = cost.fixed_s + _WEIGHT_OF_NEWEST * (sample.restore_s - cost.fixed_s)
            cost = replace(cost, fixed_s=fixed_s)
            continue
        # Seconds per byte is what adds up, so the mean is taken of that.
        seen_s = max(sample.restore_s - cost.fixed_s, 0.1 * sample.restore_s)
        before_s_per_byte = 1 / cost.bytes_per_s
        s_per_byte = before_s_per_byte + _WEIGHT_OF_NEWEST * (
            seen_s / sample.state_bytes - before_s_per_byte
        )
        cost = replace(cost, bytes_per_s=1 / s_per_byte)
    return cost


def learn_key_cost(cost: RestoreCost, keys: int, spent_s: float) -> RestoreCost:
    """Follow what one micro-batch spent on keys that came or went.

    Args:
        cost: as known before.
        keys: how many; each counts where it leaves and where it comes to.
        spent_s: seconds of all tasks together.

    >>> learn_key_cost(RestoreCost(key_s=0.002), keys=100, spent_s=0.4).key_s
    0.0026
    """
    if keys < 1:
        return cost
    key_s = cost.key_s + _WEIGHT_OF_NEWEST * (spent_s / keys - cost.key_s)
    return replace(cost, key_s=key_s)


def fit_keys(cost: RestoreCost, budget_s: float) -> int:
    """How many keys may go in one micro-batch, 1 at least.

    One task may hand over so many and take over as many, and stays within the budget. So it is for
    keys that are asked for, of which there are so many in all tasks together. Of keys that a record
    touches each task hands over so many at most: where those of several tasks go to one partition,
    it takes over more in that batch than the budget has room for.

    Args:
        cost: of a key.
        budget_s: what the handoff may add to a micro-batch.

    >>> fit_keys(RestoreCost(key_s=0.005), budget_s=1.0)
    100
    """
    return max(1, min(_MAX_KEYS, int(budget_s / (2 * max(cost.key_s, 1e-6)))))
