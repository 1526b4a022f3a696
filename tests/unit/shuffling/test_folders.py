"""Which version of what is known a batch is routed by."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from balancedstream.core.shuffle.costs import LearntCosts
from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.errors import InvalidInputError, SharedFolderError
from balancedstream.shuffling.folders import (
    ABANDONED_QUERY_S,
    ABANDONED_S,
    KEPT_BATCHES,
    CostFolder,
    find_root,
    remove_abandoned,
)


def version(batch: int, reason: str = "") -> LearntCosts:
    return LearntCosts(batch, 1, None, CostSketch(0.05, 0.1, seed=7), trusted=True, reason=reason)


def batch_of(learnt: LearntCosts | None) -> int | None:
    return learnt.batch if learnt else None


def test_a_batch_is_routed_by_the_newest_version_of_an_earlier_batch(tmp_path: Path) -> None:
    folder = CostFolder(tmp_path)
    for batch in (0, 1, 2):
        folder.publish(version(batch))
    assert batch_of(folder.pin(2)) == 1
    assert batch_of(folder.pin(7)) == 2


@pytest.mark.parametrize(
    "stray",
    [
        "notes.txt",
        "._x",
        ".crc",
        "after-9/",
        "pinned-9/",
        "after-",
        "after-x",
        "after-٩",
        "after-09",
    ],
)
def test_what_else_is_in_the_folder_is_no_version_and_no_error(tmp_path: Path, stray: str) -> None:
    (tmp_path / stray).mkdir() if stray.endswith("/") else (tmp_path / stray).touch()
    folder = CostFolder(tmp_path)
    assert folder.pin(1) is None
    folder.publish(version(1))
    assert batch_of(folder.newest()) == 1
    assert batch_of(folder.pin(12)) == 1
    assert (tmp_path / stray).exists()


@pytest.mark.parametrize("name", ["after-9", "pinned-12"])
def test_an_empty_file_holds_no_costs(tmp_path: Path, name: str) -> None:
    folder = CostFolder(tmp_path)
    folder.publish(version(1))
    (tmp_path / name).touch()
    assert folder.pin(12) is None


def test_a_version_that_another_driver_removes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CostFolder(tmp_path)
    for batch in (1, 2):
        folder.publish(version(batch))
    read = Path.read_bytes

    def remove_first(path: Path) -> bytes:
        (tmp_path / "after-2").unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", remove_first)
    assert batch_of(folder.pin(7)) == 1


def test_a_batch_stays_with_what_its_first_task_found(tmp_path: Path) -> None:
    assert CostFolder(tmp_path).pin(2) is None
    CostFolder(tmp_path).publish(version(1))
    assert CostFolder(tmp_path).pin(2) is None
    assert batch_of(CostFolder(tmp_path).pin(3)) == 1


def test_a_batch_that_is_run_again_finds_its_version_when_newer_ones_are_there(
    tmp_path: Path,
) -> None:
    CostFolder(tmp_path).publish(version(1))
    CostFolder(tmp_path).pin(2)
    CostFolder(tmp_path).publish(version(2))
    assert batch_of(CostFolder(tmp_path).pin(2)) == 1


def test_a_batch_is_pinned_to_the_version_of_the_one_before_as_soon_as_that_is_there(
    tmp_path: Path,
) -> None:
    CostFolder(tmp_path).publish(version(1))
    (tmp_path / "after-1").unlink()
    assert batch_of(CostFolder(tmp_path).pin(2)) == 1


def test_where_files_cannot_be_linked_versions_are_kept_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(link: Path, target: Path) -> None:
        raise PermissionError(link, target)

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    CostFolder(tmp_path).publish(version(1))
    assert batch_of(CostFolder(tmp_path).newest()) == 1
    with pytest.raises(SharedFolderError, match="on storage with hard links"):
        CostFolder(tmp_path).pin(2)


def test_tasks_that_look_at_once_all_find_the_same(tmp_path: Path) -> None:
    def race(batch: int) -> set[str]:
        """Versions of the batch before appear while its tasks look."""

        def look(task: int) -> str:
            if task % 2:
                CostFolder(tmp_path).publish(version(batch - 1, f"{task}"))
            learnt = CostFolder(tmp_path).pin(batch)
            return learnt.reason if learnt else "nothing"

        return set(workers.map(look, range(8)))

    with ThreadPoolExecutor(8) as workers:
        for batch in range(1, 40):
            assert len(race(batch)) == 1


def test_a_version_that_is_known_is_not_read_again_as_long_as_it_is_the_newest(
    tmp_path: Path,
) -> None:
    folder, known = CostFolder(tmp_path), version(1)
    assert folder.newest(known=known) is None, "its folder was removed"
    folder.publish(known)
    assert folder.newest(known=known) is known
    assert folder.newest(1, known=known) is None
    folder.publish(version(2))
    assert batch_of(folder.newest(known=known)) == 2


def test_only_the_last_versions_and_pins_are_kept(tmp_path: Path) -> None:
    folder = CostFolder(tmp_path)
    for batch in range(20):
        folder.pin(batch)
        folder.publish(version(batch))
    kept = {f"{kind}-{batch}" for kind in ("after", "pinned") for batch in (17, 18, 19)}
    assert {file.name for file in tmp_path.iterdir()} == kept | {"pinned-20"}


def test_pins_of_a_stream_that_is_not_learnt_from_do_not_pile_up_and_the_version_stays(
    tmp_path: Path,
) -> None:
    folder = CostFolder(tmp_path)
    folder.publish(version(0))
    for batch in range(1, 21):
        assert batch_of(folder.pin(batch)) == 0
    pins = {f"pinned-{batch}" for batch in range(20 - KEPT_BATCHES, 21)}
    assert {file.name for file in tmp_path.iterdir()} == pins | {"after-0"}


def test_a_batch_that_finds_its_pin_removes_none(tmp_path: Path) -> None:
    CostFolder(tmp_path).pin(9)
    (tmp_path / "pinned-1").touch()
    CostFolder(tmp_path).pin(9)
    assert {file.name for file in tmp_path.iterdir()} == {"pinned-1", "pinned-9"}


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_a_file_that_cannot_be_removed_fails_neither_batch_nor_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    def refuse(file: Path, **options: bool) -> None:
        raise error(file, options)

    (tmp_path / "pinned-1").touch()
    draft = tmp_path / ("." + "0" * 32)
    draft.touch()
    os.utime(draft, (0, draft.stat().st_mtime - ABANDONED_S - 60))
    monkeypatch.setattr(Path, "unlink", refuse)
    CostFolder(tmp_path).publish(version(8))
    assert batch_of(CostFolder(tmp_path).pin(9)) == 8
    assert batch_of(CostFolder(tmp_path).pin(17)) == 8


def test_a_folder_that_cannot_be_listed_any_more_fails_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(folder)

    monkeypatch.setattr(os, "listdir", refuse)
    CostFolder(tmp_path).publish(version(8))
    assert batch_of(CostFolder(tmp_path).pin(9)) == 8


@pytest.mark.parametrize("make", [lambda f: f.publish(version(1)), lambda f: f.pin(2)])
def test_what_a_killed_task_has_left_is_removed_and_what_a_task_is_writing_is_not(
    tmp_path: Path, make: Callable[[CostFolder], object]
) -> None:
    (tmp_path / "after-1").write_bytes(version(1).to_bytes())
    left, written, foreign = (tmp_path / f".{name}" for name in ("0" * 32, "f" * 32, "nfs0001"))
    for file in (left, written, foreign):
        file.touch()
    for file in (left, foreign):
        os.utime(file, (0, file.stat().st_mtime - ABANDONED_S - 60))
    make(CostFolder(tmp_path))
    made = {tmp_path / "after-1", tmp_path / "pinned-2"}
    assert {*tmp_path.iterdir()} == {written, foreign} | made


def test_what_another_version_has_written_is_no_hint_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "after-1").write_bytes(b"of another version")
    (tmp_path / "pinned-7").write_bytes(b"torn")
    folder = CostFolder(tmp_path)
    assert folder.newest() is None
    assert folder.find_newest() == 1
    assert folder.pin(7) is None
    assert "learning starts again" in caplog.text
    assert folder.pin(2) is None
    folder.publish(version(2))
    assert batch_of(folder.pin(3)) == 2


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    with pytest.raises(SharedFolderError, match=r"folder: .*all executors share"):
        CostFolder(file / "below").pin(0)


def test_a_folder_on_object_storage_is_refused_by_its_field() -> None:
    with pytest.raises(InvalidInputError, match=r"folder: .*s3a://bucket"):
        find_root("s3a://bucket/checkpoints")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("file:///a/b c", "/a/b c"),
        ("file:/a/b%20c", "/a/b%20c"),
        ("/a/b:c", "/a/b:c"),
    ],
)
def test_a_folder_is_found_by_each_of_its_names(name: str, path: str) -> None:
    assert find_root(name) == Path(path)


def test_a_relative_folder_is_the_drivers_own_for_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_root("a/b") == tmp_path / "a" / "b"


def test_what_a_batch_was_routed_by_is_what_its_tasks_have_read(tmp_path: Path) -> None:
    folder = CostFolder(tmp_path)
    assert folder.pin(0) is None
    known = version(0)
    folder.publish(known)
    assert folder.find_costs_of(0, newest=None) is None
    assert folder.find_costs_of(1, newest=known) is known
    # So it is where a task has pinned it, by a copy.
    folder.pin(3)
    assert folder.find_costs_of(3, newest=known) is known
    # A stream that has gone back has pins of what it has forgotten.
    folder.publish(version(1))
    again = version(0, "another")
    folder.publish(again)
    for batch, pinned in ((1, 0), (2, 1)):
        routed_by = folder.find_costs_of(batch, newest=again)
        assert batch_of(routed_by) == pinned
        assert routed_by is not again


def test_a_batch_without_a_pin_was_given_the_newest_version_before_it(tmp_path: Path) -> None:
    folder = CostFolder(tmp_path)
    assert folder.find_costs_of(0, newest=None) is None
    newest = version(0)
    folder.publish(newest)
    (tmp_path / "pinned-1").unlink()
    assert folder.find_costs_of(1, newest=newest) is newest


def age(folder: Path, by_s: float) -> None:
    """Makes a query's folder look as if nothing was written for so long."""
    for path in (*folder.rglob("*"), folder):
        at_s = path.stat().st_mtime - by_s
        os.utime(path, (at_s, at_s))


def test_what_queries_learned_that_never_came_back_is_removed_and_nothing_else(
    tmp_path: Path,
) -> None:
    own, recent, gone, foreign = (f"{n:08d}-aaaa-bbbb-cccc-0123456789ab" for n in range(4))
    for query in (own, recent, gone, foreign, "not-a-query"):
        folder = CostFolder(tmp_path / query / "classify")
        folder.publish(version(0))
        folder.pin(5)
    (tmp_path / foreign / "classify" / "notes.txt").write_text("mine")
    for query in (own, gone, foreign, "not-a-query"):
        age(tmp_path / query, ABANDONED_QUERY_S + 60.0)
    age(tmp_path / recent, ABANDONED_QUERY_S - 60.0)
    os.utime(tmp_path / own / "classify")
    remove_abandoned(tmp_path / own / "classify")
    assert sorted(q.name for q in tmp_path.iterdir()) == [own, recent, foreign, "not-a-query"]
    assert (tmp_path / foreign / "classify" / "notes.txt").read_text() == "mine"
    assert batch_of(CostFolder(tmp_path / recent / "classify").newest()) == 0


def test_a_folder_that_belongs_to_no_query_removes_nothing_beside_it(tmp_path: Path) -> None:
    old = tmp_path / "00000000-aaaa-bbbb-cccc-0123456789ab"
    CostFolder(old / "classify").publish(version(0))
    age(old, ABANDONED_QUERY_S + 60.0)
    CostFolder(tmp_path / "jobs" / "classify").publish(version(0))
    remove_abandoned(tmp_path / "jobs" / "classify")
    assert old.exists()
