"""The hash of keys equals Spark's, and a route is the smallest that leads to its partition.

Known values come from Spark itself: its documentation of `hash`, and test suites of engines that
copy the function and noted what Spark printed: RAPIDS cuDF (`spark_murmurhash3_x86_32_test.cpp`)
and Bolt (`sparksql/tests/HashTest.cpp`).
`tests/integration/test_routes.py` asks a running Spark about random values.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.keys.routes import MAX_ROUTE, find_route, partition_of, spark_hash
from balancedstream.core.keys.types import (
    INTEGER,
    ArrayKey,
    DecimalKey,
    KeyType,
    NeverMoved,
    Primitive,
    StructKey,
    parse_key_type,
)
from balancedstream.errors import InvalidInputError

LOWEST_DOUBLE = -1.7976931348623157e308
LOWEST_FLOAT = -3.4028234663852886e38
BIG = 0x123456789ABCDEF

INNER = StructKey((("x", Primitive("float")), ("y", Primitive("long"))))
OUTER = StructKey((("a", INTEGER), ("b", Primitive("string")), ("c", INNER)))
PAIR = StructKey((("c0", Primitive("string")), ("c1", INTEGER)))
TEXTS = StructKey((("c1", Primitive("string")), ("c2", Primitive("string"))))
DOCUMENTED = StructKey((("a", Primitive("string")), ("b", ArrayKey(INTEGER)), ("c", INTEGER)))

# Values of a type, and what Spark printed for `hash(value)`.
KNOWN: list[tuple[KeyType, list[Any], list[int]]] = [
    (Primitive("boolean"), [False, True, None], [933211791, -559580957, 42]),
    (Primitive("byte"), [100, -100, -128, 127], [751823303, -1080202046, 1110053733, 1135925485]),
    (Primitive("short"), [100, -100, -32768], [751823303, -1080202046, -1871935946]),
    (Primitive("short"), [32767, None], [1249274084, 42]),
    (INTEGER, [0, 1, 4, -1], [933211791, -559580957, -397064898, -1604776387]),
    (INTEGER, [-(2**31), 2**31 - 1, None], [723455942, 133916647, 42]),
    (Primitive("long"), [0, 1, -1, 100], [-1670924195, -1712319331, -939490007, 1114849490]),
    (Primitive("long"), [-(2**63), 2**63 - 1], [-853646085, -1604625029]),
    (Primitive("float"), [0.0, -0.0, 1.0], [933211791, 933211791, -466301895]),
    (Primitive("float"), [math.inf, -math.inf, math.nan], [2026854605, 427440766, -349261430]),
    (Primitive("float"), [LOWEST_FLOAT, -LOWEST_FLOAT], [-1225560532, -338752985]),
    (Primitive("double"), [0.0, -0.0, 1.0], [-1670924195, -1670924195, -460888942]),
    (Primitive("double"), [math.inf, -math.inf, math.nan], [833680482, 461104036, -1281358385]),
    (Primitive("double"), [LOWEST_DOUBLE, -LOWEST_DOUBLE], [1897734433, -508695674]),
    (Primitive("string"), ["", "ABC", "12345678"], [142593372, -757602832, 2036199019]),
    (Primitive("string"), ["Spark", "B\nc"], [228093765, 1709559900]),
    (Primitive("string"), ["abcdefghijklmnopqrstuvwxyz"], [-1990933474]),
    # Each byte of the tail counts by itself, with its sign.
    (Primitive("string"), ["hiJ\ud720\ud721\ud720\ud721"], [1199621434]),
    (Primitive("string"), ["!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\ud720\ud721"], [-111635966]),
    (Primitive("binary"), [b"Spark", bytearray(b"\x00\xc8")], [228093765, -424716282]),
    (Primitive("date"), [0, 100, 0x12345678], [933211791, 751823303, -1721170160]),
    (Primitive("timestamp"), [12345678, BIG, -BIG], [1402875301, 657182333, -57193045]),
    # Longs all of them, so what Spark printed for the timestamp holds for them too.
    (Primitive("timestamp_ntz"), [12345678], [1402875301]),
    (Primitive("time"), [12345678], [1402875301]),
    (DecimalKey(9, 3), [Decimal("0.1"), Decimal("-0.1")], [1114849490, 904948192]),
    (DecimalKey(9, 3), [Decimal("-999999.999")], [-1454351396]),
    (DecimalKey(18, 7), [Decimal("-99999999999.9999999")], [1962370902]),
    (DecimalKey(18, 7), [Decimal("99999999999.9999999")], [-1795328666]),
    (DecimalKey(38, 11), [Decimal("0E+3"), Decimal("1E-9")], [-783713497, -295670906]),
    (DecimalKey(38, 11), [Decimal("-0.00000000001")], [1398487324]),
    (DecimalKey(38, 11), [Decimal("-9999999999999999.99999999999")], [-52622807]),
    (DecimalKey(38, 11), [Decimal("9" * 26 + ".99999999999")], [-1359749815]),
    (DecimalKey(38, 0), [Decimal(12345678), Decimal(-12345678)], [-277285195, -1198355617]),
    (DecimalKey(38, 0), [Decimal("9" * 38), Decimal("-" + "9" * 38)], [-817514053, 1400911110]),
    (ArrayKey(INTEGER), [[], [None], [0, 1]], [42, 42, -1834803471]),
    (ArrayKey(ArrayKey(INTEGER)), [None, [[]], [[1]]], [42, 42, -559580957]),
    (ArrayKey(ArrayKey(INTEGER)), [[[1, 2]], [[1, 2, 3]]], [-222940379, -912918097]),
    (ArrayKey(ArrayKey(INTEGER)), [[[1], [None, 2, 3]]], [-912918097]),
    (ArrayKey(ArrayKey(INTEGER)), [[[1, 2], None, [3]]], [-912918097]),
    (OUTER, [(0, "a", (0.0, 0)), (100, "bc", (100.0, 100))], [-105406170, 90479889]),
    (OUTER, [(-0x76543210, "klmno", (-math.inf, -BIG))], [301478567]),
    (PAIR, [(None, None), ("", None), (None, 0)], [42, 142593372, 933211791]),
    (PAIR, [("", 0)], [1143746540]),
    (TEXTS, [("ABC", "DEF")], [599895104]),
    (DOCUMENTED, [("Spark", [123], 2)], [-1321691492]),
]

key_types_and_values: list[tuple[KeyType, st.SearchStrategy[Any]]] = [
    (Primitive("boolean"), st.booleans()),
    (Primitive("byte"), st.integers(-(2**7), 2**7 - 1)),
    (INTEGER, st.integers(-(2**31), 2**31 - 1)),
    (Primitive("long"), st.integers(-(2**63), 2**63 - 1)),
    (Primitive("float"), st.floats(width=32)),
    (Primitive("double"), st.floats()),
    (Primitive("string"), st.text(st.characters(exclude_categories=["Cs"]))),
    (Primitive("binary"), st.binary()),
    (
        DecimalKey(10, 2),
        st.integers(1 - 10**10, 10**10 - 1).map(lambda number: Decimal(number).scaleb(-2)),
    ),
    (
        DecimalKey(38, 0),
        st.integers(1 - 10**38, 10**38 - 1).map(lambda number: Decimal(str(number))),
    ),
    (ArrayKey(INTEGER), st.lists(st.none() | st.integers(0, 9))),
    (
        StructKey((("a", Primitive("string")), ("b", INTEGER))),
        st.tuples(st.none() | st.text("xyz"), st.none() | st.integers(0, 9)),
    ),
]
keys = st.one_of(
    *(st.tuples(st.just(key_type), st.none() | values) for key_type, values in key_types_and_values)
)


@pytest.mark.parametrize(
    ("key_type", "value", "expected"),
    [
        (key_type, value, expected)
        for key_type, values, hashes in KNOWN
        for value, expected in zip(values, hashes, strict=True)
    ],
)
def test_the_hash_is_what_spark_printed(key_type: KeyType, value: Any, expected: int) -> None:
    assert spark_hash(value, key_type) == expected


def test_fourteen_columns_of_all_types_are_hashed_one_after_the_other() -> None:
    wide, narrow, huge = DecimalKey(18, 7), DecimalKey(9, 3), DecimalKey(38, 11)
    doubles = map(Primitive, ["string", "double", "timestamp"])
    floats = map(Primitive, ["long", "float", "date"])
    integers = map(Primitive, ["integer", "short", "byte", "boolean"])
    types: list[KeyType] = [OUTER, *doubles, wide, *floats, narrow, *integers, huge]
    columns = StructKey(tuple((f"c{n}", key_type) for n, key_type in enumerate(types)))
    none = Decimal(0)
    zeros = ((0, "a", (0.0, 0)), "", 0.0, 0, none, 0, 0.0, 0, none, 0, 0, 0, False, none)
    few = [Decimal("-0.00001"), Decimal("-0.1"), Decimal("-0.00000000001")]
    text, nan = "jumps over the lazy dog.", -math.nan
    begin = ((-100, "def", (-100.0, -100)), text, nan, -100, few[0], -100, nan, -100)
    negative = (*begin, few[1], -100, -100, -100, True, few[2])
    assert spark_hash(zeros, columns) == 401603227
    assert spark_hash(negative, columns) == 552160517


def test_there_is_one_zero_and_one_nan() -> None:
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
    for name in ("float", "double"):
        assert spark_hash(-0.0, Primitive(name)) == spark_hash(0.0, Primitive(name))
        assert spark_hash(other_nan, Primitive(name)) == spark_hash(math.nan, Primitive(name))


def test_the_scale_counts_and_not_how_a_decimal_is_written() -> None:
    two = DecimalKey(20, 2)
    assert spark_hash(Decimal("1.5"), two) == spark_hash(Decimal("1.500"), two)
    assert spark_hash(Decimal("1.5"), two) != spark_hash(Decimal("1.5"), DecimalKey(20, 3))


@given(keys, st.integers(0, MAX_ROUTE), st.integers(1, 1000))
def test_a_partition_is_the_hash_of_route_and_key_modulo_their_number(
    key: tuple[KeyType, Any], route: int, partitions: int
) -> None:
    key_type, value = key
    both = StructKey((("route", INTEGER), ("key", key_type)))
    expected = spark_hash((route, value), both) % partitions
    assert partition_of(route, value, key_type, partitions) == expected
    assert 0 <= expected < partitions


@given(keys, st.integers(1, 40), st.data())
def test_the_route_found_is_the_smallest_and_leads_there(
    key: tuple[KeyType, Any], partitions: int, data: st.DataObject
) -> None:
    key_type, value = key
    partition = data.draw(st.integers(0, partitions - 1))
    route = find_route(value, key_type, partition, partitions)
    assert route is not None
    assert partition_of(route, value, key_type, partitions) == partition
    before = {partition_of(smaller, value, key_type, partitions) for smaller in range(route)}
    assert partition not in before


@given(keys, st.integers(1, 1000))
def test_a_key_at_home_has_route_0(key: tuple[KeyType, Any], partitions: int) -> None:
    key_type, value = key
    home = partition_of(0, value, key_type, partitions)
    assert find_route(value, key_type, home, partitions) == 0


def test_where_no_route_is_found_in_as_many_tries_there_is_none() -> None:
    route = find_route("de", Primitive("string"), 1, 8)
    assert route == 6
    assert find_route("de", Primitive("string"), 1, 8, most=6) is None
    assert find_route("de", Primitive("string"), 1, 8, most=7) == 6


def struct_json(**fields: Any) -> dict[str, Any]:
    """What PySpark's `StructType.jsonValue` gives."""
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in fields.items()
        ],
    }


def test_types_are_read_from_what_spark_says_of_them() -> None:
    array = {"type": "array", "elementType": "date", "containsNull": True}
    described = struct_json(
        a="timestamp_ntz", b=array, c=struct_json(d="decimal(38,18)"), e="time(6)"
    )
    assert parse_key_type(described) == StructKey(
        (
            ("a", Primitive("timestamp_ntz")),
            ("b", ArrayKey(Primitive("date"))),
            ("c", StructKey((("d", DecimalKey(38, 18)),))),
            ("e", Primitive("time")),
        )
    )


@pytest.mark.parametrize(
    "described",
    [
        "void",
        "variant",
        "interval",
        "interval day to second",
        "char(3)",
        "varchar(3)",
        "string collate UNICODE_CI",
        "timestamp_ntz(9)",
        "decimal(39,0)",
        "decimal(0,0)",
        "decimal(5,-2)",
        "decimal(5,6)",
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
        {"type": "udt", "class": "org.apache.spark.ml.linalg.VectorUDT"},
        {"type": "array", "elementType": "variant", "containsNull": False},
        struct_json(inner=struct_json(tags="variant")),
    ],
)
def test_keys_of_any_other_type_are_never_moved_and_it_is_said_why(described: Any) -> None:
    parsed = parse_key_type(described)
    assert isinstance(parsed, NeverMoved)
    assert parsed.reason.startswith("key")
    assert parsed.reason.endswith("keys of this job are never moved")


def test_a_collation_noted_with_the_field_is_seen() -> None:
    described = struct_json(name="string")
    described["fields"][0]["metadata"] = {"__COLLATIONS": {"name": "icu.UNICODE"}}
    parsed = parse_key_type(described)
    assert isinstance(parsed, NeverMoved)
    assert "name" in parsed.reason


@pytest.mark.parametrize(
    "described", [None, 3, {}, {"type": "array"}, {"type": "struct", "fields": [{"name": "a"}]}]
)
def test_what_is_no_type_is_refused(described: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^key: must be"):
        parse_key_type(described)


@pytest.mark.parametrize(
    ("value", "key_type"),
    [
        (1, Primitive("boolean")),
        (True, INTEGER),
        (128, Primitive("byte")),
        (2**31, INTEGER),
        ("1", Primitive("long")),
        (1, Primitive("double")),
        (1e300, Primitive("float")),
        (b"a", Primitive("string")),
        ("\ud800", Primitive("string")),
        ("a", Primitive("binary")),
        (1, DecimalKey(5, 2)),
        (Decimal("NaN"), DecimalKey(5, 2)),
        (Decimal("Infinity"), DecimalKey(5, 2)),
        (Decimal("1000"), DecimalKey(5, 2)),
        (Decimal("0.001"), DecimalKey(5, 2)),
        (Decimal("1E+999999"), DecimalKey(38, 0)),
        (Decimal("1E-999999"), DecimalKey(38, 38)),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_field(value: Any, key_type: KeyType) -> None:
    with pytest.raises(InvalidInputError, match=r"^key: must be"):
        spark_hash(value, key_type)
    columns = StructKey((("a", INTEGER), ("b", ArrayKey(key_type))))
    with pytest.raises(InvalidInputError, match=r"^key\.b\[1\]: must be"):
        spark_hash((1, [None, value]), columns)


def test_a_struct_without_all_its_fields_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="a tuple of c0, c1"):
        spark_hash(("a",), StructKey((("c0", Primitive("string")), ("c1", INTEGER))))
    with pytest.raises(InvalidInputError, match="a list"):
        spark_hash("a", ArrayKey(Primitive("string")))


def test_routes_and_partitions_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match=r"^route:"):
        partition_of(-1, "a", Primitive("string"), 8)
    with pytest.raises(InvalidInputError, match=r"^partitions:"):
        partition_of(0, "a", Primitive("string"), 0)
    with pytest.raises(InvalidInputError, match=r"^partition:"):
        find_route("a", Primitive("string"), 8, 8)
    with pytest.raises(InvalidInputError, match=r"^most:"):
        find_route("a", Primitive("string"), 7, 8, most=0)
