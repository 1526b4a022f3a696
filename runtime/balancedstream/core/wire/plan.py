r"""The versioned plan, and the driver's answer.

A plan is complete, so only the newest one counts, and a lost one does no harm. Preparing a
reconfiguration ahead of time is the published idea of latency-conscious systems (Megaphone);
epochs, format and limits are our own design:

    {"epoch": 7, "effective_batch": 120, "executors": ["1", "4"],
     "placement": {"clicks": {"0": [0, 1, 1, -1]}},
     "routes": [{"query": "clicks", "key": "\"de\"", "partition": 3}]}

An operator and its drivers may be of two releases, so the format only grows: what is new may be
left out, and is written only where it says something that an older release must not miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from balancedstream.core.policy import MigrationPolicy, knobs
from balancedstream.core.wire.strict_json import (
    check_array,
    check_integer,
    check_mapping,
    check_name,
    check_number,
    check_object,
    check_size,
    check_switch,
    read_json,
    refuse,
    write_json,
)
from balancedstream.errors import PlanConflictError, PlanTooLargeError, StalePlanError

MAX_KEY_PLACEMENTS = 4096
UNPLACED = -1

NEW_EXECUTOR = "+"
"""First character of the id of an executor that must be started: its real id is not known yet."""

_ASKED_OF_PLANS: Mapping[str, object] = {"strategy": "budgeted"}
"""A driver of release 0.1.0 reads no plan without these."""

_PASSED_OVER = ("strategy", "batch_size")
"""What releases until 0.1.0 say of how to spread moves."""

_ASKED_OF_ANSWERS: Mapping[str, object] = {"executors": [], "last_batches": {}, "late_batches": 0}
"""An operator of release 0.1.0 reads no answer without these, and decides nothing by them."""

_BUDGET = next(knob for knob in knobs() if knob.path == "migration.budget_s")

# Spark numbers partitions with an integer.
_MAX_PARTITION = 2**31 - 2


@dataclass(frozen=True, slots=True)
class KeyPlacement:
    """The state partition of one key; the driver finds the route.

    Attributes:
        query: the query's stable name or id.
        key: the key as text; see `keys.write_key`.
        partition: where it must be, 0-based.
    """

    query: str
    key: str
    partition: int

    def write(self) -> str:
        """The text that it takes in a plan.

        >>> KeyPlacement("q", "7", 3).write()
        '{"key":"7","partition":3,"query":"q"}'
        """
        return write_json(asdict(self))


@dataclass(frozen=True, slots=True)
class StandingStep:
    """How many executors are enough for a query, and until when.

    Attributes:
        query: the query's stable name or id.
        executors: of the application.
        rows_per_s: they are enough while its rows come no faster than that,
        waiting_rows: and while no more of them wait.
        batch_rows: a batch reads at most so many while they are the ones that are there; None for
            what the user's own limits let it read.
    """

    query: str
    executors: int
    rows_per_s: float
    waiting_rows: float
    batch_rows: float | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What the driver may do before the next plan, without asking: add executors, bound batches.

    Attributes:
        asked: executors that the maker of the plan knew to be asked for. A driver that has asked
            for more since does not take its plan for a wish to remove them.
        patience_s: how long executors that it asked for may take to help; until then it does not
            count again which rows wait.
        steps: of each query, by ascending `executors`; more than those of the last are never asked
            for.
        until_s: from then on it adds none, seconds since the Unix epoch; None for no end.
    """

    asked: int
    patience_s: float
    steps: tuple[StandingStep, ...]
    until_s: float | None = None

    def __post_init__(self) -> None:
        check_integer("plan.standing.asked", self.asked, 0)
        check_number("plan.standing.patience_s", self.patience_s)
        if self.until_s is not None:
            check_number("plan.standing.until_s", self.until_s)
        for position, step in enumerate(self.steps):
            path = f"plan.standing.steps[{position}]"
            check_name(f"{path}.query", step.query)
            check_integer(f"{path}.executors", step.executors, 1)
            check_number(f"{path}.rows_per_s", step.rows_per_s)
            check_number(f"{path}.waiting_rows", step.waiting_rows)
            if step.batch_rows is not None:
                check_number(f"{path}.batch_rows", step.batch_rows)

    def find(self, query: str, rate: float, waiting_rows: float) -> StandingStep | None:
        """The first step of a query that is enough, or else its last; None if it has none.

        Args:
            query: its name or id.
            rate: rows per second that come.
            waiting_rows: when its next batch begins, in which executors that are asked for now do
                not help yet: how long that takes, more rows come.

        >>> steps = tuple(StandingStep("q", n, 100.0 * n, 900.0 * n) for n in (2, 4, 8))
        >>> standing = Standing(2, 60.0, steps)
        >>> [standing.find("q", *seen).executors for seen in ((9, 9), (300, 9), (9, 1e9))]
        [2, 4, 8]
        """
        mine = [step for step in self.steps if step.query == query]
        if not mine:
            return None
        rows = waiting_rows * max(1.0, rate / max(mine[0].rows_per_s, 1.0))
        enough = (s for s in mine if rate <= s.rows_per_s and rows <= s.waiting_rows)
        return next(enough, mine[-1])

    def bound(self, executors: int) -> dict[str, float]:
        """Rows that the next batch of each query should have at most, on so many executors.

        >>> steps = tuple(StandingStep("q", n, 9.0, 9.0, batch_rows=100.0 * n) for n in (2, 4))
        >>> [Standing(2, 60.0, steps).bound(n) for n in (1, 3, 4)]
        [{'q': 200.0}, {'q': 200.0}, {'q': 400.0}]
        """
        bounds: dict[str, float] = {}
        for step in self.steps:
            if step.batch_rows is not None and (
                step.query not in bounds or step.executors <= executors
            ):
                bounds[step.query] = step.batch_rows
        return bounds


@dataclass(frozen=True, slots=True)
class Stood:
    """Executors that a driver asked for by a standing plan.

    Attributes:
        executors: that there should be now.
        at_s: when that was, seconds since the Unix epoch.
        reason: for people.
    """

    executors: int
    at_s: float
    reason: str

    def __post_init__(self) -> None:
        check_integer("answer.stood.executors", self.executors, 1)
        check_number("answer.stood.at_s", self.at_s)
        if not isinstance(self.reason, str):
            refuse("answer.stood.reason", "text", self.reason)


@dataclass(frozen=True, slots=True)
class Plan:
    """Where partitions and keys must be, and how many executors there must be.

    Attributes:
        epoch: from 1; a newer plan has a higher one.
        executors: ids, each once; `placement` refers to their positions. Their number is the number
            of executors to run; an id that starts with `+` stands for one to start, which takes
            that place when it joins.
        placement: (query, operator) to a position in `executors` for each partition; one with -1,
            or beyond the last, stays where it is or goes on to where it moves, or the driver places
            it if its executor leaves.
        budget_s: seconds that the restore of moved state may add to one batch.
        key_placements: keys that must not be where Spark's hash sends them, at most 4,096; `routes`
            in JSON.
        effective_batch: first micro-batch that runs with it; None for as soon as possible.
        sizes: whether the number of executors is the plan's; otherwise it only places, and all
            executors stay.
        standing: what the driver may do before the next plan; None for nothing.

    Raises:
        InvalidInputError: a value of the wrong type or out of range; the message names the field.
        PlanTooLargeError: more key placements than a plan may have.

    >>> plan = Plan(1, ("a", "b"), {("q", 0): (0, 1, -1)})
    >>> plan.owners("q", 0)
    {0: 'a', 1: 'b'}
    """

    epoch: int
    executors: tuple[str, ...]
    placement: Mapping[tuple[str, int], tuple[int, ...]]
    key_placements: tuple[KeyPlacement, ...] = ()
    effective_batch: int | None = None
    budget_s: float = MigrationPolicy.budget_s
    sizes: bool = True
    standing: Standing | None = None

    def __post_init__(self) -> None:
        check_integer("plan.epoch", self.epoch, 1)
        check_switch("plan.sizes", self.sizes)
        if self.effective_batch is not None:
            check_integer("plan.effective_batch", self.effective_batch, 0)
        _check_executors("plan.executors", self.executors)
        last = len(self.executors) - 1
        for (query, operator), partitions in self.placement.items():
            check_name("plan.placement", query)
            check_integer(f"plan.placement.{query}", operator, 0)
            for partition, index in enumerate(partitions):
                if type(index) is not int or not UNPLACED <= index <= last:
                    path = f"plan.placement.{query}.{operator}[{partition}]"
                    refuse(path, f"an integer from {UNPLACED} to {last}", index)
        if not _BUDGET.fits(self.budget_s):
            refuse("plan.budget_s", _BUDGET.allowed, self.budget_s)
        _check_key_placements(self.key_placements)
        # Their order has no meaning, so plans that differ only in it are equal.
        placements = tuple(sorted(self.key_placements, key=_name_placement))
        object.__setattr__(self, "key_placements", placements)

    def owners(self, query: str, operator: int) -> dict[int, str]:
        """Executor of each placed partition of an operator; empty for one the plan leaves out."""
        partitions = self.placement.get((query, operator), ())
        return {
            partition: self.executors[index]
            for partition, index in enumerate(partitions)
            if index != UNPLACED
        }

    def to_json(self) -> str:
        """Write the plan; equal plans give equal ASCII text.

        Raises:
            PlanTooLargeError: the text exceeds 512 KiB.

        >>> Plan(1, ("a",), {}).to_json()
        '{"epoch":1,"executors":["a"],"placement":{},"routes":[],"strategy":"budgeted"}'
        """
        text = self.write()
        check_size("plan", len(text))
        return text

    def write(self) -> str:
        """The same text, however long it is."""
        placement: dict[str, dict[str, tuple[int, ...]]] = {}
        for (query, operator), partitions in self.placement.items():
            placement.setdefault(query, {})[str(operator)] = partitions
        fields: dict[str, object] = {
            "epoch": self.epoch,
            "executors": self.executors,
            "placement": placement,
            "routes": [asdict(placed) for placed in self.key_placements],
            **_ASKED_OF_PLANS,
        }
        if self.effective_batch is not None:
            fields["effective_batch"] = self.effective_batch
        if self.budget_s != MigrationPolicy.budget_s:
            fields["budget_s"] = self.budget_s
        if not self.sizes:
            fields["sizes"] = False
        if self.standing is not None:
            fields["standing"] = asdict(self.standing)
        return write_json(fields)


@dataclass(frozen=True, slots=True)
class Answer:
    """The driver's answer to plans.

    Attributes:
        epoch: of the plan that the driver follows; 0 before the first.
        refused: why the last plan was refused; empty if it was accepted.
        scales: whether the driver adds and removes executors; with Spark's dynamic allocation it
            does not.
        stood: executors that it asked for by a standing plan, until a plan knows of them; None for
            none.

    Raises:
        InvalidInputError: a value of the wrong type or out of range; the message names the field.

    >>> Answer(7).to_json()
    '{"epoch":7,"executors":[],"last_batches":{},"late_batches":0,"refused":""}'
    """

    epoch: int
    refused: str = ""
    scales: bool = True
    stood: Stood | None = None

    def __post_init__(self) -> None:
        check_integer("answer.epoch", self.epoch, 0)
        check_switch("answer.scales", self.scales)
        if not isinstance(self.refused, str):
            refuse("answer.refused", "text", self.refused)

    def to_json(self) -> str:
        """Write the answer; equal answers give equal ASCII text.

        Raises:
            PlanTooLargeError: the text exceeds 512 KiB.
        """
        fields = {**_ASKED_OF_ANSWERS, "epoch": self.epoch, "refused": self.refused}
        if not self.scales:
            fields["scales"] = False
        if self.stood is not None:
            fields["stood"] = asdict(self.stood)
        text = write_json(fields)
        check_size("answer", len(text))
        return text


def check_order(plan: Plan, newest: Plan | None) -> None:
    """Refuse a plan that is older than the newest accepted one, or differs from it in one epoch.

    The newest plan always wins, so delayed, repeated or reordered plans lead to the same placement.

    Raises:
        StalePlanError: the newest plan has a higher epoch.
        PlanConflictError: the newest plan has the same epoch and another content.

    >>> check_order(Plan(2, ("a",), {}), Plan(1, ("a",), {}))
    """
    if newest is None or plan == newest or plan.epoch > newest.epoch:
        return
    if plan.epoch < newest.epoch:
        message = (
            f"plan.epoch: {plan.epoch} is older than {newest.epoch}, which was accepted before; "
            f"the newer plan stays, nothing changed: send a plan with a higher epoch"
        )
        raise StalePlanError(message)
    message = (
        f"plan.epoch: {plan.epoch} was accepted before with another content; the first one "
        f"stays, nothing changed: send a plan with a higher epoch"
    )
    raise PlanConflictError(message)


def parse_plan(text: str | bytes) -> Plan:
    """Read a plan.

    Raises:
        InvalidInputError: this is no JSON object, a field is unknown, missing or of the wrong type,
            or a value is out of range; the message names the field.
        PlanTooLargeError: more than 512 KiB, or more key placements than a plan may have.

    >>> parse_plan(Plan(3, ("a",), {("q", 0): (0,)}).to_json()).epoch
    3
    >>> parse_plan('{"epohc": 3}')
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: plan.epohc: unknown field, allowed are epoch, \
executors, placement, routes, effective_batch, budget_s, sizes, standing, strategy, batch_size
    """
    fields = check_object(
        "plan",
        read_json("plan", text),
        required=("epoch", "executors", "placement", "routes"),
        optional=("effective_batch", "budget_s", "sizes", "standing", *_PASSED_OVER),
    )
    for name in _PASSED_OVER:
        fields.pop(name, None)
    placement: dict[tuple[str, int], tuple[int, ...]] = {}
    for query, operators in check_mapping("plan.placement", fields["placement"]).items():
        for operator, partitions in check_mapping(f"plan.placement.{query}", operators).items():
            path = f"plan.placement.{query}.{operator}"
            placement[query, _operator_id(path, operator)] = check_array(path, partitions)
    placed = check_array("plan.routes", fields.pop("routes"))
    key_placements = tuple(
        KeyPlacement(
            **check_object(
                f"plan.routes[{position}]",
                entry,
                required=("query", "key", "partition"),
                optional=(),
            )
        )
        for position, entry in enumerate(placed)
    )
    executors = check_array("plan.executors", fields["executors"])
    fields["standing"] = parse_standing("plan.standing", fields.get("standing"))
    return Plan(
        **fields
        | {"executors": executors, "placement": placement, "key_placements": key_placements}
    )


def parse_answer(text: str | bytes) -> Answer:
    """Read a driver's answer; what another release says beside is passed over.

    Raises:
        InvalidInputError: this is no JSON object, a field is missing, or of the wrong type.
        PlanTooLargeError: more than 512 KiB.

    >>> parse_answer(Answer(7).to_json()).epoch
    7
    """
    given = check_mapping("answer", read_json("answer", text))
    known = {name: given[name] for name in ("epoch", "refused", "scales", "stood") if name in given}
    answer = check_object(
        "answer", known, required=("epoch", "refused"), optional=("scales", "stood")
    )
    if "stood" in answer:
        names = ("executors", "at_s", "reason")
        stood = check_object("answer.stood", answer["stood"], required=names, optional=())
        answer["stood"] = Stood(**stood)
    return Answer(**answer)


def parse_standing(path: str, given: object) -> Standing | None:
    """Read what a driver may do by itself; None for nothing.

    Raises:
        InvalidInputError: it is not as it is written; the message names the field.

    >>> parse_standing("standing", {"asked": 2, "patience_s": 60.0, "steps": []})
    Standing(asked=2, patience_s=60.0, steps=(), until_s=None)
    """
    if given is None:
        return None
    required = ("asked", "patience_s", "steps")
    fields = check_object(path, given, required=required, optional=("until_s",))
    names = ("query", "executors", "rows_per_s", "waiting_rows")
    steps = tuple(
        StandingStep(
            **check_object(
                f"{path}.steps[{position}]", step, required=names, optional=("batch_rows",)
            )
        )
        for position, step in enumerate(check_array(f"{path}.steps", fields["steps"]))
    )
    return Standing(fields["asked"], fields["patience_s"], steps, fields.get("until_s"))


def _operator_id(path: str, name: str) -> int:
    # Each number has one spelling: two spellings would be two entries for one operator.
    if not (name.isascii() and name.isdecimal() and len(name) <= 16 and str(int(name)) == name):
        refuse(path, "an operator id", name)
    return int(name)


def _check_executors(path: str, executors: tuple[str, ...]) -> None:
    for position, executor in enumerate(executors):
        check_name(f"{path}[{position}]", executor)
    if len(set(executors)) < len(executors):
        refuse(path, "ids, each once", list(executors))


def _check_key_placements(placements: tuple[KeyPlacement, ...]) -> None:
    if len(placements) > MAX_KEY_PLACEMENTS:
        message = (
            f"plan.routes: has {len(placements)} entries, at most {MAX_KEY_PLACEMENTS} "
            f"fit; nothing changed: place only the hottest keys"
        )
        raise PlanTooLargeError(message)
    for position, placed in enumerate(placements):
        path = f"plan.routes[{position}]"
        check_name(f"{path}.query", placed.query)
        check_name(f"{path}.key", placed.key)
        check_integer(f"{path}.partition", placed.partition, 0, _MAX_PARTITION)
    if len({_name_placement(placed) for placed in placements}) < len(placements):
        refuse("plan.routes", "at most one for each query and key", "more")


def _name_placement(placed: KeyPlacement) -> tuple[str, str]:
    return placed.query, placed.key
