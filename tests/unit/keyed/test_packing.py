"""State on its way is values, and nothing that runs code."""

from __future__ import annotations

import datetime
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.types import TimestampNTZType, TimestampType

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


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
TWICE_US = 1_792_888_200_123_456
"""2026-10-25, half past two in Berlin, for the first time; an hour later for the second."""

YEAR_US = 366 * 86_400_000_000


@given(
    st.integers(-1_900 * YEAR_US, 7_000 * YEAR_US), ZONES, ZONES, st.sampled_from([Row, list, dict])
)
@example(TWICE_US, "Europe/Berlin", "Europe/Berlin", Row)
@example(TWICE_US + 3_600_000_000, "Europe/Berlin", "Europe/Berlin", list)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_timestamp_stays_the_instant_and_one_without_a_zone_what_clocks_show(
    travel: Callable[[str], None], at_us: int, source: str, target: str, kind: type
) -> None:
    travel(source)
    instant, clock = TimestampType().fromInternal(at_us), TimestampNTZType().fromInternal(at_us)
    nested = {Row: Row(at=instant), list: [instant], dict: {instant: instant}}[kind]
    packed = pack_state(({"v": (instant, clock, nested)}, []), as_instants=True)
    travel(target)
    assert packed is not None
    taken = unpack_state(packed)[0]["v"]
    assert TimestampType().toInternal(taken[0]) == at_us
    assert TimestampNTZType().toInternal(taken[1]) == at_us
    assert TimestampType().toInternal(next(iter(taken[2]))) == at_us


CLOCKS = [
    # What clocks never showed.
    ("Europe/Berlin", datetime.datetime(2026, 3, 29, 2, 30)),  # noqa: DTZ001
    ("America/New_York", datetime.datetime(2026, 3, 8, 2, 0, 0, 1)),  # noqa: DTZ001
    # The ends of the calendar.
    *(
        (zone, clock)
        for zone in ("Europe/Berlin", "America/New_York")
        for clock in (datetime.datetime.min, datetime.datetime.max)  # noqa: DTZ901
    ),
]


@pytest.mark.parametrize(("zone", "clock"), CLOCKS)
def test_a_time_that_is_no_instant_is_packed_as_it_was_written(
    travel: Callable[[str], None], zone: str, clock: datetime.datetime
) -> None:
    travel(zone)
    packed = pack_state(clock, as_instants=True)
    assert packed is not None
    number = TimestampNTZType().toInternal(clock)
    assert TimestampNTZType().toInternal(unpack_state(packed)) == number


@settings(max_examples=400)
@given(st.data())
def test_damaged_state_is_refused_or_some_value_and_nothing_else(data: st.DataObject) -> None:
    whole = bytearray(
        pack_state(({"total": (7, "é", Decimal("1.5"))}, [1000, 2**70]), as_instants=True) or b""
    )
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] = data.draw(st.integers(0, 255))
    with suppress(CheckpointError):
        unpack_state(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
