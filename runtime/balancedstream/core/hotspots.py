"""AutoFlow's hotspot-diminishing algorithm; bound, thresholds and exchanges are our own design.

This file is longer than 400 lines: it is one algorithm, best read whole.

The paper's abstract names a hotspot-diminishing algorithm without details. Ours starts from the
current placement and relieves the hottest executor, step by step: it moves one partition that fits
on the coldest executor or, if none fits, exchanges a few partitions with a cold executor. Each
exchange leaves both executors below the previous peak, so the search ends, and a second call on its
result finds nothing to do.

An executor may have a base load: work that counts but cannot move, because the partitions behind it
are not known one by one.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from statistics import NormalDist
from types import MappingProxyType
from typing import NamedTuple

from balancedstream.core.policy import BalancePolicy
from balancedstream.errors import InvalidInputError

# Loads become whole numbers, the heaviest 2**40, so that sums are exact in any order.
_HEAVIEST = 1 << 40

# Nothing is measured as less, and the smallest numbers that there are have no such fraction.
_LIGHTEST_S = 1e-9

ROUNDING = 1e-9
"""Rounding errors add up to at most this; no comparison with a threshold may depend on them."""

RESOLUTION = 0.005
"""An executor this close to the aim has reached it: measured loads are less exact than that."""

CONFIDENCE = 0.99
"""How sure it has to be that an imbalance is more than chance."""

# Number of coldest executors that are tried for an exchange with the hottest one.
_PARTNERS = 64

# An executor offers groups of at most this many partitions for an exchange, and this many groups.
_GROUP_SIZE = 4
_GROUPS = 400

# Number of candidates with nearly the same effect; the one with the lightest state wins.
_NEAR_TIES = 16

# With at most this many partitions and executors, all placements are tried, up to this many tries.
_FEW = 12
_TRIES = 20_000


@dataclass(frozen=True, slots=True)
class Move:
    """One state partition that must run on another executor.

    Attributes:
        partition: state partition, 0-based.
        source: executor that it leaves, which may be gone; empty if it never had one.
        target: executor that must run it.
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
        moves: what to move, most important first; empty if nothing should change.
        imbalance_before: now, over the partitions that have a live executor.
        imbalance_after: after all moves, over all partitions.
        bound: no placement of these partitions has less imbalance.
        unsplittable: the heaviest partition, if it exceeds the mean even when it has the biggest
            executor to itself; otherwise None.
        reason: the decision in words and numbers.
        exhausted: whether the load is as even as exchanges of partitions can make it, which may be
            above the bound: that no placement has less does not mean that one has it.
    """

    moves: tuple[Move, ...]
    imbalance_before: float
    imbalance_after: float
    bound: float
    unsplittable: int | None
    reason: str
    exhausted: bool = False


@dataclass(frozen=True, slots=True)
class ImbalanceMeasurement:
    """How uneven a placement is, and how even any placement can be.

    Attributes:
        imbalance: as in `BalanceDecision`, over the partitions that have a live executor.
        bound: no placement of all partitions has less imbalance.
    """

    imbalance: float
    bound: float


class _Group(NamedTuple):
    """Partitions of one executor that move together; ordered by weight.

    `move_cost` is the time to restore their state, divided by the horizon, in units of `weight`.
    """

    weight: int
    size: int
    move_cost: float
    state_bytes: int
    partitions: tuple[int, ...]


_NOTHING = _Group(0, 0, 0.0, 0, ())


class _Exchange(NamedTuple):
    """A group of the hottest executor for a group of a cold one; the smallest is the best.

    `peak` is the higher busy time per core of the two executors afterwards, or the aim if it is
    reached. Among those that reach the aim, the fewest partitions win, then the lightest state.
    """

    peak: float
    size: int
    move_cost: float
    state_bytes: int
    out: _Group
    back: _Group
    hot: str
    cold: str

    @property
    def targets(self) -> dict[int, str]:
        return dict.fromkeys(self.out.partitions, self.cold) | dict.fromkeys(
            self.back.partitions, self.hot
        )


class _Improvement(NamedTuple):
    """Partitions with their new executors, and the peak that results."""

    targets: Mapping[int, str]
    peak: float


class _Relief(NamedTuple):
    """Steps that pay off, the resulting imbalance, why there are no more, if none would help."""

    steps: Sequence[_Improvement]
    imbalance: float
    remark: str
    exhausted: bool = False


def diminish(
    loads: Mapping[int, float],
    placement: Mapping[int, str],
    executors: Mapping[str, int],
    policy: BalancePolicy = BalancePolicy(),  # noqa: B008 - it is frozen
    *,
    state_bytes: Mapping[int, int] | None = None,
    move_cost_s: Mapping[int, float] | None = None,
    base_s: Mapping[str, float] = MappingProxyType({}),
    scatter: float = 0.0,
) -> BalanceDecision:
    """Find the moves that relieve the hottest executors, or the reason to make none.

    Partitions without a live executor are always placed, heaviest first, each where it adds least
    to the busy time. Nothing else moves unless the imbalance is above `policy.act_above` and above
    `policy.stop_at` times the bound. Then moves bring it down to the latter, or as far as exchanges
    can. Together the moves must save at least `policy.min_gain` of the hottest executor's load, and
    within `policy.horizon_batches` more time than the restore of their state takes. Executors
    restore state in parallel, so the executor that restores longest counts. Loads that differ from
    batch to batch are never even for long: moves must also save more than chance explains.

    All thresholds may be 0. The aim is then `RESOLUTION` above the bound, as for any smaller
    `policy.stop_at`. The caller obeys `policy.mode`.

    The result depends only on the values, not on the order of a mapping or on earlier calls.

    Args:
        loads: busy seconds a batch, per partition; a partition that is only placed counts as 0.
        placement: id of the executor that runs each partition.
        executors: live executors, id to cores.
        policy: the thresholds.
        state_bytes: size of each partition's state; of moves with the same effect, the one with the
            lightest state wins.
        move_cost_s: seconds to restore each partition's state once; free if left out.
        base_s: busy seconds a batch of each executor that stay where they are, beside `loads`.
        scatter: standard error of an executor's load per core, over the mean; 0.0 if loads are
            exact.

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
    heaviest_s = _heaviest(loads, base_s, executors)
    groups = _weigh(
        loads,
        placement,
        heaviest_s,
        state_bytes=state_bytes or {},
        move_cost_s=move_cost_s or {},
        horizon_batches=policy.horizon_batches,
    )
    base = _weigh_base(base_s, executors, heaviest_s)
    held, orphans = _hold(groups, placement, executors)
    layout = _Layout(held, executors, base)
    before = layout.imbalance
    homes = _place(orphans, held, executors, base)
    if orphans:
        layout = _Layout(held, executors, base)
    bound = _bound([group.weight for group in groups.values()], executors, base)
    unit_s = heaviest_s / _HEAVIEST
    chance = explain_by_chance(scatter, len(executors))
    relief = _find_relief(layout, bound, policy, frozenset(homes), unit_s, chance=chance)
    for step in relief.steps:
        homes |= step.targets
    moves = _list_moves(homes, placement)
    remarks = [relief.remark] if relief.remark else []
    if orphans:
        remarks.insert(0, f"partitions without a live executor: {len(orphans)}")
    unsplittable = _unsplittable(groups, executors, base)
    if unsplittable is not None:
        remarks.append(_describe(unsplittable, groups, executors, base))
    headline = "no change: "
    if moves:
        headline = (
            f"{say_count(len(moves), 'move')}: imbalance {before:.2f} → {relief.imbalance:.2f} "
            f"(bound {bound:.2f})" + "; " * bool(remarks)
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


def explain_by_chance(scatter: float, executors: int) -> float:
    """How far above the mean the hottest executor is by chance at most, where all have as much.

    The loads of executors are taken as normally distributed; at most, with `CONFIDENCE`.

    Args:
        scatter: as for `diminish`.
        executors: how many there are.

    >>> round(explain_by_chance(0.05, 4), 2)
    0.14
    """
    return scatter * NormalDist().inv_cdf(CONFIDENCE ** (1 / executors))


def measure_imbalance(
    loads: Mapping[int, float],
    placement: Mapping[int, str],
    executors: Mapping[str, int],
    base_s: Mapping[str, float] = MappingProxyType({}),
) -> ImbalanceMeasurement:
    """Measure how uneven a placement is; nothing is decided.

    Args:
        loads: busy seconds a batch, per partition; a partition that is only placed counts as 0.
        placement: id of the executor that runs each partition.
        executors: live executors, id to cores.
        base_s: as for `diminish`.

    Raises:
        InvalidInputError: as `diminish`.

    >>> measure_imbalance({0: 4.0, 1: 3.0, 2: 1.0}, {0: "a", 1: "a", 2: "b"}, {"a": 1, "b": 1})
    ImbalanceMeasurement(imbalance=1.75, bound=1.0)
    """
    _check_executors(executors)
    _check_values("loads", loads)
    heaviest_s = _heaviest(loads, base_s, executors)
    weights = {p: _find_weight(busy_s, heaviest_s) for p, busy_s in loads.items()}
    base = _weigh_base(base_s, executors, heaviest_s)
    busy = dict(base)
    for partition, weight in weights.items():
        executor = placement.get(partition, "")
        if executor in busy:
            busy[executor] += weight
    mean = sum(busy.values()) / sum(executors.values())
    peak = max(work / executors[executor] for executor, work in busy.items())
    bound = _bound([*weights.values()], executors, base)
    return ImbalanceMeasurement(peak / mean if mean else 1.0, bound)


def place_orphans(
    loads: Mapping[int, float],
    placement: Mapping[int, str],
    executors: Mapping[str, int],
    base_s: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Move, ...]:
    """Give an executor to the partitions that have no live one; the others stay.

    The heaviest go first, each where it adds least to the busy time.

    Args:
        loads: busy seconds a batch, per partition; a partition that is only placed counts as 0.
        placement: id of the executor that runs each partition, which may be gone.
        executors: live executors, id to cores.
        base_s: as for `diminish`.

    Returns:
        A move for each partition without a live executor.

    Raises:
        InvalidInputError: as `diminish`.

    >>> place_orphans({0: 4.0, 1: 1.0}, {0: "gone", 1: "a"}, {"a": 1, "b": 1})
    (Move(partition=0, source='gone', target='b'),)
    """
    heaviest_s = _heaviest(loads, base_s, executors)
    held, orphans = _hold(_weigh(loads, placement, heaviest_s), placement, executors)
    base = _weigh_base(base_s, executors, heaviest_s)
    return _list_moves(_place(orphans, held, executors, base), placement)


def _hold(
    groups: Mapping[int, _Group], placement: Mapping[int, str], executors: Mapping[str, int]
) -> tuple[dict[str, list[_Group]], list[_Group]]:
    """The partitions of each live executor, and those that have none."""
    _check_executors(executors)
    held: dict[str, list[_Group]] = {executor: [] for executor in sorted(executors)}
    orphans: list[_Group] = []
    for partition, group in groups.items():
        held.get(placement.get(partition, ""), orphans).append(group)
    return held, orphans


def _list_moves(homes: Mapping[int, str], placement: Mapping[int, str]) -> tuple[Move, ...]:
    return tuple(
        Move(partition, placement.get(partition, ""), target)
        for partition, target in homes.items()
        if placement.get(partition) != target
    )


class _Layout:
    """The partitions of each executor, and the executors in order of busy time per core.

    Partitions without load are left out, because moving them gains nothing.
    """

    def __init__(
        self,
        held: Mapping[str, Sequence[_Group]],
        cores: Mapping[str, int],
        base: Mapping[str, int],
    ) -> None:
        self.cores = cores
        self.base = base
        self.held = {e: sorted(group for group in held[e] if group.weight) for e in held}
        self.home = {group.partitions[0]: e for e in held for group in self.held[e]}
        self.single = {group.partitions[0]: group for e in held for group in self.held[e]}
        self.busy = {e: base[e] + sum(group.weight for group in held[e]) for e in held}
        self.ladder = sorted((self.busy[e] / cores[e], e) for e in held)
        self.mean = sum(self.busy.values()) / sum(cores.values())
        self._groups: dict[str, dict[int, list[_Group]]] = defaultdict(dict)

    @property
    def peak(self) -> float:
        return self.ladder[-1][0]

    @property
    def hottest(self) -> str:
        return self.ladder[-1][1]

    @property
    def imbalance(self) -> float:
        return self.peak / self.mean if self.mean else 1.0

    def coldest(self, count: int) -> list[str]:
        """The coldest executors, coldest first, without the hottest one."""
        return [executor for _, executor in self.ladder[: min(count, len(self.ladder) - 1)]]

    def room(self, executor: str, limit: float) -> int:
        """What an executor can take up to a limit per core; negative if it is above the limit."""
        return math.floor(limit * self.cores[executor]) - self.busy[executor]

    def groups(self, executor: str, size: int) -> list[_Group]:
        """The groups that an executor offers for an exchange, lightest first."""
        known = self._groups[executor]
        if size not in known:
            known[size] = _groups_of(self.held[executor], size)
        return known[size]

    def apply(self, targets: Mapping[int, str]) -> None:
        """Give partitions to other executors."""
        touched = {self.home[partition] for partition in targets} | set(targets.values())
        for executor in touched:
            del self.ladder[bisect_left(self.ladder, self._rung(executor))]
            self._groups.pop(executor, None)
        for partition, target in targets.items():
            single, source = self.single[partition], self.home[partition]
            del self.held[source][bisect_left(self.held[source], single)]
            insort(self.held[target], single)
            self.busy[source] -= single.weight
            self.busy[target] += single.weight
            self.home[partition] = target
        for executor in touched:
            insort(self.ladder, self._rung(executor))

    def _rung(self, executor: str) -> tuple[float, str]:
        return self.busy[executor] / self.cores[executor], executor


def _find_relief(
    layout: _Layout,
    bound: float,
    policy: BalancePolicy,
    free: Collection[int],
    unit_s: float,
    *,
    chance: float,
) -> _Relief:
    """Find the steps that pay off; `layout` has all partitions and is used up.

    The restore of partitions in `free` costs nothing extra, because it must happen anyway. Of an
    imbalance, `chance` may be gone in the next batches without any step.
    """
    start, imbalance = layout.peak, layout.imbalance
    stop_at = max(policy.stop_at, 1 + RESOLUTION)
    aim = stop_at * bound * layout.mean
    if not layout.mean:
        return _Relief((), imbalance, "no partition was busy")
    if imbalance <= policy.act_above * (1 + ROUNDING):
        remark = f"imbalance {imbalance:.2f} is not above {policy.act_above:.2f}"
        return _Relief((), imbalance, remark)
    if start <= aim:
        remark = f"imbalance {imbalance:.2f} is within {stop_at:.4g} x the bound {bound:.2f}"
        return _Relief((), imbalance, remark)
    if imbalance - bound <= chance:
        remark = f"imbalance {imbalance:.2f} (bound {bound:.2f}) may be chance: {_say(chance)}"
        return _Relief((), imbalance, remark)

    steps = _relieve(layout, aim)
    no_more = f"no exchange that pays off relieves executor {layout.hottest}"
    kept = _paying(steps, start, layout.single, free)
    peak = kept[-1].peak if kept else start
    exhausted = not steps
    if steps and not kept:
        saved_s = (start - steps[-1].peak) * unit_s
        batches = say_count(policy.horizon_batches, "batch", "batches")
        remark = (
            f"{say_count(len(steps), 'exchange')} would save {saved_s:.3g} s a batch, "
            f"too little to earn back the restore of state in {batches}"
        )
    elif kept and start - peak < policy.min_gain * start:
        remark = (
            f"imbalance {imbalance:.3f} could only fall to {peak / layout.mean:.3f}, "
            f"by less than {100 * policy.min_gain:.3g} %"
        )
        kept = ()
        exhausted = True
    elif kept and start - peak < chance * layout.mean:
        after = peak / layout.mean
        remark = (
            f"that imbalance {imbalance:.2f} falls to {after:.2f} may be chance: {_say(chance)}"
        )
        kept = ()
    elif peak > aim:
        remark = (
            f"imbalance {peak / layout.mean:.2f} is above {stop_at:.4g} x the bound, but {no_more}"
        )
    else:
        remark = ""
    return _Relief(kept, (kept[-1].peak if kept else start) / layout.mean, remark, exhausted)


def _say(chance: float) -> str:
    return f"chance alone makes loads differ by up to {chance:.2f} x the mean"


def _relieve(layout: _Layout, aim: float) -> list[_Improvement]:
    """Relieve the hottest executor until the aim is reached or no step helps."""
    steps = []
    while layout.peak > aim:
        exchange = (
            _move_one(layout, aim)
            or _exchange(layout, aim, far=False)
            or _exchange(layout, aim, far=True)
        )
        targets = exchange.targets if exchange else _rearrangement(layout)
        if not targets:
            break
        layout.apply(targets)
        steps.append(_Improvement(targets, layout.peak))
    return steps


def _paying(
    steps: Sequence[_Improvement], start: float, single: Mapping[int, _Group], free: Collection[int]
) -> Sequence[_Improvement]:
    """The first steps, as many as save the most time after the restore that they cause."""
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


def _move_one(layout: _Layout, aim: float) -> _Exchange | None:
    """Find one partition that fits on the coldest executor and does most of what is needed."""
    for cold in sorted(layout.coldest(_NEAR_TIES), key=lambda e: -layout.room(e, aim))[:1]:
        hot = layout.hottest
        need, room = -layout.room(hot, aim), layout.room(cold, aim)
        singles = layout.held[hot]
        enough, fitting = bisect_left(singles, (need,)), bisect_left(singles, (room + 1,))
        candidates = singles[enough:fitting]
        if not candidates and fitting:
            most = singles[fitting - 1].weight
            if 2 * most >= min(need, room, singles[-1].weight):
                nearest = singles[max(0, fitting - _NEAR_TIES) : fitting]
                candidates = [single for single in nearest if single.weight >= 0.9 * most]
                candidates.reverse()
        candidates = [
            single for single in candidates if single.weight > single.move_cost * layout.cores[hot]
        ]
        if candidates:
            lightest = min(candidates, key=lambda single: (single.move_cost, single.state_bytes))
            return _weigh_up(layout, lightest, _NOTHING, cold, aim)
    return None


def _exchange(layout: _Layout, aim: float, *, far: bool) -> _Exchange | None:
    """Find groups to exchange with a cold executor; larger ones if small ones gain little."""
    best: _Exchange | None = None
    enough = max(aim, layout.peak - RESOLUTION * aim)
    for size in range(1, _GROUP_SIZE + 1):
        outs = layout.groups(layout.hottest, size)
        # The search grows with the size, and another partner gains less and less.
        for cold in layout.coldest(_PARTNERS if far else _PARTNERS // size**2):
            backs = [_NOTHING, *layout.groups(cold, size)]
            found = min(_exchanges(layout, outs, backs, cold, aim), default=None)
            if found and found.peak <= enough and (best is None or found < best):
                best = found
                possible = min(-layout.room(layout.hottest, aim), layout.room(cold, aim))
                if best.peak <= aim or best.out.weight - best.back.weight > 0.5 * possible + (
                    0.5 * possible if possible == -layout.room(layout.hottest, aim) else 0
                ):
                    return best
        if best and best.peak <= (layout.peak + aim) / 2:
            return best
    return best


def _exchanges(
    layout: _Layout, outs: Sequence[_Group], backs: Sequence[_Group], cold: str, aim: float
) -> Iterator[_Exchange]:
    """Exchanges that reach the aim; for a group without one, the two that come closest."""
    hot = layout.hottest
    need, room = -layout.room(hot, aim), layout.room(cold, aim)
    together = layout.busy[hot] + layout.busy[cold]
    share = together * layout.cores[hot] // (layout.cores[hot] + layout.cores[cold])
    level = layout.busy[hot] - share
    for back in backs:
        first = bisect_left(outs, (need + back.weight,))
        candidates = outs[first : first + _NEAR_TIES]
        if not candidates or candidates[0].weight > room + back.weight:
            first = bisect_left(outs, (level + back.weight,))
            candidates = outs[max(0, first - 1) : first + 1]
        for out in candidates:
            exchange = _weigh_up(layout, out, back, cold, aim)
            if exchange:
                yield exchange


def _weigh_up(
    layout: _Layout, out: _Group, back: _Group, cold: str, aim: float
) -> _Exchange | None:
    """Weigh up an exchange; None if it does not lower the peak by more than its restore costs."""
    hot = layout.hottest
    shift = out.weight - back.weight
    move_cost = out.move_cost + back.move_cost
    peak = max(
        (layout.busy[hot] - shift) / layout.cores[hot],
        (layout.busy[cold] + shift) / layout.cores[cold],
    )
    if peak >= layout.peak or shift <= move_cost * layout.cores[hot]:
        return None
    size = out.size + back.size
    state_bytes = out.state_bytes + back.state_bytes
    return _Exchange(max(peak, aim), size, move_cost, state_bytes, out, back, hot, cold)


def _groups_of(singles: Sequence[_Group], size: int) -> list[_Group]:
    """The groups of up to `size` partitions; of fewer if that would be too many groups.

    Of groups with equal weight, the one with the lowest move cost stands for all.
    """
    while sum(math.comb(len(singles), few) for few in range(1, size + 1)) > _GROUPS and size > 1:
        size -= 1
    groups = singles
    if size > 1:
        groups = sorted(
            _Group(
                weight=sum(single.weight for single in group),
                size=few,
                move_cost=sum(single.move_cost for single in group),
                state_bytes=sum(single.state_bytes for single in group),
                partitions=tuple(single.partitions[0] for single in group),
            )
            for few in range(1, size + 1)
            for group in combinations(singles, few)
        )
    lightest: dict[int, _Group] = {}
    for group in groups:
        lightest.setdefault(group.weight, group)
    return list(lightest.values())


def _rearrangement(layout: _Layout) -> dict[int, str] | None:
    """Find a placement of a few partitions that lowers the peak; None if there are too many.

    With few partitions, exchanges have little choice, but all placements can be tried.
    """
    if max(len(layout.home), len(layout.cores)) > _FEW:
        return None
    limit = layout.peak * (1 - RESOLUTION)
    room = {e: math.floor(limit * layout.cores[e]) - layout.base[e] for e in layout.held}
    heaviest_first = sorted(layout.single.values(), reverse=True)
    homes = _fit(heaviest_first, room, layout, iter(range(_TRIES)))
    if homes is None:
        return None
    return {partition: e for partition, e in homes.items() if layout.home[partition] != e}


def _fit(
    groups: Sequence[_Group], room: dict[str, int], layout: _Layout, tries: Iterator[int]
) -> dict[int, str] | None:
    """Place all groups within the given room, at home if possible; depth first."""
    if not groups:
        return {}
    usable = sum(free for free in room.values() if free >= groups[-1].weight)
    if usable < sum(group.weight for group in groups) or next(tries, None) is None:
        return None
    weight, (partition,) = groups[0].weight, groups[0].partitions
    seen = set()
    for executor in sorted(
        room, key=lambda e: (e != layout.home[partition], -room[e] / layout.cores[e], e)
    ):
        alike = room[executor], layout.cores[executor]
        if room[executor] < weight or alike in seen:
            continue
        seen.add(alike)
        room[executor] -= weight
        homes = _fit(groups[1:], room, layout, tries)
        if homes is not None:
            return {partition: executor} | homes
        room[executor] += weight
    return None


def _place(
    orphans: Sequence[_Group],
    held: Mapping[str, list[_Group]],
    cores: Mapping[str, int],
    base: Mapping[str, int],
) -> dict[int, str]:
    """Add orphans to `held`, heaviest first, each where it adds least to the busy time: greedy LPT.

    Of equal executors, the one with the fewest partitions a core takes it.
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


def _bound(weights: Sequence[int], executors: Mapping[str, int], base: Mapping[str, int]) -> float:
    """A lower bound on the imbalance of any placement: the highest of these bounds.

    - The mean, the highest base load, and the heaviest partition where it adds least to one.
    - The k heaviest partitions spread over the k biggest executors. This bound and the next ones
      hold without the base load, so they hold with it.
    - Each of the k heaviest has an executor to itself, and the others share the rest; or one of the
      k shares its executor with at least the lightest partition.
    - Pigeonhole: if there is one partition more than each core's share allows, some executor takes
      one more, even if all those partitions are the lightest.
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


def _unsplittable(
    groups: Mapping[int, _Group], executors: Mapping[str, int], base: Mapping[str, int]
) -> int | None:
    """The heaviest partition, if it exceeds the mean even alone on the biggest executor."""
    if not groups:
        return None
    heaviest = max(groups.values(), key=lambda group: (group.weight, -group.partitions[0]))
    mean = _add_up(groups, base) / sum(executors.values())
    alone = heaviest.weight / max(executors.values())
    return heaviest.partitions[0] if alone > mean * (1 + ROUNDING) else None


def _describe(
    partition: int,
    groups: Mapping[int, _Group],
    executors: Mapping[str, int],
    base: Mapping[str, int],
) -> str:
    share = groups[partition].weight / _add_up(groups, base)
    alone = share * sum(executors.values()) / max(executors.values())
    return (
        f"partition {partition} alone carries {100 * share:.0f} % of the busy time, "
        f"{alone:.2f} x the mean of an executor, and no placement can split it"
    )


def _add_up(groups: Mapping[int, _Group], base: Mapping[str, int]) -> int:
    """All work, in units of `weight`."""
    return sum(group.weight for group in groups.values()) + sum(base.values())


def say_count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun, for a reason.

    >>> say_count(1, "move"), say_count(3, "batch", "batches")
    ('1 move', '3 batches')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _weigh(
    loads: Mapping[int, float],
    placement: Mapping[int, str],
    heaviest_s: float,
    *,
    state_bytes: Mapping[int, int] = MappingProxyType({}),
    move_cost_s: Mapping[int, float] = MappingProxyType({}),
    horizon_batches: int = 1,
) -> dict[int, _Group]:
    """Check the values of each partition, and turn its load into a whole number."""
    _check_values("loads", loads)
    _check_values("state_bytes", state_bytes)
    _check_values("move_cost_s", move_cost_s)
    cost_unit_s = heaviest_s * horizon_batches / _HEAVIEST
    groups = {}
    for partition in sorted(loads.keys() | placement.keys()):
        busy_s = loads.get(partition, 0.0)
        groups[partition] = _Group(
            _find_weight(busy_s, heaviest_s),
            1,
            move_cost_s.get(partition, 0.0) / cost_unit_s if busy_s else 0.0,
            state_bytes.get(partition, 0),
            (partition,),
        )
    return groups


def _find_weight(busy_s: float, heaviest_s: float) -> int:
    return round(busy_s / heaviest_s * _HEAVIEST) if busy_s else 0


def _check_values(field: str, values: Mapping[int, float]) -> None:
    # A sum is finite only if all are; one by one, ten thousand would take a while.
    if math.isfinite(sum(values.values())) and min(values.values(), default=0) >= 0:
        return
    for partition, value in values.items():
        if not 0 <= value < math.inf:
            message = f"{field}: partition {partition} must be 0 or more and finite, not {value}"
            raise InvalidInputError(message)


def _heaviest(
    loads: Mapping[int, float], base_s: Mapping[str, float], executors: Mapping[str, int]
) -> float:
    """The highest of all loads, which sets the unit of whole numbers; at least a nanosecond."""
    stays_s = (base_s.get(executor, 0.0) for executor in executors)
    return max((_LIGHTEST_S, *loads.values(), *stays_s))


def _weigh_base(
    base_s: Mapping[str, float], executors: Mapping[str, int], heaviest_s: float
) -> dict[str, int]:
    """The base load of each live executor, as a whole number."""
    for executor, value in base_s.items():
        if not 0 <= value < math.inf:
            message = f"base_s: executor {executor!r} must be 0 or more and finite, not {value}"
            raise InvalidInputError(message)
    found = {executor: base_s.get(executor, 0.0) for executor in executors}
    return {
        e: round(busy_s / heaviest_s * _HEAVIEST) if busy_s else 0 for e, busy_s in found.items()
    }


def _check_executors(executors: Mapping[str, int]) -> None:
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
