"""Assigns records to the instances of a stateless operator.

Any of k instances may run any record, and the cost of a record depends on its content. The greedy
rule comes from Rivetti et al., "Online scheduling for shuffle grouping in distributed stream
processing systems" (Online Shuffle Grouping, OSG). A micro-batch starts with idle instances, and
all its records are there before the first one is assigned, so the rule alone is enough. The rest of
that paper, a state machine for streams without batches, is in
`benchmarks/shuffle_simulation/scheduling.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapreplace

from balancedstream.errors import InvalidInputError


def assign_greedily(costs_s: Iterable[float], instances: int, *, first: int = 0) -> list[int]:
    """Give each record in turn to the instance with the least load so far.

    Among equally loaded instances, the instance with the fewest records is next, so records without
    any cost go round. No instance gets more than the mean load and one record. The makespan is
    within 2 - 1/k of the least possible, and within 4/3 - 1/(3k) if the most expensive records come
    first (both textbook: Graham).

    Args:
        costs_s: cost of each record in seconds; 0 or more.
        instances: number of instances, all idle; 1 or more.
        first: instance of the first record, 0-based. Tasks that assign at the same time use
            different ones, so that not all load the same instance first.

    Returns:
        The instance of each record, 0-based.

    Raises:
        InvalidInputError: `instances` is below 1.

    >>> assign_greedily([5.0, 4.0, 3.0, 3.0, 3.0], 2)
    [0, 1, 1, 0, 1]
    >>> assign_greedily([0.0] * 5, 3, first=2)
    [2, 0, 1, 2, 0]
    """
    if not instances >= 1:
        message = f"instances: must be at least 1, not {instances}"
        raise InvalidInputError(message)
    # Load in seconds, number of records, offset from the first instance.
    heap = [(0.0, 0, place) for place in range(instances)]
    assigned = []
    for cost_s in costs_s:
        load_s, given, place = heap[0]
        heapreplace(heap, (load_s + cost_s, given + 1, place))
        assigned.append((first + place) % instances)
    return assigned
