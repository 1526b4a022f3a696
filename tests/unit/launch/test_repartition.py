"""What a user sees of `balancedstream repartition` when it needs no Spark to answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyspark
import pytest
from checkpoints import read_tree, write_checkpoint
from spark_versions import needs_spark

from balancedstream.cli import main
from balancedstream.core.logs import PARTITIONS
from balancedstream.core.repartition import PROVIDER, STRICT
from balancedstream.engine import traits
from balancedstream.engine.traits import REPARTITION_SINCE, UnsupportedSparkError

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

pytestmark = needs_spark(REPARTITION_SINCE)


def fail(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> str:
    """Runs a command that must be refused and change nothing; its message, in one line."""
    before = read_tree(path)
    assert main(["repartition", str(path), *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith("balancedstream: ")
    assert said.count("\n") == 1
    assert "Nothing was changed" in said
    assert read_tree(path) == before
    return said


@pytest.mark.parametrize(
    ("made", "options", "named"),
    [
        ({}, ["--partitions", "0"], "--partitions: must be"),
        ({}, ["--undo"], "--undo: the last batch"),
        ({}, ["--partitions", "6", "--sample-above", "much"], "--sample-above: not a size"),
        ({"uncommitted": 1}, ["--partitions", "6"], "not committed"),
        ({"uncommitted": 3}, ["--partitions", "6"], "no committed batch"),
        ({"conf": {PROVIDER: HDFS}}, ["--partitions", "6"], "RocksDB only"),
        ({"conf": {STRICT: "false"}}, ["--partitions", "6"], "useStrictDistribution"),
        ({"conf": {PARTITIONS: "many"}}, ["--partitions", "6"], "cannot be read"),
        ({"operator": "globalLimit"}, ["--partitions", "6"], "globalLimit"),
        ({"version": "v9"}, ["--partitions", "6"], "commits/2 cannot be read"),
        ({"offset": '{"balancedstream": "keys"}'}, ["--partitions", "6"], "balanced(...)"),
        ({"partitions": (3, 6), "version": "v1"}, ["--undo"], "format 1"),
        ({"partitions": (3, 6), "uncommitted": 1}, ["--partitions", "9"], "to 6 was begun"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
def test_what_cannot_be_done_is_refused_in_a_sentence_and_leaves_the_disk_alone(
    made: dict[str, Any],
    options: list[str],
    named: str,
    dry: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write_checkpoint(tmp_path / "checkpoint", **made)
    assert named in fail(capsys, path, *options, *dry)


@pytest.mark.parametrize("file", ["offsets/2", "commits/2", "state/0/_metadata/metadata"])
@pytest.mark.parametrize("content", ["", "v1\n{", "v1\n[]", "\x00\x01", "v1\n{}"])
def test_a_damaged_file_is_refused(
    file: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_checkpoint(tmp_path / "checkpoint")
    if file == "commits/2" and content.startswith("v1"):
        content = content.removeprefix("v1")
    (path / file).write_text(content)
    fail(capsys, path, "--partitions", "6")


def test_a_folder_that_is_no_checkpoint_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{tmp_path} is no checkpoint" in fail(capsys, tmp_path, "--partitions", "6")


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
def test_a_checkpoint_that_has_the_number_is_left_alone_and_that_is_no_error(
    dry: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_checkpoint(tmp_path / "checkpoint")
    before = read_tree(path)
    assert main(["repartition", str(path), "--partitions", "3", *dry]) == 0
    assert "has 3 state partitions already. Nothing was changed." in capsys.readouterr().out
    assert read_tree(path) == before


def test_a_dry_run_names_operators_numbers_costs_and_the_way_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_checkpoint(tmp_path / "checkpoint")
    before = read_tree(path)
    assert main(["repartition", str(path), "--partitions", "12", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "batch 2, format 2, 3 state partitions -> 12" in said
    assert "operator 0, stateStoreSave: 1 store," in said
    assert "3 versions" in said
    assert "more bytes on disk" in said
    assert "--undo can take it back" in said
    assert said.endswith("Nothing was changed (--dry-run).\n")
    assert read_tree(path) == before


def test_a_dry_run_says_beforehand_that_format_1_has_no_way_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_checkpoint(tmp_path / "checkpoint", version="v1")
    assert main(["repartition", str(path), "--partitions", "12", "--dry-run"]) == 0
    assert "--undo cannot take it back" in capsys.readouterr().out


def test_an_undo_says_where_the_query_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_checkpoint(tmp_path / "checkpoint", (3, 3, 6))
    before = read_tree(path)
    assert main(["repartition", str(path), "--undo", "--dry-run"]) == 0
    assert "batch 2, with 6 state partitions, would be removed" in capsys.readouterr().out
    assert read_tree(path) == before
    assert main(["repartition", str(path), "--undo"]) == 0
    assert "the query goes on after batch 1, with 3" in capsys.readouterr().out
    assert not (path / "offsets/2").exists()
    assert not (path / "commits/2").exists()


def test_an_undo_with_a_number_may_be_typed_again_and_undoes_none_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_checkpoint(tmp_path / "checkpoint", (3, 6, 12))
    command = ["repartition", str(path), "--undo", "--partitions", "12"]
    assert main(command) == 0
    before = read_tree(path)
    capsys.readouterr()
    assert main(command) == 0
    assert "there is nothing to undo: its last batch has 6" in capsys.readouterr().out
    assert read_tree(path) == before


def test_without_a_wish_the_command_names_both_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repartition", str(tmp_path)]) == 2
    assert "one of --partitions and --undo is needed" in capsys.readouterr().err


def test_an_older_spark_is_refused_with_the_first_version_that_can() -> None:
    with pytest.raises(UnsupportedSparkError, match=r"needs Spark 4.2 or newer.*Spark 4.1.4"):
        traits.check_repartition("4.1.4")
    traits.check_repartition(pyspark.__version__)
