"""Every knob with its unit, default, range and a sentence; docs, CLI and CRD follow from here.

Defaults are our own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, get_args, get_type_hints

from balancedstream.core.money import MAX_CURRENCY, MAX_EXECUTOR_HOUR, Price
from balancedstream.core.periods import Floor, Period
from balancedstream.core.removed import REMOVED, RemovedKnob
from balancedstream.errors import InvalidInputError

Mode = Literal["auto", "advise", "off"]


@dataclass(frozen=True, slots=True)
class Range:
    """What a section declares next to a number: unit, inclusive limits and one sentence."""

    unit: str
    minimum: float
    maximum: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What a section declares next to a field that is one of a few words."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Word:
    """What a section declares next to a short text of the user's: its most characters."""

    max_length: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Periods:
    """What a section declares next to a list of periods: one sentence."""

    sentence: str


MAX_PERIODS = 8
"""Of one list."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting as the documentation, the command line and the CRD show it.

    Attributes:
        path: its place in a policy file, `section.field`.
        kind: `int`, `float` or `str`; the class of its items for a list of periods.
        unit: of the value; empty for words, texts and lists.
        default: the value if a policy does not set it.
        bounds: lowest and highest value, both inclusive; None for words, texts and lists.
        choices: the allowed words; empty for all others.
        sentence: what it does.
        max_length: of a text; 0 for all others.
    """

    path: str
    kind: type
    unit: str
    default: float | str | tuple[Period, ...]
    bounds: tuple[float, float] | None
    choices: tuple[str, ...]
    sentence: str
    max_length: int = 0

    @property
    def is_list(self) -> bool:
        """Whether it is a list of periods."""
        return self.bounds is None and not self.choices and not self.max_length

    @property
    def default_text(self) -> str:
        """The default as YAML has it.

        >>> {knob.path: knob.default_text for knob in knobs()}["schedule.excluded"]
        '[]'
        """
        if self.max_length:
            return f'"{self.default}"'
        return "[]" if self.is_list else str(self.default)

    @property
    def allowed(self) -> str:
        """The range in words.

        >>> allowed = {knob.path: knob.allowed for knob in knobs()}
        >>> allowed["balance.mode"], allowed["window.batches"]
        ('one of auto, advise, off', 'an integer from 1 to 1000')
        """
        if self.is_list:
            return _describe_periods(self.kind)
        if self.max_length:
            return f"a printable text of at most {self.max_length} characters"
        if self.bounds is None:
            return f"one of {', '.join(self.choices)}"
        article = "an integer" if self.kind is int else "a number"
        return f"{article} from {self.bounds[0]:.15g} to {self.bounds[1]:.15g}"

    def fits(self, value: object) -> bool:
        """Whether `value` has the right type and is in range."""
        if self.is_list:
            return (
                isinstance(value, tuple)
                and len(value) <= MAX_PERIODS
                and all(type(item) is self.kind for item in value)
            )
        if self.max_length:
            return isinstance(value, str) and len(value) <= self.max_length and value.isprintable()
        if self.bounds is None:
            return value in self.choices
        numbers = int if self.kind is int else (int, float)
        # Every comparison with NaN is false, so NaN never fits; bool is an int to Python only.
        return (
            isinstance(value, numbers)
            and not isinstance(value, bool)
            and self.bounds[0] <= value <= self.bounds[1]
        )

    def check(self, value: object) -> None:
        """Raises InvalidInputError, with the path, unless `value` fits."""
        if not self.fits(value):
            unit = f" (unit: {self.unit})" if self.unit else ""
            message = f"{self.path}: must be {self.allowed}, not {value!r:.80}{unit}"
            raise InvalidInputError(message)


@dataclass(frozen=True)
class _Section:
    """A group of knobs, checked on construction."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for knob in _knobs_of(self.name):
            knob.check(getattr(self, _field_name(knob)))


@dataclass(frozen=True)
class BalancePolicy(_Section):
    """When state partitions move between executors.

    Raises:
        InvalidInputError: a value of the wrong type or out of range; the message names the field.

    >>> BalancePolicy(act_above=0.5).act_above
    0.5
    """

    name: ClassVar[str] = "balance"

    mode: Annotated[
        Mode,
        Choice("Move partitions (auto), only say what would move (advise), or neither (off)."),
    ] = "auto"
    act_above: Annotated[
        float,
        Range(
            "x mean", 0.0, 1000.0, "Imbalance (hottest executor / mean) below which nothing moves."
        ),
    ] = 1.10
    horizon_batches: Annotated[
        int,
        Range("batches", 1, 1_000_000, "A move must save more than it costs within this many."),
    ] = 20


@dataclass(frozen=True)
class WindowPolicy(_Section):
    """Which batches the load of a partition is averaged over: the last of `scaling.window_s`.

    Raises:
        InvalidInputError: a value of the wrong type or out of range; the message names the field.

    >>> WindowPolicy().batches
    3
    """

    name: ClassVar[str] = "window"

    batches: Annotated[
        int,
        Range(
            "batches",
            1,
            1000,
            "A load is the mean of this many of the query's last batches, but for those right "
            "after a move, and those before the rows went to other partitions.",
        ),
    ] = 3


@dataclass(frozen=True)
class MigrationPolicy(_Section):
    """How the moves of a plan are spread over batches.

    Raises:
        InvalidInputError: a value of the wrong type or out of range; the message names the field.

    >>> MigrationPolicy().budget_s
    1.0
    """

    name: ClassVar[str] = "migration"

    budget_s: Annotated[
        float,
        Range(
            "seconds",
            0.001,
            3600.0,
            "Restoring of moved state at once: what a busy executor loads ahead beside one batch, "
            "or what restoring may add to one batch where it is not loaded ahead. More may move if "
            "the next batch gets shorter for it.",
        ),
    ] = 1.0


@dataclass(frozen=True)
class ScalingPolicy(_Section):
    """When executors are added or removed.

    Raises:
        InvalidInputError: a value of the wrong type or out of range, or a minimum above its
            maximum; the message names the field.

    >>> ScalingPolicy(min_executors=2, max_executors=6).latency_objective_s
    0.0
    """

    name: ClassVar[str] = "scaling"

    mode: Annotated[
        Mode,
        Choice("Add and remove executors (auto), only say how many (advise), or neither (off)."),
    ] = "auto"
    min_executors: Annotated[
        int,
        Range("executors", 1, 10_000, "Lower limit of the number of executors."),
    ] = 1
    max_executors: Annotated[
        int,
        Range("executors", 0, 10_000, "Upper limit; 0 keeps the number as it is."),
    ] = 0
    reserve_executors: Annotated[
        int,
        Range(
            "executors",
            0,
            100,
            "Executors beyond those that the load needs, up to the upper limit: a jump of the "
            "load does not wait for their start.",
        ),
    ] = 0
    latency_objective_s: Annotated[
        float,
        Range(
            "seconds",
            0.0,
            86_400.0,
            "From the arrival of a row to the end of its batch, at most; 0 for two and a half "
            "trigger intervals, which also count if this is no longer than one of them.",
        ),
    ] = 0.0
    window_s: Annotated[
        float,
        Range(
            "seconds",
            1.0,
            86_400.0,
            "Loads are measured over this time; a query without batches for so long, and for one "
            "and a half trigger intervals, is not measured.",
        ),
    ] = 180.0

    @property
    def acts(self) -> bool:
        """Whether the number of executors changes; without a maximum it never does.

        >>> ScalingPolicy(max_executors=4).acts, ScalingPolicy().acts
        (True, False)
        """
        return self.mode == "auto" and self.max_executors > 0

    @property
    def least(self) -> int:
        """Executors that there are at least: the reserve does not count as part of the minimum.

        >>> ScalingPolicy(max_executors=4, reserve_executors=1).least
        2
        """
        least = self.min_executors + self.reserve_executors
        return min(least, self.max_executors) if self.max_executors else least

    def count_working(self, executors: int) -> int:
        """Those of so many executors that the load may need; the others are in reserve.

        At the upper limit none is.

        >>> scaling = ScalingPolicy(max_executors=4, reserve_executors=1)
        >>> [scaling.count_working(count) for count in (1, 2, 3, 4)]
        [1, 1, 2, 4]
        """
        if executors >= self.max_executors:
            return executors
        return max(1, executors - self.reserve_executors)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_executors and self.min_executors > self.max_executors:
            message = (
                f"scaling.min_executors: must not exceed scaling.max_executors "
                f"({self.max_executors}), not {self.min_executors}"
            )
            raise InvalidInputError(message)


@dataclass(frozen=True)
class AdmissionPolicy(_Section):
    """Whether the rows of a batch are bounded to what executors do within the latency objective.

    Raises:
        InvalidInputError: a value of the wrong type; the message names the field.

    >>> AdmissionPolicy().mode
    'advise'
    """

    name: ClassVar[str] = "admission"

    mode: Annotated[
        Mode,
        Choice(
            "Bound the rows of a batch, below the user's own limits, to what executors do within "
            "the latency objective (auto), only say how it would (advise), or neither (off)."
        ),
    ] = "advise"


@dataclass(frozen=True)
class SchedulePolicy(_Section):
    """What holds at certain times only.

    Raises:
        InvalidInputError: a value of the wrong type or out of range; the message names the field.

    >>> SchedulePolicy(floors=(Floor("0 8 * * 1-5", 3600, min_executors=6),)).excluded
    ()
    """

    name: ClassVar[str] = "schedule"

    excluded: Annotated[
        tuple[Period, ...],
        Periods(
            "Nothing is moved or scaled for duration_s seconds from each time of a cron "
            "expression on; only what lost executors had is placed."
        ),
    ] = ()
    floors: Annotated[
        tuple[Floor, ...],
        Periods(
            "There are at least min_executors, within scaling.max_executors, for duration_s "
            "seconds from each time of a cron expression on."
        ),
    ] = ()


@dataclass(frozen=True)
class CostPolicy(_Section):
    """What executors cost, for people: no decision depends on it.

    Raises:
        InvalidInputError: a value of the wrong type or out of range; the message names the field.

    >>> CostPolicy(executor_hour=0.12, currency="EUR").price
    Price(executor_hour=0.12, currency='EUR')
    """

    name: ClassVar[str] = "cost"

    executor_hour: Annotated[
        float,
        Range(
            "money",
            0.0,
            MAX_EXECUTOR_HOUR,
            "Price of an executor for an hour; 0 for none. With a price, report and metrics say "
            "what a day costs, and what is saved beside scaling.max_executors all the time.",
        ),
    ] = 0.0
    currency: Annotated[
        str, Word(MAX_CURRENCY, "Currency of the price, as a person writes it, such as EUR.")
    ] = ""

    @property
    def price(self) -> Price | None:
        """The price; None without one.

        >>> CostPolicy().price is None
        True
        """
        return Price(self.executor_hour, self.currency) if self.executor_hour else None


@dataclass(frozen=True)
class Policy:
    """All knobs, by section.

    Attributes:
        removed: knobs of earlier releases that it was read with; they have no effect.

    >>> Policy(balance=BalancePolicy(act_above=1.1)).balance.act_above
    1.1
    """

    balance: BalancePolicy = field(default_factory=BalancePolicy)
    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    window: WindowPolicy = field(default_factory=WindowPolicy)
    migration: MigrationPolicy = field(default_factory=MigrationPolicy)
    admission: AdmissionPolicy = field(default_factory=AdmissionPolicy)
    schedule: SchedulePolicy = field(default_factory=SchedulePolicy)
    cost: CostPolicy = field(default_factory=CostPolicy)
    removed: tuple[RemovedKnob, ...] = field(default=(), compare=False)


_SECTIONS: dict[str, type[_Section]] = {
    section.name: section
    for section in (
        BalancePolicy,
        ScalingPolicy,
        WindowPolicy,
        MigrationPolicy,
        AdmissionPolicy,
        SchedulePolicy,
        CostPolicy,
    )
}


def knobs() -> Iterator[Knob]:
    """Every knob, section by section, in the order of declaration.

    >>> next(knobs()).path
    'balance.mode'
    """
    for name in _SECTIONS:
        yield from _knobs_of(name)


def parse(mapping: object) -> Policy:
    """Reads a policy from the mapping that a YAML or JSON file holds.

    Args:
        mapping: section name to a mapping of its fields; fields that are left out keep their
            defaults, and an empty file or section (None) is all defaults.

    Returns:
        The policy. Removed knobs are not checked; `Policy.removed` names them.

    Raises:
        InvalidInputError: an unknown section or field, a wrong type, a value out of range; the
            message names the field's path and what is allowed.

    >>> parse({"scaling": {"min_executors": 2, "max_executors": 6}}).scaling.max_executors
    6
    >>> parse({"balance": {"act_abov": 1.1}})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: balance.act_abov: unknown field, allowed are ...
    """
    sections = _fields_of("policy", mapping, allowed=_SECTIONS.keys())
    made: dict[str, Any] = {}
    removed: list[RemovedKnob] = []
    for name, given in sections.items():
        known = {_field_name(knob): knob for knob in _knobs_of(name)}
        kept, dropped = _drop_removed(name, given)
        removed += dropped
        values = _fields_of(name, kept, allowed=known.keys())
        for key, value in values.items():
            # YAML 1.1 reads a bare `off` as false.
            if value is False and "off" in known[key].choices:
                values[key] = "off"
            if known[key].is_list:
                values[key] = parse_periods(f"{name}.{key}", known[key].kind, value)
        made[name] = _SECTIONS[name](**values)
    return Policy(**made, removed=tuple(removed))


def to_mapping(policy: Policy) -> dict[str, dict[str, Any]]:
    """Writes a policy as the mapping that `parse` reads, defaults included.

    >>> to_mapping(Policy())["window"]
    {'batches': 3}
    """
    written = {name: asdict(getattr(policy, name)) for name in _SECTIONS}
    # As YAML and JSON have them.
    for values in written.values():
        values |= {name: list(v) for name, v in values.items() if isinstance(v, tuple)}
    return written


def _drop_removed(section: str, given: object) -> tuple[object, list[RemovedKnob]]:
    """The fields of a section without removed knobs, and these."""
    if not isinstance(given, Mapping):
        return given, []
    dropped = [
        knob
        for knob in REMOVED
        if knob.path.startswith(f"{section}.") and knob.path.partition(".")[2] in given
    ]
    gone = {knob.path.partition(".")[2] for knob in dropped}
    return {name: value for name, value in given.items() if name not in gone}, dropped


def parse_periods(path: str, kind: type[Any], given: object) -> tuple[Any, ...]:
    """The periods of a list in a file, whose items are mappings.

    Args:
        path: of the list, for people.
        kind: of the periods.
        given: the list.

    Raises:
        InvalidInputError: it is no such list; the message names the field.

    >>> parse_periods("nights", Period, [{"cron": "0 22 * * *", "duration_s": 3600}])
    (Period(cron='0 22 * * *', duration_s=3600, time_zone='UTC'),)
    """
    if not isinstance(given, list) or len(given) > MAX_PERIODS:
        message = f"{path}: must be {_describe_periods(kind)}, not {given!r:.80}"
        raise InvalidInputError(message)
    names = [entry.name for entry in fields(kind)]
    found = []
    for position, item in enumerate(given):
        place = f"{path}[{position}]"
        values = _fields_of(place, item, allowed=names)
        for name in ("cron", "duration_s"):
            if name not in values:
                message = f"{place}.{name}: missing"
                raise InvalidInputError(message)
        try:
            found.append(kind(**values))
        except InvalidInputError as error:
            message = f"{place}.{error}"
            raise InvalidInputError(message) from error
    return tuple(found)


def _describe_periods(kind: type[Any]) -> str:
    names = ", ".join(entry.name for entry in fields(kind))
    return f"a list of at most {MAX_PERIODS}, each with {names}"


@cache
def _knobs_of(name: str) -> tuple[Knob, ...]:
    """The knobs of a section. To resolve its type hints is slow, and each policy is checked."""
    section = _SECTIONS[name]
    hints = get_type_hints(section, include_extras=True)
    made = []
    for entry in fields(section):
        kind, declared = get_args(hints[entry.name])
        path = f"{section.name}.{entry.name}"
        default = getattr(section, entry.name)
        if isinstance(declared, Periods):
            item = next(kind for kind in get_args(kind) if kind is not ...)
            made.append(Knob(path, item, "", (), None, (), declared.sentence))
        elif isinstance(declared, Range):
            bounds = (declared.minimum, declared.maximum)
            made.append(Knob(path, kind, declared.unit, default, bounds, (), declared.sentence))
        elif isinstance(declared, Word):
            text = (declared.sentence, declared.max_length)
            made.append(Knob(path, str, "", default, None, (), *text))
        else:
            words = get_args(kind)
            made.append(Knob(path, str, "", default, None, words, declared.sentence))
    return tuple(made)


def name_field(name: object) -> str:
    r"""The name that somebody gave a field, short and on one line.

    >>> name_field("act_abov"), name_field("a\nb"), name_field(7)
    ('act_abov', "'a\\nb'", '7')
    """
    text = str(name)
    return text[:80] if text.isprintable() else f"{text!r:.80}"


def _field_name(knob: Knob) -> str:
    return knob.path.partition(".")[2]


def _fields_of(path: str, given: object, *, allowed: Collection[str]) -> dict[str, Any]:
    """Checks that `given` is a mapping (or None) of allowed names; `path` is for the message."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        message = f"{path}: must be a mapping of {', '.join(allowed)}, not {given!r:.80}"
        raise InvalidInputError(message)
    for name in given:
        if name not in allowed:
            message = f"{path}.{name_field(name)}: unknown field, allowed are {', '.join(allowed)}"
            raise InvalidInputError(message)
    return dict(given)
