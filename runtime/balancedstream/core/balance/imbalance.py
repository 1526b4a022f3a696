"""Measures how uneven a placement is, how even any placement can be, and what may be chance.

Our own design. An executor may have a base load: work that counts but cannot move, because only the
sum over its partitions is known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist
from types import MappingProxyType

from balancedstream.core.balance.weights import (
    Group,
    add_up,
    check_executors,
    check_values,
    find_heaviest,
    find_weight,
    weigh_base,
)

ROUNDING = 1e-9
"""Fraction that rounding errors stay below; no comparison with a threshold may depend on them."""

CONFIDENCE = 0.99
"""Probability with which an imbalance must be more than chance before partitions move."""


@dataclass(frozen=True, slots=True)
class ImbalanceMeasurement:
    """How uneven a placement is, and how even any placement can be.

    Attributes:
        imbalance: busy time per core of the hottest executor, divided by the mean (all busy time
            over all cores); counts the partitions that have a live executor. 1 is perfect.
        bound: lower bound on the imbalance of any placement of all partitions.
    """

    imbalance: float
    bound: float


def measure_imbalance(
    loads: Mapping[int, float],
    placement: Mapping[int, str],
    executors: Mapping[str, int],
    base_s: Mapping[str, float] = MappingProxyType({}),
) -> ImbalanceMeasurement:
    """Measure how uneven a placement is; arguments are as for `hotspots.diminish`.

    Raises:
        InvalidInputError: there is no executor, an executor has no core, or a load is negative or
            not finite; the message names it.

    >>> measure_imbalance({0: 4.0, 1: 3.0, 2: 1.0}, {0: "a", 1: "a", 2: "b"}, {"a": 1, "b": 1})
    ImbalanceMeasurement(imbalance=1.75, bound=1.0)
    """
    check_executors(executors)
    check_values("loads", loads)
    heaviest_s = find_heaviest(loads, base_s, executors)
    weights = {p: find_weight(busy_s, heaviest_s) for p, busy_s in loads.items()}
    base = weigh_base(base_s, executors, heaviest_s)
    busy = dict(base)
    for partition, weight in weights.items():
        executor = placement.get(partition, "")
        if executor in busy:
            busy[executor] += weight
    mean = sum(busy.values()) / sum(executors.values())
    peak = max(work / executors[executor] for executor, work in busy.items())
    bound = find_bound([*weights.values()], executors, base)
    return ImbalanceMeasurement(peak / mean if mean else 1.0, bound)


def estimate_chance(scatter: float, executors: int) -> float:
    """How far chance alone lifts the hottest of equally loaded executors above the mean.

    The result assumes normally distributed loads. With probability `CONFIDENCE`, the hottest
    executor is at most this far above the mean, as a fraction of the mean.

    Args:
        scatter: standard error of an executor's load per core, divided by the mean.
        executors: number of executors.

    >>> round(estimate_chance(0.05, 4), 2)
    0.14
    """
    return scatter * NormalDist().inv_cdf(CONFIDENCE ** (1 / executors))


def find_bound(
    weights: Sequence[int], executors: Mapping[str, int], base: Mapping[str, int]
) -> float:
    """A lower bound on the imbalance of any placement: the highest of these bounds.

    Loads of partitions (`weights`) and of executors (`base`) are whole numbers in the same unit.

    - The mean, the highest base load, and the heaviest partition on the executor where it adds
      least.
    - The k heaviest partitions spread over the k biggest executors. This bound and the next ones
      hold without the base load, so they hold with it.
    - Either each of the k heaviest partitions has an executor to itself, and the other partitions
      share the other executors. Or one of the k shares its executor with at least the lightest
      partition.
    - Pigeonhole: if there is one partition more than each core's share allows, some executor takes
      one more, even if all those partitions are the lightest.

    >>> find_bound([6, 1, 1], {"a": 1, "b": 1}, {"a": 0, "b": 0})
    1.5
    """
    weights = sorted(weights, reverse=True)
    cores = sorted(executors.values(), reverse=True)
    biggest, total = cores[0], sum(cores)
    sums = [0, *accumulate(weights)]
    work = sums[-1] + sum(base.values())
    if not work:
        return 1.0
    top = weights[0] if weights else 0
    on_top = min((base[e] + top) / count for e, count in executors.items())
    least = max(work / total, on_top, *(base[e] / count for e, count in executors.items()))
    for busy, width in zip(sums[1:], accumulate(cores), strict=False):
        least = max(least, busy / width)
    for k, narrowest in enumerate(accumulate(reversed(cores)), 1):
        if k >= len(weights):
            break
        left = total - narrowest
        apart = (sums[-1] - sums[k]) / left if left else math.inf
        least = max(least, min(apart, (weights[k - 1] + weights[-1]) / biggest))
    kinds = Counter(cores)
    for share in range(1, biggest * len(weights)):
        most = {kind: kind * share // biggest for kind in kinds}
        heaviest = sum(most[kind] * kinds[kind] for kind in kinds) + 1
        if heaviest > len(weights):
            break
        fullest = ((sums[heaviest] - sums[heaviest - most[kind] - 1]) / kind for kind in kinds)
        least = max(least, min(fullest))
    return least * total / work


def find_unsplittable(
    groups: Mapping[int, Group], executors: Mapping[str, int], base: Mapping[str, int]
) -> int | None:
    """The heaviest partition, if it exceeds the mean even alone on the biggest executor.

    >>> groups = {0: Group(6, 1, 0.0, 0, (0,)), 1: Group(2, 1, 0.0, 0, (1,))}
    >>> find_unsplittable(groups, {"a": 1, "b": 1}, {"a": 0, "b": 0})
    0
    """
    if not groups:
        return None
    heaviest = max(groups.values(), key=lambda group: (group.weight, -group.partitions[0]))
    mean = add_up(groups, base) / sum(executors.values())
    alone = heaviest.weight / max(executors.values())
    return heaviest.partitions[0] if alone > mean * (1 + ROUNDING) else None


def describe_unsplittable(
    partition: int,
    groups: Mapping[int, Group],
    executors: Mapping[str, int],
    base: Mapping[str, int],
) -> str:
    """The part of a decision's reason that names an unsplittable partition.

    >>> groups = {0: Group(6, 1, 0.0, 0, (0,)), 1: Group(2, 1, 0.0, 0, (1,))}
    >>> describe_unsplittable(0, groups, {"a": 1, "b": 1}, {"a": 0, "b": 0})[:47]
    'partition 0 alone carries 75 % of the busy time'
    """
    share = groups[partition].weight / add_up(groups, base)
    alone = share * sum(executors.values()) / max(executors.values())
    return (
        f"partition {partition} alone carries {100 * share:.0f} % of the busy time, "
        f"{alone:.2f} x the mean of an executor, and no placement can split it"
    )
