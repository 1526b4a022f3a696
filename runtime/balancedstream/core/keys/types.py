"""The types of keys with a hash that this package can compute as Spark does.

Spark describes a type by the `jsonValue` of its `DataType`. A job with keys of any other type runs,
but its keys never move.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from balancedstream.errors import InvalidInputError

PRIMITIVES = frozenset(
    {
        *("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary"),
        *("date", "timestamp", "timestamp_ntz", "time"),
    }
)

_MAX_DIGITS = 38

_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_TIME = re.compile(r"time\(\d\)")


@dataclass(frozen=True, slots=True)
class Primitive:
    """A key type without parts, with the name in Spark's `jsonValue`.

    Values are as PySpark's `dataType.toInternal` returns them: `bool`, `int`, `float`, `str` and
    `bytes`; a date is in days, both kinds of timestamp are in microseconds since the Unix epoch; a
    time is in nanoseconds since midnight.
    """

    name: str


@dataclass(frozen=True, slots=True)
class DecimalKey:
    """Decimals with `precision` digits, from 1 to 38; `scale` digits are after the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ArrayKey:
    """Lists of one type; elements may be null."""

    element: KeyType


@dataclass(frozen=True, slots=True)
class StructKey:
    """Tuples with named fields, also for a key of several columns."""

    fields: tuple[tuple[str, KeyType], ...]


@dataclass(frozen=True, slots=True)
class NeverMoved:
    """A key type without a known hash: a job with such keys runs, but its keys never move.

    Attributes:
        reason: the type, its place in the key, and the consequence, in words.
    """

    reason: str


KeyType = Primitive | DecimalKey | ArrayKey | StructKey

INTEGER = Primitive("integer")


class _Unhashed(Exception):  # noqa: N818 - never leaves this module
    """Carries the reason for `NeverMoved` up."""


def parse_key_type(json_value: object) -> KeyType | NeverMoved:
    """Read the type of a key from Spark's description of it.

    Args:
        json_value: for a key of one column, such as `schema["user_id"].dataType.jsonValue()`. For a
            key of several columns, and for a description that the JVM wrote, the `jsonValue()` of a
            schema with just these columns: the JVM notes a collation in the field only.

    Returns:
        The type. `NeverMoved` if it is, or contains, any other type than boolean, byte, short,
        integer, long, float, double, string with the default collation, binary, decimal, date,
        timestamp, timestamp_ntz, time, array and struct.

    Raises:
        InvalidInputError: `json_value` does not describe a type.

    >>> parse_key_type("string")
    Primitive(name='string')
    >>> field = {"name": "tags", "type": "variant", "nullable": True, "metadata": {}}
    >>> parse_key_type({"type": "struct", "fields": [field]}).reason
    'key.tags is of type variant, whose hash is not known here: keys of this job are never moved'
    """
    try:
        return _parse("key", json_value)
    except _Unhashed as found:
        reason = f"{found}, whose hash is not known here: keys of this job are never moved"
        return NeverMoved(reason)


def _parse(path: str, json_value: object) -> KeyType:
    match json_value:
        case str(name):
            return _parse_name(path, name)
        case {"type": "array", "elementType": element}:
            return ArrayKey(_parse(f"{path}[]", element))
        case {"type": "struct", "fields": [*fields]}:
            return StructKey(tuple(_parse_field(path, field) for field in fields))
        case {"type": str(name)} if name not in {"array", "struct"}:
            raise _unhashed(path, f"is of type {name}")
        case _:
            raise _invalid(path, "a type as dataType.jsonValue() writes it", json_value)


def _parse_name(path: str, name: str) -> KeyType:
    if name in PRIMITIVES:
        return Primitive(name)
    if _TIME.fullmatch(name):
        return Primitive("time")
    decimal = _DECIMAL.fullmatch(name)
    if decimal and int(decimal[2]) <= int(decimal[1]) <= _MAX_DIGITS and int(decimal[1]):
        return DecimalKey(precision=int(decimal[1]), scale=int(decimal[2]))
    raise _unhashed(path, f"is of type {name}")


def _parse_field(path: str, field: object) -> tuple[str, KeyType]:
    match field:
        # Spark notes a collation other than the default in the field that contains the string.
        case {"name": str(name), "metadata": {"__COLLATIONS": _}}:
            raise _unhashed(path, f"has in {name} a string of another collation than UTF8_BINARY")
        case {"name": str(name), "type": json_value}:
            return name, _parse(f"{path}.{name}", json_value)
        case _:
            raise _invalid(path, "a struct of fields with a name and a type", field)


def _unhashed(path: str, finding: str) -> _Unhashed:
    return _Unhashed(f"{path} {finding}")


def _invalid(path: str, allowed: str, value: object) -> InvalidInputError:
    return InvalidInputError(f"{path}: must be {allowed}, not {value!r:.80}")
