"""Small outputs are put together before Spark gets them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructType

from balancedstream.shuffling.joining import (
    ARROW,
    BYTES_PER_OUTPUT,
    OUTPUTS_HELD,
    ROWS_CONVERTED,
    ROWS_PER_OUTPUT,
    SURELY_SMALL_BYTES,
    Form,
    join_outputs,
    join_rows,
    make_pandas_form,
)

PANDAS = make_pandas_form()
FORMS = pytest.mark.parametrize("form", [PANDAS, ARROW], ids=["pandas", "Arrow"])


def make(form: Form, **columns: Any) -> Any:
    return form.kind(columns) if form is PANDAS else pa.RecordBatch.from_pydict(columns)


def list_values(outputs: Iterator[Any], column: str = "n") -> list[list[Any]]:
    return [
        (output[column] if isinstance(output, pd.DataFrame) else output.column(column)).tolist()
        for output in outputs
    ]


@FORMS
def test_small_outputs_become_one_with_all_their_rows_in_order(form: Form) -> None:
    outputs = [make(form, n=[n, -n]) for n in range(1, 4)]
    assert list_values(join_outputs(outputs, form)) == [[1, -1, 2, -2, 3, -3]]


def test_a_few_rows_of_a_large_arrow_batch_are_as_small_as_they_are() -> None:
    whole = make(ARROW, n=np.arange(BYTES_PER_OUTPUT))
    joined = list_values(join_outputs([whole.slice(at, 2) for at in (0, 7, 20)], ARROW))
    assert joined == [[0, 1, 7, 8, 20, 21]]


def test_columns_that_share_their_memory_are_as_large_as_their_copies() -> None:
    shared = pa.array(["x" * (SURELY_SMALL_BYTES // 2)])
    wide = pa.RecordBatch.from_arrays([shared] * 100, [str(n) for n in range(100)])
    joined = join_outputs([wide] * 100, ARROW)
    assert max(batch.nbytes for batch in joined) < BYTES_PER_OUTPUT + wide.nbytes


@FORMS
@given(sizes=st.lists(st.integers(0, 30)))
def test_all_rows_come_out_once_and_in_order(form: Form, sizes: list[int]) -> None:
    ends = np.cumsum([0, *sizes])
    outputs = [make(form, n=np.arange(*ends[at : at + 2])) for at in range(len(sizes))]
    joined = list_values(join_outputs(outputs, form))
    assert list(chain.from_iterable(joined)) == list(range(ends[-1]))
    assert len(joined) == min(len(sizes), 1)


@FORMS
def test_no_output_holds_more_rows_than_it_needs_to_be_large(form: Form) -> None:
    half = make(form, n=np.arange(ROWS_PER_OUTPUT // 2))
    joined = join_outputs([half] * 5, form)
    assert [len(output) for output in joined] == [ROWS_PER_OUTPUT, ROWS_PER_OUTPUT, len(half)]


@FORMS
def test_large_rows_are_not_held(form: Form) -> None:
    large = make(form, n=["x" * BYTES_PER_OUTPUT])
    assert [len(output) for output in join_outputs([large] * 3, form)] == [1, 1, 1]


def test_large_texts_are_not_held_however_pandas_keeps_them() -> None:
    text = "x" * BYTES_PER_OUTPUT
    for dtype in ("object", "string", pd.ArrowDtype(pa.string())):
        large = pd.DataFrame({"n": pd.Series([text], dtype=dtype)})
        assert [len(output) for output in join_outputs([large] * 3, PANDAS)] == [1, 1, 1]


@FORMS
def test_an_output_is_given_before_more_is_asked_for_once_enough_is_held(form: Form) -> None:
    asked = []

    def work() -> Iterator[Any]:
        for number in range(2):
            asked.append(number)
            yield make(form, n=np.zeros(ROWS_PER_OUTPUT))

    next(join_outputs(work(), form))
    assert asked == [0]


@FORMS
def test_integers_stay_integers_beside_floats(form: Form) -> None:
    exact = 2**53 + 1
    outputs = [make(form, n=[exact]), make(form, n=[0.5]), make(form, n=[exact])]
    assert list_values(join_outputs(outputs, form)) == [[exact], [0.5], [exact]]


@FORMS
def test_outputs_whose_columns_differ_stay_apart(form: Form) -> None:
    outputs = [make(form, n=[1], a=[2]), make(form, a=[3], n=[4])]
    assert list_values(join_outputs(outputs, form)) == [[1], [4]]


def test_a_function_may_use_the_memory_of_an_output_again() -> None:
    def work() -> Iterator[Any]:
        numbers = np.zeros(2, np.int64)
        for number in range(3):
            numbers[:] = number
            yield numbers

    frames = (pd.DataFrame({"n": numbers}, copy=False) for numbers in work())
    batches = (pa.RecordBatch.from_arrays([pa.array(numbers)], ["n"]) for numbers in work())
    for outputs, form in ((frames, PANDAS), (batches, ARROW)):
        assert list_values(join_outputs(outputs, form)) == [[0, 0, 1, 1, 2, 2]]


def test_lists_and_arrays_in_cells_are_not_held_for_the_function_may_fill_them_again() -> None:
    def work() -> Iterator[Any]:
        vector = np.zeros(2)
        for number in range(3):
            vector[:] = number
            yield pd.DataFrame({"n": [vector]})

    given = [output["n"][0].tolist() for output in join_outputs(work(), PANDAS)]
    assert given == [[0, 0], [1, 1], [2, 2]]


def test_texts_with_nulls_and_numbers_that_are_objects_are_joined() -> None:
    outputs = [
        pd.DataFrame({"n": [None, "a"], "m": [None, b"y"], "d": [Decimal(1), None]}),
        pd.DataFrame({"n": ["b", "c"], "m": [b"x", None], "d": [None, Decimal(2)]}),
    ]
    assert list_values(join_outputs(outputs, PANDAS)) == [[None, "a", "b", "c"]]


def test_objects_of_different_kinds_stay_apart_for_spark_converts_either_and_not_both() -> None:
    outputs = [
        pd.DataFrame({"n": pd.Series(values, dtype="object")}) for values in (["1", None], [3, 4])
    ]
    assert list_values(join_outputs(outputs, PANDAS)) == [["1", None], [3, 4]]


@FORMS
def test_only_so_many_outputs_are_held_though_they_are_empty(form: Form) -> None:
    empty = make(form, n=np.zeros(0))
    outputs = iter([empty] * (2 * OUTPUTS_HELD))
    next(join_outputs(outputs, form))
    assert len([*outputs]) == OUTPUTS_HELD


@FORMS
def test_a_large_output_is_given_on_as_it_is_after_those_before_it(form: Form) -> None:
    large = make(form, n=np.zeros(ROWS_PER_OUTPUT))
    small = make(form, n=[1.0])
    joined = list(join_outputs([small, small, large, small], form))
    assert [len(output) for output in joined] == [2, ROWS_PER_OUTPUT, 1]
    assert joined[1] is large


@FORMS
def test_what_is_no_output_of_the_kind_goes_to_spark_as_it_is_and_in_its_place(form: Form) -> None:
    outputs = [make(form, n=[1]), "no output", make(form, n=[2])]
    joined = list(join_outputs(outputs, form))
    assert [type(output) for output in joined] == [form.kind, str, form.kind]


@FORMS
def test_nothing_comes_of_nothing(form: Form) -> None:
    assert list(join_outputs([], form)) == []


def test_an_error_of_the_function_passes_through_as_it_is() -> None:
    def work() -> Iterator[Any]:
        yield make(PANDAS, n=[1])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(join_outputs(work(), PANDAS))


TEXT = StructType().add("text", StringType())


def test_small_rows_are_given_as_one_batch_with_all_of_them_in_order() -> None:
    texts = [str(n) for n in range(2 * ROWS_CONVERTED + 1)]
    (batch,) = join_rows(((text,) for text in texts), TEXT)
    assert batch.column("text").to_pylist() == texts


def test_large_rows_are_given_before_many_are_asked_for() -> None:
    asked = 0

    def work() -> Iterator[dict[str, str]]:
        nonlocal asked
        while True:
            asked += 1
            yield {"text": "x" * (BYTES_PER_OUTPUT // 10)}

    next(join_rows(work(), TEXT))
    assert asked <= ROWS_CONVERTED
