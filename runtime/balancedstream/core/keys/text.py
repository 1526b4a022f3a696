"""Keys as text: the form in which plans, reports and metrics name a key. Our own design.

A key is written as JSON, so that a person can type it (`"de"`, `42`, `["de",7]` for a key of two
columns) and every value has one spelling.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import struct
from decimal import Decimal
from typing import Literal

from balancedstream.core.keys.routes import spark_hash
from balancedstream.core.keys.types import ArrayKey, DecimalKey, KeyType, Primitive, StructKey
from balancedstream.errors import RefusedKeyError

KeyNaming = Literal["plain", "hashed", "off"]

HASHED = "#"
"""First character of the name of a hashed key; the text of a key never starts with it."""

# `json.dumps` would create an encoder for each key.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def write_key(value: object, key_type: KeyType) -> str:
    """Write a key as one line of JSON; equal keys give equal text.

    Args:
        value: as `types.Primitive` describes; None for null.
        key_type: type of the key.

    >>> write_key("de", Primitive("string"))
    '"de"'
    >>> columns = StructKey((("day", Primitive("date")), ("share", Primitive("double"))))
    >>> write_key((19000, -0.0), columns)
    '[19000,0.0]'
    """
    return _encode(_write(value, key_type))


def read_key(text: str, key_type: KeyType) -> object:
    """Read a key that `write_key` or a person wrote.

    Returns:
        The value, as `routes.spark_hash` takes it.

    Raises:
        RefusedKeyError: the text is not JSON, or not a value of the type; the message names the
            key.

    >>> read_key('["de",7]', StructKey((("land", Primitive("string")), ("n", Primitive("long")))))
    ('de', 7)
    """
    try:
        value = _read(json.loads(text), key_type)
        spark_hash(value, key_type)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as problem:
        why = f"is no key of this stream, whose keys have the type {key_type}"
        consequence = "nothing changed: write it as JSON, text in quotes"
        raise RefusedKeyError(text, why, consequence, detail=str(problem)) from problem
    return value


def name_key(text: str, naming: KeyNaming) -> str | None:
    """The name of a key outside its job.

    Args:
        text: the key as `write_key` writes it.
        naming: `plain` gives the text; `hashed` gives `HASHED` and the first 16 digits of the
            text's SHA-256; `off` gives no name.

    >>> name_key('"de"', "plain"), name_key('"de"', "hashed"), name_key('"de"', "off")
    ('"de"', '#fa20977256dfdd5a', None)
    """
    if naming == "off":
        return None
    if naming == "plain":
        return text
    return f"{HASHED}{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _write(value: object, key_type: KeyType) -> object:
    match key_type, value:
        case _, None:
            return None
        case Primitive("float" | "double"), float():
            return value + 0.0 if math.isfinite(value) else _name_special(value)
        case Primitive("binary"), bytes() | bytearray():
            return base64.b64encode(value).decode()
        case DecimalKey(_, scale), Decimal():
            # A decimal also has a negative zero; equal keys need the same text.
            return f"{value or Decimal():.{scale}f}"
        case ArrayKey(element), list() | tuple():
            return [_write(entry, element) for entry in value]
        case StructKey(fields), tuple():
            return [
                _write(entry, field_type)
                for entry, (_, field_type) in zip(value, fields, strict=True)
            ]
        case _:
            return value


def _name_special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _read(value: object, key_type: KeyType) -> object:
    match key_type, value:
        case Primitive("float" | "double"), str():
            if value not in _SPECIAL:
                message = f"{value!r} is no number"
                raise ValueError(message)
            return _SPECIAL[value]
        case Primitive("double"), int() if not isinstance(value, bool):
            return float(value)
        case Primitive("float"), int() | float() if not isinstance(value, bool):
            # A person may write a number that no 32-bit float has; take the closest float.
            (narrow,) = struct.unpack("<f", struct.pack("<f", float(value)))
            return narrow
        case Primitive("binary"), str():
            try:
                return base64.b64decode(value, validate=True)
            except binascii.Error as problem:
                message = f"{value!r} is not base64"
                raise ValueError(message) from problem
        case DecimalKey(), str() | int() if not isinstance(value, bool):
            return Decimal(value)
        case ArrayKey(element), list():
            return [_read(entry, element) for entry in value]
        case StructKey(fields), list():
            return tuple(
                _read(entry, field_type)
                for entry, (_, field_type) in zip(value, fields, strict=True)
            )
        case _:
            return value


def freeze_key(value: object) -> object:
    """A hashable form of a key: lists become tuples, and there is one NaN and one zero.

    >>> freeze_key(["a", float("nan")]) == freeze_key(["a", float("nan")])
    True
    """
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list | tuple):
        return tuple(freeze_key(entry) for entry in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value
