"""Figures keep three digits and their unit, and what is no figure is a dash."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.printing import printable
from balancedstream.record.wording import (
    NOTHING,
    format_change,
    format_clock,
    format_count,
    format_duration,
    format_elapsed,
    format_ratio,
    format_short_count,
    format_short_duration,
    plural,
)

FIGURES = [format_duration, format_short_duration, format_count, format_short_count, format_ratio]


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_figure_is_a_dash(
    figure: Callable[[float | None], str], value: float | None
) -> None:
    assert figure(value) == NOTHING


@pytest.mark.parametrize(
    ("seconds", "text", "short"),
    [
        (0.0, "0 ms", "0 ms"),
        (0.0004, "0.4 ms", "0.4 ms"),
        (0.9994, "999 ms", "999 ms"),
        (0.9996, "1 s", "1 s"),
        (59.94, "59.9 s", "59.9 s"),
        (59.96, "1 min 0 s", "1 min"),
        (3_599.4, "59 min 59 s", "60 min"),
        (3_600.0, "1 h 0 min", "1 h"),
        (86_399.0, "23 h 59 min", "24 h"),
        (86_400.0, "1 d 0 h", "24 h"),
    ],
)
def test_a_duration_changes_its_unit_where_three_digits_would_not_do(
    seconds: float, text: str, short: str
) -> None:
    assert format_duration(seconds) == text
    assert format_short_duration(seconds) == short


@pytest.mark.parametrize(
    ("count", "text", "short"),
    [
        (0, "0", "0"),
        (999, "999", "999"),
        (1_000, "1,000", "1 k"),
        (9_999_999, "9,999,999", "10 M"),
        (10_000_000, "10 million", "10 M"),
        (1_000_000_000, "1 billion", "1 G"),
    ],
)
def test_a_count_is_written_in_full_as_long_as_it_is_read_at_a_glance(
    count: int, text: str, short: str
) -> None:
    assert format_count(count) == text
    assert format_short_count(count) == short


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (100.0, 66.0, "-34 %"),
        (100.0, 134.0, "+34 %"),
        (100.0, 100.4, "±0 %"),
        (-1.0, 5.0, NOTHING),
        (None, 5.0, NOTHING),
        (5.0, None, NOTHING),
    ],
)
def test_a_change_has_its_sign_and_needs_something_to_change(
    before: float | None, after: float | None, text: str
) -> None:
    assert format_change(before, after) == text


def test_times_are_those_of_a_clock() -> None:
    assert format_elapsed(-1.0) == "0:00"
    assert format_elapsed(3_599.9) == "59:59"
    assert format_elapsed(86_400) == "1 d 0:00:00"
    assert format_clock(1_700_000_000.9) == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(1, "batch", "1 batch"), (2, "batch", "2 batches"), (3_000, "query", "3,000 queries")],
)
def test_a_noun_follows_its_count(count: int, noun: str, text: str) -> None:
    assert plural(count, noun) == text


@given(st.text())
def test_any_text_fits_one_line_and_keeps_its_length(text: str) -> None:
    line = printable(text)
    assert line.isprintable()
    assert len(line) == len(text)
