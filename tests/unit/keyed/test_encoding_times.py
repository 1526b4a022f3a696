"""Texts of keys with times name the same key in every zone, and no key is confused with another."""

from __future__ import annotations

import datetime
import functools
import zoneinfo
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from key_types import encode
from pyspark.sql import Row
from pyspark.sql import types as spark
from pyspark.sql.types import StructType

from balancedstream.core.keys.epochs import Epoch
from balancedstream.errors import InvalidInputError
from balancedstream.keyed import processors
from balancedstream.keyed.processors import MovableProcessor, StripRows
from balancedstream.keyed.storage import Operator

# The last two were set back at midnight and by half an hour, Lisbon without summer time (1912).
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Europe/Lisbon",
    "America/Havana",
    "Australia/Lord_Howe",
)
US_PER_S = 1_000_000
BACK_S = 1_729_990_800
"""Clocks are set back by an hour in Berlin, on 27 October 2024."""

FIRST_S, LAST_S = -62_100_000_000, 253_300_000_000
"""In the years 2 and 9996."""

PAIR = StructType().add("n", spark.IntegerType()).add("at", spark.TimestampType())
NESTED: dict[str, tuple[spark.DataType, Callable[[Any], Any]]] = {
    "alone": (spark.TimestampType(), lambda at: at),
    "array": (spark.ArrayType(spark.TimestampType()), lambda at: [None, at]),
    "struct as Spark has it": (PAIR, lambda at: Row(n=7, at=at)),
    "struct as Arrow has it": (PAIR, lambda at: {"n": 7, "at": at}),
    "array of structs": (spark.ArrayType(PAIR), lambda at: [Row(n=7, at=at), Row(n=8, at=None)]),
    "struct of an array": (
        StructType().add("days", spark.ArrayType(spark.ArrayType(spark.TimestampType()))),
        lambda at: {"days": [[], [at]]},
    ),
}
NESTING = pytest.mark.parametrize("nesting", NESTED)
zones = st.sampled_from(ZONES)
near = st.integers(BACK_S - 7200, BACK_S + 7200)
instants_us = st.builds(
    lambda at_s, us: at_s * US_PER_S + us,
    near | st.integers(FIRST_S, LAST_S),
    st.integers(0, US_PER_S - 1),
)
# The time zone is set anew by each example.
per_example = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@functools.cache
def list_changes(zone: str) -> list[int]:
    """Seconds at which the clocks of a zone were set, from 1893 on."""
    in_zone = zoneinfo.ZoneInfo(zone)
    found = []
    for day_s in range(-2_400_000_000, 1_800_000_000, 86_400):
        offsets = [
            datetime.datetime.fromtimestamp(at_s, in_zone).utcoffset()
            for at_s in (day_s, day_s + 86_400)
        ]
        if offsets[0] != offsets[1]:
            low, high = day_s, day_s + 86_400
            while high - low > 1:
                middle = (low + high) // 2
                offset = datetime.datetime.fromtimestamp(middle, in_zone).utcoffset()
                low, high = (middle, high) if offset == offsets[0] else (low, middle)
            found.append(high)
    return found


@NESTING
@per_example
@given(zone=zones, session=zones, at_us=instants_us)
@example(zone="Europe/Berlin", session="UTC", at_us=1729987800000000)
@example(zone="Europe/Berlin", session="UTC", at_us=1729991400000000)
@example(zone="Europe/Berlin", session="Europe/Berlin", at_us=1729991400000000)
def test_a_timestamp_is_one_key_as_arrow_has_it_as_a_timer_has_it_and_as_text(
    travel: Callable[[str], None], nesting: str, zone: str, session: str, at_us: int
) -> None:
    travel(zone)
    of_type, nest = NESTED[nesting]
    encoding = encode(of_type)
    # As PySpark unpickles it for a timer.
    local = spark.TimestampType().fromInternal(at_us)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    aware = (epoch + datetime.timedelta(microseconds=at_us)).astimezone(zoneinfo.ZoneInfo(session))
    text = encoding.write((nest(local),))
    assert str(at_us) in text
    assert encoding.write((nest(aware),)) == text
    assert encoding.spell(text) == text
    assert encoding.comes_twice((nest(local),)) == encoding.comes_twice(encoding.read(text))


@NESTING
@pytest.mark.parametrize("zone", ZONES)
def test_what_does_not_come_twice_is_the_key_that_spark_finds(
    travel: Callable[[str], None], nesting: str, zone: str
) -> None:
    travel(zone)
    of_type, nest = NESTED[nesting]
    encoding, twice = encode(of_type), 0
    in_zone = zoneinfo.ZoneInfo(zone)
    for change_s in list_changes(zone):
        for at_s in range(change_s - 5400, change_s + 5400, 900):
            local = nest(spark.TimestampType().fromInternal(at_s * US_PER_S))
            aware = nest(datetime.datetime.fromtimestamp(at_s, in_zone))
            comes_twice = encoding.comes_twice((local,))
            assert encoding.comes_twice((aware,)) == comes_twice
            assert encoding.can_move(encoding.write((local,))) != comes_twice
            twice += comes_twice
            if not comes_twice:
                assert str(at_s * US_PER_S) in repr(of_type.toInternal(local))
    assert bool(twice) == (zone != "UTC")


def test_a_key_that_comes_twice_in_the_zone_of_the_session_alone_is_seen_too(
    travel: Callable[[str], None],
) -> None:
    travel("UTC")
    encoding = encode(spark.StringType(), spark.TimestampType())
    for zone, expected in (("UTC", False), ("Europe/Berlin", True)):
        at = datetime.datetime.fromtimestamp(BACK_S - 600, zoneinfo.ZoneInfo(zone))
        assert encoding.comes_twice(("de", at)) is expected
    assert not encoding.comes_twice(("de", None))


def test_a_key_in_the_hour_that_comes_twice_is_refused_with_the_reason(
    travel: Callable[[str], None],
) -> None:
    travel("Europe/Berlin")
    encoding = encode(spark.TimestampType())
    with pytest.raises(InvalidInputError, match=r"^key 1729991400000000: .*hour that comes twice"):
        encoding.check_movable("1729991400000000")
    assert encoding.spell("1729991400000000") == "1729991400000000", "an epoch may have it"
    assert encoding.can_move("1729980000000000")


class Timed:
    """A user's processor whose key has a timer that is due at once."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n INT")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:
        return iter(())

    def handleExpiredTimer(self, key: Any, timers: Any, expired: Any) -> Any:
        return iter(())

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("at_s", "pieces"), [(BACK_S - 600, 0), (BACK_S - 7200, 1)])
@pytest.mark.parametrize("timer_is_due", [False, True])
def test_a_key_that_spark_may_confuse_is_not_handed_over(
    travel: Callable[[str], None], at_s: int, pieces: int, timer_is_due: bool
) -> None:
    travel("Europe/Berlin")
    encoding = encode(spark.TimestampType())
    text = str(at_s * US_PER_S)
    written: dict[str, tuple[int, int]] = {}
    writer = SimpleNamespace(
        pieces=written, file="f", close=lambda: None,
        add=lambda key, content: written.update({key: (0, len(content))}),
    )  # fmt: skip
    home = SimpleNamespace(open_handoff=lambda *_: writer)
    context = SimpleNamespace(
        home=home, epoch=Epoch(1, 0, asked=(text,)), batch=0, partition=0, attempt=0,
        query="q", run_id="r", checkpoint="c",
    )  # fmt: skip
    state = SimpleNamespace(get=lambda: (7,), update=None, clear=None)
    handle = SimpleNamespace(
        getValueState=lambda *_: state,
        listTimers=lambda: iter([5] if timer_is_due else []),
        _statefulProcessorApiClient=SimpleNamespace(
            _parse_string_schema=lambda _: StructType().add("n", spark.IntegerType())
        ),
    )
    reports: Any = SimpleNamespace(add=lambda _: None)
    schema = StructType().add("at", spark.TimestampType())
    user: Any = Timed()
    strip = StripRows(schema, ("at",))
    processor = MovableProcessor(
        user, Operator(), encoding, "ProcessingTime", reports, strip, strip
    )
    with (
        mock.patch.object(processors, "TaskContext", SimpleNamespace(get=object)),
        mock.patch.object(processors, "BatchContext", lambda name: context),  # noqa: PT008
    ):
        processor.init(handle)
    times: Any = SimpleNamespace(getCurrentProcessingTimeInMs=lambda: 10)
    at = datetime.datetime.fromtimestamp(at_s, zoneinfo.ZoneInfo("Europe/Berlin"))
    [*processor.handleInputRows((0, at), iter([Row(at, 0)]), times)]
    if timer_is_due:
        key = Row(0, spark.TimestampType().fromInternal(at_s * US_PER_S))
        expired: Any = SimpleNamespace(getExpiryTimeInMs=lambda: 5)
        [*processor.handleExpiredTimer(key, times, expired)]
    assert len(written) == pieces
