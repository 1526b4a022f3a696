"""How many rows wait at the sources, for sources with offsets and for files."""

from __future__ import annotations

from typing import Any

import pytest

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
    ],
)
def test_rows_wait_between_what_was_read_and_the_sources_latest(
    sources: list[dict[str, Any]], rows: float | None
) -> None:
    assert count_backlog(sources) == rows


def test_rows_in_waiting_files_follow_from_the_rows_in_files_that_were_read() -> None:
    backlog = FileBacklog()
    assert backlog.count_rows(0, [{"numInputRows": 30}], [[9, 1]]) == 270.0
    assert backlog.count_rows(1, [{"numInputRows": 90}], [[6, 4]]) == 180.0
    assert backlog.count_rows(2, [{"numInputRows": 90}], [[0, 7]]) == 0.0


def test_after_a_restart_the_files_that_were_read_before_do_not_count() -> None:
    backlog = FileBacklog()
    assert backlog.count_rows(50, [{"numInputRows": 500}], [[10, 100]]) is None
    assert backlog.count_rows(51, [{"numInputRows": 30}], [[9, 101]]) == 270.0
    assert backlog.count_rows(52, [{"numInputRows": 90}], [[6, 104]]) == 180.0


def test_files_that_were_all_read_leave_no_backlog_even_after_a_restart() -> None:
    assert FileBacklog().count_rows(9, [{"numInputRows": 5}], [[0, 3]]) == 0.0


def test_only_sources_of_files_count_and_each_by_its_own_rows() -> None:
    backlog = FileBacklog()
    sources = [{"numInputRows": 7}, {"numInputRows": 40}, {"numInputRows": 10}]
    assert backlog.count_rows(0, sources, [None, [4, 1], [1, 1]]) == 4 * 40.0 + 1 * 10.0
    assert backlog.count_rows(1, sources, [None, None, None]) is None
    assert backlog.count_rows(2, sources, []) is None
