"""State on its way, as bytes: whatever a state variable holds, and nothing that runs code.

Whoever can write to the checkpoint's storage could leave a pickle there that does something when it
is read. So only what the values of Spark's types are made of is taken in.
"""

from __future__ import annotations

import datetime
import io
import pickle
from typing import Any

from pyspark.sql.types import (
    SpatialType,
    StructType,
    UserDefinedType,
    VariantType,
)

from balancedstream.errors import CheckpointError, InvalidInputError
from balancedstream.workers.schemas import holds_type

PROTOCOL = 5
"""The first that knows a bytearray, which is what Spark gives for a binary value."""

_KNOWN = {
    ("datetime", "date"),
    ("datetime", "datetime"),
    ("datetime", "time"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
    ("decimal", "Decimal"),
    ("pyspark.sql.types", "Row"),
    ("pyspark.sql.types", "_create_row"),
}

_UNKNOWN = VariantType, SpatialType, UserDefinedType
"""Values of these types are objects of classes that are not among the known ones."""


class _Unpickler(pickle.Unpickler):
    """Makes nothing but values."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _KNOWN:
            return super().find_class(module, name)
        message = f"{module}.{name} is no value of a state variable"
        raise pickle.UnpicklingError(message)


class _InstantPickler(pickle.Pickler):
    """Gives times without a zone the one of this machine, as it was then.

    Of Spark's types, a timestamp so remains the instant that it is: in an executor whose machine
    has another zone, and in the hour that comes twice when clocks are put back. A timestamp_ntz
    remains what clocks show, in the hour that they leave out too. For both see `toInternal` in
    `pyspark.sql.types`.
    """

    def reducer_override(self, value: Any) -> Any:
        """Called for every value that is not of a type of `builtins`."""
        if type(value) is datetime.datetime and value.tzinfo is None:
            try:
                instant = value.astimezone()
            except (OverflowError, ValueError):
                # On the first or last day of the calendar, when no clock was put back.
                return NotImplemented
            # In the hour that clocks leave out there are no instants.
            if instant.replace(tzinfo=None) == value:
                return instant.__reduce_ex__(PROTOCOL)
        return NotImplemented


def pack_state(content: Any, *, as_instants: bool = False) -> bytes | None:
    """What a key has, as bytes; None if it holds values of a type that is not taken in elsewhere.

    Args:
        content: made of what Spark's types are in Python.
        as_instants: give times a zone; for values that are Spark's again before a user sees them.

    >>> unpack_state(pack_state(({"total": (7,)}, [1000])))
    ({'total': (7,)}, [1000])
    """
    file = io.BytesIO()
    pickler = _InstantPickler if as_instants else pickle.Pickler
    pickler(file, protocol=PROTOCOL).dump(content)
    packed = file.getvalue()
    try:
        unpack_state(packed)
    except CheckpointError:
        return None
    return packed


def unpack_state(packed: bytes) -> Any:
    """The same again.

    Raises:
        CheckpointError: it is something else than values.
    """
    try:
        return _Unpickler(io.BytesIO(packed)).load()
    except (pickle.UnpicklingError, EOFError) as problem:
        message = (
            f"the state of a key cannot be taken over ({problem}); the batch was not committed and "
            "no state is lost: look who else writes to the checkpoint's storage"
        )
        raise CheckpointError(message) from problem


def check_packable(what: str, schema: StructType) -> None:
    """Refuses state that could not be taken in elsewhere, by its schema and so before any data.

    Args:
        what: the user's name of the state.
        schema: of its values.

    Raises:
        InvalidInputError: values of one of its fields cannot be packed; the message names it.

    >>> check_packable("state variable 'seen'", StructType().add("at", VariantType()))
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: state variable 'seen': its field at is of type \
variant, and values of such a type cannot be handed over, so no key could change its state \
partition; no row was processed: keep them as text or as binary, or group without balanced(...)
    """
    for field in schema:
        if holds_type(field.dataType, _UNKNOWN):
            message = (
                f"{what}: its field {field.name} is of type {field.dataType.simpleString()}, and "
                "values of such a type cannot be handed over, so no key could change its state "
                "partition; no row was processed: keep them as text or as binary, or group "
                "without balanced(...)"
            )
            raise InvalidInputError(message)
