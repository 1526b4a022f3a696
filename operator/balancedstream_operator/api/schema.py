"""From classes to an OpenAPI schema, and from a manifest to classes: one source for both.

A class of spec or status is a frozen dataclass whose fields say what a manifest may contain.
Field names are snake_case in Python and camelCase in manifests, and the unit `_s` is spelled out:
`budget_s` is `budgetSeconds`. Every string, list and map has a maximum length, because the API
server estimates the cost of validation rules from it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

from balancedstream.core.policy import Knob, Mode, knobs
from balancedstream.core.printing import printable
from balancedstream.core.removed import REMOVED, RemovedKnob
from balancedstream_operator.api.resource import refuse

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Field:
    """What a field declares beside its values. An object declares it for all its fields.

    Attributes:
        sentence: what the field is.
        of_the_job: whether the field describes a job that the operator runs. Then it is refused
            beside `targetRef`.
        restarts: whether a change of the field needs a new driver. None means: if the field is of
            the job.
    """

    sentence: str
    of_the_job: bool = field(default=False, kw_only=True)
    restarts: bool | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Text(_Field):
    """A string.

    Attributes:
        max_length: in characters.
        pattern: regular expression that the whole string must match; empty for any.
        allowed: what it must be, for a person; empty to show length and pattern.
        prose: whether people read it: it is written printable, because `kubectl` shows it as it is.
    """

    max_length: int = 253
    pattern: str = ""
    allowed: str = ""
    prose: bool = False


@dataclass(frozen=True, slots=True)
class Number(_Field):
    """A number of the field's type; both limits are inclusive."""

    minimum: float
    maximum: float


class Figure(_Field):
    """A number of the field's type without limits, in a status."""


class Time(_Field):
    """A time in the format of Kubernetes, in a status."""


@dataclass(frozen=True, slots=True)
class Words(_Field):
    """One of a few words, which people type, quoted where YAML reads them otherwise, or not."""

    choices: tuple[str, ...]
    typed: bool = True


class Switch(_Field):
    """True or false."""


@dataclass(frozen=True, slots=True)
class Texts(_Field):
    """A list of strings, or a map from string to string, of at most `max_items`."""

    max_items: int
    max_length: int = 4096


@dataclass(frozen=True, slots=True)
class Part(_Field):
    """An object with a spec class of its own; one that is not `filled_in` may be absent."""

    filled_in: bool = True


@dataclass(frozen=True, slots=True)
class Parts(_Field):
    """A list of at most `max_items` objects of the field's class; absent if not `filled_in`."""

    max_items: int
    filled_in: bool = True


class Foreign(_Field):
    """An object of Kubernetes' own, which the API server checks when it is used."""


@dataclass(frozen=True, slots=True)
class Knobs(_Field):
    """An object with the knobs of a section of the policy, read as `policy.parse` takes it.

    Attributes:
        section: its name in `balancedstream.core.policy`.
        omit: knobs that are elsewhere in the manifest.
    """

    section: str
    omit: tuple[str, ...] = ()


_Declared = Text | Number | Figure | Time | Words | Switch | Texts | Part | Parts | Foreign | Knobs
_Spec = TypeVar("_Spec")


def rule(expression: str, message: str) -> Schema:
    """A validation rule for a class's `RULES`, in the Common Expression Language."""
    return {"rule": expression, "message": message}


@cache
def camel(name: str) -> str:
    """The name of a field in a manifest.

    >>> camel("budget_s"), camel("act_above")
    ('budgetSeconds', 'actAbove')
    """
    if name.endswith("_s"):
        name = f"{name[:-2]}_seconds"
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def describe(kind: type) -> Schema:
    """The OpenAPI schema of a class of spec or status, defaults and rules included.

    >>> @dataclass(frozen=True)
    ... class Size:
    ...     count: Annotated[int, Number("How many.", 1, 9)] = 2
    >>> describe(Size)["properties"]["count"]["default"]
    2
    """
    properties: Schema = {}
    required = []
    for entry, value_kind, declared in _entries(kind):
        schema = _describe_value(value_kind, declared)
        default = _default(entry)
        if default is MISSING:
            required.append(camel(entry.name))
        elif isinstance(declared, Part):
            # The API server fills in the object's own defaults.
            if default is not None and declared.filled_in:
                schema["default"] = {}
        elif isinstance(declared, Knobs):
            known = schema["properties"].items()
            schema["default"] = {n: p["default"] for n, p in known if "default" in p}
        elif isinstance(declared, Figure) or (
            isinstance(declared, Parts) and not declared.filled_in
        ):
            # A status has what the operator wrote.
            pass
        elif default not in (None, ""):
            schema["default"] = list(default) if isinstance(default, tuple) else default
        properties[camel(entry.name)] = schema
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    rules = getattr(kind, "RULES", ())
    if rules:
        schema["x-kubernetes-validations"] = list(rules)
    return schema


def read(
    kind: type[_Spec], manifest: object, path: str = "spec", unknown: list[str] | None = None
) -> _Spec:
    """An instance of a spec class from a part of a manifest.

    The API server has checked most of it; errors name the field.

    Args:
        kind: spec class.
        manifest: the part.
        path: of the part.
        unknown: gets the paths of unknown fields, which are then ignored: a newer definition gives
            every object the defaults of its new fields. None refuses them.

    Raises:
        InvalidInputError: a missing or unknown field, a wrong type or a value out of range.

    >>> @dataclass(frozen=True)
    ... class Size:
    ...     count: Annotated[int, Number("How many.", 1, 9)] = 2
    >>> read(Size, {"count": 12})
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: spec.count: must be an integer from 1 to 9, not 12
    """
    given = _mapping(path, manifest)
    entries = _entries(cast("type", kind))
    known = {camel(entry.name): (entry, *rest) for entry, *rest in entries}
    _heed_unknown(path, given, known, unknown)
    values: dict[str, Any] = {}
    for name, (entry, value_kind, declared) in known.items():
        if given.get(name) is not None:
            at = f"{path}.{name}"
            values[entry.name] = _read_value(value_kind, declared, given[name], at, unknown)
        elif _default(entry) is MISSING:
            refuse(f"{path}.{name}", "missing")
    return kind(**values)


def read_leniently(kind: type[_Spec], manifest: object) -> _Spec:
    """An instance of a status class from what an operator of any release wrote.

    What the class does not know is left out, and what does not fit counts as absent. An absent text
    that a status always has is empty.

    >>> @dataclass(frozen=True)
    ... class Seen:
    ...     phase: Annotated[str | None, Text("How it is.")] = None
    ...     executors: Annotated[int | None, Figure("How many.")] = None
    >>> read_leniently(Seen, {"phase": "Running", "executors": "two", "mood": "good"})
    Seen(phase='Running', executors=None)
    """
    given = manifest if isinstance(manifest, Mapping) else {}
    values: dict[str, Any] = {}
    for entry, value_kind, declared in _entries(cast("type", kind)):
        value = given.get(camel(entry.name))
        if isinstance(declared, Part) and isinstance(value, Mapping):
            values[entry.name] = read_leniently(_part(value_kind), value)
        elif isinstance(declared, Parts) and isinstance(value, list):
            part = _part(value_kind)
            values[entry.name] = tuple(read_leniently(part, item) for item in value)
        elif (isinstance(declared, Figure) and isinstance(value, int | float)) or (
            isinstance(declared, Text | Time | Words) and isinstance(value, str)
        ):
            values[entry.name] = value
        elif _default(entry) is MISSING:
            values[entry.name] = ""
    return kind(**values)


def fields_of(kind: type) -> tuple[str, ...]:
    """The names of a class's fields in a manifest."""
    return tuple(camel(entry.name) for entry, *_ in _entries(kind))


def write(part: object) -> Schema:
    """The manifest of an instance of a status class, without the fields that are None.

    >>> @dataclass(frozen=True)
    ... class Seen:
    ...     phase: Annotated[str, Text("How it is.")]
    ...     last_scale_time: Annotated[str | None, Time("When it was scaled.")] = None
    >>> write(Seen("Running"))
    {'phase': 'Running'}
    """
    manifest: Schema = {}
    for entry, _, declared in _entries(cast("type", type(part))):
        value = getattr(part, entry.name)
        match declared:
            case _ if value is None:
                continue
            case Time() if not value:
                # The API server refuses a status with a time that is none.
                continue
            case Text():
                # The API server refuses the whole object for one text that is too long.
                value = (printable(value) if declared.prose else value)[: declared.max_length]
            case Part():
                # A merge patch leaves what it does not name.
                value = {**dict.fromkeys(fields_of(type(value))), **write(value)}
            case Parts():
                value = [write(item) for item in value]
        manifest[camel(entry.name)] = value
    return manifest


def list_of_the_job(kind: type, path: str = "", *, inside: bool = False) -> dict[str, Schema]:
    """Path and schema of each field that is of the job.

    Args:
        kind: spec class.
        path: of an object of this class, with a dot at its end; empty for the whole spec.
        inside: whether the object is of the job.

    >>> @dataclass(frozen=True)
    ... class Size:
    ...     count: Annotated[int, Number("How many.", 1, 9, of_the_job=True)] = 2
    >>> list_of_the_job(Size)["count"]["default"]
    2
    """
    found: dict[str, Schema] = {}
    properties = describe(kind)["properties"]
    for entry, value_kind, declared in _entries(kind):
        schema = properties[camel(entry.name)]
        of_the_job = inside or declared.of_the_job
        # The API server fills in such an object, so only its fields tell what a person has set.
        if isinstance(declared, Part) and (not of_the_job or "default" in schema):
            inner = f"{path}{camel(entry.name)}."
            found |= list_of_the_job(_part(value_kind), inner, inside=of_the_job)
        elif of_the_job:
            found[f"{path}{camel(entry.name)}"] = schema
    return found


def list_restarting(part: object, *, inside: bool = False) -> dict[str, Any]:
    """The fields whose change needs a new driver, without those that have their default.

    So a field that a release adds restarts no driver.

    Returns:
        Field name in Python to value; a part becomes such a map of its own.

    >>> @dataclass(frozen=True)
    ... class Size:
    ...     count: Annotated[int, Number("How many.", 1, 9, of_the_job=True)] = 2
    ...     limit: Annotated[int, Number("The most.", 1, 9)] = 9
    >>> list_restarting(Size(count=3, limit=4))
    {'count': 3}
    """
    found: dict[str, Any] = {}
    for entry, _, declared in _entries(cast("type", type(part))):
        restarts = declared.restarts
        if restarts is None:
            restarts = inside or declared.of_the_job
        value, default = getattr(part, entry.name), _default(entry)
        if isinstance(declared, Part) and value is not None:
            value, default = list_restarting(value, inside=restarts), {}
        elif not restarts:
            continue
        if value != default:
            found[entry.name] = value
    return found


@cache
def _entries(kind: type) -> tuple[tuple[Field[Any], Any, _Declared], ...]:
    """A class's fields; each pass over a stream reads a spec, and evaluating hints is slow."""
    hints = get_type_hints(kind, include_extras=True)
    entries = []
    for entry in fields(cast("Any", kind)):
        hint = hints[entry.name]
        if get_origin(hint) is not Annotated:
            message = f"{kind.__name__}.{entry.name} is not annotated"
            raise TypeError(message)
        value_kind, declared = get_args(hint)
        entries.append((entry, value_kind, declared))
    return tuple(entries)


def _default(entry: Field[Any]) -> Any:
    if entry.default_factory is not MISSING:
        return entry.default_factory()
    return entry.default


def _describe_value(kind: Any, declared: _Declared) -> Schema:  # noqa: PLR0912 - one a declaration
    schema: Schema = {"description": declared.sentence}
    match declared:
        case Text(max_length=max_length, pattern=pattern):
            schema |= {"type": "string", "maxLength": max_length}
            if pattern:
                schema["pattern"] = f"^{pattern}$"
        case Number(minimum=minimum, maximum=maximum):
            schema |= _describe_number(_is_whole(kind), minimum, maximum)
        case Figure():
            whole = _is_whole(kind)
            schema |= {"type": "integer", "format": "int64"} if whole else {"type": "number"}
        case Time():
            schema |= {"type": "string", "format": "date-time"}
        case Words(choices=choices, typed=True):
            schema |= _describe_words(declared.sentence, choices)
        case Words(choices=choices):
            schema |= {"type": "string", "enum": list(choices)}
        case Switch():
            schema |= {"type": "boolean"}
        case Texts(max_items=max_items, max_length=max_length):
            text = {"type": "string", "maxLength": max_length}
            if get_origin(kind) is tuple:
                schema |= {"type": "array", "items": text, "maxItems": max_items}
            else:
                schema |= {
                    "type": "object",
                    "additionalProperties": text,
                    "maxProperties": max_items,
                }
        case Part():
            schema |= describe(_part(kind))
        case Parts(max_items=max_items):
            schema |= {"type": "array", "items": describe(_part(kind)), "maxItems": max_items}
        case Foreign():
            schema |= {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case Knobs():
            schema |= _describe_knobs(declared)
    return schema


@cache
def _knobs_of(declared: Knobs) -> Mapping[str, Knob]:
    found = {}
    for knob in knobs():
        section, _, name = knob.path.partition(".")
        if section == declared.section and name not in declared.omit:
            found[name] = knob
    return found


def _describe_knobs(declared: Knobs) -> Schema:
    properties: Schema = {}
    for name, knob in _knobs_of(declared).items():
        unit = f" [{knob.unit}]" if knob.unit else ""
        sentence = say_as_in_manifests(knob.sentence, knob.choices)
        schema: Schema = {"description": f"{sentence}{unit}", "default": _word(knob.default)}
        if knob.bounds is None:
            schema |= _describe_words(schema["description"], [*map(_word, knob.choices)])
        else:
            schema |= _describe_number(knob.kind is int, *knob.bounds)
        properties[camel(name)] = schema
    for gone in REMOVED:
        section, _, name = gone.path.partition(".")
        if section == declared.section:
            properties[camel(name)] = _describe_removed(gone)
    return {"type": "object", "properties": properties}


def _describe_removed(knob: RemovedKnob) -> Schema:
    """For one release, so that manifests of before are not refused; without a default."""
    why = say_as_in_manifests(knob.why)
    schema: Schema = {"description": f"Removed, and ignored: {why}."}
    if isinstance(knob.defaults[0], str):
        return schema | {"type": "string", "maxLength": 253}
    return schema | {"type": "integer" if isinstance(knob.defaults[0], int) else "number"}


def say_as_in_manifests(sentence: str, choices: Sequence[str] = ()) -> str:
    """A sentence with the names and words that a manifest has for knobs.

    >>> say_as_in_manifests("it is half of window_s")
    'it is half of windowSeconds'
    """
    for name in {other.path.partition(".")[2] for other in knobs()}:
        if "_" in name:
            sentence = re.sub(rf"\b{name}\b", camel(name), sentence)
    for choice in choices:
        sentence = sentence.replace(f"({choice})", f"({_word(choice)})")
    return sentence


_READ_OTHERWISE = {"on", "off", "yes", "no", "y", "n", "true", "false", "null", "~"}
"""Words that YAML 1.1, which kubectl reads, takes for no text without quotes, in any case."""


def quote_word(word: str) -> str:
    """A word as it stands in YAML.

    >>> quote_word("Off"), quote_word("Auto")
    ('"Off"', 'Auto')
    """
    return f'"{word}"' if word.lower() in _READ_OTHERWISE else word


def _describe_words(sentence: str, choices: Sequence[str]) -> Schema:
    quoted = [quote_word(word) for word in choices if quote_word(word) != word]
    hint = f" Write {' and '.join(quoted)} with the quotes." if quoted else ""
    return {"type": "string", "enum": list(choices), "description": f"{sentence}{hint}"}


def _word(value: Any) -> Any:
    """The core's modes are capitalized in manifests, as Kubernetes' own words are."""
    return value.capitalize() if value in get_args(Mode) else value


def _read_value(
    kind: Any, declared: _Declared, value: object, path: str, unknown: list[str] | None
) -> Any:
    match declared:
        case Figure() | Time():
            message = f"{path} is of a status: read_leniently takes it"
            raise TypeError(message)
        case Text(max_length=max_length, pattern=pattern, allowed=allowed):
            return _text(path, value, max_length, pattern, allowed)
        case Number(minimum=minimum, maximum=maximum, sentence=sentence):
            of = int if _is_whole(kind) else float
            Knob(path, of, "", minimum, (minimum, maximum), (), sentence).check(value)
            return value
        case Words(choices=choices, sentence=sentence):
            if not isinstance(value, str):
                allowed = f"one of {', '.join(choices)}"
                refuse(path, f"must be {allowed}, not {value!r}{hint_quotes(value)}")
            Knob(path, str, "", choices[0], None, choices, sentence).check(value)
            return value
        case Switch():
            if not isinstance(value, bool):
                refuse(path, f"must be true or false, not {value!r}")
            return value
        case Texts():
            return _read_texts(kind, declared, value, path)
        case Part():
            return read(_part(kind), value, path, unknown)
        case Parts(max_items=max_items):
            items = _read_list(path, value, max_items)
            part = _part(kind)
            return tuple(read(part, item, f"{path}[{i}]", unknown) for i, item in enumerate(items))
        case Foreign():
            return _mapping(path, value)
        case Knobs():
            return _read_knobs(declared, _mapping(path, value), path, unknown)


def _read_texts(kind: Any, declared: Texts, value: object, path: str) -> object:
    longest = declared.max_length
    if get_origin(kind) is not tuple:
        texts = _mapping(path, value)
        return {key: _text(f"{path}.{key}", text, longest) for key, text in texts.items()}
    items = _read_list(path, value, declared.max_items)
    return tuple(_text(f"{path}[{i}]", text, longest) for i, text in enumerate(items))


def _read_list(path: str, value: object, max_items: int) -> Sequence[object]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        refuse(path, f"must be a list, not {value!r:.200}")
    if len(value) > max_items:
        refuse(path, f"must have at most {max_items} items, not {len(value)}")
    return value


def _read_knobs(
    declared: Knobs, given: Mapping[str, Any], path: str, unknown: list[str] | None
) -> dict[str, Any]:
    known = {camel(name): (name, knob) for name, knob in _knobs_of(declared).items()}
    _heed_unknown(path, given, known, unknown)
    values = {}
    for key, (name, knob) in known.items():
        if key not in given:
            continue
        value = given[key]
        mode = knob.choices == get_args(Mode) and isinstance(value, str)
        values[name] = value.lower() if mode else value
        if not knob.fits(values[name]):
            shown = replace(knob, path=f"{path}.{key}", choices=tuple(map(_word, knob.choices)))
            refuse(shown.path, f"must be {shown.allowed}, not {value!r}{hint_quotes(value)}")
    return values


def _heed_unknown(
    path: str, given: Iterable[str], known: Collection[str], unknown: list[str] | None
) -> None:
    for name in given:
        if name not in known:
            if unknown is None:
                refuse(f"{path}.{name}", f"unknown field, allowed are {', '.join(known)}")
            unknown.append(f"{path}.{name}")


def _describe_number(whole: bool, minimum: float, maximum: float) -> Schema:
    if whole:
        return {"type": "integer", "minimum": int(minimum), "maximum": int(maximum)}
    schema: Schema = {"type": "number", "minimum": minimum, "maximum": maximum}
    if minimum % 1:
        # The API server compares an integer with the integer part of the minimum, so 0 would pass
        # for 0.001.
        schema["x-kubernetes-validations"] = [
            rule(f"self >= {minimum}", f"must be at least {minimum:.15g}")
        ]
    return schema


def _is_whole(kind: Any) -> bool:
    """Whether a number is an integer; the field may also be None."""
    return kind is int or int in get_args(kind)


def _part(kind: Any) -> type:
    """The spec class of a field, which may also be None, or of the items of a list."""
    found: type = next(k for k in (get_args(kind) or (kind,)) if k not in (type(None), ...))
    return found


def _mapping(path: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        refuse(path, f"must be an object, not {value!r}")
    return dict(value)


def _text(path: str, value: object, max_length: int, pattern: str = "", allowed: str = "") -> str:
    if (
        not isinstance(value, str)
        or len(value) > max_length
        or (pattern and not re.fullmatch(pattern, value))
    ):
        like = f", like {pattern}" if pattern else ""
        allowed = allowed or f"text of at most {max_length} characters{like}"
        refuse(path, f"must be {allowed}, not {value!r}{hint_quotes(value)}")
    return value


def hint_quotes(value: object) -> str:
    """What to do about a value that should be text, and that YAML has read as something else.

    >>> hint_quotes(False)
    ' (YAML reads an unquoted Off, No or false so: quote it)'
    """
    if isinstance(value, bool):
        words = "On, Yes or true" if value else "Off, No or false"
        return f" (YAML reads an unquoted {words} so: quote it)"
    return " (quote it)" if isinstance(value, int | float) else ""
