"""Which instance of a stateless operator runs which record.

Any of k instances may run any record, and what a record costs depends on its content. The greedy
rule is that of Rivetti et al., "Online scheduling for shuffle grouping in distributed
stream processing systems" (Online Shuffle Grouping, OSG). The rest of that paper, a state machine
for streams without batches, is in `benchmarks/shuffle_simulation/scheduling.py`: a micro-batch
begins with idle instances, and all its records are there before the first one is assigned, so the
rule alone is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapreplace

from balancedstream.errors import InvalidInputError


def assign_greedily(costs_s: Iterable[float], instances: int, *, first: int = 0) -> list[int]:
    """Give each record, in their order, to the instance that has the least to do so far.

    Of equally loaded instances the one with the fewest records is next, so records without any
    cost go round. No instance gets more than the mean load and one record. The makespan is within
    2 - 1/k of the least possible, and within 4/3 - 1/(3k) where the most expensive records come
    first (both textbook: Graham).

    Args:
        costs_s: of the records, in seconds; 0 or more.
        instances: how many there are; 1 or more. All are idle.
        first: the one that gets the first record, so that several tasks that assign at once do not
            all begin with the same one.

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
    # Load, records given, place after the first instance.
    heap = [(0.0, 0, place) for place in range(instances)]
    assigned = []
    for cost_s in costs_s:
        load_s, given, place = heap[0]
        heapreplace(heap, (load_s + cost_s, given + 1, place))
        assigned.append((first + place) % instances)
    return assigned
