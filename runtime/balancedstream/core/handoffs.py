"""What loading a moved partition's state costs, learnt from the moves that were made.

Our own design: a load is taken to cost a fixed time and then to run at a steady rate, and both are
followed by an exponentially weighted mean. The rate divides the benefit that a move must bring.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from balancedstream.core.observations import TaskSample

_WEIGHT_OF_NEWEST = 0.3

# Below this size a load says something of the fixed time only, above it of the rate only.
_SMALL_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class LoadCost:
    """Seconds to load state: `fixed_s + state_bytes / bytes_per_s`.

    The defaults are a prior for shared POSIX storage, until the first move was measured.
    """

    fixed_s: float = 0.1
    bytes_per_s: float = 50e6

    def estimate_s(self, state_bytes: int) -> float:
        """Seconds that one partition's state takes to load.

        >>> LoadCost(fixed_s=0.1, bytes_per_s=1e6).estimate_s(2_000_000)
        2.1
        """
        return self.fixed_s + state_bytes / self.bytes_per_s


def learn_load_cost(cost: LoadCost, samples: Iterable[TaskSample]) -> LoadCost:
    """Follow the loads among `samples` (those with `load_s` above 0), oldest first.

    >>> task = TaskSample("q", 0, 0, 7, "1", 3.0, 10, 40_000_000, 0.0, load_s=2.1)
    >>> learnt = learn_load_cost(LoadCost(fixed_s=0.1, bytes_per_s=50e6), [task])
    >>> round(learnt.bytes_per_s / 1e6)
    34
    """
    for sample in samples:
        if sample.load_s <= 0:
            continue
        if sample.state_bytes < _SMALL_BYTES:
            cost = LoadCost(
                cost.fixed_s + _WEIGHT_OF_NEWEST * (sample.load_s - cost.fixed_s), cost.bytes_per_s
            )
            continue
        # Seconds per byte is what adds up, so the mean is taken of that.
        seen_s = max(sample.load_s - cost.fixed_s, 0.1 * sample.load_s)
        before_s_per_byte = 1 / cost.bytes_per_s
        s_per_byte = before_s_per_byte + _WEIGHT_OF_NEWEST * (
            seen_s / sample.state_bytes - before_s_per_byte
        )
        cost = LoadCost(cost.fixed_s, 1 / s_per_byte)
    return cost
