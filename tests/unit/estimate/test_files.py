"""Which files an event log consists of."""

from __future__ import annotations

from pathlib import Path

import pytest

from balancedstream.errors import InvalidInputError
from balancedstream.estimate.files import find_event_log

APP = "app-20261130003732-0000"


def roll(folder: Path, *names: str) -> Path:
    log = folder / f"eventlog_v2_{APP}"
    log.mkdir()
    for name in names:
        (log / name).write_text(name)
    return log


def names_of(path: Path) -> list[str]:
    return [part.name for part in find_event_log(path).parts]


def test_rolled_files_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    log = roll(
        tmp_path,
        *(f"events_{n}_{APP}.zstd" for n in (10, 9, 1, 2)),
        f"appstatus_{APP}",
        f".events_1_{APP}.zstd.crc",
    )
    assert names_of(log) == [f"events_{n}_{APP}.zstd" for n in (1, 2, 9, 10)]
    assert not find_event_log(log).running
    assert find_event_log(log).size == sum(len(name) for name in names_of(log))


def test_a_compact_file_stands_for_all_before_it(tmp_path: Path) -> None:
    log = roll(
        tmp_path,
        f"events_1_{APP}.compact",
        f"events_2_{APP}",
        f"events_3_{APP}",
        f"events_3_{APP}.compact",
        f"events_4_{APP}",
        f"appstatus_{APP}.inprogress",
    )
    assert names_of(log) == [f"events_3_{APP}.compact", f"events_4_{APP}"]
    assert find_event_log(log).running


def test_a_single_file_of_an_application_that_runs_is_known_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / f"{APP}.zstd.inprogress"
    file.write_text("x")
    assert names_of(file) == [file.name]
    assert find_event_log(file).running


def test_a_folder_without_events_is_refused_with_what_to_name(tmp_path: Path) -> None:
    roll(tmp_path, f"events_1_{APP}")
    with pytest.raises(InvalidInputError, match="folder without events; name a file"):
        find_event_log(tmp_path)


@pytest.mark.parametrize("name", ["missing", "n\0ul", "x" * 5000])
def test_a_file_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        find_event_log(tmp_path / name)


def test_a_compact_file_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    log = roll(tmp_path, f"events_1_{APP}", f"events_2_{APP}", f"events_2_{APP}.compact.inprogress")
    assert names_of(log) == [f"events_1_{APP}", f"events_2_{APP}"]
