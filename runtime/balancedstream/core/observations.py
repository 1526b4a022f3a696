"""Observations: the input of every decision, and their form as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.samples import (
    BatchSample,
    HiddenSample,
    KeySample,
    OperatorId,
    StageSample,
    TaskSample,
)
from balancedstream.core.wire.plan import KeyPlacement
from balancedstream.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class ScaleOut:
    """A scale-out, and what it was expected to bring.

    Attributes:
        at_s: when it was decided, seconds since the Unix epoch.
        before: executors until then.
        after: executors requested.
        rows_per_s: rows that the queries processed per second of batch time until then.
        gain: by what fraction that rate was expected to grow.
        failed: whether it was found to have grown by next to nothing, when all of them were last
            under load.
    """

    at_s: float
    before: int
    after: int
    rows_per_s: float
    gain: float
    failed: bool = False


@dataclass(frozen=True, slots=True)
class PlanInForce:
    """What the next plan takes over from the plan before it.

    Attributes:
        under_way: operators whose last moves have not all arrived, with the target executor of each
            moving partition; they get no new moves.
        settling: queries with keys that have not arrived yet; they get no new key placements.
        key_placements: a key keeps its place until it gets another one, or until a plan has no more
            room and the key is no longer hot.
        refused_keys: (query, key) of keys that the driver cannot place; the plan leaves them out.
        repeat: whether to make a plan even if nothing changes: the last one was refused, or the
            driver does not know how many executors there should be.
        waits: why no plan can be made now, for people; empty if one can.
    """

    under_way: Mapping[OperatorId, Mapping[int, str]] = field(default_factory=dict)
    settling: frozenset[str] = frozenset()
    key_placements: tuple[KeyPlacement, ...] = ()
    refused_keys: frozenset[tuple[str, str]] = frozenset()
    repeat: bool = False
    waits: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """The input of one decision.

    Attributes:
        now_s: time of the decision, in seconds since the Unix epoch.
        executors: live executors that take work, id to cores.
        tasks: samples of the measuring window, any order.
        batches: batches of the scaling window, any order.
        restore_cost: costs of restoring state and moving keys.
        requested: number of requested executors; None if all of them are live.
        last_scaled_s: time of the last change of the number of executors, in seconds since the Unix
            epoch; None if it never changed.
        last_scale_out: expected effect of the last scale-out; None if there was none.
        keys: samples of hot keys in the measuring window, any order; operators with keys that
            cannot move have none.
        stages: all tasks of the batches in the measuring window, by kind of stage, any order.
        idle_s: query to the time at which Spark last reported that the query waits for data, in
            seconds since the Unix epoch.
        running: queries that have not ended; None if all queries with batches are running.
        hidden: samples of the partitions that have none in `tasks`, any order.
        prepared: (query, operator) of operators with moves that cost a batch nothing, because the
            target loads the state ahead.
        excluded: why moves and scaling are excluded now, for people; empty if they are allowed.
        floor: minimum number of executors that is required from outside now; 0 for none.
        floor_why: the origin of that minimum, for people.
        in_force: what the next plan takes over from the plan before it.
    """

    now_s: float
    executors: Mapping[str, int]
    tasks: tuple[TaskSample, ...] = ()
    batches: tuple[BatchSample, ...] = ()
    restore_cost: RestoreCost = RestoreCost()  # noqa: RUF009 - frozen
    requested: int | None = None
    last_scaled_s: float | None = None
    keys: tuple[KeySample, ...] = ()
    stages: tuple[StageSample, ...] = ()
    last_scale_out: ScaleOut | None = None
    idle_s: Mapping[str, float] = field(default_factory=dict)
    running: tuple[str, ...] | None = None
    hidden: tuple[HiddenSample, ...] = ()
    prepared: tuple[OperatorId, ...] = ()
    excluded: str = ""
    floor: int = 0
    floor_why: str = ""
    in_force: PlanInForce = PlanInForce()

    @property
    def asked(self) -> int:
        """Number of live executors and of requested executors that are not live yet."""
        return len(self.executors) if self.requested is None else self.requested

    def to_json(self) -> str:
        """One line of JSON that `parse_observation` reads.

        >>> observation = Observation(5.0, {"0": 1})
        >>> parse_observation(observation.to_json()) == observation
        True
        """
        written = asdict(self)
        written["in_force"] |= {
            "under_way": [
                [*operator, list(targets.items())]
                for operator, targets in self.in_force.under_way.items()
            ],
            "settling": sorted(self.in_force.settling),
            "refused_keys": sorted(self.in_force.refused_keys),
        }
        return json.dumps(written, separators=(",", ":"))


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
    """Read an observation that `Observation.to_json` wrote.

    Raises:
        InvalidInputError: the text is not JSON, or a field is missing, unknown or of the wrong
            type; the message names the field.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        message = f"observation: not JSON ({error})"
        raise InvalidInputError(message) from error
    if not isinstance(content, dict):
        message = f"observation: must be a JSON object, not {type(content).__name__}"
        raise InvalidInputError(message)
    # Release 0.1.0 wrote a number that was always 0.
    content.pop("missing", None)
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
    if content.get("running") is not None:
        content["running"] = _parse_names(content["running"])
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
    _check_requests(content)
    if "in_force" in content:
        content["in_force"] = _parse_in_force(content["in_force"])
    return Observation(**content)


def _parse_in_force(found: Any) -> PlanInForce:
    """What `Observation.to_json` wrote of the plan before."""
    try:
        under_way = {
            (str(query), int(operator)): {int(p): str(target) for p, target in targets}
            for query, operator, targets in found["under_way"]
        }
        return PlanInForce(
            under_way,
            frozenset(map(str, found["settling"])),
            tuple(KeyPlacement(**placed) for placed in found["key_placements"]),
            frozenset((str(query), str(key)) for query, key in found["refused_keys"]),
            repeat=bool(found["repeat"]),
            waits=str(found["waits"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        message = f"observation.in_force: not as it is written ({error!r:.80})"
        raise InvalidInputError(message) from error


def _check_requests(content: Mapping[str, Any]) -> None:
    """Check the types of the exclusion and the minimum, which come from outside."""
    for name, kind in (("excluded", str), ("floor", int), ("floor_why", str)):
        if type(content.get(name, kind())) is not kind:
            message = f"observation.{name}: {content[name]!r:.80} is of the wrong type"
            raise InvalidInputError(message)


def _parse_names(items: Any) -> tuple[str, ...]:
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        message = "observation.running: must be a list of names of queries"
        raise InvalidInputError(message)
    return tuple(items)


def _parse_operators(items: Any) -> tuple[OperatorId, ...]:
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
    """Read one record. An integer in JSON may stand for a float; no other type is converted."""
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
