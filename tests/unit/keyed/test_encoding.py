"""The keys of all movable types are the same keys as text, in Arrow's columns and in Python."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from key_types import DEEP, DEEP_TYPE, MIDNIGHT_UTC, PAIR, PAIR_TYPE, encode
from pyspark.sql import types as spark

from balancedstream.core.keys.routes import partition_of
from balancedstream.core.keys.types import Primitive

DAY = datetime.date(2024, 2, 29)
NOON_UTC = datetime.datetime(2024, 2, 29, 12, 30, 15, 999999, datetime.UTC)
NOON = NOON_UTC.replace(tzinfo=None)
FIRST = datetime.datetime.combine(datetime.date.min, datetime.time.min)
LAST = datetime.datetime.combine(datetime.date.max, datetime.time.max)
TINY = 1.401298464324817e-45
# Spark's type, Arrow's, and values as Arrow gives them to Python, no two of them the same key.
COLUMNS: dict[str, tuple[spark.DataType, pa.DataType, list[Any]]] = {
    "boolean": (spark.BooleanType(), pa.bool_(), [True, False]),
    "byte": (spark.ByteType(), pa.int8(), [-128, 0, 127]),
    "short": (spark.ShortType(), pa.int16(), [-(2**15), 7]),
    "integer": (spark.IntegerType(), pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (spark.LongType(), pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1]),
    "float": (spark.FloatType(), pa.float32(), [0.0, 0.5, TINY, math.inf, -math.inf, math.nan]),
    "double": (spark.DoubleType(), pa.float64(), [0.0, 0.1, 5e-324, math.inf, math.nan]),
    "string": (spark.StringType(), pa.string(), ["", "de", '"', "é\u2028\n", "😀"]),
    "large string": (spark.StringType(), pa.large_string(), ["", "de"]),
    "binary": (spark.BinaryType(), pa.binary(), [b"", b"\x00\xff"]),
    "short decimal": (
        spark.DecimalType(5, 2),
        pa.decimal128(5, 2),
        [Decimal("0.00"), Decimal("-999.99"), Decimal("1.50")],
    ),
    "long decimal": (
        spark.DecimalType(38, 10),
        pa.decimal128(38, 10),
        [Decimal("9" * 28 + "." + "9" * 10), Decimal("-1E-10")],
    ),
    "date": (spark.DateType(), pa.date32(), [DAY, datetime.date(1, 1, 1), datetime.date.max]),
    "timestamp": (
        spark.TimestampType(),
        MIDNIGHT_UTC,
        [NOON_UTC, datetime.datetime(1900, 1, 1, 0, 0, 0, 1, datetime.UTC)],
    ),
    "timestamp_ntz": (
        spark.TimestampNTZType(),
        pa.timestamp("us"),
        [NOON, FIRST, LAST],
    ),
    "time": (spark.TimeType(), pa.time64("ns"), [datetime.time.min, datetime.time.max]),
    "array": (
        spark.ArrayType(spark.StringType()),
        pa.list_(pa.string()),
        [[], ["de"], ["de", None], [None]],
    ),
    "array of doubles": (
        spark.ArrayType(spark.DoubleType()),
        pa.list_(pa.float64()),
        [[0.0], [math.nan], [None], [0.0, 1.0]],
    ),
    "array of dates": (spark.ArrayType(spark.DateType()), pa.list_(pa.date32()), [[DAY, None]]),
    "struct": (
        PAIR_TYPE,
        PAIR,
        [{"land": "de", "share": math.nan}, {"land": None, "share": 0.0}],
    ),
    "struct in struct": (
        DEEP_TYPE,
        DEEP,
        [
            {"day": DAY, "at": NOON_UTC, "inner": {"parts": [{"land": "de", "share": 1.0}]}},
            {"day": None, "at": None, "inner": {"parts": [None]}},
            {"day": DAY, "at": None, "inner": None},
        ],
    ),
}
COLUMN = pytest.mark.parametrize("name", COLUMNS)


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def zone(request: pytest.FixtureRequest, travel: Callable[[str], None]) -> str:
    """The time zone of this process."""
    travel(request.param)
    name: str = request.param
    return name


@COLUMN
def test_a_key_is_found_in_arrows_column_by_its_text(name: str, zone: str) -> None:
    of_type, arrow, values = COLUMNS[name]
    encoding = encode(of_type)
    assert encoding.problem == ""
    texts = [encoding.write((value,)) for value in values]
    rows = encoding.freeze_columns([pa.array([*values, None], arrow)])
    assert rows == [*map(encoding.freeze, texts), (None,)]
    of_key = {encoding.freeze(text): text for text in texts}
    assert [of_key.get(row) for row in rows] == [*texts, None]


@COLUMN
def test_a_key_that_is_read_is_written_alike(name: str, zone: str) -> None:
    of_type, _, values = COLUMNS[name]
    encoding = encode(of_type)
    for value in values:
        text = encoding.write((value,))
        assert encoding.write(encoding.read(text)) == text


@COLUMN
def test_a_key_that_is_read_makes_the_same_arrow_column(name: str) -> None:
    of_type, arrow, values = COLUMNS[name]
    encoding = encode(of_type)
    texts = [encoding.write((value,)) for value in values]
    read = [encoding.read(text)[0] for text in texts]
    if name == "timestamp":
        # As a data source's rows are taken in.
        read = [value.astimezone(datetime.UTC) for value in read]
    if name.startswith("struct"):
        read = [value.asDict(recursive=True) for value in read]
    if name == "struct in struct":
        for value in read:
            value["at"] = value["at"] and value["at"].astimezone(datetime.UTC)
    rows = encoding.freeze_columns([pa.array(read, arrow)])
    assert rows == [*map(encoding.freeze, texts)]


@COLUMN
def test_a_key_of_several_columns_is_found_by_its_text(name: str) -> None:
    of_type, arrow, values = COLUMNS[name]
    encoding = encode(spark.StringType(), of_type, spark.DoubleType())
    keys: list[tuple[Any, ...]] = [("de", value, math.nan) for value in values]
    keys += [(None, values[0], -0.0), ("de", None, None)]
    columns = [
        pa.array([key[position] for key in keys], column)
        for position, column in enumerate((pa.string(), arrow, pa.float64()))
    ]
    texts = [encoding.write(key) for key in keys]
    rows = encoding.freeze_columns(columns)
    assert rows == [*map(encoding.freeze, texts)]
    assert len({*rows}) == len({*texts}) == len(keys)


@COLUMN
def test_the_route_of_a_key_leads_to_its_partition(name: str) -> None:
    of_type, _, values = COLUMNS[name]
    encoding = encode(of_type)
    for value in values:
        text = encoding.write((value,))
        routes = {encoding.find_route(text, partition, 3) for partition in range(3)}
        assert len(routes) == 3
        assert 0 in routes


def test_a_key_of_one_column_is_hashed_like_its_column() -> None:
    route = encode(spark.StringType()).find_route('"de"', 1, 8)
    assert partition_of(route, "de", Primitive("string"), 8) == 1


@settings(max_examples=60)
@given(st.lists(st.none() | st.floats(width=32), max_size=8))
def test_every_float_of_a_column_is_found_by_its_text(values: list[float | None]) -> None:
    for of_type, arrow in (
        (spark.FloatType(), pa.float32()),
        (spark.DoubleType(), pa.float64()),
    ):
        encoding = encode(of_type)
        texts = [encoding.write((value,)) for value in values]
        rows = encoding.freeze_columns([pa.array(values, arrow)])
        assert rows == [*map(encoding.freeze, texts)]


@settings(max_examples=60)
@given(st.lists(st.datetimes(), max_size=4), st.lists(st.times(), max_size=4))
def test_every_moment_of_a_column_is_found_by_its_text(
    moments: list[datetime.datetime], times: list[datetime.time]
) -> None:
    aware = [moment.replace(tzinfo=datetime.UTC) for moment in moments]
    for of_type, arrow, values in (
        (spark.TimestampNTZType(), pa.timestamp("us"), moments),
        (spark.TimestampType(), MIDNIGHT_UTC, aware),
        (spark.TimestampType(), pa.timestamp("us", "America/New_York"), aware),
        (spark.TimeType(), pa.time64("ns"), times),
    ):
        encoding = encode(of_type)
        texts = [encoding.write((value,)) for value in values]
        rows = encoding.freeze_columns([pa.array(values, arrow)])
        assert rows == [*map(encoding.freeze, texts)]


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_the_two_hours_when_a_clock_is_put_back_are_told_apart(zone: str) -> None:
    encoding = encode(spark.TimestampType())
    for text in ("1729987800000000", "1729991400000000"):
        assert encoding.write(encoding.read(text)) == text


@pytest.mark.parametrize(
    ("of_type", "values", "texts"),
    [
        (spark.LongType(), [7, None], ["7", "null"]),
        (spark.ByteType(), [-1, None], ["-1", "null"]),
        (spark.BooleanType(), [True, None], ["true", "null"]),
        (spark.StringType(), ["de", None], ['"de"', "null"]),
        (spark.TimestampNTZType(), [NOON, None], ["1709209815999999", "null"]),
        (spark.TimestampType(), [NOON_UTC, None], ["1709209815999999", "null"]),
        (spark.DoubleType(), [0.5, math.nan], ["0.5", '"NaN"']),
    ],
)
def test_what_pandas_makes_of_a_column_with_nulls_are_the_same_keys(
    of_type: spark.DataType, values: list[Any], texts: list[str]
) -> None:
    rows = pd.DataFrame({"k": values}).itertuples(index=False)
    assert [encode(of_type).write(row) for row in rows] == texts
