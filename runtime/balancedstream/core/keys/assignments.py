"""Decides which hot keys go to another state partition when placement alone cannot balance.

Placement moves whole partitions, so two hot keys in one partition stay together, and a partition
that is too heavy for any executor stays too heavy. Our own design, in the spirit of AutoFlow's
hotspot-diminishing with keys instead of bins: step by step, the heaviest partition gives the key
that splits it best to the lightest partition of the coldest executor. So hot keys end up alone or
with light keys. Placement then balances the resulting partitions. Only as many keys move as it
takes to come close to the bound, and none if placement alone is enough.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from balancedstream.core.balance.exchanges import RESOLUTION
from balancedstream.core.balance.hotspots import (
    BalanceDecision,
    Move,
    Thresholds,
    describe_count,
    diminish,
    place_orphans,
)
from balancedstream.core.balance.imbalance import ROUNDING, estimate_chance, measure_imbalance
from balancedstream.core.samples import KeySample
from balancedstream.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """The load of one hot key.

    Attributes:
        key: the key as text, as `write_key` writes it.
        partition: current state partition of the key, 0-based.
        busy_s: busy seconds a batch; the partition's busy seconds include them. The lower bound
            (`HotKey.least`) is the careful choice.
        handoff_s: seconds that one handoff of the key's state takes, such as `RestoreCost.key_s`.
    """

    key: str
    partition: int
    busy_s: float
    handoff_s: float = 0.0


@dataclass(frozen=True, slots=True)
class KeyMove:
    """One key that must go to another state partition.

    Attributes:
        key: the key as text.
        source: state partition that the key leaves, 0-based.
        target: state partition that the key goes to; `routes.find_route` finds the route.
    """

    key: str
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class AssignmentDecision:
    """Which keys go to another partition, which partitions to another executor, and why.

    Imbalance is as in `BalanceDecision`, but at least the load of the busiest partition divided by
    the mean load of a core, because a partition is one task and runs on one core.

    Attributes:
        moves: keys that go to another partition, most important first; empty if no key should move.
        balance: which partitions then go to another executor, decided on the loads after the key
            moves. Without key moves it is the result of `hotspots.diminish`, or its result without
            thresholds if that makes key moves unnecessary.
        imbalance_before: current imbalance, once partitions without a live executor have one.
        imbalance_after: imbalance after all moves of keys and partitions.
        bound: lower bound on the imbalance of any assignment of these keys and any placement.
        unsplittable: keys that exceed the mean even when they have the biggest executor to
            themselves, heaviest first. The heaviest key of a partition stays, because it is too
            heavy for any place; the other keys leave.
        outcome: the decision on keys in words and numbers; it names no key.
        heaviest: fraction of all busy time that the first of `unsplittable` takes; 0.0 if there is
            none.
        heaviest_load: busy time of that key divided by the mean of an executor.
    """

    moves: tuple[KeyMove, ...]
    balance: BalanceDecision
    imbalance_before: float
    imbalance_after: float
    bound: float
    unsplittable: tuple[str, ...]
    outcome: str
    heaviest: float = 0.0
    heaviest_load: float = 0.0

    @property
    def reason(self) -> str:
        """The decision on keys, in words that name them; `balance.reason` is about partitions."""
        return self.describe_reason()

    def describe_reason(self, name_key: Callable[[str], str] = str) -> str:
        """The decision on keys, in words.

        Args:
            name_key: turns a key into a name, for places that must not show keys.
        """
        if not self.unsplittable:
            return self.outcome
        key, more = name_key(self.unsplittable[0]), len(self.unsplittable) - 1
        others = f", nor {more} more like it" if more else ""
        return (
            f"{self.outcome}; key {key} alone carries {100 * self.heaviest:.0f} % of the busy "
            f"time, {self.heaviest_load:.2f} x the mean of an executor, and no assignment can "
            f"split it{others}: balanced(...).aggregate can, where its state can be merged"
        )


class _Outcome(NamedTuple):
    """Some key moves, the resulting placement, and the busy seconds of the hottest core."""

    moves: Sequence[KeyMove]
    balance: BalanceDecision
    placement: Mapping[int, str]
    peak_s: float


@dataclass(frozen=True, slots=True)
class _Problem:
    """The input of a decision, checked and sorted.

    Attributes:
        keys: all hot keys; the keys of a partition together cost no more than the partition.
        loads: busy seconds a batch of every partition.
        placement: live executor of every partition.
        executors: live executors, id to cores.
        base_s: busy seconds a batch of every executor that cannot move; not part of `loads`.
    """

    keys: Mapping[str, KeyLoad]
    loads: Mapping[int, float]
    placement: Mapping[int, str]
    executors: Mapping[str, int]
    base_s: Mapping[str, float]

    @property
    def mean_s(self) -> float:
        """Mean busy seconds of a core."""
        work_s = sum(self.loads.values()) + sum(self.base_s.values())
        return work_s / sum(self.executors.values())

    @property
    def limit_s(self) -> float:
        """Mean busy seconds of the biggest executor; no executor can take a heavier key."""
        return self.mean_s * max(self.executors.values()) * (1 + ROUNDING)

    def unsplittable(self) -> list[KeyLoad]:
        """Keys too heavy for any executor, heaviest first."""
        limit_s = self.limit_s
        heavy = (entry for entry in self.keys.values() if entry.busy_s > limit_s)
        return sorted(heavy, key=lambda entry: (-entry.busy_s, entry.key))

    def movable(self) -> list[KeyLoad]:
        """All keys, except the heaviest key of each partition if no executor can take it."""
        staying = {entry.partition: entry.key for entry in reversed(self.unsplittable())}
        return [entry for entry in self.keys.values() if staying.get(entry.partition) != entry.key]

    def shift(self, moves: Iterable[KeyMove]) -> dict[int, float]:
        """Busy seconds of each partition after these keys moved."""
        load_s = dict(self.loads)
        for move in moves:
            busy_s = self.keys[move.key].busy_s
            load_s[move.source] = max(0.0, load_s[move.source] - busy_s)
            load_s[move.target] += busy_s
        return load_s

    def peak_s(self, loads: Mapping[int, float], placement: Mapping[int, str]) -> float:
        """Busy seconds of the hottest core, from the hottest executor or the busiest partition.

        This is an optimistic estimate of how long the tasks of a batch take.
        """
        busy_s = dict(self.base_s)
        for partition, load_s in loads.items():
            busy_s[placement[partition]] += load_s
        hottest_s = max(busy_s[executor] / cores for executor, cores in self.executors.items())
        return max(hottest_s, max(loads.values(), default=0.0))

    def bound_s(self) -> float:
        """A lower bound on the hottest core's busy seconds, for any assignment and placement.

        The first bound is a relaxation: every movable key, and the rest of every partition, may run
        on any executor. The other bounds hold because one core runs the busiest partition. It is at
        least as heavy as the heaviest key plus the lightest rest, as the heaviest rest, and as the
        mean of all partitions.
        """
        movable = self.movable()
        rest_s = dict(self.loads)
        for entry in movable:
            rest_s[entry.partition] = max(0.0, rest_s[entry.partition] - entry.busy_s)
        apart = dict(enumerate([*rest_s.values(), *(entry.busy_s for entry in movable)]))
        spread = measure_imbalance(apart, {}, self.executors, self.base_s).bound
        heaviest_s = max((entry.busy_s for entry in movable), default=0.0)
        lightest_rest_s = min(rest_s.values(), default=0.0)
        return max(
            spread * self.mean_s,
            heaviest_s + lightest_rest_s,
            max(rest_s.values(), default=0.0),
            sum(self.loads.values()) / max(1, len(self.loads)),
        )


def assign(
    keys: Iterable[KeyLoad],
    loads: Mapping[int, float],
    placement: Mapping[int, str],
    executors: Mapping[str, int],
    thresholds: Thresholds = Thresholds(),  # noqa: B008 - it is frozen
    *,
    state_bytes: Mapping[int, int] | None = None,
    move_cost_s: Mapping[int, float] | None = None,
    base_s: Mapping[str, float] = MappingProxyType({}),
    scatter: float = 0.0,
) -> AssignmentDecision:
    """Find the key moves that bring the imbalance close to its bound, or the reason to make none.

    Keys move only if the imbalance is above `act_above` and above `stop_at` times the bound, and
    placement alone cannot change that. As few keys move as bring the imbalance down to `stop_at`
    times the bound. If no number of keys can, the keys that lower it most move. Together the key
    moves must save more than chance explains, and:

    - at least `min_gain` of the load that placement alone leaves on the hottest core;
    - more time in `horizon_batches` than the handoff of their state takes. Executors take over
      state in parallel, so the executor that takes longest counts.

    The caller obeys `BalancePolicy.mode`.

    A sketch may overestimate. If the keys of a partition seem to cost more than the partition, they
    share the cost of the partition.

    The result depends only on the values, not on the order of keys or of a mapping. `keys` are the
    hot keys, each once; the loads of partitions include them. All other arguments are as for
    `diminish`.

    Raises:
        InvalidInputError: a key appears twice or is in an unknown partition, a cost is negative or
            not finite, or `diminish` refuses a value; the message names the value.

    >>> hot = [KeyLoad("de", 0, busy_s=4.0), KeyLoad("fr", 0, busy_s=3.0)]
    >>> loads, placement = {0: 7.0, 1: 0.5, 2: 0.5}, {0: "a", 1: "b", 2: "b"}
    >>> decision = assign(hot, loads, placement, {"a": 1, "b": 1})
    >>> decision.moves
    (KeyMove(key='fr', source=0, target=1),)
    >>> decision.reason
    '1 key move: imbalance 1.75 → 1.00 (bound 1.00), placement alone would leave 1.75'
    """
    placed = _after(placement, place_orphans(loads, placement, executors, base_s))
    problem = _set_up(keys, loads, placed, executors, base_s)

    def level(moves: Sequence[KeyMove], thresholds: Thresholds, scatter: float) -> _Outcome:
        """The placement for the loads after some key moves."""
        changed = problem.shift(moves)
        balance = diminish(
            changed,
            placement,
            executors,
            thresholds,
            state_bytes=state_bytes,
            move_cost_s=move_cost_s,
            base_s=base_s,
            scatter=scatter,
        )
        then = _after(placement, balance.moves)
        return _Outcome(moves, balance, then, problem.peak_s(changed, then))

    chosen, outcome = _choose(problem, thresholds, level, scatter)
    unsplittable = problem.unsplittable()
    mean_s, cores = problem.mean_s, executors.values()
    # In units of the mean load of a core; below it becomes a share of all load, or of an executor.
    heaviest = unsplittable[0].busy_s / mean_s if unsplittable else 0.0
    before_s = problem.peak_s(problem.loads, problem.placement)
    return AssignmentDecision(
        moves=tuple(chosen.moves),
        balance=chosen.balance,
        imbalance_before=before_s / mean_s if mean_s else 1.0,
        imbalance_after=chosen.peak_s / mean_s if mean_s else 1.0,
        bound=problem.bound_s() / mean_s if mean_s else 1.0,
        unsplittable=tuple(entry.key for entry in unsplittable),
        outcome=outcome,
        heaviest=heaviest / sum(cores),
        heaviest_load=heaviest / max(cores),
    )


def measure_keys(
    samples: Iterable[KeySample], batches: Sequence[int], handoff_s: float
) -> list[KeyLoad]:
    """The mean load of one operator's hot keys over a measuring window.

    A key counts as 0 in a batch without a sample of it, because it was not hot there.

    Args:
        samples: samples of the operator in any order; batches outside the window do not count.
        batches: numbers of the batches in the window, as in `OperatorLoad.batches`.
        handoff_s: mean seconds of the handoff of one key.

    Returns:
        Each key once, in the order of their text, in its newest partition.

    >>> samples = [KeySample("q", 0, "de", 0, 7, 1.0), KeySample("q", 0, "de", 0, 8, 2.0)]
    >>> measure_keys(samples, (5, 6, 7, 8), handoff_s=0.5)
    [KeyLoad(key='de', partition=0, busy_s=0.75, handoff_s=0.5)]
    """
    by_key: defaultdict[str, list[KeySample]] = defaultdict(list)
    for sample in samples:
        if sample.batch in batches:
            by_key[sample.key].append(sample)
    return [
        KeyLoad(
            key,
            # Both partitions report a key in the batch in which it arrives.
            max(found, key=lambda sample: (sample.batch, sample.busy_s)).partition,
            math.fsum(sample.busy_s for sample in found) / len(batches),
            handoff_s,
        )
        for key, found in sorted(by_key.items())
    ]


def _choose(
    problem: _Problem,
    thresholds: Thresholds,
    level: Callable[[Sequence[KeyMove], Thresholds, float], _Outcome],
    scatter: float,
) -> tuple[_Outcome, str]:
    """Choose what to move, and give the reason in words.

    Without key moves, the placement follows `thresholds`.
    """
    mean_s = problem.mean_s
    usual = level((), thresholds, scatter)
    if not mean_s:
        return usual, "no key moves: no partition was busy"
    if not problem.keys:
        return usual, "no key moves: no hot key is known"
    before_s, bound_s = problem.peak_s(problem.loads, problem.placement), problem.bound_s()
    stop_at = max(thresholds.stop_at, 1 + RESOLUTION)
    aim_s = stop_at * bound_s * (1 + ROUNDING)
    before, bound = f"{before_s / mean_s:.2f}", f"bound {bound_s / mean_s:.2f}"
    if before_s <= thresholds.act_above * mean_s * (1 + ROUNDING):
        return usual, f"no key moves: imbalance {before} is not above {thresholds.act_above:.2f}"
    if before_s <= aim_s:
        return usual, f"no key moves: imbalance {before} is within {stop_at:.4g} x the {bound}"
    chance_s = mean_s * estimate_chance(scatter, len(problem.executors))
    if before_s - bound_s <= chance_s:
        return usual, f"no key moves: imbalance {before} ({bound}) may be chance"

    # Half of the tolerance is for placement: partitions cannot be as even as keys allow.
    even = replace(thresholds, act_above=0.0, stop_at=(1 + stop_at) / 2, min_gain=0.0)
    alone = usual if usual.peak_s <= aim_s else min(usual, level((), even, 0.0), key=_peak)
    left = f"{alone.peak_s / mean_s:.2f}"
    if alone.peak_s <= aim_s:
        return alone, f"no key moves: placement alone brings imbalance {before} → {left} ({bound})"
    best = _search(_part(problem, thresholds, aim_s), lambda moves: level(moves, even, 0.0), aim_s)
    best = _spare(problem, best, lambda moves: level(moves, even, 0.0), aim_s)
    objection = _weigh_up(problem, best, alone, thresholds, chance_s)
    if objection:
        return usual, f"no key moves: {objection}"
    after = f"{best.peak_s / mean_s:.2f}"
    reason = (
        f"{describe_count(len(best.moves), 'key move')}: imbalance {before} → {after} ({bound}), "
        f"placement alone would leave {left}"
    )
    if best.peak_s > aim_s:
        reason += f"; above {stop_at:.4g} x the bound, but no further key move lowers it"
    return best, reason


def _part(problem: _Problem, thresholds: Thresholds, aim_s: float) -> list[KeyMove]:
    """Split the heaviest partitions, step by step, as long as a move makes them lighter.

    A key goes to the coldest executor. If it is too heavy for a core there, it goes to the lightest
    partition of all, for which placement can find an executor. Each key moves at most once. The
    first n moves are a sensible assignment for any n.
    """
    load_s = dict(problem.loads)
    busy_s = dict(problem.base_s)
    held: defaultdict[str, list[int]] = defaultdict(list)
    for partition, executor in problem.placement.items():
        busy_s[executor] += load_s[partition]
        held[executor].append(partition)
    waiting: defaultdict[int, list[KeyLoad]] = defaultdict(list)
    for entry in problem.movable():
        if entry.busy_s * thresholds.horizon_batches > entry.handoff_s:
            waiting[entry.partition].append(entry)
    moves = []
    while waiting and len(load_s) > 1:
        source = max(waiting, key=lambda p: (load_s[p], -p))
        others = [executor for executor in held if held[executor] != [source]]
        coldest = min(others, key=lambda e: (busy_s[e] / problem.executors[e], e))
        near = min((load_s[p], p) for p in held[coldest] if p != source)[1]
        light = min((load_s[p], p) for p in load_s if p != source)[1]
        offers = []
        for entry in waiting[source]:
            target = near if load_s[near] + entry.busy_s <= aim_s else light
            heavier_s = max(load_s[source] - entry.busy_s, load_s[target] + entry.busy_s)
            offers.append((heavier_s, entry.handoff_s, entry.key, entry, target))
        heavier_s, _, _, best, target = min(offers)
        if heavier_s >= load_s[source] * (1 - ROUNDING):
            del waiting[source]
            continue
        waiting[source].remove(best)
        if not waiting[source]:
            del waiting[source]
        for partition, change_s in ((source, -best.busy_s), (target, best.busy_s)):
            load_s[partition] += change_s
            busy_s[problem.placement[partition]] += change_s
        moves.append(KeyMove(best.key, source, target))
    return moves


def _search(
    moves: Sequence[KeyMove], level: Callable[[Sequence[KeyMove]], _Outcome], aim_s: float
) -> _Outcome:
    """Find how many first moves reach the aim: the fewest, or those with the lowest peak.

    Balancing is expensive, so the search tries 1, 2, 4, ... moves, then numbers in between.
    """
    outcomes: dict[int, _Outcome] = {}

    def reaches(count: int) -> bool:
        outcomes[count] = level(moves[:count])
        return outcomes[count].peak_s <= aim_s

    few, many = 0, min(1, len(moves))
    while not reaches(many) and many < len(moves):
        few, many = many, min(2 * many, len(moves))
    if outcomes[many].peak_s > aim_s:
        return min(outcomes.values(), key=_peak)
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if reaches(middle) else (middle, many)
    return outcomes[many]


def _spare(
    problem: _Problem, best: _Outcome, level: Callable[[Sequence[KeyMove]], _Outcome], aim_s: float
) -> _Outcome:
    """Take back moves, of the lightest key first, as long as the peak stays as low without them."""
    limit_s = max(aim_s, best.peak_s)
    kept = list(best.moves)
    for move in sorted(kept, key=lambda move: (problem.keys[move.key].busy_s, move.key)):
        fewer = [other for other in kept if other is not move]
        if problem.peak_s(problem.shift(fewer), best.placement) <= limit_s:
            kept = fewer
    spared = best if len(kept) == len(best.moves) else level(kept)
    return spared if spared.peak_s <= limit_s else best


def _weigh_up(
    problem: _Problem, best: _Outcome, alone: _Outcome, thresholds: Thresholds, chance_s: float
) -> str:
    """Why the best key moves are not worth it; empty if they are."""
    saved_s = alone.peak_s - best.peak_s
    left = f"{alone.peak_s / problem.mean_s:.3f}"
    if not best.moves or saved_s <= alone.peak_s * ROUNDING:
        return f"no move that pays off lowers the imbalance {left} that placement alone leaves"
    count = describe_count(len(best.moves), "key move")
    if saved_s < thresholds.min_gain * alone.peak_s:
        return (
            f"{count} could only lower the imbalance {left} to {best.peak_s / problem.mean_s:.3f}, "
            f"by less than {100 * thresholds.min_gain:.3g} %"
        )
    if saved_s < chance_s:
        after = f"{best.peak_s / problem.mean_s:.2f}"
        return f"the gain of {count} from imbalance {left} to {after} may be chance"
    handoff_s: defaultdict[str, float] = defaultdict(float)
    for move in best.moves:
        handoff_s[best.placement[move.target]] += problem.keys[move.key].handoff_s
    if saved_s * thresholds.horizon_batches <= max(handoff_s.values()):
        return (
            f"{count} would save {saved_s:.3g} s a batch, too little to earn back the handoff "
            f"of state in {describe_count(thresholds.horizon_batches, 'batch', 'batches')}"
        )
    return ""


def _peak(outcome: _Outcome) -> tuple[float, int]:
    return outcome.peak_s, len(outcome.moves)


def _after(placement: Mapping[int, str], moves: Iterable[Move]) -> dict[int, str]:
    """The executor of every partition after the moves, sorted by partition."""
    targets = {move.partition: move.target for move in moves}
    return dict(sorted((dict(placement) | targets).items()))


def _set_up(
    keys: Iterable[KeyLoad],
    loads: Mapping[int, float],
    placement: Mapping[int, str],
    executors: Mapping[str, int],
    base_s: Mapping[str, float],
) -> _Problem:
    """Check the keys; scale the keys of a partition down if they cost more than the partition."""
    loads = {partition: loads.get(partition, 0.0) for partition in placement}
    entries: dict[str, KeyLoad] = {}
    claimed_s: defaultdict[int, list[float]] = defaultdict(list)
    for entry in keys:
        if entry.key in entries:
            message = f"keys: {entry.key!r} appears twice"
            raise InvalidInputError(message)
        if entry.partition not in loads:
            message = f"keys: {entry.key!r} is in partition {entry.partition}, which is unknown"
            raise InvalidInputError(message)
        for field, value in (("busy_s", entry.busy_s), ("handoff_s", entry.handoff_s)):
            if not 0 <= value < math.inf:
                message = f"keys: {field} of {entry.key!r} must be 0 or more, not {value}"
                raise InvalidInputError(message)
        entries[entry.key] = entry
        claimed_s[entry.partition].append(entry.busy_s)
    for key, entry in entries.items():
        claimed, load_s = math.fsum(claimed_s[entry.partition]), loads[entry.partition]
        if claimed > load_s:
            entries[key] = replace(entry, busy_s=entry.busy_s * load_s / claimed)
    stays_s = {executor: base_s.get(executor, 0.0) for executor in sorted(executors)}
    return _Problem(dict(sorted(entries.items())), loads, placement, executors, stays_s)
