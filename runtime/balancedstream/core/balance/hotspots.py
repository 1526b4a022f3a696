"""Decides which partitions move: AutoFlow's hotspot-diminishing algorithm.

AutoFlow's abstract names such an algorithm without details. Bound, thresholds and exchanges are our
own design. The algorithm starts from the current placement and relieves the hottest executor, step
by step. A step moves one partition that fits on the coldest executor. If none fits, it exchanges a
few partitions with a cold executor (`exchanges.py`). The algorithm stops when the bound
(`imbalance.py`) says that no placement is more even.

An executor may have a base load: work that counts but cannot move, because only the sum over its
partitions is known.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from balancedstream.core.balance.exchanges import RESOLUTION, Improvement, Layout, relieve
from balancedstream.core.balance.imbalance import (
    ROUNDING,
    describe_unsplittable,
    estimate_chance,
    find_bound,
    find_unsplittable,
)
from balancedstream.core.balance.weights import (
    HEAVIEST,
    Group,
    check_executors,
    find_heaviest,
    weigh,
    weigh_base,
)
from balancedstream.core.policy import BalancePolicy

STOP_AT = 1.02
"""Moves stop once the imbalance is at most this many times its bound: more gains too little."""

MIN_GAIN = 0.02
"""Moves must save at least this fraction of the hottest executor's load."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When partitions and keys move, and what their moves must gain.

    Attributes:
        act_above: imbalance up to which nothing moves.
        horizon_batches: number of batches within which moves must save more than they cost.
        stop_at: moves continue until the imbalance is this many times its bound.
        min_gain: fraction of the hottest executor's load that moves must save.
    """

    act_above: float = BalancePolicy.act_above
    horizon_batches: int = BalancePolicy.horizon_batches
    stop_at: float = STOP_AT
    min_gain: float = MIN_GAIN


@dataclass(frozen=True, slots=True)
class Move:
    """One state partition that must run on another executor.

    Attributes:
        partition: state partition, 0-based.
        source: executor that the partition leaves, live or lost; empty if the partition is new.
        target: executor that must run the partition.
    """

    partition: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class BalanceDecision:
    """What to move, and why.

    Imbalance is the busy time per core of the hottest executor, divided by the mean (all busy time
    over all cores); 1 is perfect balance.

    Attributes:
        moves: partitions to move, most important first; empty if the placement should stay.
        imbalance_before: current imbalance of the partitions that have a live executor.
        imbalance_after: imbalance of all partitions after all moves.
        bound: lower bound on the imbalance of any placement of these partitions.
        unsplittable: the heaviest partition, if it exceeds the mean even when it has the biggest
            executor to itself; otherwise None.
        reason: the decision in words and numbers.
        exhausted: whether exchanges of partitions can make the load no more even. The imbalance may
            still be above the bound, because not every bound has a placement that reaches it.
    """

    moves: tuple[Move, ...]
    imbalance_before: float
    imbalance_after: float
    bound: float
    unsplittable: int | None
    reason: str
    exhausted: bool = False


class _Relief(NamedTuple):
    """The steps that pay off, and the imbalance after them.

    `remark` says why there are not more steps. `exhausted` is as in `BalanceDecision`.
    """

    steps: Sequence[Improvement]
    imbalance: float
    remark: str
    exhausted: bool = False


def diminish(
    loads: Mapping[int, float],
    placement: Mapping[int, str],
    executors: Mapping[str, int],
    thresholds: Thresholds = Thresholds(),
    *,
    state_bytes: Mapping[int, int] | None = None,
    move_cost_s: Mapping[int, float] | None = None,
    base_s: Mapping[str, float] = MappingProxyType({}),
    scatter: float = 0.0,
) -> BalanceDecision:
    """Find the moves that relieve the hottest executors, or the reason to make none.

    Partitions without a live executor always get one, heaviest first, each where it adds least to
    the busy time. Other partitions move only if the imbalance is above `act_above` and above
    `stop_at` times the bound. The moves then lower the imbalance to `stop_at` times the bound, or
    as far as exchanges can. Together the moves must:

    - save at least `min_gain` of the hottest executor's load;
    - save more time in `horizon_batches` than the restore of their state takes. Executors restore
      state in parallel, so the executor that restores longest counts;
    - save more than chance explains, because loads that differ from batch to batch are never even
      for long.

    All thresholds may be 0. If `stop_at` is less than `RESOLUTION` above 1, the aim is `RESOLUTION`
    above the bound. The caller obeys `BalancePolicy.mode`.

    The result depends only on the values, not on the order of a mapping or on earlier calls.

    Args:
        loads: busy seconds a batch of each partition; 0 for a partition that only `placement` has.
        placement: id of the executor that runs each partition.
        executors: live executors, id to cores.
        thresholds: when to act, when to stop, and what moves must save.
        state_bytes: size of each partition's state; among moves with the same effect, the move with
            the lightest state wins.
        move_cost_s: seconds to restore each partition's state once; 0 for partitions left out.
        base_s: busy seconds a batch of each executor that cannot move; not part of `loads`.
        scatter: standard error of an executor's load per core, divided by the mean; 0.0 if loads
            are exact.

    Returns:
        The decision.

    Raises:
        InvalidInputError: there is no executor, an executor has no core, or a load, size or cost is
            negative or not finite; the message names it.

    >>> decision = diminish({0: 4.0, 1: 3.0, 2: 1.0}, {0: "a", 1: "a", 2: "b"}, {"a": 1, "b": 1})
    >>> decision.moves
    (Move(partition=1, source='a', target='b'),)
    >>> decision.reason
    '1 move: imbalance 1.75 → 1.00 (bound 1.00)'
    """
    heaviest_s = find_heaviest(loads, base_s, executors)
    groups = weigh(
        loads,
        placement,
        heaviest_s,
        state_bytes=state_bytes or {},
        move_cost_s=move_cost_s or {},
        horizon_batches=thresholds.horizon_batches,
    )
    base = weigh_base(base_s, executors, heaviest_s)
    held, orphans = _hold(groups, placement, executors)
    layout = Layout(held, executors, base)
    before = layout.imbalance
    homes = _place(orphans, held, executors, base)
    if orphans:
        layout = Layout(held, executors, base)
    bound = find_bound([group.weight for group in groups.values()], executors, base)
    unit_s = heaviest_s / HEAVIEST
    chance = estimate_chance(scatter, len(executors))
    relief = _find_relief(layout, bound, thresholds, frozenset(homes), unit_s=unit_s, chance=chance)
    for step in relief.steps:
        homes |= step.targets
    moves = _list_moves(homes, placement)
    remarks = [relief.remark] if relief.remark else []
    if orphans:
        remarks.insert(0, f"partitions that need another executor: {len(orphans)}")
    unsplittable = find_unsplittable(groups, executors, base)
    if unsplittable is not None:
        remarks.append(describe_unsplittable(unsplittable, groups, executors, base))
    headline = "no change: "
    if moves:
        headline = (
            f"{describe_count(len(moves), 'move')}: imbalance {before:.2f} → "
            f"{relief.imbalance:.2f} (bound {bound:.2f})" + "; " * bool(remarks)
        )
    return BalanceDecision(
        moves=moves,
        imbalance_before=before,
        imbalance_after=relief.imbalance,
        bound=bound,
        unsplittable=unsplittable,
        reason=headline + "; ".join(remarks),
        exhausted=relief.exhausted and not moves,
    )


def place_orphans(
    loads: Mapping[int, float],
    placement: Mapping[int, str],
    executors: Mapping[str, int],
    base_s: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Move, ...]:
    """Give an executor to each partition that has no live one; the other partitions stay.

    The heaviest partition goes first, each where it adds least to the busy time. Arguments are as
    for `diminish`.

    Returns:
        A move for each partition without a live executor.

    Raises:
        InvalidInputError: as `diminish`.

    >>> place_orphans({0: 4.0, 1: 1.0}, {0: "gone", 1: "a"}, {"a": 1, "b": 1})
    (Move(partition=0, source='gone', target='b'),)
    """
    heaviest_s = find_heaviest(loads, base_s, executors)
    held, orphans = _hold(weigh(loads, placement, heaviest_s), placement, executors)
    base = weigh_base(base_s, executors, heaviest_s)
    return _list_moves(_place(orphans, held, executors, base), placement)


def _hold(
    groups: Mapping[int, Group], placement: Mapping[int, str], executors: Mapping[str, int]
) -> tuple[dict[str, list[Group]], list[Group]]:
    """The partitions of each live executor, and the partitions without a live executor."""
    check_executors(executors)
    held: dict[str, list[Group]] = {executor: [] for executor in sorted(executors)}
    orphans: list[Group] = []
    for partition, group in groups.items():
        held.get(placement.get(partition, ""), orphans).append(group)
    return held, orphans


def _list_moves(homes: Mapping[int, str], placement: Mapping[int, str]) -> tuple[Move, ...]:
    return tuple(
        Move(partition, placement.get(partition, ""), target)
        for partition, target in homes.items()
        if placement.get(partition) != target
    )


def _find_relief(
    layout: Layout,
    bound: float,
    thresholds: Thresholds,
    free: Collection[int],
    *,
    unit_s: float,
    chance: float,
) -> _Relief:
    """Find the steps that pay off; the search changes the layout.

    The partitions in `free` move anyway, so their restore costs nothing more. `unit_s` is one unit
    of `weight`; `chance` is the part of the imbalance that may vanish without any step.
    """
    start, imbalance = layout.peak, layout.imbalance
    stop_at = max(thresholds.stop_at, 1 + RESOLUTION)
    aim = stop_at * bound * layout.mean
    if not layout.mean:
        return _Relief((), imbalance, "no partition was busy")
    if imbalance <= thresholds.act_above * (1 + ROUNDING):
        remark = f"imbalance {imbalance:.2f} is not above {thresholds.act_above:.2f}"
        return _Relief((), imbalance, remark)
    if start <= aim:
        remark = f"imbalance {imbalance:.2f} is within {stop_at:.4g} x the bound {bound:.2f}"
        return _Relief((), imbalance, remark)
    if imbalance - bound <= chance:
        because = _describe_chance(chance)
        remark = f"imbalance {imbalance:.2f} (bound {bound:.2f}) may be chance: {because}"
        return _Relief((), imbalance, remark)

    steps = relieve(layout, aim)
    no_more = f"no exchange that pays off relieves executor {layout.hottest}"
    kept = _paying(steps, start, layout.single, free)
    peak = kept[-1].peak if kept else start
    exhausted = not steps
    if steps and not kept:
        saved_s = (start - steps[-1].peak) * unit_s
        batches = describe_count(thresholds.horizon_batches, "batch", "batches")
        remark = (
            f"{describe_count(len(steps), 'exchange')} would save {saved_s:.3g} s a batch, "
            f"too little to earn back the restore of state in {batches}"
        )
    elif kept and start - peak < thresholds.min_gain * start:
        remark = (
            f"imbalance {imbalance:.3f} could only fall to {peak / layout.mean:.3f}, "
            f"by less than {100 * thresholds.min_gain:.3g} %"
        )
        kept = ()
        exhausted = True
    elif kept and start - peak < chance * layout.mean:
        after = peak / layout.mean
        because = _describe_chance(chance)
        remark = f"the fall of imbalance {imbalance:.2f} to {after:.2f} may be chance: {because}"
        kept = ()
    elif peak > aim:
        remark = (
            f"imbalance {peak / layout.mean:.2f} is above {stop_at:.4g} x the bound, but {no_more}"
        )
    else:
        remark = ""
    return _Relief(kept, (kept[-1].peak if kept else start) / layout.mean, remark, exhausted)


def _describe_chance(chance: float) -> str:
    return f"chance alone makes loads differ by up to {chance:.2f} x the mean"


def _paying(
    steps: Sequence[Improvement], start: float, single: Mapping[int, Group], free: Collection[int]
) -> Sequence[Improvement]:
    """The first steps, up to the one after which the saved time exceeds the restore the most."""
    restore: defaultdict[str, float] = defaultdict(float)
    longest, best, kept = 0.0, start * ROUNDING, 0
    for number, step in enumerate(steps, 1):
        for partition, target in step.targets.items():
            if partition not in free:
                restore[target] += single[partition].move_cost
                longest = max(longest, restore[target])
        if start - step.peak - longest > best:
            best, kept = start - step.peak - longest, number
    return steps[:kept]


def _place(
    orphans: Sequence[Group],
    held: Mapping[str, list[Group]],
    cores: Mapping[str, int],
    base: Mapping[str, int],
) -> dict[int, str]:
    """Add orphans to `held`, heaviest first, each where it adds least to the busy time: greedy LPT.

    Among equal executors, the executor with the fewest partitions per core takes the orphan.

    Returns:
        The new executor of each orphan.
    """
    alike: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for executor, groups in held.items():
        busy = base[executor] + sum(group.weight for group in groups)
        alike[cores[executor]].append((busy, len(groups), executor))
    for heap in alike.values():
        heapq.heapify(heap)
    homes = {}
    for orphan in sorted(orphans, key=lambda group: (-group.weight, group.partitions)):
        _, _, _, count = min(
            ((heap[0][0] + orphan.weight) / count, (heap[0][1] + 1) / count, heap[0][2], count)
            for count, heap in alike.items()
        )
        busy, partitions, executor = alike[count][0]
        heapq.heapreplace(alike[count], (busy + orphan.weight, partitions + 1, executor))
        held[executor].append(orphan)
        homes[orphan.partitions[0]] = executor
    return homes


def describe_count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun, for people.

    >>> describe_count(1, "move"), describe_count(3, "batch", "batches")
    ('1 move', '3 batches')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
