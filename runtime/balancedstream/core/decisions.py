"""One decision about one application, the same embedded in the driver and in Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar

from balancedstream.core.assignments import (
    AssignmentDecision,
    KeyLoad,
    KeyMove,
    assign,
    measure_keys,
)
from balancedstream.core.hotspots import BalanceDecision, diminish
from balancedstream.core.loads import OperatorLoad, measure, prune
from balancedstream.core.observations import (
    BatchSample,
    HiddenSample,
    KeySample,
    StageSample,
    TaskSample,
)
from balancedstream.core.policy import Policy
from balancedstream.core.restoring import RestoreCost
from balancedstream.core.scaling import ScaleOut, ScalingDecision
from balancedstream.core.scaling import decide as decide_scaling
from balancedstream.errors import InvalidInputError

DecisionKind = Literal["move", "scale", "limited", "hold", "none"]
"""The outcome of a decision.

`move`: partitions go to another executor. `scale`: the number of executors changes.
`limited`: something that neither moves nor executors change limits the stream, such as a partition
that alone exceeds an executor's share. `hold`: there is a cause to act and
a reason to wait. `none`: there is nothing to do.
"""


@dataclass(frozen=True, slots=True)
class Observation:
    """The input of one decision.

    Attributes:
        now_s: the decision's clock, seconds since the Unix epoch.
        executors: live executors that take work, id to cores.
        tasks: samples of the measuring window, any order.
        batches: batches of the scaling window, any order.
        restore_cost: what the restore of moved state costs.
        requested: executors requested, while not all of them are live; None when they are.
        last_scaled_s: time of the last change of the number of executors; None for never.
        last_scale_out: what the last added executors should bring; None if none were added.
        missing: number of measurements in a row that failed.
        keys: samples of hot keys in the measuring window, any order; none for operators whose keys
            cannot move.
        stages: all tasks of the batches in the measuring window, by kind of stage, any order.
        idle_s: query to the time at which Spark last said that it waits for data.
        hidden: samples of the partitions that have none in `tasks`, any order; none if all have.
        prepared: (query, operator) of those whose moves cost a batch nothing, because the target
            loads the state beforehand.
    """

    now_s: float
    executors: Mapping[str, int]
    tasks: tuple[TaskSample, ...] = ()
    batches: tuple[BatchSample, ...] = ()
    restore_cost: RestoreCost = RestoreCost()  # noqa: RUF009 - frozen
    requested: int | None = None
    last_scaled_s: float | None = None
    missing: int = 0
    keys: tuple[KeySample, ...] = ()
    stages: tuple[StageSample, ...] = ()
    last_scale_out: ScaleOut | None = None
    idle_s: Mapping[str, float] = field(default_factory=dict)
    hidden: tuple[HiddenSample, ...] = ()
    prepared: tuple[tuple[str, int], ...] = ()

    @property
    def asked(self) -> int:
        """Number of executors, counting the requested ones that are not live yet."""
        return len(self.executors) if self.requested is None else self.requested

    def to_json(self) -> str:
        """One line of JSON that `parse_observation` reads.

        >>> observation = Observation(5.0, {"0": 1})
        >>> parse_observation(observation.to_json()) == observation
        True
        """
        return json.dumps(asdict(self), separators=(",", ":"))


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

    loads: Mapping[tuple[str, int], OperatorLoad]
    balance: Mapping[tuple[str, int], BalanceDecision]
    scaling: ScalingDecision
    keys: Mapping[tuple[str, int], AssignmentDecision] = field(default_factory=dict)
    key_loads: Mapping[tuple[str, int], Sequence[KeyLoad]] = field(default_factory=dict)

    def key_moves(self, operator: tuple[str, int]) -> tuple[KeyMove, ...]:
        """Which keys of an operator go to another state partition; none if its keys cannot move.

        >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
        >>> decide(Observation(10.0, {"a": 1}, tasks), Policy()).key_moves(("q", 0))
        ()
        """
        assignment = self.keys.get(operator)
        return assignment.moves if assignment else ()

    def moves_any(self, operator: tuple[str, int]) -> bool:
        """Whether it moves a partition or a key of an operator that is in `balance`.

        >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
        >>> decide(Observation(10.0, {"a": 1}, tasks), Policy()).moves_any(("q", 0))
        False
        """
        return bool(self.balance[operator].moves or self.key_moves(operator))

    def say_why(self, operator: tuple[str, int], name_key: Callable[[str], str] = str) -> str:
        """The reason for an operator's keys, if they can move, and for its partitions.

        Args:
            operator: (query, operator) in `balance`.
            name_key: how a key is named, for places where keys must not be seen.

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

    >>> tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, 0, 9.0) for p in range(4))
    >>> decision = decide(Observation(10.0, {"a": 1, "b": 1}, tasks), Policy())
    >>> decision.balance["q", 0].reason
    '2 moves: imbalance 2.00 → 1.00 (bound 1.00)'
    """
    loads = measure(
        observation.tasks,
        observation.executors,
        policy.window,
        observation.now_s,
        observation.hidden,
    )
    balance: dict[tuple[str, int], BalanceDecision] = {}
    keys: dict[tuple[str, int], AssignmentDecision] = {}
    key_loads: dict[tuple[str, int], Sequence[KeyLoad]] = {}
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
            keys[operator] = assign(
                key_loads[operator],
                load.busy_s,
                load.placement,
                observation.executors,
                policy.balance,
                state_bytes=load.state_bytes,
                move_cost_s=move_cost_s,
                base_s=load.hidden_busy_s,
            )
            balance[operator] = keys[operator].balance
        else:
            balance[operator] = diminish(
                load.busy_s,
                load.placement,
                observation.executors,
                policy.balance,
                state_bytes=load.state_bytes,
                move_cost_s=move_cost_s,
                base_s=load.hidden_busy_s,
            )
    scaling = decide_scaling(
        observation.batches,
        loads,
        observation.executors,
        policy,
        now_s=observation.now_s,
        stages=prune(observation.stages, policy.window, observation.now_s),
        last_scale_out=observation.last_scale_out,
        idle_s=observation.idle_s,
        requested=observation.requested,
        last_change_s=observation.last_scaled_s,
        missing=observation.missing,
    )
    return Decision(loads, balance, scaling, keys, key_loads)


_Record = TypeVar(
    "_Record",
    TaskSample,
    HiddenSample,
    BatchSample,
    KeySample,
    StageSample,
    RestoreCost,
    ScaleOut,
)


def parse_observation(text: str) -> Observation:
    """Reads what `Observation.to_json` wrote.

    Raises:
        InvalidInputError: this is no JSON, or a field is missing, unknown or of the wrong type; the
            message names it.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        message = f"observation: not JSON ({error})"
        raise InvalidInputError(message) from error
    if not isinstance(content, dict):
        message = f"observation: must be a JSON object, not {type(content).__name__}"
        raise InvalidInputError(message)
    known = {f.name for f in fields(Observation)}
    for name in content:
        if name not in known:
            message = f"observation.{name}: unknown; known are {', '.join(sorted(known))}"
            raise InvalidInputError(message)
    for name in ("now_s", "executors"):
        if name not in content:
            message = f"observation.{name}: missing"
            raise InvalidInputError(message)
    content["tasks"] = _parse_each(TaskSample, content.get("tasks", []), "tasks")
    content["batches"] = _parse_each(BatchSample, content.get("batches", []), "batches")
    content["keys"] = _parse_each(KeySample, content.get("keys", []), "keys")
    content["stages"] = _parse_each(StageSample, content.get("stages", []), "stages")
    if content.get("last_scale_out") is not None:
        content["last_scale_out"] = _parse(ScaleOut, content["last_scale_out"], "last_scale_out")
    content["hidden"] = _parse_each(HiddenSample, content.get("hidden", []), "hidden")
    content["prepared"] = _parse_operators(content.get("prepared", []))
    if "restore_cost" in content:
        content["restore_cost"] = _parse(RestoreCost, content["restore_cost"], "restore_cost")
    executors = content["executors"]
    if not isinstance(executors, dict) or not all(type(c) is int for c in executors.values()):
        message = "observation.executors: must map executor ids to whole numbers of cores"
        raise InvalidInputError(message)
    if not isinstance(content["now_s"], int | float):
        message = f"observation.now_s: must be a number, not {content['now_s']!r}"
        raise InvalidInputError(message)
    return Observation(**content)


def _parse_operators(items: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(items, list):
        message = "observation.prepared: must be a list"
        raise InvalidInputError(message)
    for item in items:
        if not (isinstance(item, list) and [type(part) for part in item] == [str, int]):
            message = f"observation.prepared: must be pairs of query and operator, not {item!r:.80}"
            raise InvalidInputError(message)
    return tuple((query, operator) for query, operator in items)


def _parse_each(kind: type[_Record], items: Any, name: str) -> tuple[_Record, ...]:
    if not isinstance(items, list):
        message = f"observation.{name}: must be a list"
        raise InvalidInputError(message)
    return tuple(_parse(kind, item, f"{name}[{i}]") for i, item in enumerate(items))


def _parse(kind: type[_Record], item: Any, path: str) -> _Record:
    """One record; a JSON integer may stand for a float, nothing else is converted."""
    if not isinstance(item, dict):
        message = f"observation.{path}: must be an object"
        raise InvalidInputError(message)
    accepted: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "int": (int,),
        "float": (int, float),
        "float | None": (int, float, type(None)),
        "bool": (bool,),
        "StageKind": (str,),
        "Mapping[str, float]": (dict,),
    }
    types = {f.name: accepted[str(f.type)] for f in fields(kind)}
    for name, value in item.items():
        if name not in types:
            message = f"observation.{path}.{name}: unknown; known are {', '.join(types)}"
            raise InvalidInputError(message)
        is_bool = isinstance(value, bool)
        if not isinstance(value, types[name]) or is_bool is not (types[name] == (bool,)):
            message = f"observation.{path}.{name}: {value!r} is of the wrong type"
            raise InvalidInputError(message)
    try:
        return kind(**item)
    except TypeError as error:
        message = f"observation.{path}: {error}"
        raise InvalidInputError(message) from error
