"""Observations: the input of every decision, and their form as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from functools import cache
from itertools import count, repeat
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.memory.use import Memory
from balancedstream.core.samples import (
    BatchSample,
    HiddenSample,
    KeySample,
    OperatorId,
    Sighting,
    SlotHolder,
    StageSample,
    TaskSample,
)
from balancedstream.core.wire.plan import KeyPlacement, Standing, parse_standing
from balancedstream.errors import InvalidInputError

MIN_DELAY_S = 60.0
MAX_DELAY_S = 300.0
"""Executors stay for the highest need of as many seconds, by what earlier removals taught."""

MIN_ROOM, MAX_ROOM = 1.1, 1.6
"""Those that stay after a removal meet the objective also at so many times the highest rate, by
what earlier removals taught."""

START_S = 20.0
"""Until a first start was seen, executors are taken to need so long."""


@dataclass(frozen=True, slots=True)
class ScaleOut:
    """A scale-out, and what it was expected to bring.

    Attributes:
        query: the query whose rows needed it.
        at_s: when it was decided, seconds since the Unix epoch.
        before: executors until then.
        after: executors requested.
        rows_per_s: rows that the query processed per second of batch time until then, the fixed
            part of a batch aside.
        gain: by what fraction that rate was expected to grow.
        failed: whether it was found to have grown by next to nothing, when all of them were last
            under load.
    """

    query: str
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
        standing: what the driver may do by itself; None for nothing.
        stood: whether it has asked for executors by itself, which no plan gives anything yet.
    """

    under_way: Mapping[OperatorId, Mapping[int, str]] = field(default_factory=dict)
    settling: frozenset[str] = frozenset()
    key_placements: tuple[KeyPlacement, ...] = ()
    refused_keys: frozenset[tuple[str, str]] = frozenset()
    repeat: bool = False
    waits: str = ""
    standing: Standing | None = None
    stood: bool = False


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
        last_removed: whether that change removed some.
        scale_in_delay_s: seconds of which the highest need keeps executors.
        room: executors that stay meet the objective also at so many times that need.
        start_s: seconds from the request of executors until they take work.
        scale_outs: expected effect of the last scale-out for each query.
        keys: samples of hot keys in the measuring window, any order; operators with keys that
            cannot move have none.
        stages: all tasks of the batches in the scaling window, by kind of stage, any order.
        sightings: what was seen between the ends of batches since the last one, oldest first.
        bounded: queries whose batches we bound now.
        memory: what executors take of memory; nothing where it was not measured.
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
        holders: running queries that hold slots, which have no other samples.
    """

    now_s: float
    executors: Mapping[str, int]
    tasks: tuple[TaskSample, ...] = ()
    batches: tuple[BatchSample, ...] = ()
    restore_cost: RestoreCost = RestoreCost()  # noqa: RUF009 - frozen
    requested: int | None = None
    last_scaled_s: float | None = None
    last_removed: bool = False
    scale_in_delay_s: float = MIN_DELAY_S
    room: float = MIN_ROOM
    start_s: float = START_S
    keys: tuple[KeySample, ...] = ()
    stages: tuple[StageSample, ...] = ()
    scale_outs: tuple[ScaleOut, ...] = ()
    idle_s: Mapping[str, float] = field(default_factory=dict)
    running: tuple[str, ...] | None = None
    hidden: tuple[HiddenSample, ...] = ()
    prepared: tuple[OperatorId, ...] = ()
    excluded: str = ""
    floor: int = 0
    floor_why: str = ""
    in_force: PlanInForce = PlanInForce()
    sightings: tuple[Sighting, ...] = ()
    bounded: tuple[str, ...] = ()
    holders: tuple[SlotHolder, ...] = ()
    memory: Memory = Memory()  # noqa: RUF009 - frozen

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
    if isinstance(content, dict):
        # Release 0.1.0 wrote a number that was always 0.
        content.pop("missing", None)
        # Release 0.2.0 wrote one for all queries.
        content.pop("last_scale_out", None)
    observation: Observation = _parse_record(Observation, content, "observation")
    return observation


def _parse_record(kind: Any, item: Any, path: str) -> Any:
    if not isinstance(item, dict):
        message = f"{path}: must be a JSON object, not {type(item).__name__}"
        raise InvalidInputError(message)
    types = _list_types(kind)
    for name in item:
        if name not in types:
            message = f"{path}.{name}: unknown; known are {', '.join(sorted(types))}"
            raise InvalidInputError(message)
    values = {name: _parse(types[name], v, f"{path}.{name}") for name, v in item.items()}
    for known in fields(kind):
        has_default = known.default is not MISSING or known.default_factory is not MISSING
        if not has_default and known.name not in item:
            message = f"{path}.{known.name}: missing"
            raise InvalidInputError(message)
    return kind(**values)


@cache
def _list_types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _parse(form: Any, value: Any, path: str) -> Any:
    """Read a value of a type. An integer in JSON may stand for a float; no other is converted."""
    if form is PlanInForce:
        return _parse_in_force(value)
    if is_dataclass(form):
        return _parse_record(form, value, path)
    kind, parts = get_origin(form) or form, get_args(form)
    if kind is UnionType:
        return None if value is None else _parse(parts[0], value, path)
    if kind is tuple and isinstance(value, list):
        if parts[-1] is ...:
            paths = (f"{path}[{i}]" if is_dataclass(parts[0]) else path for i in count())
            return tuple(map(_parse, repeat(parts[0]), value, paths))
        if len(parts) == len(value):
            return tuple(map(_parse, parts, value, repeat(path)))
    if kind is Mapping and isinstance(value, dict):
        return {name: _parse(parts[1], each, path) for name, each in value.items()}
    accepted = {float: (int, float), Literal: (str,)}.get(kind, (kind,))
    if isinstance(value, accepted) and isinstance(value, bool) is (kind is bool):
        return value
    name = form.__name__ if isinstance(form, type) else form
    message = f"{path}: must be of the type {name}; {value!r:.80} is of the wrong type"
    raise InvalidInputError(message)


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
            standing=parse_standing("observation.in_force.standing", found.get("standing")),
            stood=bool(found.get("stood")),
        )
    except (KeyError, TypeError, ValueError) as error:
        message = f"observation.in_force: not as it is written ({error!r:.80})"
        raise InvalidInputError(message) from error
