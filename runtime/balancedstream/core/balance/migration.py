"""Splits moves into steps, one step a batch, within a latency budget.

Migration in steps comes from latency-conscious reconfiguration (Megaphone). Megaphone's own
strategies count moves; `benchmarks/migration.py` compares them. The latency budget is our own
design. So is the choice whether a move waits until its state is loaded, happens at once, or happens
in the middle of a batch.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from balancedstream.core.balance.hotspots import Move
from balancedstream.errors import InvalidInputError

AT_ONCE_BELOW = 0.9
"""Moves happen at once, without loading state ahead, if the next batch then takes less than this
fraction of its time."""

RESTORE_CAUTION = 2.0
"""Factor on an estimated restore time: few moves were measured, and a batch that waits for a
restore delays all rows."""

FIRST_TASK_S = 5.0
"""The first task of an executor takes this much longer: its JVM runs the query's code for the first
time. Measured: 1.1 seconds of CPU more, which small executors need several times as long for."""

AHEAD_BYTES = 1 << 30
"""Maximum size of state that one executor loads ahead of moves at a time: until the old
owners drop their copies, the memory and disk of both hold it."""

AHEAD_BYTES_OF_ALL = 4 << 30
"""The same for all executors together: they share the network and the storage. Meanwhile tasks
write their state to that storage."""

_Limit = tuple[str, ...]
"""A limit of a step: ("time", target), ("bytes", target), or ("bytes",) for all targets."""

_WHOLE = 1.0 + 1e-9
"""Rounding errors may lift shares that add up to 1 above 1."""


def steps_within(
    moves: Sequence[Move], budget_s: float, restore_cost_s: Callable[[Move], float]
) -> Iterator[tuple[Move, ...]]:
    """Split moves so that the restore of their state adds at most `budget_s` to a batch.

    Executors restore state in parallel, so the executor that restores longest counts in a step. A
    move that alone exceeds the budget is the only move to its target in its step.

    Args:
        moves: most important first; each goes into the first step that has room for it.
        budget_s: latency budget, in seconds.
        restore_cost_s: estimates the seconds to restore a move's state.

    Returns:
        The steps, in order, computed lazily.

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
    """Split moves whose state executors load ahead, while batches run. Our own design.

    In a step, an executor may load for as long as it waits for the hottest executor in each batch,
    and at least for `budget_s`. An executor that has run no task starts with one move for each
    core: its first tasks are slow, and further tasks would wait for them. If storage is fast,
    `AHEAD_BYTES` and `AHEAD_BYTES_OF_ALL` end a step earlier.

    Args:
        moves: most important first.
        budget_s: latency budget, in seconds.
        load_s: estimates the seconds to load a move's state.
        state_bytes: gives the size of a move's state.
        loading_bytes: size of the state that each executor is loading already. The first step has
            that much less room, and may be empty.
        busy_s: busy seconds of each partition in the last batch.
        placement: the executor of each partition in the last batch.
        executors: live executors, id to cores.
        begun: executors that already have their first moves.

    Returns:
        The steps, in order, computed lazily.

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
    """The partner of each partition that two executors exchange for another one.

    Both moves of an exchange must happen in the same batch. Between them, one executor would have
    more work than before or after.

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
    """Whether moves shorten the very next batch, although that batch then restores their state.

    Usually executors load state ahead of a move, so that no batch waits for it. Until then, each
    batch lasts as long as the hottest executor takes. If the state is small and the imbalance
    large, waiting costs more than it saves. Our own design.

    Args:
        moves: the moves to judge.
        busy_s: expected busy seconds of each partition in the next batch.
        placement: the current executor of each partition.
        executors: live executors, id to cores.
        restore_cost_s: estimates the seconds to restore a move's state; the estimate counts
            `RESTORE_CAUTION` times. An executor without partitions takes `FIRST_TASK_S` longer.

    Returns:
        Whether the moves cut the hottest executor's busy time below `AT_ONCE_BELOW` of it.

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


def choose_at_once(
    moves: Sequence[Move],
    busy_s: Mapping[int, float],
    placement: Mapping[int, str],
    executors: Mapping[str, int],
    restore_cost_s: Callable[[Move], float],
) -> tuple[Move, ...]:
    """Choose moves that shorten the very next batch, although it then restores their state.

    After executors have joined, the batches are as long as before until partitions run there. A
    budget for restores would spread the moves over many such batches. Each chosen move leaves its
    target with less work than its source had, the restore included; heavy partitions come first.
    Our own design.

    Args:
        moves: the moves to choose from.
        busy_s: expected busy seconds of each partition in the next batch.
        placement: the current executor of each partition.
        executors: live executors, id to cores. What runs on others moves within the budget.
        restore_cost_s: estimates the seconds to restore a move's state; the estimate counts
            `RESTORE_CAUTION` times. An executor without partitions takes `FIRST_TASK_S` longer.

    Returns:
        The chosen moves; none if they cannot cut the hottest executor's busy time below
        `AT_ONCE_BELOW` of it.

    >>> moves, placement = [Move(1, "a", "b"), Move(2, "a", "b")], {0: "a", 1: "a", 2: "a", 3: "b"}
    >>> busy_s = {0: 3.0, 1: 3.0, 2: 3.0, 3: 0.5}
    >>> choose_at_once(moves, busy_s, placement, {"a": 1, "b": 1}, lambda move: 0.5)
    (Move(partition=1, source='a', target='b'),)
    >>> choose_at_once(moves, busy_s, placement, {"a": 1, "b": 1}, lambda move: 5.0)
    ()
    """
    before_s = _add_up(busy_s, placement, executors)
    after_s = {e: before_s.get(e, FIRST_TASK_S) for e in executors}
    chosen: list[Move] = []
    for move in sorted(moves, key=lambda move: -busy_s.get(move.partition, 0.0)):
        if move.source not in before_s or not executors.keys() >= {move.source, move.target}:
            continue
        moved_s = busy_s.get(move.partition, 0.0)
        cost_s = moved_s + RESTORE_CAUTION * restore_cost_s(move)
        then_s = after_s[move.target] + cost_s / executors[move.target]
        if then_s < after_s[move.source]:
            after_s[move.source] -= moved_s / executors[move.source]
            after_s[move.target] = then_s
            chosen.append(move)
    used = before_s.keys() | {move.target for move in chosen}
    longest_before_s = max((before_s.get(e, 0.0) for e in executors), default=0.0)
    longest_s = max((s for e, s in after_s.items() if e in used), default=0.0)
    return tuple(chosen) if longest_s < AT_ONCE_BELOW * longest_before_s else ()


def pays_to_share(busy_s: float, restore_s: float, cores: int, more_cores: int) -> bool:
    """Whether a running batch ends sooner if joining executors take some of its tasks.

    The joining executors have to restore the state for these tasks. Our own design.

    Args:
        busy_s: busy seconds of all partitions in a batch.
        restore_s: estimated seconds to restore the state of all partitions; the estimate counts
            `RESTORE_CAUTION` times.
        cores: number of cores of the executors that run the batch.
        more_cores: number of cores of the joining executors.

    Returns:
        Whether an evenly shared batch then takes less than `AT_ONCE_BELOW` of the time.

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
    """Busy seconds per core of each executor that has partitions."""
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
    """Put each move into the first step with room for it.

    Args:
        shares: each move, and the fraction that it takes of each limit.
        taken_already: the fraction of each limit that is taken before the first step.
    """
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
