"""Splits moves into steps, one step a batch, within a budget of time.

To migrate in steps comes from latency-conscious reconfiguration (Megaphone), whose own strategies
count moves; `benchmarks/migration.py` compares them. The latency budget is our own design, and so
is the choice between a move that is prepared, one that is made at once, and one in the middle of a
batch.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from balancedstream.core.balance.hotspots import Move
from balancedstream.errors import InvalidInputError

AT_ONCE_BELOW = 0.9
"""Moves are made without their preparation if a batch then takes less than this part."""

RESTORE_CAUTION = 2.0
"""What a restore takes is known from few moves, and a batch that waits for one costs all rows."""

FIRST_TASK_S = 5.0
"""The first task of an executor takes so much longer: its JVM runs the query's code for the first
time. Measured: 1.1 seconds of CPU more, which small executors need several times as long for."""

AHEAD_BYTES = 1 << 30
"""An executor loads so much state ahead of moves at once: until its old owners drop their copies,
memory and disk of both hold it."""

AHEAD_BYTES_OF_ALL = 4 << 30
"""All executors together load so much at once: they share the network and the storage, to which
tasks write their state meanwhile."""

_Limit = tuple[str, ...]
"""What is limited in a step: "time" or "bytes", of a target, or of all together."""

_WHOLE = 1.0 + 1e-9
"""Shares that add up to a whole may miss it by a rounding error."""


def steps_within(
    moves: Sequence[Move], budget_s: float, restore_cost_s: Callable[[Move], float]
) -> Iterator[tuple[Move, ...]]:
    """Splits moves so that the restore of their state adds at most `budget_s` to a batch.

    Executors restore state in parallel, so the executor that restores longest counts in a step. A
    move that alone exceeds the budget has its target to itself in its step.

    Args:
        moves: most important first; each goes into the first step that has room for it.
        budget_s: latency budget, in seconds.
        restore_cost_s: gives the seconds to restore the move's state.

    Returns:
        The steps, in order, each found when it is asked for.

    Raises:
        InvalidInputError: the budget is not a positive number, or a cost is negative or no number.

    >>> moves = [Move(0, "a", "b"), Move(1, "a", "b"), Move(2, "a", "c")]
    >>> [[m.partition for m in s] for s in steps_within(moves, 1.0, lambda move: 0.6)]
    [[0, 2], [1]]
    """
    _check_budget(budget_s)

    def share(move: Move) -> dict[_Limit, float]:
        return {("time", move.target): _check_cost(move, restore_cost_s(move)) / budget_s}

    return _fill([(move, share(move)) for move in moves], {})


def steps_ahead(
    moves: Sequence[Move],
    budget_s: float,
    load_s: Callable[[Move], float],
    *,
    state_bytes: Callable[[Move], int],
    loading_bytes: Mapping[str, int],
    busy_s: Mapping[int, float],
    placement: Mapping[int, str],
    executors: Mapping[str, int],
    begun: Collection[str] = (),
) -> Iterator[tuple[Move, ...]]:
    """Splits moves whose state is loaded ahead, beside the batches. Our own design.

    In a step, an executor loads for as long as it waits for the hottest one in each batch, and at
    least for `budget_s`. One that has run no task begins with a move for each core: its first tasks
    are slow, and others there would wait for them. Where storage is fast, `AHEAD_BYTES` and
    `AHEAD_BYTES_OF_ALL` end a step earlier.

    Args:
        moves: most important first.
        budget_s: latency budget, in seconds.
        load_s: gives the seconds to load the move's state.
        state_bytes: gives the size of the move's state.
        loading_bytes: of state that executors load already, by executor; the first step has so much
            less room, and may be empty.
        busy_s: busy seconds of each partition in the last batch.
        placement: the executor of each partition in it.
        executors: live executors, id to cores.
        begun: executors that have got their first moves.

    >>> moves, executors = [Move(p, "a", "b") for p in range(4)], {"a": 1, "b": 2}
    >>> steps = steps_ahead(
    ...     moves, 1.0, lambda move: 1.0, state_bytes=lambda move: 0, loading_bytes={}, busy_s={},
    ...     placement={0: "a"}, executors=executors,
    ... )
    >>> [len(step) for step in steps]
    [2, 2]
    """
    _check_budget(budget_s)
    of_core_s = _add_up(busy_s, placement, executors)
    longest_s = max(of_core_s.values(), default=0.0)

    def share(move: Move) -> dict[_Limit, float]:
        target = move.target
        if target not in of_core_s and target not in begun:
            time = 1 / (executors.get(target, 1) + 0.5)
        else:
            spare_s = longest_s - of_core_s.get(target, 0.0)
            time = _check_cost(move, load_s(move)) / max(budget_s, spare_s)
        size = state_bytes(move)
        return {
            ("time", target): time,
            ("bytes", target): size / AHEAD_BYTES,
            ("bytes",): size / AHEAD_BYTES_OF_ALL,
        }

    loading: dict[_Limit, float] = {
        ("bytes", executor): size / AHEAD_BYTES for executor, size in loading_bytes.items()
    }
    if loading_bytes:
        loading["bytes",] = sum(loading_bytes.values()) / AHEAD_BYTES_OF_ALL
    return _fill([(move, share(move)) for move in moves], loading)


def pair_exchanges(moves: Sequence[Move]) -> dict[int, int]:
    """The partner of each partition that is exchanged for another: each goes where the other is.

    Between the two moves of an exchange one executor has more work than before or after, so both
    are made in the same batch.

    >>> pair_exchanges([Move(3, "a", "b"), Move(4, "a", "b"), Move(7, "b", "a"), Move(8, "b", "c")])
    {7: 3, 3: 7}
    """
    waiting: dict[tuple[str, str], deque[int]] = defaultdict(deque)
    partners: dict[int, int] = {}
    for move in moves:
        opposite = waiting[move.target, move.source]
        if opposite:
            partners[move.partition] = opposite.popleft()
        else:
            waiting[move.source, move.target].append(move.partition)
    return partners | {partner: partition for partition, partner in partners.items()}


def pays_at_once(
    moves: Collection[Move],
    busy_s: Mapping[int, float],
    placement: Mapping[int, str],
    executors: Mapping[str, int],
    restore_cost_s: Callable[[Move], float],
) -> bool:
    """Whether moves shorten the very next batch, although it then restores their state itself.

    State is loaded ahead of a move, so that no batch waits for it; but until it is there, batches
    last as long as the hottest executor takes. Where the state is small and the imbalance large,
    waiting costs more than it spares. Our own design.

    Args:
        moves: what is to move.
        busy_s: busy seconds of each partition in the next batch, as far as known.
        placement: the executor of each partition now.
        executors: live executors, id to cores.
        restore_cost_s: gives the seconds to restore the move's state, as estimated; it counts
            `RESTORE_CAUTION` times. An executor without partitions takes `FIRST_TASK_S` longer.

    Returns:
        Whether the hottest executor is then busy for at most `AT_ONCE_BELOW` of the time.

    >>> moves, placement = [Move(1, "a", "b")], {0: "a", 1: "a", 2: "b"}
    >>> busy_s = {0: 3.0, 1: 3.0, 2: 0.5}
    >>> pays_at_once(moves, busy_s, placement, {"a": 1, "b": 1}, lambda move: 0.5)
    True
    >>> pays_at_once(moves, busy_s, placement, {"a": 1, "b": 1}, lambda move: 2.0)
    False
    >>> pays_at_once([Move(1, "a", "c")], busy_s, placement, {"a": 1, "c": 1}, lambda move: 0.5)
    False
    """
    before_s = _add_up(busy_s, placement, executors)
    after_s = {e: before_s.get(e, 0.0) for e in executors}
    for target in {move.target for move in moves} & executors.keys() - before_s.keys():
        after_s[target] += FIRST_TASK_S
    for move in moves:
        moved_s = busy_s.get(move.partition, 0.0)
        if move.source in after_s:
            after_s[move.source] -= moved_s / executors[move.source]
        if move.target in after_s:
            cost_s = moved_s + RESTORE_CAUTION * restore_cost_s(move)
            after_s[move.target] += cost_s / executors[move.target]
    longest_before_s = max((before_s.get(e, 0.0) for e in executors), default=0.0)
    return max(after_s.values(), default=0.0) < AT_ONCE_BELOW * longest_before_s


def pays_to_share(busy_s: float, restore_s: float, cores: int, more_cores: int) -> bool:
    """Whether a batch that runs ends sooner if executors that join take tasks of it.

    They then restore the state of what they take. Our own design.

    Args:
        busy_s: busy seconds of all partitions in a batch.
        restore_s: seconds to restore the state of all partitions, as estimated; it counts
            `RESTORE_CAUTION` times.
        cores: of the executors that run the batch.
        more_cores: of those that join.

    Returns:
        Whether an even share of a batch then takes at most `AT_ONCE_BELOW` of the time.

    >>> pays_to_share(30.0, 2.0, cores=1, more_cores=3)
    True
    >>> pays_to_share(30.0, 60.0, cores=1, more_cores=3)
    False
    """
    taken = more_cores / (cores + more_cores)
    shared_s = (busy_s + taken * RESTORE_CAUTION * restore_s) / (cores + more_cores)
    return shared_s < AT_ONCE_BELOW * busy_s / cores


def _add_up(
    busy_s: Mapping[int, float], placement: Mapping[int, str], executors: Mapping[str, int]
) -> dict[str, float]:
    """Busy seconds a core of each executor that has partitions."""
    of_core_s: dict[str, float] = defaultdict(float)
    for partition, executor in placement.items():
        of_core_s[executor] += busy_s.get(partition, 0.0) / executors.get(executor, 1)
    return of_core_s


def _check_budget(budget_s: float) -> None:
    if not 0 < budget_s < math.inf:
        message = f"budget_s: must be a positive number of seconds, not {budget_s}"
        raise InvalidInputError(message)


def _check_cost(move: Move, cost_s: float) -> float:
    if not 0 <= cost_s < math.inf:
        message = (
            f"cost_s: must be 0 or more seconds and finite, not {cost_s} for partition "
            f"{move.partition}"
        )
        raise InvalidInputError(message)
    return cost_s


def _fill(
    shares: Sequence[tuple[Move, Mapping[_Limit, float]]], taken_already: Mapping[_Limit, float]
) -> Iterator[tuple[Move, ...]]:
    """Puts moves, each with its share of limits, into the first step that has room for them."""
    left, taken = list(shares), dict(taken_already)
    while left:
        step, later = [], []
        for move, share in left:
            if all(limit not in taken or taken[limit] + share[limit] <= _WHOLE for limit in share):
                step.append(move)
                for limit in share:
                    taken[limit] = taken.get(limit, 0.0) + share[limit]
            else:
                later.append((move, share))
        yield tuple(step)
        left, taken = later, {}
