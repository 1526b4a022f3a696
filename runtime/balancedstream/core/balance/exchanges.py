"""Finds the steps that relieve the hottest executor: one partition moves, or executors swap a few.

Our own design. Each step leaves both executors below the previous peak. So the search ends, and a
second search on its result finds nothing to do.
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
"""An executor within this fraction of the aim has reached it: loads are not measured better."""

# Number of coldest executors that are tried for an exchange with the hottest one.
_PARTNERS = 64

# Maximum number of partitions in a group that an executor offers for an exchange.
_GROUP_SIZE = 4

# Maximum number of groups that an executor offers.
_GROUPS = 400

# Number of candidates that count as equally good; the candidate with the lightest state wins.
_NEAR_TIES = 16

# The search tries all placements if there are at most this many partitions and executors.
_FEW = 12

# The search gives up after this many partial placements.
_TRIES = 20_000

_NOTHING = Group(0, 0, 0.0, 0, ())


class _Exchange(NamedTuple):
    """The hottest executor gives a group of partitions and takes one from a cold executor.

    The smallest tuple is the best exchange. `peak` is the busy time per core of the hotter of the
    two executors after the exchange, but at least the aim. So among exchanges that reach the aim,
    the one with the fewest partitions wins, then the one that costs least to restore.
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
        """Each moved partition and its new executor."""
        return dict.fromkeys(self.out.partitions, self.cold) | dict.fromkeys(
            self.back.partitions, self.hot
        )


class Improvement(NamedTuple):
    """Partitions with their new executors, and the peak that results."""

    targets: Mapping[int, str]
    peak: float


class Layout:
    """The partitions of each executor, and the executors in order of busy time per core.

    The layout leaves out partitions without load, because moving them gains nothing.

    Args:
        held: the partitions of each executor, each as a group of one.
        cores: number of cores of each executor.
        base: load of each executor that cannot move, in units of `weight`.
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
        """The peak divided by the mean; 1 if no executor is busy."""
        return self.peak / self.mean if self.mean else 1.0

    def coldest(self, count: int) -> list[str]:
        """The coldest executors, coldest first, without the hottest one."""
        return [executor for _, executor in self.ladder[: min(count, len(self.ladder) - 1)]]

    def room(self, executor: str, limit: float) -> int:
        """The load that an executor can still take below a limit per core; may be negative."""
        return math.floor(limit * self.cores[executor]) - self.busy[executor]

    def groups(self, executor: str, size: int) -> list[Group]:
        """The groups that an executor offers for an exchange, lightest first."""
        known = self._groups[executor]
        if size not in known:
            known[size] = _groups_of(self.held[executor], size)
        return known[size]

    def apply(self, targets: Mapping[int, str]) -> None:
        """Move partitions to these executors."""
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
        layout: all partitions and executors; the search applies each step to it.
        aim: the busy time per core to reach, in units of `weight`.

    Returns:
        The steps, in order.

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
    """Find one partition that fits on the coldest executor and gains most of what is possible."""
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
    """Find groups to exchange with a cold executor; try larger groups if small ones gain little."""
    best: _Exchange | None = None
    enough = max(aim, layout.peak - RESOLUTION * aim)
    for size in range(1, _GROUP_SIZE + 1):
        outs = layout.groups(layout.hottest, size)
        # Larger groups take longer to search, and each further partner gains less.
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
    """For each group to take back, the exchanges that reach the aim, or the two nearest to it."""
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
    """Build an exchange; None if restoring its state costs more than it lowers the peak."""
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
    """All groups of up to `size` partitions; smaller groups if there would be too many.

    Among groups of equal weight, only the group with the fewest partitions and the lowest move cost
    remains.
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
    """Find a placement that lowers the peak by trying all; None if there are too many to try.

    Among few partitions, a better placement may take more than one exchange.
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
    """Place all groups within the room of the executors, where they are if possible; depth first.

    None if no placement fits, or after `_TRIES` tries.
    """
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
