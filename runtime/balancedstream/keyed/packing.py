"""State on its way, as bytes: whatever a state variable holds, and nothing that runs code.

Whoever can write to the checkpoint's storage could leave a pickle there that does something when it
is read. So only what the values of Spark's types are made of is taken in.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from balancedstream.errors import CheckpointError

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


class _Unpickler(pickle.Unpickler):
    """Makes nothing but values."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _KNOWN:
            return super().find_class(module, name)
        message = f"{module}.{name} is no value of a state variable"
        raise pickle.UnpicklingError(message)


def pack_state(content: Any) -> bytes | None:
    """What a key has, as bytes; None if it holds values of a type that is not taken in elsewhere.

    >>> unpack_state(pack_state(({"total": (7,)}, [1000])))
    ({'total': (7,)}, [1000])
    """
    packed = pickle.dumps(content, protocol=PROTOCOL)
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
