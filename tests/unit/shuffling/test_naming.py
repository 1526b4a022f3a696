"""What a shuffle is called."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from balancedstream.shuffling.naming import name_shuffle


def classify(rows: Iterator[Any]) -> Iterator[Any]:
    return rows


class Model:
    def __call__(self, rows: Iterator[Any]) -> Iterator[Any]:
        return rows


def test_a_function_and_a_column_with_plain_names_are_the_name() -> None:
    assert name_shuffle(classify, "model") == "classify-by-model"
    assert name_shuffle(Model().__call__, "größe.x") == "Model.__call__-by-größe.x"
    assert name_shuffle(classify, "Column<'model'>") == "classify-by-model"


def test_a_partial_function_and_a_callable_object_have_the_name_of_what_is_called() -> None:
    assert name_shuffle(partial(partial(classify), ()), "model") == "classify-by-model"
    assert name_shuffle(Model(), "model") == "Model-by-model"


def test_what_is_no_word_is_left_out_and_a_hash_tells_of_it() -> None:
    name = name_shuffle(classify, "Column<'floor(+(length(text), 1))'>")
    readable, _, digest = name.rpartition("-")
    assert readable == "classify-by-floor-length-text-1"
    assert len(digest) == 8
    assert int(digest, 16) >= 0


ALIKE = [
    ("Column<'*(len, 4)'>", "Column<'/(len, 4)'>"),
    ("a-b", "a b"),
    ("a-b", "a_b"),
    ("x" * 100 + "1", "x" * 100 + "2"),
    ("Column<'filter(x_1, x_6 -> >(x_6, 0))'>", "Column<'filter(x_2, x_6 -> >(x_6, 0))'>"),
    ("Column<'filter(x_1, x_6 -> >(x_6, 0))'>", "Column<'filter(x_1, x_6 -> >(x_1, 0))'>"),
    ("Column<'f(a, (x_1, y_2) -> x_1)'>", "Column<'f(a, (x_1, y_2) -> y_2)'>"),
    ("x_1", "x_2"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_cost_keys_that_differ_have_names_that_differ(one: str, other: str) -> None:
    assert name_shuffle(classify, one) != name_shuffle(classify, other)


def test_a_lambda_that_is_built_again_has_the_same_name() -> None:
    for key in (
        "filter(a, x_{0} -> >(length(x_{0}), 3))",
        "transform(a, (x_{0}, y_{1}) -> aggregate(x_{0}, 0, (x_{2}, y_{3}) -> +(x_{2}, y_{1})))",
    ):
        # Nine and ten do not sort as numbers do.
        first, again = (key.format(*range(begin, begin + 4)) for begin in (1, 8))
        assert name_shuffle(classify, first) == name_shuffle(classify, again)


def test_a_name_is_cut_between_characters_and_can_be_a_files(tmp_path: Path) -> None:
    name = name_shuffle(classify, "列" * 120)
    assert name.startswith("classify-by-列列")
    assert name.rpartition("-")[0].endswith("列")
    assert len(name.encode()) <= 80 + 9
    (tmp_path / name).mkdir()
