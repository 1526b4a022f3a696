"""A processor is given the user's rows alone, and each of them: by themselves or in frames."""

from __future__ import annotations

import copy
import warnings
from collections import namedtuple
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, StructType

from balancedstream.keyed.processors import ROUTE_COLUMN, StripFrames, StripRows
from balancedstream.workers.rows import cut_row, name_columns

SCHEMA = (
    StructType()
    .add("n", LongType())
    .add("user", StringType())
    .add("share", DoubleType())
    .add("paid", BooleanType())
)
KEY = '"de"'
CONTROL = (0, "de", None, False, 3)
RESEMBLING = pytest.mark.parametrize(
    "row",
    [(0, "de", 0.0, False, 3), (0, "de", None, None, 3), (None, "de", None, False, 3)],
    ids=["zero for null", "null for false", "null for zero"],
)


def strip(rows: list[tuple[Any, ...]], awaited: set[str]) -> list[Row]:
    return [*StripRows(SCHEMA, ["user"])(iter(rows), KEY, awaited)]


def test_a_row_is_as_spark_makes_it_but_for_the_hidden_columns() -> None:
    made = name_columns(("n", "user"))((7, "de", 3))
    assert made == Row(n=7, user="de")
    assert (made.n, made["user"], made[0], made[:1], "user" in made) == (7, "de", 7, (7,), True)
    assert made.asDict() == {"n": 7, "user": "de"}
    assert repr(made) == "Row(n=7, user='de')"
    assert isinstance(made, Row)
    copied = copy.copy(made)
    assert (copied, copied.asDict()) == (made, made.asDict())
    with pytest.raises(AttributeError):
        _ = made.balancedstream_route


def test_what_is_cut_off_a_row_leaves_the_other_cells_their_names() -> None:
    key: Any = cut_row(Row(route=3, user="de", n=7), slice(1, None))
    assert (key, key.user, key.n) == (("de", 7), "de", 7)
    value: Any = cut_row(Row(n=7, expires_ms=9), slice(-1))
    assert value.asDict() == {"n": 7}
    assert type(cut_row((3, "de"), slice(1, None))) is tuple
    assert cut_row(Row(3, "de"), slice(1, None)) == ("de",)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_control_row_is_taken_out_wherever_it_comes(place: int) -> None:
    data = [(1, "de", 0.5, True, 3), (2, "de", None, False, 3)]
    awaited = {KEY, '"fr"'}
    assert strip([*data[:place], CONTROL, *data[place:]], awaited) == [row[:-1] for row in data]
    assert awaited == {'"fr"'}


def test_of_rows_that_equal_a_control_row_as_many_stay_as_came() -> None:
    awaited = {KEY}
    assert strip([CONTROL, CONTROL, CONTROL], awaited) == [CONTROL[:-1]] * 2
    assert strip([CONTROL], awaited) == [CONTROL[:-1]], "a second call for the same key"
    assert strip([CONTROL], {'"fr"'}) == [CONTROL[:-1]], "no control row came for this key"


@RESEMBLING
def test_a_row_that_only_resembles_a_control_row_stays(row: tuple[Any, ...]) -> None:
    awaited = {KEY}
    assert strip([row], awaited) == [row[:-1]]
    assert awaited == {KEY}


def strip_frames(
    rows: list[list[tuple[Any, ...]]], awaited: set[str], schema: StructType = SCHEMA
) -> list[pd.DataFrame]:
    """As PySpark makes frames of rows, with other names where one comes twice or is odd."""
    names = [*schema.names, ROUTE_COLUMN]
    named: Any = namedtuple("named", names, rename=True)  # type: ignore[misc]
    frames = (pd.DataFrame([named(*row) for row in chunk]) for chunk in rows)
    return [*StripFrames(schema, ["user"])(frames, KEY, awaited)]


def make_frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame([row[:-1] for row in rows], columns=SCHEMA.names)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "data",
    [
        [(1, "de", 0.5, True, 3), (2, "de", 0.25, False, 3)],
        [(1, "de", None, True, 3), (None, "de", 0.25, None, 3)],
    ],
    ids=["without nulls", "with nulls"],
)
def test_the_control_row_is_taken_out_of_a_frame_and_leaves_it_as_it_was(
    data: list[tuple[Any, ...]], place: int
) -> None:
    awaited = {KEY, '"fr"'}
    chunks = [[*data[:place], CONTROL, *data[place:]], data]
    first, second = strip_frames(chunks, awaited)
    pd.testing.assert_frame_equal(first, make_frame(data))
    pd.testing.assert_frame_equal(second, make_frame(data))
    assert awaited == {'"fr"'}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first["n"] = 0
        second.loc[0, "n"] = 0


ODD_NAMES = (
    StructType()
    .add("user", StringType())
    .add("event time", LongType())
    .add("n", LongType())
    .add("n", StringType())
)
ODD = [("de", 0, 5, "x", 3), ("de", 0, 0, None, 3), ("de", 0, 0, "x", 3)]


def test_a_control_row_is_found_where_names_come_twice_or_are_no_identifiers() -> None:
    (frame,) = strip_frames([ODD], {KEY}, ODD_NAMES)
    assert frame.to_numpy().tolist() == [[*ODD[0][:-1]], [*ODD[2][:-1]]]
    rows = [*StripRows(ODD_NAMES, ["user"])(iter(ODD), KEY, {KEY})]
    assert rows == [ODD[0][:-1], ODD[2][:-1]]


def test_a_frame_with_nothing_but_the_control_row_is_not_given_and_its_equals_are() -> None:
    data = (7, "de", 0.5, True, 3)
    awaited = {KEY}
    (only,) = strip_frames([[CONTROL], [data]], awaited)
    pd.testing.assert_frame_equal(only, make_frame([data]))
    (equals,) = strip_frames([[CONTROL, CONTROL]], {'"fr"'})
    assert len(equals) == 2, "no control row came for this key"
    assert [len(frame) for frame in strip_frames([[CONTROL, CONTROL], [CONTROL]], {KEY})] == [1, 1]


@RESEMBLING
def test_a_row_of_a_frame_that_only_resembles_a_control_row_stays(row: tuple[Any, ...]) -> None:
    awaited = {KEY}
    (frame,) = strip_frames([[row]], awaited)
    pd.testing.assert_frame_equal(frame, make_frame([row]))
    assert awaited == {KEY}
