"""The steps that relieve the hottest executor: one partition moves, or a few are exchanged.

Our own design. Each exchange leaves both executors below the previous peak, so the search ends, and
a second search on its result finds nothing to do.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from balancedstream.core.balance.weights import Group

RESOLUTION = 0.005
"""An executor this close to the aim has reached it: measured loads are less exact than that."""

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

_NOTHING = Group(0, 0, 0.0, 0, ())


class _Exchange(NamedTuple):
    """A group of the hottest executor for a group of a cold one; the smallest is the best.

    `peak` is the higher busy time per core of the two executors afterwards, or the aim if it is
    reached. Among those that reach the aim, the fewest partitions win, then the lightest state.
    """

    peak: float
    size: int
    move_cost: float
    state_bytes: int
    out: Group
    back: Group
    hot: str
    cold: str

    @property
    def targets(self) -> dict[int, str]:
        """Partitions to their new executors."""
        return dict.fromkeys(self.out.partitions, self.cold) | dict.fromkeys(
            self.back.partitions, self.hot
        )


class Improvement(NamedTuple):
    """Partitions with their new executors, and the peak that results."""

    targets: Mapping[int, str]
    peak: float


class Layout:
    """The partitions of each executor, and the executors in order of busy time per core.

    Partitions without load are left out, because moving them gains nothing.

    Args:
        held: the partitions of each executor.
        cores: of each executor.
        base: the load of each executor that cannot move, in units of `weight`.
    """

    def __init__(
        self,
        held: Mapping[str, Sequence[Group]],
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
        self._groups: dict[str, dict[int, list[Group]]] = defaultdict(dict)

    @property
    def peak(self) -> float:
        """The busy time per core of the hottest executor."""
        return self.ladder[-1][0]

    @property
    def hottest(self) -> str:
        """The executor with the highest busy time per core."""
        return self.ladder[-1][1]

    @property
    def imbalance(self) -> float:
        """The peak, divided by the mean; 1 if nothing is busy."""
        return self.peak / self.mean if self.mean else 1.0

    def coldest(self, count: int) -> list[str]:
        """The coldest executors, coldest first, without the hottest one."""
        return [executor for _, executor in self.ladder[: min(count, len(self.ladder) - 1)]]

    def room(self, executor: str, limit: float) -> int:
        """What an executor can take up to a limit per core; negative if it is above the limit."""
        return math.floor(limit * self.cores[executor]) - self.busy[executor]

    def groups(self, executor: str, size: int) -> list[Group]:
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


def relieve(layout: Layout, aim: float) -> list[Improvement]:
    """Relieve the hottest executor until the aim is reached or no step helps.

    Args:
        layout: of all partitions; each step is applied to it.
        aim: the highest busy time per core that is low enough, in units of `weight`.

    >>> held = {"a": [Group(3, 1, 0.0, 0, (0,)), Group(2, 1, 0.0, 0, (1,))], "b": []}
    >>> relieve(Layout(held, {"a": 1, "b": 1}, {"a": 0, "b": 0}), aim=3.0)
    [Improvement(targets={1: 'b'}, peak=3.0)]
    """
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
        steps.append(Improvement(targets, layout.peak))
    return steps


def _move_one(layout: Layout, aim: float) -> _Exchange | None:
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


def _exchange(layout: Layout, aim: float, *, far: bool) -> _Exchange | None:
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
    layout: Layout, outs: Sequence[Group], backs: Sequence[Group], cold: str, aim: float
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


def _weigh_up(layout: Layout, out: Group, back: Group, cold: str, aim: float) -> _Exchange | None:
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


def _groups_of(singles: Sequence[Group], size: int) -> list[Group]:
    """The groups of up to `size` partitions; of fewer if that would be too many groups.

    Of groups with equal weight, the one with the lowest move cost stands for all.
    """
    while sum(math.comb(len(singles), few) for few in range(1, size + 1)) > _GROUPS and size > 1:
        size -= 1
    groups = singles
    if size > 1:
        groups = sorted(
            Group(
                weight=sum(single.weight for single in group),
                size=few,
                move_cost=sum(single.move_cost for single in group),
                state_bytes=sum(single.state_bytes for single in group),
                partitions=tuple(single.partitions[0] for single in group),
            )
            for few in range(1, size + 1)
            for group in combinations(singles, few)
        )
    lightest: dict[int, Group] = {}
    for group in groups:
        lightest.setdefault(group.weight, group)
    return list(lightest.values())


def _rearrangement(layout: Layout) -> dict[int, str] | None:
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
    groups: Sequence[Group], room: dict[str, int], layout: Layout, tries: Iterator[int]
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
