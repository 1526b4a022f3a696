"""How many rows wait at the sources, for sources with offsets and for files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.engine.backlog import FileBacklog, count_backlog


@pytest.mark.parametrize(
    ("sources", "rows"),
    [
        ([], None),
        ([{}], None),
        ([{"latestOffset": {"t": {"0": 9}}, "endOffset": {"t": {"0": 9}}}], 0.0),
        # A partition that nothing was read of yet waits from its beginning.
        ([{"latestOffset": {"t": {"0": 9, "1": 5}}, "endOffset": {"t": {"0": 4}}}], 10.0),
        ([{"latestOffset": {"t": {"0": 9}}, "endOffset": {}}], 9.0),
        # Two topics, and a source that does not say.
        (
            [
                {"latestOffset": {"t": {"0": 9}, "u": {"0": 2}}, "endOffset": {"t": {"0": 8}}},
                {"latestOffset": None, "endOffset": {"logOffset": 3}},
            ],
            3.0,
        ),
        # Rates and files have offsets of other kinds.
        ([{"latestOffset": 7, "endOffset": 5}], None),
        ([{"latestOffset": {"logOffset": 7}, "endOffset": {"logOffset": 5}}], None),
        (
            [{"latestOffset": {"f": {"mtime": 99}}, "endOffset": {"f": {"mtime": 1}}}],
            None,
        ),
        ([{"latestOffset": {"t": {"0": "9"}}, "endOffset": {"t": {"0": "4"}}}], None),
        ([{"latestOffset": {"s": {"shard-0": {"seq": 9}}}, "endOffset": {"s": {}}}], None),
        # A topic that was made anew begins again at 0.
        ([{"latestOffset": {"t": {"0": 1}}, "endOffset": {"t": {"0": 9}}}], 0.0),
    ],
)
def test_rows_wait_between_what_was_read_and_the_sources_latest(
    sources: list[dict[str, Any]], rows: float | None
) -> None:
    assert count_backlog(sources) == rows


OFFSETS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from("0123"), inner),
    max_leaves=8,
)


@given(OFFSETS, OFFSETS)
def test_offsets_of_any_shape_are_rows_or_unknown(latest: object, done: object) -> None:
    rows = count_backlog([{"latestOffset": latest, "endOffset": done}])
    assert rows is None or rows >= 0


def read(rows: int, end: int) -> dict[str, Any]:
    """A source's progress in a batch that read rows up to an offset of its log."""
    start = None if end == 0 else {"logOffset": end - 1}
    return {"startOffset": start, "endOffset": {"logOffset": end}, "numInputRows": rows}


def test_rows_in_waiting_files_follow_from_the_rows_in_files_that_were_read() -> None:
    backlog = FileBacklog()
    assert backlog.count_rows([read(30, 0)], [[9, 1, 0]]) == 270.0
    assert backlog.count_rows([read(90, 1)], [[6, 4, 1]]) == 180.0
    assert backlog.count_rows([read(90, 2)], [[0, 7, 2]]) == 0.0


def test_files_that_the_next_batch_has_taken_already_still_wait() -> None:
    backlog = FileBacklog()
    assert backlog.count_rows([read(10, 0)], [[4, 2, 1]]) == 50.0
    assert backlog.count_rows([read(10, 1)], [[3, 3, 2]]) == 40.0
    assert backlog.count_rows([read(10, 2)], [[3, 3, 2]]) == 30.0
    assert backlog.count_rows([read(10, 3)], [[0, 6, 5]]) == 20.0
    assert backlog.count_rows([read(10, 5)], [[0, 6, 5]]) == 0.0


def test_a_batch_without_new_files_changes_nothing() -> None:
    backlog = FileBacklog()
    assert backlog.count_rows([read(10, 0)], [[2, 1, 0]]) == 20.0
    assert backlog.count_rows([read(0, 0)], [[2, 1, 0]]) == 20.0


def test_after_a_restart_the_files_that_were_read_before_do_not_count() -> None:
    backlog = FileBacklog()
    assert backlog.count_rows([read(500, 50)], [[10, 100, 50]]) is None
    assert backlog.count_rows([read(30, 51)], [[9, 101, 51]]) == 270.0
    assert backlog.count_rows([read(90, 52)], [[6, 104, 52]]) == 180.0


def test_after_a_restart_rows_count_from_the_first_files_that_were_seen_to_be_taken() -> None:
    backlog = FileBacklog()
    assert backlog.count_rows([read(500, 50)], [[9, 101, 51]]) is None
    assert backlog.count_rows([read(700, 51)], [[9, 101, 51]]) is None
    assert backlog.count_rows([read(30, 52)], [[8, 102, 52]]) == 240.0


def test_files_that_were_all_read_leave_no_backlog_even_after_a_restart() -> None:
    assert FileBacklog().count_rows([read(5, 9)], [[0, 3, 9]]) == 0.0


def test_files_that_spark_forgets_do_not_take_back_what_was_read() -> None:
    backlog = FileBacklog()
    assert backlog.count_rows([read(60, 0)], [[4, 6, 0]]) == 40.0
    assert backlog.count_rows([read(10, 1)], [[3, 2, 1]]) == pytest.approx(3 * 70 / 6)


def test_a_folder_without_a_file_has_no_backlog_until_files_come() -> None:
    backlog = FileBacklog()
    empty = {"startOffset": None, "endOffset": None, "numInputRows": 0}
    assert backlog.count_rows([empty], [[0, 0, -1]]) == 0.0
    assert backlog.count_rows([empty], [[1, 1, 0]]) is None
    assert backlog.count_rows([read(10, 0)], [[1, 1, 0]]) == 10.0


def test_only_sources_of_files_count_and_each_by_its_own_rows() -> None:
    backlog = FileBacklog()
    sources = [read(7, 0), read(40, 0), read(10, 0)]
    assert backlog.count_rows(sources, [None, [4, 1, 0], [1, 1, 0]]) == 4 * 40.0 + 1 * 10.0
    assert backlog.count_rows(sources, [None, None, None]) is None
    assert backlog.count_rows(sources, []) is None
