"""Turns loads into whole numbers up to 2**40, so that sums are exact in any order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from balancedstream.errors import InvalidInputError

HEAVIEST = 1 << 40

# No measured load is shorter. The smallest floats would become 0 when divided by `HEAVIEST`.
_LIGHTEST_S = 1e-9


class Group(NamedTuple):
    """Partitions of one executor that move together; ordered by weight.

    `move_cost` is the time to restore their state divided by the horizon, in units of `weight`.
    """

    weight: int
    size: int
    move_cost: float
    state_bytes: int
    partitions: tuple[int, ...]


def weigh(
    loads: Mapping[int, float],
    placement: Mapping[int, str],
    heaviest_s: float,
    *,
    state_bytes: Mapping[int, int] = MappingProxyType({}),
    move_cost_s: Mapping[int, float] = MappingProxyType({}),
    horizon_batches: int = 1,
) -> dict[int, Group]:
    """Check the values of each partition, and turn its load into a whole number.

    The load of `heaviest_s` seconds becomes 2**40; see `find_heaviest`. The other arguments are as
    for `hotspots.diminish`.

    Returns:
        Each partition as a group of one.

    Raises:
        InvalidInputError: a load, size or cost is negative or not finite.

    >>> [group.weight for group in weigh({0: 4.0, 1: 1.0}, {2: "a"}, 4.0).values()]
    [1099511627776, 274877906944, 0]
    """
    check_values("loads", loads)
    check_values("state_bytes", state_bytes)
    check_values("move_cost_s", move_cost_s)
    cost_unit_s = heaviest_s * horizon_batches / HEAVIEST
    groups = {}
    for partition in sorted(loads.keys() | placement.keys()):
        busy_s = loads.get(partition, 0.0)
        groups[partition] = Group(
            find_weight(busy_s, heaviest_s),
            1,
            move_cost_s.get(partition, 0.0) / cost_unit_s if busy_s else 0.0,
            state_bytes.get(partition, 0),
            (partition,),
        )
    return groups


def find_weight(busy_s: float, heaviest_s: float) -> int:
    """A load as a whole number.

    >>> find_weight(1.0, heaviest_s=4.0) == HEAVIEST // 4
    True
    """
    return round(busy_s / heaviest_s * HEAVIEST) if busy_s else 0


def add_up(groups: Mapping[int, Group], base: Mapping[str, int]) -> int:
    """The sum of all loads, in units of `weight`.

    >>> add_up({0: Group(3, 1, 0.0, 0, (0,))}, {"a": 4})
    7
    """
    return sum(group.weight for group in groups.values()) + sum(base.values())


def check_values(field: str, values: Mapping[int, float]) -> None:
    """Check the value of each partition.

    Raises:
        InvalidInputError: a value is negative or not finite; the message names field and partition.

    >>> check_values("loads", {7: -1})
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: loads: partition 7 must be 0 or more and finite, not -1
    """
    # A sum is finite only if all values are. Checking ten thousand one by one would take a while.
    if math.isfinite(sum(values.values())) and min(values.values(), default=0) >= 0:
        return
    for partition, value in values.items():
        if not 0 <= value < math.inf:
            message = f"{field}: partition {partition} must be 0 or more and finite, not {value}"
            raise InvalidInputError(message)


def find_heaviest(
    loads: Mapping[int, float], base_s: Mapping[str, float], executors: Mapping[str, int]
) -> float:
    """The highest load in seconds, which becomes 2**40; at least a nanosecond.

    >>> find_heaviest({0: 4.0}, {"a": 5.0, "gone": 9.0}, {"a": 1})
    5.0
    """
    stays_s = (base_s.get(executor, 0.0) for executor in executors)
    return max((_LIGHTEST_S, *loads.values(), *stays_s))


def weigh_base(
    base_s: Mapping[str, float], executors: Mapping[str, int], heaviest_s: float
) -> dict[str, int]:
    """The base load of each live executor, as a whole number.

    Raises:
        InvalidInputError: a load is negative or not finite.

    >>> weigh_base({"a": 4.0, "gone": 1.0}, {"a": 1, "b": 1}, heaviest_s=4.0)
    {'a': 1099511627776, 'b': 0}
    """
    for executor, value in base_s.items():
        if not 0 <= value < math.inf:
            message = f"base_s: executor {executor!r} must be 0 or more and finite, not {value}"
            raise InvalidInputError(message)
    found = {executor: base_s.get(executor, 0.0) for executor in executors}
    return {executor: find_weight(busy_s, heaviest_s) for executor, busy_s in found.items()}


def check_executors(executors: Mapping[str, int]) -> None:
    """Check that there are executors with cores.

    Raises:
        InvalidInputError: there is no executor, or an executor has no id or no core.

    >>> check_executors({"a": 0})
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: executors: 'a' must have 1 core or more, not 0
    """
    if not executors:
        message = (
            "executors: there is none, so no partition can be placed; the state is safe in the "
            "checkpoint: decide again when an executor is up"
        )
        raise InvalidInputError(message)
    for executor, cores in executors.items():
        if not executor:
            message = "executors: an id is empty, which stands for no executor; give each an id"
            raise InvalidInputError(message)
        if not 1 <= cores < math.inf:
            message = f"executors: {executor!r} must have 1 core or more, not {cores}"
            raise InvalidInputError(message)
