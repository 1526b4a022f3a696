"""From spec classes to an OpenAPI schema, and from a manifest to spec classes: one source for both.

A spec class is a frozen dataclass whose fields are annotated with what a manifest may hold. Field
names are snake_case here and camelCase there, and a unit `_s` is spelled out: `budget_s` is
`budgetSeconds`. Every string, list and map has a greatest length: the API server estimates the cost
of validation rules from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

from balancedstream.core.policy import Knob, Mode, knobs
from balancedstream.errors import InvalidInputError

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    """A string.

    Attributes:
        sentence: what it is.
        most: greatest length, in characters.
        pattern: regular expression that the whole must match; empty for any.
    """

    sentence: str
    most: int = 253
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Number:
    """A number of the field's type, both ends inclusive."""

    sentence: str
    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class Words:
    """One of a few words."""

    sentence: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Switch:
    """True or false."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of strings, or a map from string to string."""

    sentence: str
    most: int
    most_length: int = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """An object that is a spec class itself."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object whose form is Kubernetes' own, and checked by it when it is used."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Knobs:
    """An object that holds the knobs of a section of the policy, read as `policy.parse` takes it.

    Attributes:
        section: its name in `balancedstream.core.policy`.
        sentence: what it is.
        omit: fields that stand elsewhere in the manifest.
        rules: validation rules of the object.
    """

    section: str
    sentence: str
    omit: tuple[str, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()


_Declared = Text | Number | Words | Switch | Texts | Part | Foreign | Knobs
_Spec = TypeVar("_Spec")


def rule(expression: str, message: str) -> Schema:
    """A validation rule for a class's `RULES`, in the Common Expression Language."""
    return {"rule": expression, "message": message}


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
    """The OpenAPI schema of a spec class, defaults and rules included.

    >>> @dataclass(frozen=True)
    ... class Size:
    ...     least: Annotated[int, Number("The least.", 1, 9)] = 2
    >>> describe(Size)["properties"]["least"]["default"]
    2
    """
    properties: Schema = {}
    required = []
    for entry, value_kind, declared in _entries(kind):
        schema = _describe_value(value_kind, declared)
        default = _default(entry)
        if default is MISSING:
            required.append(camel(entry.name))
        elif is_dataclass(default):
            # The API server fills the object's own defaults in.
            schema["default"] = {}
        elif isinstance(declared, Knobs):
            # Its rules are tried on the default as it stands here.
            schema["default"] = {n: p["default"] for n, p in schema["properties"].items()}
        elif default is not None:
            schema["default"] = list(default) if isinstance(default, tuple) else default
        properties[camel(entry.name)] = schema
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    rules = getattr(kind, "RULES", ())
    if rules:
        schema["x-kubernetes-validations"] = list(rules)
    return schema


def read(kind: type[_Spec], manifest: object, path: str = "spec") -> _Spec:
    """An instance of a spec class from what a manifest holds.

    The API server checked most of it before; this names the field where it could not.

    Raises:
        InvalidInputError: a missing or unknown field, a wrong type or a value out of range.

    >>> @dataclass(frozen=True)
    ... class Size:
    ...     least: Annotated[int, Number("The least.", 1, 9)] = 2
    >>> read(Size, {"least": 12})
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: spec.least: must be an integer from 1 to 9, not 12
    """
    given = _mapping(path, manifest)
    known = {camel(entry.name): (entry, *rest) for entry, *rest in _entries(kind)}
    _refuse_unknown(path, given, known)
    values: dict[str, Any] = {}
    for name, (entry, value_kind, declared) in known.items():
        if given.get(name) is not None:
            values[entry.name] = _read_value(value_kind, declared, given[name], f"{path}.{name}")
        elif _default(entry) is MISSING:
            message = f"{path}.{name}: missing"
            raise InvalidInputError(message)
    return kind(**values)


def _entries(kind: type) -> list[tuple[Field[Any], Any, _Declared]]:
    hints = get_type_hints(kind, include_extras=True)
    entries = []
    for entry in fields(cast("Any", kind)):
        hint = hints[entry.name]
        if get_origin(hint) is not Annotated:
            message = f"{kind.__name__}.{entry.name} is not annotated"
            raise TypeError(message)
        value_kind, declared = get_args(hint)
        entries.append((entry, value_kind, declared))
    return entries


def _default(entry: Field[Any]) -> Any:
    if entry.default_factory is not MISSING:
        return entry.default_factory()
    return entry.default


def _describe_value(kind: Any, declared: _Declared) -> Schema:
    schema: Schema = {"description": declared.sentence}
    match declared:
        case Text(most=most, pattern=pattern):
            schema |= {"type": "string", "maxLength": most}
            if pattern:
                schema["pattern"] = f"^{pattern}$"
        case Number(minimum=minimum, maximum=maximum):
            schema |= _describe_number(_is_whole(kind), minimum, maximum)
        case Words(choices=choices):
            schema |= {"type": "string", "enum": list(choices)}
        case Switch():
            schema |= {"type": "boolean"}
        case Texts(most=most, most_length=most_length):
            text = {"type": "string", "maxLength": most_length}
            if get_origin(kind) is tuple:
                schema |= {"type": "array", "items": text, "maxItems": most}
            else:
                schema |= {
                    "type": "object",
                    "additionalProperties": text,
                    "maxProperties": most,
                }
        case Part():
            schema |= describe(_part(kind))
        case Foreign():
            schema |= {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case Knobs():
            schema |= _describe_knobs(declared)
    return schema


def _knobs_of(declared: Knobs) -> dict[str, Knob]:
    """Field name in the policy to its knob."""
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
        schema: Schema = {"description": f"{knob.sentence}{unit}", "default": _word(knob.default)}
        if knob.bounds is None:
            schema |= {"type": "string", "enum": [_word(choice) for choice in knob.choices]}
        else:
            schema |= _describe_number(knob.kind is int, *knob.bounds)
        properties[camel(name)] = schema
    described: Schema = {"type": "object", "properties": properties}
    if declared.rules:
        described["x-kubernetes-validations"] = [rule(*entry) for entry in declared.rules]
    return described


def _word(value: Any) -> Any:
    """The core's mode words are capitalized in manifests, as Kubernetes' own are."""
    return value.capitalize() if value in get_args(Mode) else value


def _read_value(kind: Any, declared: _Declared, value: object, path: str) -> Any:
    match declared:
        case Text(most=most):
            return _text(path, value, most)
        case Number(minimum=minimum, maximum=maximum, sentence=sentence):
            of = int if _is_whole(kind) else float
            Knob(path, of, "", minimum, (minimum, maximum), (), sentence).check(value)
            return value
        case Words(choices=choices, sentence=sentence):
            Knob(path, str, "", choices[0], None, choices, sentence).check(value)
            return value
        case Switch():
            if not isinstance(value, bool):
                message = f"{path}: must be true or false, not {value!r}"
                raise InvalidInputError(message)
            return value
        case Texts(most_length=most):
            if get_origin(kind) is tuple:
                if not isinstance(value, Sequence) or isinstance(value, str):
                    message = f"{path}: must be a list, not {value!r}"
                    raise InvalidInputError(message)
                return tuple(_text(f"{path}[{i}]", text, most) for i, text in enumerate(value))
            texts = _mapping(path, value)
            return {key: _text(f"{path}.{key}", text, most) for key, text in texts.items()}
        case Part():
            return read(_part(kind), value, path)
        case Foreign():
            return _mapping(path, value)
        case Knobs():
            return _read_knobs(declared, _mapping(path, value), path)


def _read_knobs(declared: Knobs, given: Mapping[str, Any], path: str) -> dict[str, Any]:
    known = {camel(name): (name, knob) for name, knob in _knobs_of(declared).items()}
    _refuse_unknown(path, given, known)
    values = {}
    for key, value in given.items():
        name, knob = known[key]
        mode = knob.choices == get_args(Mode) and isinstance(value, str)
        values[name] = value.lower() if mode else value
        if not knob.fits(values[name]):
            shown = replace(knob, path=f"{path}.{key}", choices=tuple(map(_word, knob.choices)))
            message = f"{shown.path}: must be {shown.allowed}, not {value!r}"
            raise InvalidInputError(message)
    return values


def _refuse_unknown(path: str, given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            message = f"{path}.{name}: unknown field, allowed are {', '.join(known)}"
            raise InvalidInputError(message)


def _describe_number(whole: bool, least: float, most: float) -> Schema:
    if whole:
        return {"type": "integer", "minimum": int(least), "maximum": int(most)}
    schema: Schema = {"type": "number", "minimum": least, "maximum": most}
    if least % 1:
        # The API server compares a number that is written as an integer with the bound's integer
        # part, so that 0 would pass for 0.001.
        schema["x-kubernetes-validations"] = [
            rule(f"self >= {least}", f"must be at least {least:.15g}")
        ]
    return schema


def _is_whole(kind: Any) -> bool:
    """Whether a number is an integer, or None where it is left out."""
    return kind is int or int in get_args(kind)


def _part(kind: Any) -> type:
    """The spec class of a field, which may be None where it is left out."""
    found: type = next(k for k in (get_args(kind) or (kind,)) if k is not type(None))
    return found


def _mapping(path: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        message = f"{path}: must be an object, not {value!r}"
        raise InvalidInputError(message)
    return dict(value)


def _text(path: str, value: object, most: int) -> str:
    if not isinstance(value, str) or len(value) > most:
        message = f"{path}: must be text of at most {most} characters, not {value!r}"
        raise InvalidInputError(message)
    return value
