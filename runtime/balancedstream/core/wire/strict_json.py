"""JSON between operator and driver: bounded, read field by field, refused with the field's name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from balancedstream.core.samples import LARGEST
from balancedstream.errors import InvalidInputError, PlanTooLargeError

MAX_BYTES = 512 * 1024
"""Size of the largest text that is written or read."""

# The largest integer that every JSON reader reads exactly.
_MAX_INTEGER = 2**53 - 1


def write_json(fields: Mapping[str, object]) -> str:
    """Equal fields give equal ASCII text."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def read_json(what: str, text: str | bytes) -> object:
    """Reads a text in which no field appears twice.

    Raises:
        InvalidInputError: it is no JSON; the message begins with `what`.
        PlanTooLargeError: it has more bytes than `MAX_BYTES`.
    """
    check_size(what, len(text if isinstance(text, bytes) else text.encode(errors="replace")))
    try:
        return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        message = f"{what}: is no valid JSON ({problem}); nothing changed"
        raise InvalidInputError(message) from problem


def check_size(what: str, size: int) -> None:
    """Refuses what has too many bytes.

    Raises:
        PlanTooLargeError: more than `MAX_BYTES`.
    """
    if size > MAX_BYTES:
        message = (
            f"{what}: has {size} bytes, at most {MAX_BYTES} fit; nothing changed: use fewer "
            f"state partitions or key placements"
        )
        raise PlanTooLargeError(message)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        repeated = next(name for name, count in Counter(n for n, _ in pairs).items() if count > 1)
        message = f"field {repeated} appears twice"
        raise ValueError(message)
    return names


def _no_constant(name: str) -> NoReturn:
    message = f"{name} is no number in JSON"
    raise ValueError(message)


def check_object(
    path: str, value: object, *, required: Sequence[str], optional: Sequence[str]
) -> dict[str, Any]:
    """Checks that a JSON object has all required fields and no unknown ones, and returns it."""
    fields = check_mapping(path, value)
    allowed = [*required, *optional]
    for name in fields:
        if name not in allowed:
            message = f"{path}.{name}: unknown field, allowed are {', '.join(allowed)}"
            raise InvalidInputError(message)
    for name in required:
        if name not in fields:
            message = f"{path}.{name}: is missing"
            raise InvalidInputError(message)
    return fields


def check_mapping(path: str, value: object) -> dict[str, Any]:
    """Checks that a value is a JSON object, and returns it."""
    if not isinstance(value, dict):
        refuse(path, "an object", value)
    return value


def check_array(path: str, value: object) -> tuple[Any, ...]:
    """Checks that a value is a JSON array, and returns its items."""
    if not isinstance(value, list):
        refuse(path, "an array", value)
    return tuple(value)


def check_name(path: str, value: object) -> None:
    """Checks that a value is text that is not empty."""
    if not isinstance(value, str) or not value:
        refuse(path, "text that is not empty", value)


def check_integer(path: str, value: object, least: int, most: int = _MAX_INTEGER) -> None:
    """Checks that a value is an integer within limits, both inclusive."""
    if type(value) is not int or not least <= value <= most:
        refuse(path, f"an integer from {least} to {most}", value)


def check_number(path: str, value: object) -> None:
    """Checks that a value is a number from 0 on that is not absurd."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LARGEST:
        refuse(path, f"a number from 0 to {LARGEST:.0e}", value)


def check_switch(path: str, value: object) -> None:
    """Checks that a value is true or false."""
    if not isinstance(value, bool):
        refuse(path, "true or false", value)


def refuse(path: str, allowed: str, value: object) -> NoReturn:
    """Says what a field must be.

    Raises:
        InvalidInputError: always.
    """
    message = f"{path}: must be {allowed}, not {value!r:.80}; nothing changed"
    raise InvalidInputError(message)
