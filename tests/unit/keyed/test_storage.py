"""What is on its way from owner to owner is on the checkpoint's storage for as long as needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from balancedstream.core.keys.epochs import Arrival, Epoch, Export, Piece, Wish, advance_epoch
from balancedstream.errors import CheckpointError
from balancedstream.keyed.mailbox import Mailbox
from balancedstream.keyed.source import MAX_CHANGES, ControlReader
from balancedstream.keyed.storage import KEPT_EPOCHS, Home, Operator, describe_offset

EPOCH = Epoch(4, 9, {'"é"': 2}, {'"é"': Arrival(0, Piece("f", 3, 5))}, ('"a"',), ('"b"',), 7)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(str(tmp_path), Operator())


def plan(checkpoint: Path, batch: int, *offsets: object) -> None:
    """Spark writes down what a batch is planned with."""
    lines = ["v1", '{"batchWatermarkMs":0}', *(o if o == "-" else json.dumps(o) for o in offsets)]
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(map(str, lines)), "utf-8")


def list_files(checkpoint: Path, kind: str, name: str = "keys") -> list[str]:
    return sorted(path.name for path in (checkpoint / "balancedstream" / name / kind).iterdir())


def hand_over(home: Home, batch: int, partition: int = 0) -> str:
    writer = home.open_handoff(batch, partition, 0)
    writer.add('"a"', b"state")
    writer.close()
    return writer.file


def test_a_checkpoint_that_spark_has_begun_to_write_must_be_there(
    home: Home, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=r"Python does not find it; no row was processed"):
        home.check_presence()
    (tmp_path / "metadata").write_text("{}")
    home.check_presence()


def test_storage_that_fails_is_told_from_a_file_that_is_missing(home: Home) -> None:
    meant = r"cannot be reached .*not committed and no state is lost: .* start it again"
    writer = home.open_handoff(7, 0, 1)
    with mock.patch.object(Path, "read_bytes", side_effect=OSError("stale")):
        with pytest.raises(CheckpointError, match=meant):
            home.read_epoch("1-000000000000.json")
        with pytest.raises(CheckpointError, match=meant):
            home.find_epoch_of(3)
    with mock.patch("os.fsync", side_effect=OSError("full")):
        with pytest.raises(CheckpointError, match=meant):
            home.write_epoch(EPOCH)
        with pytest.raises(CheckpointError, match=meant):
            writer.close()


def test_the_first_batch_of_a_new_checkpoint_is_0(home: Home, tmp_path: Path) -> None:
    assert home.find_next_batch() == 0
    (tmp_path / "offsets").mkdir()
    assert home.find_next_batch() == 0


def test_the_next_batch_follows_the_last_one_that_was_planned(home: Home, tmp_path: Path) -> None:
    for batch in (9, 10, 11):
        plan(tmp_path, batch)
    for other in (".12.crc", ".12.0a1b.tmp", "_spark_metadata"):
        (tmp_path / "offsets" / other).touch()
    assert home.find_next_batch() == 12


def test_a_batch_runs_with_the_epoch_that_its_offsets_name(home: Home, tmp_path: Path) -> None:
    table = home.write_epoch(EPOCH)
    plan(tmp_path, 9, "-", 17, {"topic": {"0": 5}}, describe_offset("keys", table, EPOCH.number))
    assert home.read_epoch_of(9) == EPOCH


def test_a_batch_that_was_planned_without_an_epoch_runs_with_the_first(
    home: Home, tmp_path: Path
) -> None:
    plan(tmp_path, 0, describe_offset("keys", "", 0))
    assert home.read_epoch_of(0) == Epoch()


def test_operators_of_other_names_and_topics_of_ours_do_not_matter(
    home: Home, tmp_path: Path
) -> None:
    other = Home(str(tmp_path), Operator("users"))
    offsets = [
        describe_offset("users", other.write_epoch(Epoch(1)), 1),
        {"balancedstream": {"0": 7}},
        describe_offset("keys", home.write_epoch(EPOCH), 4),
    ]
    plan(tmp_path, 3, *offsets)
    assert home.read_epoch_of(3) == EPOCH
    assert other.read_epoch_of(3) == Epoch(1)


@pytest.mark.parametrize(
    ("names", "count"), [((), "no"), (("users",), "no"), (("keys", "keys"), "more than one")]
)
def test_a_batch_needs_one_operator_of_the_name(
    home: Home, tmp_path: Path, names: Sequence[str], count: str
) -> None:
    plan(tmp_path, 3, {"topic": {"0": 5}}, *(describe_offset(name, "", 0) for name in names))
    with pytest.raises(CheckpointError, match=f"with {count} balanced operator named 'keys'"):
        home.read_epoch_of(3)


def test_two_epochs_of_one_number_are_two_files(home: Home, tmp_path: Path) -> None:
    one, other = home.write_epoch(Epoch(4)), home.write_epoch(EPOCH)
    assert home.read_epoch(one) == Epoch(4)
    assert home.read_epoch(other) == EPOCH
    assert list_files(tmp_path, "epochs") == sorted([one, other])


@settings(max_examples=40)
@given(st.dictionaries(st.text("ab\U0001f600"), st.binary(), max_size=5))
def test_state_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, states: dict[str, bytes]
) -> None:
    home = Home(str(tmp_path_factory.mktemp("checkpoint")), Operator())
    writer = home.open_handoff(7, 2, 31)
    for key, state in states.items():
        writer.add(key, state)
    writer.close()
    assert writer.file.startswith("7-2-31-")
    assert {
        key: home.read_handoff(writer.file, offset, state_bytes)
        for key, (offset, state_bytes) in writer.pieces.items()
    } == states


def test_attempts_of_one_number_never_share_a_file(home: Home, tmp_path: Path) -> None:
    assert hand_over(home, 7) != hand_over(home, 7)
    assert len(list_files(tmp_path, "handoffs")) == 2


def test_what_a_zombie_writes_last_is_not_what_the_next_batch_takes_in(home: Home) -> None:
    accepted, zombie = home.open_handoff(7, 0, 1), home.open_handoff(7, 0, 1)
    accepted.add('"a"', b"state")
    accepted.close()
    export = Export(7, 0, accepted.file, accepted.pieces)
    table = home.write_epoch(advance_epoch(Epoch(), Wish({'"a"': 3}), (export,), 8))
    zombie.add('"a"', b"other")
    zombie.close()
    piece = home.read_epoch(table).arrivals['"a"'].piece
    assert home.read_handoff(piece.file, piece.offset, piece.state_bytes) == b"state"


def test_state_that_ends_too_soon_is_refused(home: Home) -> None:
    file = hand_over(home, 7)
    with pytest.raises(CheckpointError, match=r"ends before byte 6.*no state is lost"):
        home.read_handoff(file, 0, 6)


def test_state_whose_file_was_removed_is_refused_with_what_to_do(home: Home) -> None:
    file = hand_over(home, 7)
    home.remove_outdated(10)
    refused = r"is gone.*no state is lost.*go back to a batch.* delete .*/offsets/8:"
    with pytest.raises(CheckpointError, match=refused):
        home.read_handoff(file, 0, 5)


def test_what_the_last_two_batches_handed_over_is_kept(home: Home, tmp_path: Path) -> None:
    files = {batch: hand_over(home, batch) for batch in (2, 7, 8, 9, 10, 11)}
    home.remove_outdated(11)
    assert list_files(tmp_path, "handoffs") == sorted(files[batch] for batch in (9, 10, 11))


def test_a_driver_that_another_has_replaced_leaves_what_the_running_batch_needs(
    home: Home, tmp_path: Path
) -> None:
    # It sees that batch 8 is planned, and cleans up before one that it will never run.
    file = hand_over(home, 7)
    plan(tmp_path, 8, describe_offset("keys", "", 0))
    home.remove_outdated(home.find_next_batch())
    assert home.read_handoff(file, 0, 5) == b"state"


@pytest.mark.parametrize("first", [0, 2])
def test_old_epochs_go_when_spark_keeps_no_batch_with_them(
    home: Home, tmp_path: Path, first: int
) -> None:
    names = [home.write_epoch(Epoch(number)) for number in range(1, KEPT_EPOCHS + 4)]
    for batch, table in list(enumerate(names))[first:]:
        plan(tmp_path, batch, describe_offset("keys", table, batch + 1))
    home.remove_outdated(500)
    assert list_files(tmp_path, "epochs") == sorted(names[first:])


def test_however_many_batches_spark_keeps_it_can_go_back_to_each(
    home: Home, tmp_path: Path
) -> None:
    # As with `spark.sql.streaming.minBatchesToRetain`.
    for batch in range(3 * KEPT_EPOCHS):
        table = home.write_epoch(Epoch(batch + 1, batch))
        plan(tmp_path, batch, describe_offset("keys", table, batch + 1))
        home.remove_outdated(batch + 1)
    for batch in range(3 * KEPT_EPOCHS):
        assert home.read_epoch_of(batch).number == batch + 1


@pytest.mark.parametrize(
    "text", [None, "", "{", "[1]", "\0", "[" * 99_999, '{"number":' + "1" * 5000 + "}"]
)
def test_an_epoch_that_cannot_be_read_is_one_sentence_with_what_to_do(
    home: Home, tmp_path: Path, text: str | None
) -> None:
    table = home.write_epoch(EPOCH)
    path = tmp_path / "balancedstream" / "keys" / "epochs" / table
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(CheckpointError, match=r"cannot be read.*no state is lost: put the whole"):
        home.read_epoch(table)


@pytest.mark.parametrize("text", [None, "", "v1", "v9\n{}\n{}", "\0"])
def test_a_batch_whose_offsets_cannot_be_read_is_one_sentence_with_what_to_do(
    home: Home, tmp_path: Path, text: str | None
) -> None:
    (tmp_path / "offsets").mkdir()
    if text is not None:
        (tmp_path / "offsets" / "3").write_text(text)
    with pytest.raises(CheckpointError, match=r"offsets/3 cannot be read.*put the whole check"):
        home.read_epoch_of(3)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_both_formats_of_sparks_offset_log_name_the_epoch(
    home: Home, tmp_path: Path, version: str
) -> None:
    table = home.write_epoch(EPOCH)
    others = [
        '{"topic":{"0":5}}',
        "-",
        "17",
        "{no JSON}",
        '{"file":"a\u2028b\x85{"}',
        "{" * 9000,
        "[1]",
    ]
    ours = json.dumps(describe_offset("keys", table, 4))
    for place in range(len(others) + 1):
        offsets = [*others[:place], ours, *others[place:]]
        if version == "v2":
            offsets = [f"{number}:{offset}" for number, offset in enumerate(offsets)]
        (tmp_path / "offsets").mkdir(exist_ok=True)
        text = "\n".join([version, '{"batchWatermarkMs":0}', *offsets])
        (tmp_path / "offsets" / "7").write_text(text, "utf-8")
        assert home.read_epoch_of(7) == EPOCH


STRAYS = (
    "notes.txt", "._x", ".12.crc", "12.crc", "x", "-1", "9" * 200, "7", "7-", "a-b.json", "²",
    "5-0a1b2c3d4e5f.json.bak", "Thumbs.db", "folder/", "99/", "5-0a1b2c3d4e5f.json/",
    "1-0-0-0a1b2c3d4e5f.state/",
)  # fmt: skip


def leave(folder: Path, name: str) -> None:
    """What people, backups and file systems leave in a folder; a name ends with / for a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).mkdir() if name.endswith("/") else (folder / name).touch()


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["epochs", "handoffs"]), st.sampled_from(STRAYS))))
def test_what_else_is_in_the_folders_does_no_harm_and_stays(
    tmp_path_factory: pytest.TempPathFactory, strays: list[tuple[str, str]]
) -> None:
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    home = Home(str(checkpoint), Operator())
    for folder, name in {*strays}:
        leave(checkpoint / "balancedstream" / "keys" / folder, name)
    names = [home.write_epoch(Epoch(number)) for number in range(1, KEPT_EPOCHS + 4)]
    plan(checkpoint, 8, describe_offset("keys", names[1], 2))
    file = hand_over(home, 7)
    home.remove_outdated(9)
    assert home.read_handoff(file, 0, 5) == b"state"
    epochs = {name.rstrip("/") for folder, name in strays if folder == "epochs"}
    assert {*list_files(checkpoint, "epochs")} == {*names[1:], *epochs}
    home.remove_outdated(20)
    handoffs = {name.rstrip("/") for folder, name in strays if folder == "handoffs"}
    assert {*list_files(checkpoint, "handoffs")} == handoffs


@pytest.mark.parametrize("stray", ["notes.txt", "12.tmp", "12/", ".12.crc", "²", "9" * 200, "-"])
def test_what_else_is_among_the_offsets_is_no_batch(home: Home, tmp_path: Path, stray: str) -> None:
    plan(tmp_path, 3, describe_offset("keys", "", 0))
    leave(tmp_path / "offsets", stray)
    assert home.find_next_batch() == 4


def test_what_cannot_be_removed_stays_and_nothing_fails(home: Home, tmp_path: Path) -> None:
    hand_over(home, 1)
    folder = tmp_path / "balancedstream" / "keys" / "handoffs"
    with mock.patch.object(Path, "unlink", side_effect=PermissionError):
        home.remove_outdated(9)
    assert len([*folder.iterdir()]) == 1


def test_there_is_nothing_to_remove_at_first(home: Home) -> None:
    home.remove_outdated(0)


def test_what_another_operator_keeps_is_left_alone(home: Home, tmp_path: Path) -> None:
    other = Home(str(tmp_path), Operator("users"))
    file = hand_over(other, 1)
    home.remove_outdated(100)
    assert other.read_handoff(file, 0, 5) == b"state"


def test_the_epoch_of_the_last_batch_stays_however_often_the_next_was_planned_in_vain(
    home: Home,
) -> None:
    running = home.write_epoch(EPOCH)
    for _ in range(KEPT_EPOCHS + 1):
        home.remove_outdated(EPOCH.batch + 1)
        home.write_epoch(Epoch(EPOCH.number + 1))
    assert home.read_epoch(running) == EPOCH


@pytest.mark.parametrize("left", [".5-0a1b2c.json.77.tmp", ".nfs000000000123"])
def test_what_a_killed_driver_left_behind_does_no_harm(
    home: Home, tmp_path: Path, left: str
) -> None:
    name = home.write_epoch(EPOCH)
    (tmp_path / "balancedstream" / "keys" / "epochs" / left).write_text('{"number"')
    home.remove_outdated(10)
    assert home.read_epoch(name) == EPOCH


@pytest.mark.parametrize(
    "prefix", ["", "file:", "file://"], ids=["path", "file:/path", "file:///path"]
)
def test_a_checkpoint_on_a_mounted_file_system_is_used(tmp_path: Path, prefix: str) -> None:
    name = Home(f"{prefix}{tmp_path}", Operator()).write_epoch(EPOCH)
    assert list_files(tmp_path, "epochs") == [name]


@pytest.mark.parametrize("folder", ["100%25", "a#b", "a?b"])
def test_a_checkpoint_is_found_whatever_the_folder_is_called(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    name = Home(f"file:{tmp_path}/{folder}", Operator()).write_epoch(EPOCH)
    assert list_files(tmp_path / folder, "epochs") == [name]


def test_an_empty_mailbox_holds_nothing(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path)
    assert mailbox.read_checkpoint() is None
    assert mailbox.read_wish() is None
    assert mailbox.read_exports() == ()


def test_another_process_reads_what_was_written_last(tmp_path: Path) -> None:
    driver, source = Mailbox(tmp_path), Mailbox(tmp_path)
    exports = (
        Export(5, 0, "f", {'"é"': (0, 9), '["de",7]': (9, 0)}),
        Export(5, 2, "g", {}),
    )
    wishes = [Wish({'"é"': 3, '"a"': 1}, "hybrid", 9, 12), Wish({'"é"': 3, '"a"': 1}), Wish()]
    for wish in wishes:
        driver.write_wish(wish)
        assert source.read_wish() == wish
    for told in (exports, exports[:1], ()):
        driver.write_exports(told)
        assert source.read_exports() == told
    for checkpoint in ("file:/tmp/é", "s3a://bucket/app"):
        driver.write_checkpoint(checkpoint)
        assert source.read_checkpoint() == checkpoint


def test_a_wish_keeps_its_keys_hottest_first(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path)
    mailbox.write_wish(Wish({'"z"': 1, '"a"': 2, '"m"': 3}))
    found = mailbox.read_wish()
    assert found is not None
    assert [*found.routes] == ['"z"', '"a"', '"m"']


def test_what_nobody_replaced_is_parsed_once(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path)
    mailbox.write_wish(Wish({'"a"': 2}))
    found = mailbox.read_wish()
    assert mailbox.read_wish() is found
    mailbox.write_wish(Wish({'"a"': 2}))
    assert mailbox.read_wish() == found


def test_files_that_are_replaced_in_quick_succession_are_told_apart(tmp_path: Path) -> None:
    driver, source = Mailbox(tmp_path), Mailbox(tmp_path)
    for partition in range(200):
        driver.write_exports((Export(5, partition, "f", {}),))
        assert source.read_exports()[0].partition == partition
        driver.write_exports(())


def test_exports_that_are_added_one_by_one_are_read_together(tmp_path: Path) -> None:
    driver, source = Mailbox(tmp_path), Mailbox(tmp_path)
    first, second = Export(5, 0, "f", {'"é"': (0, 9)}), Export(5, 1, "g", {})
    driver.write_exports((first,))
    assert source.read_exports() == (first,)
    driver.add_export(second)
    assert source.read_exports() == (first, second)
    driver.withdraw_export(0)
    assert source.read_exports() == (second,)
    # Of a line that is being written, nothing counts yet.
    with (tmp_path / "exports.jsonl").open("ab") as file:
        file.write(b"[5, 2, ")
    assert source.read_exports() == (second,)


def test_a_line_that_was_written_in_part_counts_for_none_of_the_exports(tmp_path: Path) -> None:
    driver, source = Mailbox(tmp_path), Mailbox(tmp_path)
    driver.write_exports((Export(5, 0, "f", {}),))
    with (tmp_path / "exports.jsonl").open("ab") as file:
        file.write(b"[5, 2, ")
    driver.withdraw_export(0)
    assert source.read_exports() == (), "it may be the line that withdraws one"
    driver.discard_exports()
    driver.discard_exports()
    assert source.read_exports() == ()


def test_what_was_read_is_not_what_is_written_to(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path)
    mailbox.write_exports((Export(5, 0, "f", {'"a"': (0, 9)}),))
    mailbox.write_exports(())
    assert mailbox.read_exports() == ()


def test_a_run_to_the_end_of_the_data_follows_changed_minds_but_not_for_ever(
    tmp_path: Path,
) -> None:
    checkpoint, folder = tmp_path / "checkpoint", tmp_path / "mailbox"
    (checkpoint / "offsets").mkdir(parents=True)
    folder.mkdir()
    driver, home = Mailbox(folder), Home(str(checkpoint), Operator())
    reader = ControlReader(StructType().add("route", "integer"), Operator(), folder)
    reader.prepareForTriggerAvailableNow()
    driver.write_checkpoint(str(checkpoint))
    offset, asked = reader.initialOffset(), []
    for change in range(MAX_CHANGES + 2):
        driver.write_wish(Wish({f'"{change}"': 1}))
        offset = reader.latestOffset(offset, ReadAllAvailable())
        asked.append(home.read_epoch(offset["table"]).asked)
    assert asked[:MAX_CHANGES] == [(f'"{change}"',) for change in range(MAX_CHANGES)]
    assert asked[MAX_CHANGES:] == [(f'"{MAX_CHANGES - 1}"',)] * 2
