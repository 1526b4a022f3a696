"""State during a handoff, as bytes: any value of a state variable, and nothing that runs code.

Anyone who can write to the checkpoint's storage could leave a pickle there that runs code when it
is read. So only the classes that make up values of Spark's types are read.
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
"""The first protocol with bytearray, which Spark returns for a binary value."""

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
    """Creates nothing but values."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _KNOWN:
            return super().find_class(module, name)
        message = f"{module}.{name} is no value of a state variable"
        raise pickle.UnpicklingError(message)


class _InstantPickler(pickle.Pickler):
    """Gives times without a time zone that of this machine, as it was at that time.

    So a timestamp stays the same instant, also in an executor in another time zone, and in the hour
    that comes twice when clocks are set back. A timestamp_ntz stays the same local time, also in
    the hour that clocks skip. For both see `toInternal` in `pyspark.sql.types`.
    """

    def reducer_override(self, value: Any) -> Any:
        """Pickle calls this for every value whose type is not in `builtins`."""
        if type(value) is datetime.datetime and value.tzinfo is None:
            try:
                instant = value.astimezone()
            except (OverflowError, ValueError):
                # On the first or last day of the calendar, when no clock was set back.
                return NotImplemented
            # In the hour that clocks skip there are no instants.
            if instant.replace(tzinfo=None) == value:
                return instant.__reduce_ex__(PROTOCOL)
        return NotImplemented


def pack_state(content: Any, *, as_instants: bool = False) -> bytes | None:
    """The state of a key as bytes; None if it has values that `unpack_state` refuses.

    Args:
        content: values of Spark's types in Python.
        as_instants: give times a time zone, for values that Spark converts before a user sees them.

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
    """The state that `pack_state` packed.

    Raises:
        CheckpointError: it contains anything but values.
    """
    try:
        return _Unpickler(io.BytesIO(packed)).load()
    except Exception as problem:
        # Of damaged bytes, pickle raises almost anything.
        message = (
            f"the state of a key cannot be taken over ({problem}); the batch was not committed and "
            "no state is lost: find out who else writes to the checkpoint's storage"
        )
        raise CheckpointError(message) from problem


def check_packable(what: str, schema: StructType) -> None:
    """Refuses state that cannot be handed over, from its schema and so before any data.

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
