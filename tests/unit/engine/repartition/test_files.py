"""What the files of a checkpoint say, and which ones an undo removes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from checkpoints import read_tree, rest, write_checkpoint

from balancedstream.core.repartition import Operator, find_stage
from balancedstream.engine.repartition.files import (
    await_quiet,
    find_checkpoint,
    holding,
    read_checkpoint,
    remove_repartition,
    withdraw_commit,
)
from balancedstream.errors import RepartitionError


def test_a_checkpoint_is_read_as_spark_wrote_it(tmp_path: Path) -> None:
    found = read_checkpoint(write_checkpoint(tmp_path))
    assert (found.planned, found.committed, found.format) == (2, 2, "2")
    assert (found.partitions, found.partitions_before) == (3, 3)
    assert found.offsets == ({"offset": 500},)
    assert found.operators == (
        Operator(0, "stateStoreSave", ("default",), found.operators[0].state_bytes, 3),
    )
    assert found.operators[0].state_bytes > 300


def test_a_folder_is_found_by_path_and_by_uri(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_checkpoint(tmp_path / "a+b=ü")
    monkeypatch.chdir(tmp_path)
    for location in (str(path), f"file:{path}", f"file://{path}", "a+b=ü"):
        assert find_checkpoint(location) == path


@pytest.mark.parametrize("location", ["s3a://bucket/q", "hdfs://n/q", "S3://b", "abfss:/x"])
def test_storage_that_is_not_mounted_is_refused(location: str) -> None:
    with pytest.raises(RepartitionError, match="not on a mounted file system"):
        find_checkpoint(location)


@pytest.mark.parametrize("name", ["a b", "a%20b", "a#b"])
def test_a_path_in_which_spark_finds_no_state_is_refused_and_a_link_to_it_taken(
    name: str, tmp_path: Path
) -> None:
    path = write_checkpoint(tmp_path / name)
    with pytest.raises(RepartitionError, match="Name the checkpoint by a link"):
        find_checkpoint(str(path))
    link = tmp_path / "link"
    link.symlink_to(path)
    assert find_checkpoint(str(link)) == link


def test_state_files_of_the_planned_batch_are_seen_with_and_without_ids(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, (3, 3, 6), uncommitted=1)
    assert not read_checkpoint(tmp_path).has_written
    (tmp_path / "state/0/0/3_4d6fd3be-96ef-4d8d-a2ef-5d84f6e6a5a8.zip").touch()
    assert read_checkpoint(tmp_path).has_written


def test_files_that_vanish_while_a_checkpoint_is_read_do_not_end_it(tmp_path: Path) -> None:
    found = read_checkpoint(write_checkpoint(tmp_path))
    # A link without a target is listed and cannot be looked at, as a file that was renamed since.
    (tmp_path / "state/0/0/.4.zip.draft.tmp").symlink_to("renamed")
    (tmp_path / "state/0/0/4.zip").symlink_to("removed")
    assert read_checkpoint(tmp_path) == found


def test_commits_that_vanish_are_a_query_that_writes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "commits/1").unlink()
    (tmp_path / "commits/1").symlink_to("removed")
    with pytest.raises(RepartitionError, match="a query writes to this checkpoint"):
        await_quiet(tmp_path)


def test_an_undo_leaves_the_tree_as_it_was_but_for_the_state(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, (3, 3))
    before = read_tree(tmp_path)
    write_checkpoint(tmp_path, (3, 3, 6))
    for folder in ("offsets", "commits"):
        (tmp_path / folder / ".2.crc").touch()
    newer = tmp_path / "state/0/_metadata/v2/2"
    newer.parent.mkdir()
    newer.write_text((tmp_path / "state/0/_metadata/metadata").read_text())
    remove_repartition(tmp_path, read_checkpoint(tmp_path))
    left = read_tree(tmp_path)
    assert {k: v for k, v in left.items() if k in before} == before
    assert sorted(set(left) - set(before)) == ["state/0/0/3.changelog", "state/0/_metadata/v2"]


def test_a_withdrawn_commit_leaves_a_repartition_half_done(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, (3, 3, 6))
    withdraw_commit(tmp_path, read_checkpoint(tmp_path))
    assert find_stage(read_checkpoint(tmp_path)) == "half-done"


def test_a_checkpoint_that_rests_is_not_waited_for(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    await_quiet(tmp_path)


def test_a_batch_that_is_begun_while_one_looks_is_seen(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    now_s = time.time()
    for batch in range(3):
        at_s = now_s - 2.0 + batch
        os.utime(tmp_path / "commits" / str(batch), (at_s, at_s))
    begin = threading.Timer(0.3, (tmp_path / "offsets/3").touch)
    begin.start()
    with pytest.raises(RepartitionError, match="a query writes to this checkpoint"):
        await_quiet(tmp_path)
    begin.join()


def test_one_repartition_at_a_time_holds_a_checkpoint(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    before = read_tree(tmp_path)
    with holding(tmp_path):
        with pytest.raises(RepartitionError, match="another repartition"), holding(tmp_path):
            pass
        assert read_tree(tmp_path) == before
    with holding(tmp_path):
        rest(tmp_path)
