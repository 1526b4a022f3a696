"""One decision about one application, the same embedded in the driver and in Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from balancedstream.core.balance.hotspots import BalanceDecision, Thresholds, diminish
from balancedstream.core.balance.loads import OperatorLoad, measure, prune
from balancedstream.core.keys.assignments import (
    AssignmentDecision,
    KeyLoad,
    KeyMove,
    assign,
    measure_keys,
)
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy
from balancedstream.core.samples import OperatorId
from balancedstream.core.scaling.executors import ScalingDecision, Verdict
from balancedstream.core.scaling.executors import decide as decide_scaling
from balancedstream.core.scaling.workload import find_current

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
        balance: what to move, by (query, operator).
        scaling: how many executors there should be.
        keys: which keys go to another state partition, by (query, operator), if keys can move;
            `balance` is then decided on the loads after the key moves.
        key_loads: measured load of hot keys, for the operators in `keys`.
    """

    loads: Mapping[OperatorId, OperatorLoad]
    balance: Mapping[OperatorId, BalanceDecision]
    scaling: ScalingDecision
    keys: Mapping[OperatorId, AssignmentDecision] = field(default_factory=dict)
    key_loads: Mapping[OperatorId, Sequence[KeyLoad]] = field(default_factory=dict)

    def key_moves(self, operator: OperatorId) -> tuple[KeyMove, ...]:
        """Which keys of an operator go to another state partition; none if its keys cannot move.

        >>> from balancedstream.core.samples import TaskSample
        >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
        >>> decide(Observation(10.0, {"a": 1}, tasks), Policy()).key_moves(("q", 0))
        ()
        """
        assignment = self.keys.get(operator)
        return assignment.moves if assignment else ()

    def moves_any(self, operator: OperatorId) -> bool:
        """Whether it moves a partition or a key of an operator that is in `balance`.

        >>> from balancedstream.core.samples import TaskSample
        >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
        >>> decide(Observation(10.0, {"a": 1}, tasks), Policy()).moves_any(("q", 0))
        False
        """
        return bool(self.balance[operator].moves or self.key_moves(operator))

    def say_why(self, operator: OperatorId, name_key: Callable[[str], str] = str) -> str:
        """The reason for an operator's keys, if they can move, and for its partitions.

        Args:
            operator: (query, operator) in `balance`.
            name_key: how a key is named, for places where keys must not be seen.

        >>> from balancedstream.core.samples import TaskSample
        >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
        >>> decide(Observation(10.0, {"a": 1, "b": 1}, tasks), Policy()).say_why(("q", 0))
        '2 moves: imbalance 2.00 → 1.00 (bound 1.00)'
        """
        reason, assignment = self.balance[operator].reason, self.keys.get(operator)
        return f"{assignment.say_why(name_key)}; {reason}" if assignment else reason


def decide(observation: Observation, policy: Policy) -> Decision:
    """Measure, then decide on keys and placement of each operator, then on executors.

    Raises:
        InvalidInputError: there is no executor, or a measurement is not a number.

    >>> from balancedstream.core.samples import TaskSample
    >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
    >>> decision = decide(Observation(10.0, {"a": 1, "b": 1}, tasks), Policy())
    >>> decision.balance["q", 0].reason
    '2 moves: imbalance 2.00 → 1.00 (bound 1.00)'
    """
    policy = raise_minimum(policy, observation.floor)
    current = find_current(
        observation.batches, observation.now_s, observation.idle_s, observation.running
    )
    loads = measure(
        observation.tasks,
        observation.executors,
        policy,
        observation.now_s,
        observation.hidden,
        current=current,
    )
    thresholds = Thresholds(policy.balance.act_above, policy.balance.horizon_batches)
    balance: dict[OperatorId, BalanceDecision] = {}
    keys: dict[OperatorId, AssignmentDecision] = {}
    key_loads: dict[OperatorId, Sequence[KeyLoad]] = {}
    for operator, load in loads.items():
        move_cost_s = {
            partition: observation.restore_cost.estimate_s(size)
            for partition, size in load.state_bytes.items()
            if operator not in observation.prepared
        }
        samples = [k for k in observation.keys if (k.query, k.operator) == operator]
        if samples:
            found = measure_keys(samples, load.batches, observation.restore_cost.key_s)
            # Of a hidden partition nobody knows what it would cost without the key.
            key_loads[operator] = [key for key in found if key.partition in load.busy_s]
        if samples and not observation.excluded:
            keys[operator] = assign(
                key_loads[operator],
                load.busy_s,
                load.placement,
                observation.executors,
                thresholds,
                state_bytes=load.state_bytes,
                move_cost_s=move_cost_s,
                base_s=load.hidden_busy_s,
                scatter=load.scatter,
            )
            balance[operator] = keys[operator].balance
        else:
            balance[operator] = diminish(
                load.busy_s,
                load.placement,
                observation.executors,
                thresholds,
                state_bytes=load.state_bytes,
                move_cost_s=move_cost_s,
                base_s=load.hidden_busy_s,
                scatter=load.scatter,
            )
    scaling = decide_scaling(
        observation.batches,
        loads,
        observation.executors,
        policy,
        now_s=observation.now_s,
        stages=prune(observation.stages, policy, observation.now_s, current),
        last_scale_out=observation.last_scale_out,
        idle_s=observation.idle_s,
        current=current,
        requested=observation.requested,
        last_change_s=observation.last_scaled_s,
        missing=observation.missing,
    )
    if observation.floor_why:
        scaling = replace(scaling, reason=f"{scaling.reason}; at least {observation.floor_why}")
    if observation.excluded:
        balance = _keep_places(balance, loads, observation)
        scaling = _keep_number(scaling, observation)
    return Decision(loads, balance, scaling, keys, key_loads)


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


def _keep_places(
    balance: Mapping[OperatorId, BalanceDecision],
    loads: Mapping[OperatorId, OperatorLoad],
    observation: Observation,
) -> dict[OperatorId, BalanceDecision]:
    """Without the moves that can wait: what a lost executor had needs a place all the same.

    An executor without any partition takes the place of a lost one, or was asked for before: it
    gets its share, for otherwise the stream would be short of it until the period is over.
    """
    used: set[str] = set()
    for load in loads.values():
        used |= {*load.placement.values()} | {e for e, s in load.hidden_busy_s.items() if s > 0.0}
    empty = observation.executors.keys() - used
    return {
        operator: replace(
            found,
            moves=tuple(
                move
                for move in found.moves
                if move.source not in observation.executors or move.target in empty
            ),
            reason=f"no change: {observation.excluded} ({found.reason})",
        )
        for operator, found in balance.items()
    }


def _keep_number(scaling: ScalingDecision, observation: Observation) -> ScalingDecision:
    asked = observation.asked
    changes = scaling.executors != asked
    return replace(
        scaling,
        executors=asked,
        verdict=Verdict.HOLD if changes else scaling.verdict,
        reason=f"no change: {observation.excluded} ({scaling.reason})",
        limited=scaling.limited and not changes,
        scale_out=observation.last_scale_out if changes else scaling.scale_out,
    )
