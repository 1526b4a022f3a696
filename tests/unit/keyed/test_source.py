"""The control source plans epochs for the checkpoint that it wrote, and leaves nothing behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from balancedstream.core.keys.epochs import Epoch, Export, Wish
from balancedstream.errors import CheckpointError, InvalidInputError
from balancedstream.keyed import mailbox
from balancedstream.keyed.mailbox import Mailbox
from balancedstream.keyed.source import ControlReader
from balancedstream.keyed.storage import Home, Operator, describe_offset

Offset = dict[str, Any]
KEY = '"a"'


class Stream:
    """A query that Spark plans batches of, with data or without."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint, mailbox = folder / "checkpoint", folder / "mailbox"
        (self.checkpoint / "offsets").mkdir(parents=True)
        mailbox.mkdir()
        self.home = Home(str(self.checkpoint), Operator())
        self.driver = Mailbox(mailbox)
        self.reader = ControlReader(StructType().add("route", "integer"), Operator(), mailbox)
        self.driver.write_checkpoint(str(self.checkpoint))
        self.offset: Offset = self.reader.initialOffset()
        self.batch = -1

    def ask(self) -> Epoch:
        """Spark asks for the epoch of the next batch, once or a hundred times a second."""
        self.offset = self.reader.latestOffset(self.offset, ReadAllAvailable())
        return self.home.read_epoch(self.offset["table"])

    def run_batch(self) -> Epoch:
        """The next batch; a key that is asked for is handed over by partition 0."""
        epoch = self.ask()
        self.batch += 1
        lines = ["v1", "{}", json.dumps(self.offset)]
        (self.checkpoint / "offsets" / str(self.batch)).write_text("\n".join(lines))
        if epoch.batch == self.batch and epoch.asked:
            writer = self.home.open_handoff(self.batch, 0, 0)
            for key in epoch.asked:
                writer.add(key, b"state")
            writer.close()
            self.driver.write_exports((Export(self.batch, 0, writer.file, writer.pieces),))
        self.reader.commit(self.offset)
        return epoch

    def handoffs(self) -> list[Path]:
        return [*(self.checkpoint / "balancedstream" / "keys" / "handoffs").iterdir()]


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def test_the_state_of_the_last_key_that_moved_is_removed_a_batch_after_its_own(
    stream: Stream,
) -> None:
    stream.driver.write_wish(Wish({KEY: 3}))
    stream.run_batch()
    assert [*stream.run_batch().arrivals] == [KEY]
    assert len(stream.handoffs()) == 1, "the batch that takes it in may be run again"
    assert stream.ask().routes == {KEY: 3}
    assert len(stream.handoffs()) == 1, "a driver that is replaced may still run that batch"
    stream.run_batch()
    stream.ask()
    assert stream.handoffs() == []


def test_what_a_task_wrote_down_in_vain_is_removed_though_no_epoch_follows(stream: Stream) -> None:
    stream.driver.write_wish(Wish({KEY: 3}))
    stream.run_batch()
    stream.home.open_handoff(stream.batch, 1, 7).close()
    stream.driver.write_wish(Wish())
    stream.run_batch()
    assert len(stream.handoffs()) == 2
    stream.run_batch()
    stream.run_batch()
    assert stream.handoffs() == []


def test_a_stream_that_is_at_rest_is_cleaned_up_once_a_batch(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned: list[int] = []
    monkeypatch.setattr(Home, "remove_outdated", lambda home, batch: cleaned.append(batch))
    # A wish for a batch that is far away is looked at whenever Spark asks.
    stream.driver.write_wish(Wish({KEY: 3}, effective_batch=50))
    for _ in range(5):
        stream.ask()
    stream.run_batch()
    stream.ask()
    assert cleaned == [0, 1]


@pytest.mark.parametrize(
    "offset",
    [{"clicks": {"0": 17, "1": 4}}, {"logOffset": 3}, 17, describe_offset("users", "", 0)],
    ids=["Kafka", "files", "rate", "an operator of another name"],
)
def test_a_checkpoint_with_another_source_in_its_place_is_refused_before_a_row_is_processed(
    stream: Stream, offset: Any
) -> None:
    with pytest.raises(CheckpointError, match=r"named 'keys'; no row was processed"):
        stream.reader.latestOffset(offset, ReadAllAvailable())
    with pytest.raises(CheckpointError, match="no row was processed"):
        stream.reader.partitions(offset, offset)


def test_it_is_refused_in_the_first_batch_too_when_no_task_has_told_where_the_checkpoint_is(
    tmp_path: Path,
) -> None:
    reader = ControlReader(StructType().add("route", "integer"), Operator(), tmp_path)
    with pytest.raises(CheckpointError, match="no row was processed"):
        reader.latestOffset({"clicks": {"0": 17}}, ReadAllAvailable())
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start


CLAIM = """
import sys
from pathlib import Path
from balancedstream.keyed.mailbox import Mailbox
print(Mailbox(Path(sys.argv[1])).claim(), flush=True)
sys.stdin.read()
"""


def test_two_queries_with_one_mailbox_do_not_both_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    command = [sys.executable, "-c", CLAIM, str(folder)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "True\n"
        second = ControlReader(StructType().add("route", "integer"), Operator(), folder)
        offset = second.initialOffset()
        monkeypatch.setattr(mailbox, "CLAIM_TIMEOUT_S", 0.1)
        with pytest.raises(InvalidInputError, match="another running query, or"):
            second.latestOffset(offset, ReadAllAvailable())
        with pytest.raises(InvalidInputError, match="another running query, or"):
            second.partitions(offset, offset)
    # It has ended.
    assert second.latestOffset(offset, ReadAllAvailable()) == offset
    assert second.latestOffset(offset, ReadAllAvailable()) == offset
