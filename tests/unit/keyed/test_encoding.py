"""The keys of all movable types are the same keys as text, in Arrow's columns and in Python."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark
from pyspark.sql.types import StructType

from balancedstream.core.routes import Primitive, partition_of
from balancedstream.errors import InvalidInputError
from balancedstream.keyed.encoding import KeyEncoding

MIDNIGHT_UTC = pa.timestamp("us", "UTC")
PAIR_TYPE = StructType().add("land", spark.StringType()).add("share", spark.DoubleType())
PAIR = pa.struct([("land", pa.string()), ("share", pa.float64())])
DEEP_TYPE = (
    StructType()
    .add("day", spark.DateType())
    .add("at", spark.TimestampType())
    .add("inner", StructType().add("parts", spark.ArrayType(PAIR_TYPE)))
)
DEEP = pa.struct(
    [
        ("day", pa.date32()),
        ("at", MIDNIGHT_UTC),
        ("inner", pa.struct([("parts", pa.list_(PAIR))])),
    ]
)
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


def encode(*of_types: spark.DataType) -> KeyEncoding:
    schema = StructType()
    for number, of_type in enumerate(of_types):
        schema.add(f"k{number}", of_type)
    return KeyEncoding(schema)


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


def test_a_row_without_a_key_is_never_moved() -> None:
    with pytest.raises(InvalidInputError, match="key null: rows without a key are never moved"):
        encode(spark.StringType()).read("null")


def test_a_key_with_nan_in_a_column_is_never_moved_for_pandas_has_nan_for_null() -> None:
    encoding = encode(spark.StringType(), spark.FloatType())
    (row,) = pd.DataFrame({"land": ["de"], "share": pd.array([None], "float32")}).itertuples(
        index=False
    )
    assert encoding.write(row) == '["de","NaN"]'
    with pytest.raises(InvalidInputError, match="NaN is never moved"):
        encoding.check_movable('["de","NaN"]')
    assert encoding.spell('["de","NaN"]') == '["de","NaN"]'
    with pytest.raises(InvalidInputError, match="NaN is never moved"):
        encode(spark.FloatType()).spell('"NaN"')
    movable = {
        text: encoding.can_move(text) for text in ('["de","NaN"]', '["de",0.5]', '["NaN",1.0]')
    }
    assert movable == {'["de","NaN"]': False, '["de",0.5]': True, '["NaN",1.0]': True}


@pytest.mark.parametrize(
    ("of_type", "texts"),
    [
        (spark.ArrayType(spark.DoubleType()), ["[null]", '["NaN"]', '[0.5,"NaN"]']),
        (spark.ArrayType(spark.IntegerType()), ["[null]", "[1,null]"]),
        (spark.ArrayType(spark.ArrayType(spark.LongType())), ["[[1],[null]]"]),
        (PAIR_TYPE, ['["de",null]', '["de","NaN"]']),
        (spark.ArrayType(PAIR_TYPE), ['[["de",0.5],["fr",null]]']),
        (DEEP_TYPE, ['[19000,null,[[["de",null]]]]']),
    ],
)
def test_a_key_with_a_null_inside_that_pandas_makes_nan_of_is_never_moved(
    of_type: spark.DataType, texts: list[str]
) -> None:
    for text in texts:
        with pytest.raises(InvalidInputError, match="NaN is never moved, nor a null that pandas"):
            encode(of_type).check_movable(text)
        with pytest.raises(InvalidInputError, match="NaN is never moved, nor a null that pandas"):
            encode(spark.StringType(), of_type).check_movable(f'["de",{text}]')
        assert encode(of_type).spell(text) == text, "an epoch may have it where it is"


@pytest.mark.parametrize(
    ("of_type", "texts"),
    [
        (spark.ArrayType(spark.DoubleType()), ["[]", "[0.5]"]),
        (spark.ArrayType(spark.StringType()), ["[null]", '["de",null]']),
        (spark.ArrayType(spark.ArrayType(spark.LongType())), ["[null]", "[[1],null]"]),
        (PAIR_TYPE, ["[null,0.5]"]),
        (spark.ArrayType(PAIR_TYPE), ["[null]"]),
        (DEEP_TYPE, ["[null,null,null]", "[null,null,[null]]"]),
    ],
)
def test_a_key_with_another_null_inside_may_be_moved(
    of_type: spark.DataType, texts: list[str]
) -> None:
    assert all(encode(of_type).can_move(text) for text in texts)


def test_what_pandas_makes_of_arrays_with_nulls_is_a_key_that_stays() -> None:
    for of_type in (spark.DoubleType(), spark.IntegerType()):
        encoding = encode(spark.ArrayType(of_type))
        assert not encoding.can_move(encoding.write((np.array([1.0, math.nan]),)))


def test_a_key_whose_columns_are_all_null_is_never_moved() -> None:
    encoding = encode(spark.StringType(), spark.LongType())
    with pytest.raises(InvalidInputError, match="rows without a key are never moved"):
        encoding.check_movable("[null,null]")
    assert encoding.can_move("[null,7]")


def test_a_key_with_a_zero_of_a_float_is_never_moved_for_python_has_one_and_spark_two() -> None:
    whole = encode(spark.StringType(), spark.LongType())
    assert whole.can_move('["de",0]')
    alone, pair = encode(spark.DoubleType()), encode(spark.StringType(), spark.FloatType())
    deep = encode(spark.ArrayType(PAIR_TYPE))
    zeros = (alone, "0.0"), (alone, "-0.0"), (pair, '["de",0]'), (deep, '[["de",0.5],["fr",-0.0]]')
    for encoding, text in zeros:
        with pytest.raises(InvalidInputError, match=r"is never moved, for 0\.0 and -0\.0"):
            encoding.check_movable(text)
        assert not encoding.can_move(text)
        assert encoding.spell(text) == text.replace("-0.0", "0.0").replace(",0]", ",0.0]")
    assert deep.can_move('[["de",0.5]]')


def test_a_struct_of_pandas_is_the_key_that_a_row_is_also_with_arrays_in_it() -> None:
    inner = StructType().add("days", spark.ArrayType(spark.IntegerType()))
    encoding = encode(StructType().add("parts", inner).add("n", spark.LongType()))
    given = {"parts": {"days": np.array([1, 2], np.int32)}, "n": np.int64(3)}
    assert encoding.write((given,)) == encoding.write((((((1, 2),), 3)),)) == "[[[1,2]],3]"


def test_only_a_key_with_a_timestamp_is_another_one_in_pandas() -> None:
    named = StructType().add("timestamp", spark.StringType(), metadata={"a": "timestamp"})
    assert not KeyEncoding(named.add("local", spark.TimestampNTZType())).changes_in_pandas
    for of_type in (spark.TimestampType(), DEEP_TYPE, spark.ArrayType(DEEP_TYPE)):
        assert encode(spark.StringType(), of_type).changes_in_pandas


def test_arrays_of_numpy_are_the_keys_that_lists_are() -> None:
    encoding = encode(spark.ArrayType(spark.ArrayType(spark.LongType())))
    nested = np.empty(2, object)
    nested[:] = [np.array([1, 2]), np.array([3])]
    assert encoding.write((nested,)) == encoding.write(([[1, 2], [3]],)) == "[[1,2],[3]]"


def test_a_key_of_several_columns_may_have_nulls() -> None:
    encoding = encode(spark.StringType(), spark.LongType())
    assert encoding.read("[null,null]") == (None, None)


@pytest.mark.parametrize(
    ("of_type", "text"),
    [
        (spark.TimestampType(), str(2**63 - 1)),
        (spark.TimestampNTZType(), str(-(2**63))),
        (spark.DateType(), str(2**31 - 1)),
        (spark.TimeType(), str(86_400 * 10**9)),
        (spark.LongType(), '"7"'),
        (spark.StringType(), "de"),
    ],
)
def test_what_is_no_key_is_refused_by_its_name(of_type: spark.DataType, text: str) -> None:
    encoding = encode(of_type)
    with pytest.raises(InvalidInputError, match=f"^key {text}: "):
        encoding.read(text)
    with pytest.raises(InvalidInputError, match=f"^key {text}: "):
        encoding.find_route(text, 0, 3)


@pytest.mark.parametrize(
    ("of_type", "found"),
    [
        (spark.MapType(spark.StringType(), spark.LongType()), "map"),
        (spark.VariantType(), "variant"),
        (spark.DayTimeIntervalType(), "interval day to second"),
        (spark.CharType(3), "char\\(3\\)"),
        (spark.VarcharType(3), "varchar\\(3\\)"),
        (spark.StringType("UNICODE"), "collation"),
        (spark.ArrayType(spark.CalendarIntervalType()), "interval"),
        (StructType().add("v", spark.VariantType()), "v is of type variant"),
    ],
)
def test_keys_of_other_types_are_never_moved_and_it_is_said_why(
    of_type: spark.DataType, found: str
) -> None:
    for encoding in (encode(of_type), encode(spark.StringType(), of_type)):
        assert encoding.problem.endswith("keys of this job are never moved")
        with pytest.raises(AssertionError, match=found):
            raise AssertionError(encoding.problem)


def test_what_numpy_makes_of_a_value_names_the_same_key() -> None:
    encoding = KeyEncoding(spark.StructType().add("n", spark.LongType()))
    assert encoding.write((np.int64(7),)) == encoding.write((7,)) == "7"
