"""Keys are written as JSON in one way, read back as they were, and refused by their name."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from balancedstream.core.keys.routes import spark_hash
from balancedstream.core.keys.text import freeze_key, read_key, write_key
from balancedstream.core.keys.types import (
    INTEGER,
    ArrayKey,
    DecimalKey,
    KeyType,
    Primitive,
    StructKey,
)
from balancedstream.errors import InvalidInputError


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": whole(8),
    "short": whole(16),
    "integer": whole(32),
    "date": whole(32),
    "long": whole(64),
    "timestamp": whole(64),
    "timestamp_ntz": whole(64),
    "time": st.integers(0, 86_400 * 10**9 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": texts,
    "binary": st.binary(max_size=6),
}


def decimals_of(key_type: DecimalKey) -> st.SearchStrategy[Decimal]:
    most = 10**key_type.precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(f"{n}E-{key_type.scale}"))


def values_of(key_type: KeyType) -> st.SearchStrategy[Any]:
    """Values of a type, null among them."""
    values: st.SearchStrategy[Any]
    match key_type:
        case Primitive(name):
            values = PRIMITIVES[name]
        case DecimalKey():
            values = decimals_of(key_type)
        case ArrayKey(element):
            values = st.lists(values_of(element), max_size=3)
        case StructKey(fields):
            values = st.tuples(*(values_of(field_type) for _, field_type in fields))
    return st.none() | values


flat: st.SearchStrategy[KeyType] = st.one_of(
    st.sampled_from([*PRIMITIVES]).map(Primitive),
    st.integers(1, 38).flatmap(
        lambda precision: st.builds(DecimalKey, st.just(precision), st.integers(0, precision))
    ),
)


def nest(inner: st.SearchStrategy[KeyType]) -> st.SearchStrategy[KeyType]:
    fields = st.lists(st.tuples(texts, inner), min_size=1, max_size=3)
    return inner.map(ArrayKey) | fields.map(lambda found: StructKey(tuple(found)))


key_types: st.SearchStrategy[KeyType] = st.recursive(flat, nest, max_leaves=4)
keys = key_types.flatmap(lambda key_type: st.tuples(st.just(key_type), values_of(key_type)))
NAN, MINUS_ZERO = (Primitive("double"), math.nan), (Primitive("double"), -0.0)
PARTS = StructKey((("land", Primitive("string")), ("n", Primitive("long"))))


@settings(max_examples=200)
@given(keys)
@example(NAN)
@example(MINUS_ZERO)
def test_a_key_is_read_as_it_was_written(key: tuple[KeyType, Any]) -> None:
    key_type, value = key
    read = read_key(write_key(value, key_type), key_type)
    assert freeze_key(read) == freeze_key(value)
    assert hash(freeze_key(read)) == hash(freeze_key(value))
    assert spark_hash(read, key_type) == spark_hash(value, key_type)


@settings(max_examples=200)
@given(keys)
@example(NAN)
@example(MINUS_ZERO)
def test_what_was_written_is_one_line_that_is_written_again_alike(
    key: tuple[KeyType, Any],
) -> None:
    key_type, value = key
    text = write_key(value, key_type)
    assert write_key(read_key(text, key_type), key_type) == text
    assert "\n" not in text
    assert json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")) == text


@settings(max_examples=100)
@given(key_types.flatmap(lambda t: st.tuples(st.just(t), values_of(t), values_of(t))))
def test_two_keys_have_one_spelling_only_if_they_are_one_key(
    keys: tuple[KeyType, Any, Any],
) -> None:
    key_type, one, other = keys
    alike = write_key(one, key_type) == write_key(other, key_type)
    assert alike == (freeze_key(one) == freeze_key(other))


@settings(max_examples=100)
@given(keys, st.sampled_from([" ", "\t", "\n", "  "]))
def test_a_person_may_leave_room_and_escape_what_is_not_ascii(
    key: tuple[KeyType, Any], room: str
) -> None:
    key_type, value = key
    text = write_key(value, key_type)
    loose = room + json.dumps(json.loads(text), separators=(room + ",", ":")) + room
    assert write_key(read_key(loose, key_type), key_type) == text


@pytest.mark.parametrize(
    ("spellings", "key_type", "written"),
    [
        (["1", "1.0", "1e0", "10E-1"], Primitive("double"), "1.0"),
        (["0", "-0.0", "0.0", "-0"], Primitive("double"), "0.0"),
        (['"NaN"', "NaN"], Primitive("double"), '"NaN"'),
        (['"Infinity"', "Infinity", "1e999"], Primitive("double"), '"Infinity"'),
        (['"-Infinity"', "-Infinity"], Primitive("float"), '"-Infinity"'),
        (['"1.5"', '"1.50"', '"15E-1"', '" 1.5 "'], DecimalKey(5, 2), '"1.50"'),
        (["7", '"7"', '"7.00"'], DecimalKey(5, 2), '"7.00"'),
        (['"é"', '"\\u00e9"'], Primitive("string"), '"é"'),
        (['["de",7]', ' [ "de" , 7 ] '], PARTS, '["de",7]'),
        (['"AP8="', '"\\u0041P8="'], Primitive("binary"), '"AP8="'),
    ],
)
def test_however_a_person_spells_a_key_it_is_written_in_one_way(
    spellings: list[str], key_type: KeyType, written: str
) -> None:
    assert {write_key(read_key(text, key_type), key_type) for text in spellings} == {written}


def test_a_float_is_written_with_the_digits_that_it_has() -> None:
    (stored,) = struct.unpack("<f", struct.pack("<f", 0.1))
    column = Primitive("float")
    assert write_key(read_key("0.1", column), column) == write_key(stored, column)


def test_a_decimal_zero_has_no_sign() -> None:
    column = DecimalKey(5, 2)
    assert write_key(read_key('"-0"', column), column) == '"0.00"'


BAD: list[tuple[str, KeyType]] = [
    ("", INTEGER),
    ("de", Primitive("string")),
    ('"de', Primitive("string")),
    ("7", Primitive("string")),
    ('"\\ud800"', Primitive("string")),
    ('"7"', INTEGER),
    ("7.0", INTEGER),
    ("true", INTEGER),
    ("128", Primitive("byte")),
    ("-32769", Primitive("short")),
    (str(2**31), Primitive("date")),
    (str(2**63), Primitive("timestamp")),
    ("9" * 5000, Primitive("long")),
    ("1", Primitive("boolean")),
    ('"true"', Primitive("boolean")),
    ('"1"', Primitive("double")),
    ('"nan"', Primitive("double")),
    ("true", Primitive("float")),
    ("1e39", Primitive("float")),
    ('"QQ"', Primitive("binary")),
    ('"é"', Primitive("binary")),
    ("[0]", Primitive("binary")),
    ('"a lot"', DecimalKey(5, 2)),
    ("1.5", DecimalKey(5, 2)),
    ("true", DecimalKey(5, 2)),
    ('"0.001"', DecimalKey(5, 2)),
    ('"1000"', DecimalKey(5, 2)),
    ('"NaN"', DecimalKey(5, 2)),
    ('"1E999999999"', DecimalKey(38, 0)),
    ("7", ArrayKey(INTEGER)),
    ('"[7]"', ArrayKey(INTEGER)),
    ('[7,"a"]', ArrayKey(INTEGER)),
    ('{"land":"de","n":7}', PARTS),
    ('["de"]', PARTS),
    ('["de",7,8]', PARTS),
    ('["de",[7]]', PARTS),
    ("[" * 100_000, ArrayKey(INTEGER)),
]


@pytest.mark.parametrize(("text", "key_type"), BAD)
def test_what_is_no_key_of_the_type_is_refused_by_its_name(text: str, key_type: KeyType) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_key(text, key_type)
    message = str(refused.value)
    assert message.startswith(f"key {text[:80]}: is no key of this stream")
    assert message.endswith("nothing changed: write it as JSON, text in quotes")


@pytest.mark.parametrize("name", ["float", "double"])
def test_a_number_that_no_double_holds_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(InvalidInputError, match="is no key of this stream"):
        read_key("1" + "0" * 400, Primitive(name))


@settings(max_examples=100)
@given(key_types, st.text(max_size=12) | texts.map(json.dumps))
def test_whatever_is_typed_is_a_key_or_is_refused(key_type: KeyType, text: str) -> None:
    try:
        value = read_key(text, key_type)
    except InvalidInputError:
        return
    spark_hash(value, key_type)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (math.nan, -math.nan),
        (0.0, -0.0),
        ([1, [2.0]], (1, (2.0,))),
        (bytearray(b"a"), b"a"),
        ([math.nan, -0.0], (math.nan, 0.0)),
    ],
)
def test_a_dictionary_finds_a_key_again(one: object, other: object) -> None:
    assert {freeze_key(one): 7}[freeze_key(other)] == 7


@pytest.mark.parametrize("make", [tuple, list])
def test_a_frozen_null_is_none(make: Callable[[list[None]], object]) -> None:
    assert freeze_key(make([None])) == (None,)
