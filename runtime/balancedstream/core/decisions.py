"""One decision about one application, the same embedded in the driver and in Kubernetes.

The number of executors is decided first, because it needs no placement. Then partitions and keys
are placed once, on the executors that stay or come. So what a decision says is what its plan does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from balancedstream.core.balance.hotspots import (
    BalanceDecision,
    Move,
    Thresholds,
    describe_count,
    diminish,
)
from balancedstream.core.balance.imbalance import ImbalanceMeasurement, measure_imbalance
from balancedstream.core.balance.loads import OperatorLoad, measure
from balancedstream.core.keys.assignments import (
    AssignmentDecision,
    KeyLoad,
    KeyMove,
    assign,
    measure_keys,
)
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Mode, Policy
from balancedstream.core.samples import OperatorId
from balancedstream.core.scaling.executors import ScalingDecision
from balancedstream.core.scaling.executors import decide as decide_scaling
from balancedstream.core.scaling.slots import leave_room, measure_slots
from balancedstream.core.scaling.verdicts import Verdict
from balancedstream.core.scaling.workload import find_current
from balancedstream.core.wire.plan import NEW_EXECUTOR

DecisionKind = Literal["move", "scale", "advise", "limited", "hold", "none"]
"""The outcome of a decision.

`move`: partitions go to another executor. `scale`: the number of executors changes. `advise`: one
of both would happen, but the policy only advises. `limited`: something that neither moves nor
executors change limits the stream, such as a partition that alone exceeds an executor's share.
`hold`: there is a cause to act and a reason to wait. `none`: there is nothing to do.
"""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to move and how many executors to run; every part has its reason.

    Attributes:
        loads: measured load of each operator, by (query, operator).
        imbalance: measured imbalance of each operator on the live executors.
        scaling: how many executors there should be.
        executors: ids of those that the next plan names: the live ones that stay, then those to
            start.
        balance: what the next plan moves to these executors, by (query, operator).
        keys: which keys it places in another state partition, by (query, operator), if keys can
            move; `balance` is decided on the loads after the key moves.
        key_loads: measured load of hot keys, for the operators that have some.
        held: operators with moves that would help and are not made, with the reason.
    """

    loads: Mapping[OperatorId, OperatorLoad]
    imbalance: Mapping[OperatorId, ImbalanceMeasurement]
    scaling: ScalingDecision
    executors: tuple[str, ...]
    balance: Mapping[OperatorId, BalanceDecision]
    keys: Mapping[OperatorId, AssignmentDecision] = field(default_factory=dict)
    key_loads: Mapping[OperatorId, Sequence[KeyLoad]] = field(default_factory=dict)
    held: Mapping[OperatorId, str] = field(default_factory=dict)

    def key_moves(self, operator: OperatorId) -> tuple[KeyMove, ...]:
        """Which keys of an operator go to another state partition; none if its keys cannot move.

        >>> from balancedstream.core.samples import TaskSample
        >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
        >>> decide(Observation(10.0, {"a": 1}, tasks), Policy()).key_moves(("q", 0))
        ()
        """
        assignment = self.keys.get(operator)
        return assignment.moves if assignment else ()

    def list_moves(self, operator: OperatorId) -> tuple[Move | KeyMove, ...]:
        """The moves of partitions and of keys of an operator that is in `balance`.

        >>> from balancedstream.core.samples import TaskSample
        >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(2))
        >>> decide(Observation(10.0, {"a": 1, "b": 1}, tasks), Policy()).list_moves(("q", 0))
        (Move(partition=0, source='a', target='b'),)
        """
        return (*self.balance[operator].moves, *self.key_moves(operator))

    @property
    def moving(self) -> list[OperatorId]:
        """Operators of which a partition or a key moves."""
        return [operator for operator in self.balance if self.list_moves(operator)]

    def describe_reason(self, operator: OperatorId, name_key: Callable[[str], str] = str) -> str:
        """The reason for an operator's keys, if they can move, and for its partitions.

        Args:
            operator: (query, operator) in `balance`.
            name_key: how a key is named, for places where keys must not be seen.

        >>> from balancedstream.core.samples import TaskSample
        >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
        >>> decide(Observation(10.0, {"a": 1, "b": 1}, tasks), Policy()).describe_reason(("q", 0))
        '2 moves: imbalance 2.00 → 1.00 (bound 1.00)'
        """
        reason, assignment = self.balance[operator].reason, self.keys.get(operator)
        return f"{assignment.describe_reason(name_key)}; {reason}" if assignment else reason


def decide(observation: Observation, policy: Policy) -> Decision:
    """Measure, decide on the number of executors, choose them, then place on those.

    Moves are made only where `policy` says so and nothing keeps the operator from new moves; the
    partitions of an executor that is removed always move.

    Raises:
        InvalidInputError: there is no executor, or a measurement is not a number.

    >>> from balancedstream.core.samples import TaskSample
    >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
    >>> decision = decide(Observation(10.0, {"a": 1, "b": 1}, tasks), Policy())
    >>> decision.balance["q", 0].reason
    '2 moves: imbalance 2.00 → 1.00 (bound 1.00)'
    """
    policy = _keep_needed(policy, observation)
    current = find_current(
        observation.batches, observation.now_s, observation.idle_s, observation.running
    )

    def measure_on(executors: Mapping[str, int]) -> dict[OperatorId, OperatorLoad]:
        return measure(
            observation.tasks,
            executors,
            policy,
            observation.now_s,
            observation.hidden,
            current=current,
        )

    live = observation.executors
    loads = measure_on(live)
    scaling = decide_scaling(observation, loads, policy, current)
    if observation.floor_why:
        scaling = replace(scaling, reason=f"{scaling.reason}; at least {observation.floor_why}")
    if observation.excluded:
        scaling = _keep_number(scaling, observation)
    count = scaling.executors if policy.scaling.acts else observation.asked
    held = {executor for holder in observation.holders for executor in holder.held}
    leaving = choose_victims(loads, live, len(live) - count, held)
    staying = {executor: live[executor] for executor in sorted(live) if executor not in leaving}
    room = leave_room(staying, observation.holders)
    new = [f"{NEW_EXECUTOR}{n}" for n in range(1, count - len(staying) + 1)]
    # Those that were asked for before get their share when they join; these get it now.
    grows = count > observation.asked or observation.in_force.stood
    coming = new if live and grows else []
    targets = {**room, **dict.fromkeys(coming, max(live.values(), default=1))}
    loads_then = loads if targets == live else measure_on(targets)
    empty = targets.keys() - _list_used(loads_then)
    placing = _Placing(observation, policy, targets, leaving, empty)
    found = {operator: placing.place(operator, load) for operator, load in loads_then.items()}
    why = observation.in_force.waits or _describe_mode("scaling", policy.scaling.mode)
    if why and scaling.executors != observation.asked:
        scaling = replace(scaling, reason=f"no change: {why} ({scaling.reason})")
    return Decision(
        loads,
        {
            operator: measure_imbalance(load.busy_s, load.placement, live, load.hidden_busy_s)
            for operator, load in loads.items()
        },
        scaling,
        (*staying, *new),
        {operator: placed.balance for operator, placed in found.items()},
        {operator: placed.keys for operator, placed in found.items() if placed.keys},
        {operator: placed.key_loads for operator, placed in found.items() if placed.key_loads},
        {operator: placed.held for operator, placed in found.items() if placed.held},
    )


def foresee(observation: Observation, policy: Policy) -> ScalingDecision:
    """How many executors there should be by what was seen before a batch ends, and no placement.

    >>> foresee(Observation(10.0, {"a": 1}), Policy()).executors
    1
    """
    policy = _keep_needed(policy, observation)
    current = find_current(
        observation.batches, observation.now_s, observation.idle_s, observation.running
    )
    return decide_scaling(observation, {}, policy, current)


class _Placed(NamedTuple):
    """What is decided on one operator, and why moves that would help are not made."""

    balance: BalanceDecision
    keys: AssignmentDecision | None
    key_loads: Sequence[KeyLoad]
    held: str


@dataclass(frozen=True, slots=True)
class _Placing:
    """Places operators on the executors that stay or come.

    Attributes:
        observation: the input of the decision.
        policy: of the decision.
        targets: executors to place on, id to cores; those to start count as if they were there.
        leaving: live executors that are removed.
        empty: those of `targets` that have no partition.
    """

    observation: Observation
    policy: Policy
    targets: Mapping[str, int]
    leaving: Collection[str]
    empty: Collection[str]

    def place(self, operator: OperatorId, load: OperatorLoad) -> _Placed:
        """Decides on an operator's keys and partitions."""
        seen = self.observation
        move_cost_s = {
            partition: seen.restore_cost.estimate_s(size)
            for partition, size in load.state_bytes.items()
            if operator not in seen.prepared
        }
        samples = [k for k in seen.keys if (k.query, k.operator) == operator]
        measured = measure_keys(samples, load.batches, seen.restore_cost.key_s)
        # Of a hidden partition nobody knows what it would cost without the key.
        key_loads = [key for key in measured if key.partition in load.busy_s]
        refused = seen.in_force.refused_keys
        movable = [key for key in key_loads if (operator[0], key.key) not in refused]
        balancing = self.policy.balance
        thresholds = Thresholds(balancing.act_above, balancing.horizon_batches)
        keys: AssignmentDecision | None = None
        if samples and not seen.excluded:
            keys = assign(
                movable,
                load.busy_s,
                load.placement,
                self.targets,
                thresholds,
                state_bytes=load.state_bytes,
                move_cost_s=move_cost_s,
                base_s=load.hidden_busy_s,
                scatter=load.scatter,
            )
            balance = keys.balance
        else:
            balance = diminish(
                load.busy_s,
                load.placement,
                self.targets,
                thresholds,
                state_bytes=load.state_bytes,
                move_cost_s=move_cost_s,
                base_s=load.hidden_busy_s,
                scatter=load.scatter,
            )
        if self.targets != seen.executors:
            on = describe_count(len(self.targets), "executor")
            balance = replace(balance, reason=f"{balance.reason}, on {on}")
        why, kept = self._restrict(operator, balance.moves, keys)
        moves_keys = bool(keys and keys.moves)
        if not why or (kept == balance.moves and not moves_keys and not seen.excluded):
            return _Placed(balance, keys, key_loads, "")
        if keys and keys.moves:
            outcome = f"no key moves: {why} ({keys.outcome})"
            keys = replace(keys, moves=(), imbalance_after=keys.imbalance_before, outcome=outcome)
        held = why if moves_keys or kept != balance.moves else ""
        return _Placed(self._keep(balance, kept, why, load), keys, key_loads, held)

    def _restrict(
        self,
        operator: OperatorId,
        moves: tuple[Move, ...],
        keys: AssignmentDecision | None,
    ) -> tuple[str, tuple[Move, ...]]:
        """Why only some of an operator's moves are made, and which; empty, and all, if all are.

        The partitions of a removed executor must go, even without balancing. In an excluded period,
        those of a lost executor need a place, too; and an executor without any partition takes the
        place of a lost one, or was asked for before: it gets its share, for otherwise the stream
        would be short of it until the period is over.
        """
        excluded, before = self.observation.excluded, self.observation.in_force
        if before.waits:
            return before.waits, ()
        under_way = before.under_way.get(operator, {})
        why = _describe_mode("balancing", self.policy.balance.mode)
        if operator in before.under_way:
            why = "moves of the plan before are under way"
        elif keys and keys.moves and operator[0] in before.settling:
            # The moves of partitions fit the load after the key moves.
            why = "keys of the plan before are under way"
        if why:
            leaving = [m for m in moves if under_way.get(m.partition, m.source) in self.leaving]
            return why, tuple(leaving)
        if excluded:
            urgent = [m for m in moves if m.source not in self.targets or m.target in self.empty]
            return excluded, tuple(urgent)
        return "", moves

    def _keep(
        self, balance: BalanceDecision, kept: tuple[Move, ...], why: str, load: OperatorLoad
    ) -> BalanceDecision:
        """A decision with some of its moves only."""
        after = load.placement | {move.partition: move.target for move in kept}
        level = measure_imbalance(load.busy_s, after, self.targets, load.hidden_busy_s)
        said = f"{describe_count(len(kept), 'move')} that cannot wait" if kept else "no change"
        return replace(
            balance,
            moves=kept,
            imbalance_after=level.imbalance,
            reason=f"{said}: {why} ({balance.reason})",
        )


def _list_used(loads: Mapping[OperatorId, OperatorLoad]) -> set[str]:
    """Executors that have a partition, hidden or not."""
    used: set[str] = set()
    for load in loads.values():
        used |= {*load.placement.values()} | {e for e, s in load.hidden_busy_s.items() if s > 0.0}
    return used


def _describe_mode(what: str, mode: Mode) -> str:
    """Why a mode changes nothing; empty if it acts."""
    return {"auto": "", "advise": "the policy only advises", "off": f"{what} is off"}[mode]


def choose_victims(
    loads: Mapping[OperatorId, OperatorLoad],
    executors: Collection[str],
    count: int,
    held: Collection[str] = frozenset(),
) -> list[str]:
    """The `count` executors with the least state, hidden or not; none if `count` is below 1.

    Those of which a query holds slots (`held`) come last: they go later, or never.

    >>> load = OperatorLoad((1,), {}, {}, {0: 90, 1: 10}, {0: "a", 1: "b"}, {})
    >>> choose_victims({("q", 0): load}, ["a", "b"], 1)
    ['b']
    """
    state_bytes = dict.fromkeys(executors, 0)
    for load in loads.values():
        for partition, executor in load.placement.items():
            if executor in state_bytes:
                state_bytes[executor] += load.state_bytes.get(partition, 0)
        for executor, size in load.hidden_state_bytes.items():
            if executor in state_bytes:
                state_bytes[executor] += size
    return sorted(state_bytes, key=lambda e: (e in held, state_bytes[e], e))[: max(0, count)]


def raise_minimum(policy: Policy, floor: int) -> Policy:
    """The policy with at least so many executors, as far as their maximum allows.

    Args:
        policy: of a stream or an application.
        floor: the least number that is asked for from outside; 0 for none.

    >>> from balancedstream.core.policy import ScalingPolicy
    >>> raise_minimum(Policy(scaling=ScalingPolicy(max_executors=4)), 9).scaling.min_executors
    4
    """
    limits = policy.scaling
    least = min(max(limits.min_executors, floor), max(limits.max_executors, limits.min_executors))
    if least == limits.min_executors:
        return policy
    return replace(policy, scaling=replace(limits, min_executors=least))


def _keep_needed(policy: Policy, observation: Observation) -> Policy:
    """The policy with the executors that are asked for from outside, or hold slots."""
    need = measure_slots(observation)
    # If slots are missing, scaling adds them and says so.
    held = need.executors if need and need.is_met else 0
    return raise_minimum(policy, max(observation.floor, held))


def _keep_number(scaling: ScalingDecision, observation: Observation) -> ScalingDecision:
    asked = observation.asked
    changes = scaling.executors != asked
    return replace(
        scaling,
        executors=asked,
        verdict=Verdict.HOLD if changes else scaling.verdict,
        reason=f"no change: {observation.excluded} ({scaling.reason})",
        limited=scaling.limited and not changes,
        scale_out=None if changes else scaling.scale_out,
    )
