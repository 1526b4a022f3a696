"""Rows that wait in files: estimated from the rows of the files that were read."""

from __future__ import annotations

import pytest

from balancedstream.engine.sources.files import FilesInFolder
from balancedstream.engine.sources.progress import Files, SourceProgress


def read(rows: int, end: int, *files: int) -> SourceProgress:
    """A batch that read rows up to an offset of the source's log, and what of files is known."""
    start = None if end == 0 else {"logOffset": end - 1}
    description = "FileStreamSource[file:/in]"
    return SourceProgress(description, start, {"logOffset": end}, None, rows, Files(*files))


def test_rows_in_waiting_files_follow_from_the_rows_in_files_that_were_read() -> None:
    folder = FilesInFolder()
    assert folder.count(read(30, 0, 9, 1, 0)) == 270.0
    assert folder.count(read(90, 1, 6, 4, 1)) == 180.0
    assert folder.count(read(90, 2, 0, 7, 2)) == 0.0


def test_files_that_the_next_batch_has_taken_already_still_wait() -> None:
    folder = FilesInFolder()
    assert folder.count(read(10, 0, 4, 2, 1)) == 50.0
    assert folder.count(read(10, 1, 3, 3, 2)) == 40.0
    assert folder.count(read(10, 2, 3, 3, 2)) == 30.0
    assert folder.count(read(10, 3, 0, 6, 5)) == 20.0
    assert folder.count(read(10, 5, 0, 6, 5)) == 0.0


def test_a_batch_without_new_files_changes_nothing() -> None:
    folder = FilesInFolder()
    assert folder.count(read(10, 0, 2, 1, 0)) == 20.0
    assert folder.count(read(0, 0, 2, 1, 0)) == 20.0


def test_after_a_restart_the_files_that_were_read_before_do_not_count() -> None:
    folder = FilesInFolder()
    assert folder.count(read(500, 50, 10, 100, 50)) is None
    assert folder.count(read(30, 51, 9, 101, 51)) == 270.0
    assert folder.count(read(90, 52, 6, 104, 52)) == 180.0


def test_after_a_restart_rows_count_from_the_first_files_that_were_seen_to_be_taken() -> None:
    folder = FilesInFolder()
    assert folder.count(read(500, 50, 9, 101, 51)) is None
    assert folder.count(read(700, 51, 9, 101, 51)) is None
    assert folder.count(read(30, 52, 8, 102, 52)) == 240.0


def test_files_that_were_all_read_leave_no_backlog_even_after_a_restart() -> None:
    assert FilesInFolder().count(read(5, 9, 0, 3, 9)) == 0.0


def test_files_that_spark_forgets_do_not_take_back_what_was_read() -> None:
    folder = FilesInFolder()
    assert folder.count(read(60, 0, 4, 6, 0)) == 40.0
    assert folder.count(read(10, 1, 3, 2, 1)) == pytest.approx(3 * 70 / 6)


def test_a_folder_without_a_file_has_no_backlog_until_files_come() -> None:
    folder = FilesInFolder()

    def empty(*files: int) -> SourceProgress:
        return SourceProgress("FileStreamSource[file:/in]", files=Files(*files))

    assert folder.count(empty(0, 0, -1)) == 0.0
    assert folder.count(empty(1, 1, 0)) is None
    assert folder.count(read(10, 0, 1, 1, 0)) == 10.0


def test_a_source_of_which_spark_knows_no_files_is_none_of_files() -> None:
    assert FilesInFolder.recognizes(read(10, 0, 1, 1, 0))
    assert not FilesInFolder.recognizes(SourceProgress("DeltaSource[file:/in]"))
