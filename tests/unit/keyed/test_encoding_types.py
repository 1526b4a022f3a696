"""A key of any type, however it is nested, has one text; and no other key has that text."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from key_types import encode
from pyspark.sql import Row
from pyspark.sql import types as spark
from pyspark.sql.types import StructType

from balancedstream.core.keys.text import freeze_key

Typed = tuple[spark.DataType, st.SearchStrategy[Any]]


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(
        lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale))
    )


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


# Dates of before 1582, when the calendar was changed, and of before 1900 among them.
days = st.dates() | st.dates(max_value=datetime.date(1583, 1, 1))
local_times = st.datetimes() | st.datetimes(max_value=datetime.datetime(1900, 1, 1))  # noqa: DTZ001
# `toInternal` of a timestamp whose year has no number of four digits somewhere is an error.
instants = st.datetimes(
    datetime.datetime(2, 1, 1),  # noqa: DTZ001
    datetime.datetime(9998, 12, 31),  # noqa: DTZ001
).map(lambda at: at.replace(tzinfo=datetime.UTC))
LEAVES: list[Typed] = [
    (spark.BooleanType(), st.booleans()),
    (spark.ByteType(), whole(8)),
    (spark.ShortType(), whole(16)),
    (spark.IntegerType(), whole(32)),
    (spark.LongType(), whole(64)),
    (spark.FloatType(), st.floats(width=32)),
    (spark.DoubleType(), st.floats()),
    (spark.StringType(), st.text(st.characters(codec="utf-8"), max_size=5)),
    (spark.BinaryType(), st.binary(max_size=5)),
    (spark.BinaryType(), st.binary(max_size=5).map(bytearray)),
    (spark.DecimalType(5, 2), decimals(5, 2)),
    (spark.DecimalType(18, 18), decimals(18, 18)),
    (spark.DecimalType(38, 10), decimals(38, 10)),
    (spark.DateType(), days),
    (spark.TimestampType(), instants),
    (spark.TimestampNTZType(), local_times),
    (spark.TimeType(), st.times()),
]


def in_array(element: Typed) -> Typed:
    of_type, values = element
    return spark.ArrayType(of_type), st.lists(st.none() | values, max_size=3)


def in_struct(*fields: Typed) -> Typed:
    schema = StructType()
    for number, (of_type, _) in enumerate(fields):
        schema.add(f"f{number}", of_type)
    cells = st.tuples(*(st.none() | values for _, values in fields))
    # As Spark has it, and as Arrow has it.
    return schema, cells.map(lambda row: Row(*schema.names)(*row)) | cells.map(
        lambda row: dict(zip(schema.names, row, strict=True))
    )


def nest(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return inner.map(in_array) | st.lists(inner, min_size=1, max_size=3).map(
        lambda fields: in_struct(*fields)
    )


typed = st.recursive(st.sampled_from(LEAVES), nest, max_leaves=4)


def freeze(value: Any, of_type: spark.DataType) -> object:
    """What makes a value the key that it is to Spark, with one NaN and one zero."""
    match of_type:
        case _ if value is None:
            return None
        case spark.ArrayType():
            return tuple(freeze(each, of_type.elementType) for each in value)
        case StructType():
            cells = value.values() if isinstance(value, dict) else value
            types = [field.dataType for field in of_type]
            return tuple(map(freeze, cells, types))
        case spark.DecimalType():
            return value
    return freeze_key(of_type.toInternal(value))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_two_keys_have_one_text_if_they_are_one_key(
    travel: Callable[[str], None], zone: str, data: st.DataObject
) -> None:
    travel(zone)
    columns = data.draw(st.lists(typed, min_size=1, max_size=2))
    types = [of_type for of_type, _ in columns]
    encoding = encode(*types)
    assert encoding.problem == ""
    keys = [tuple(data.draw(st.none() | values) for _, values in columns) for _ in range(2)]
    texts = [encoding.write(key) for key in keys]
    frozen = [tuple(map(freeze, key, types)) for key in keys]
    assert (texts[0] == texts[1]) == (frozen[0] == frozen[1])
    for text, expected in zip(texts, frozen, strict=True):
        assert encoding.freeze(text) == expected
        assert encoding.find_partition(text, 3, 8) in range(8)
        if text != "null":
            assert encoding.write(encoding.read(text)) == text
            assert isinstance(encoding.can_move(text), bool)


def test_what_a_person_may_type_is_read_with_one_spelling() -> None:
    deep = encode(spark.ArrayType(spark.DecimalType(5, 2)), spark.BinaryType())
    assert deep.spell(' [ ["1.5", 2, null] , "AA==" ]') == '[["1.50","2.00",null],"AA=="]'
