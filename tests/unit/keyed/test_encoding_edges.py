"""Keys with nulls, NaN or zeros inside, keys of NumPy and pandas, and what is never moved."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from key_types import DEEP_TYPE, PAIR_TYPE, encode
from pyspark.sql import types as spark
from pyspark.sql.types import StructType

from balancedstream.errors import InvalidInputError
from balancedstream.keyed.encoding import KeyEncoding


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
    assert not KeyEncoding(named.add("local", spark.TimestampNTZType())).has_timestamp
    for of_type in (spark.TimestampType(), DEEP_TYPE, spark.ArrayType(DEEP_TYPE)):
        assert encode(spark.StringType(), of_type).has_timestamp


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
