"""State on its way is values, and nothing that runs code."""

from __future__ import annotations

import datetime
import os
import pickle
from decimal import Decimal

import pytest
from pyspark.sql import Row

from balancedstream.errors import CheckpointError
from balancedstream.keyed.packing import pack_state, unpack_state


class RunsCode:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_values_of_all_kinds_are_packed_and_unpacked_alike() -> None:
    now = datetime.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    content = (
        {
            "value": (1, "de", b"x", bytearray(b"y"), None, True, 0.5, Decimal("1.20")),
            "list": [(now,), (now.date(),), (datetime.timedelta(seconds=3),)],
            "map": [((Row(a=1, b=[Row(c={"k": 2})]),), (now.time(),))],
        },
        [1, 2],
    )
    packed = pack_state(content)
    assert packed is not None
    assert unpack_state(packed) == content


def test_what_runs_code_is_neither_packed_nor_unpacked() -> None:
    assert pack_state(({"value": (RunsCode(),)}, [])) is None
    with pytest.raises(CheckpointError, match="system is no value of a state variable"):
        unpack_state(pickle.dumps(RunsCode()))


def test_half_a_state_is_refused() -> None:
    packed = pack_state(({"value": ("de",)}, []))
    assert packed is not None
    with pytest.raises(CheckpointError, match="no state is lost"):
        unpack_state(packed[:-3])
