"""The recomputation notices every way in which a stream could lose or double a row."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recomputation import (
    Comparison,
    KeyCount,
    Offsets,
    Record,
    UnreadableLogError,
    compare,
    describe_difference,
    read_offset_log,
    recompute_counts,
)

TOPIC = "clicks"
Topic = Mapping[int, Sequence[Record]]


@dataclass
class Job:
    """A stream's checkpoint and sink on disk, as Spark leaves them."""

    checkpoint: Path
    sink: Path
    topic: Topic

    def commit(self, batch: int, offsets: Offsets, *, version: str = "v1") -> None:
        for log in ("offsets", "commits"):
            (self.checkpoint / log).mkdir(parents=True, exist_ok=True)
        ends = {TOPIC: {str(partition): end for partition, end in offsets.items()}}
        # The line of another source stands before that of the topic.
        lines = [version, json.dumps({"conf": {}}), json.dumps({"epoch": 3}), json.dumps(ends)]
        (self.checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
        (self.checkpoint / "offsets" / f".{batch}.crc").touch()
        (self.checkpoint / "commits" / str(batch)).write_text("v1\n{}")

    def write(self, batch: int, rows: Sequence[KeyCount], *, finished: bool = True) -> None:
        """Two files a batch, as two tasks would."""
        folder = self.sink / f"batch={batch}"
        folder.mkdir(parents=True)
        for number, part in enumerate((rows[::2], rows[1::2])):
            table = pa.table({name: [getattr(r, name) for r in part] for name in KeyCount._fields})
            pq.write_table(table, folder / f"part-{number}.parquet")
        if finished:
            (folder / "_SUCCESS").touch()

    def compare(self) -> Comparison:
        return compare(self.checkpoint, self.sink, TOPIC, lambda topic, ends: self.topic)


OFFSETS: dict[int, Offsets] = {0: {0: 10, 1: 5}, 1: {0: 10, 1: 20}, 2: {0: 40, 1: 40}}


@pytest.fixture
def topic() -> Topic:
    draw = random.Random(7)
    return {
        partition: [
            Record(f"k{draw.randrange(5)}", draw.randrange(100), 1000 + offset)
            for offset in range(40)
        ]
        for partition in (0, 1)
    }


@pytest.fixture
def job(tmp_path: Path, topic: Topic) -> Job:
    """A job with three committed batches and nothing written."""
    job = Job(tmp_path / "checkpoint", tmp_path / "sink", topic)
    for batch, offsets in OFFSETS.items():
        job.commit(batch, offsets)
    return job


@pytest.fixture
def rows(topic: Topic) -> dict[int, list[KeyCount]]:
    """What a right job writes."""
    return {
        batch: list(rows.elements()) for batch, rows in recompute_counts(OFFSETS, topic).items()
    }


def write_all(job: Job, rows: Mapping[int, Sequence[KeyCount]]) -> Comparison:
    for batch, written in rows.items():
        job.write(batch, written)
    return job.compare()


def test_a_right_sink_has_no_difference(job: Job, rows: dict[int, list[KeyCount]]) -> None:
    comparison = write_all(job, rows)
    assert comparison == Comparison(batches=3, records=80, differences=())
    assert str(comparison) == "3 batches of 80 records are as recomputed"


def test_the_order_of_a_batchs_rows_does_not_matter(
    job: Job, rows: dict[int, list[KeyCount]]
) -> None:
    assert not write_all(job, {batch: part[::-1] for batch, part in rows.items()}).differences


def test_a_key_counts_on_from_batch_to_batch(topic: Topic) -> None:
    last: dict[str, KeyCount] = {}
    for rows in recompute_counts(OFFSETS, topic).values():
        last.update({row.key: row for row in rows})
    records = [record for part in topic.values() for record in part]
    assert sum(row.rows for row in last.values()) == len(records)
    assert sum(row.total for row in last.values()) == sum(record.value for record in records)


def test_only_keys_with_rows_in_a_batch_are_written_in_it(topic: Topic) -> None:
    batch_1 = recompute_counts(OFFSETS, topic)[1]
    assert {row.key for row in batch_1} == {record.key for record in topic[1][5:20]}


def test_a_lost_row_of_the_sink_is_noticed(job: Job, rows: dict[int, list[KeyCount]]) -> None:
    lost = rows[1].pop()
    (difference,) = write_all(job, rows).differences
    assert difference.startswith("batch 1: 1 rows missing, 0 too many")
    assert f"{lost.key}: {lost} expected, nothing written" in difference


def test_a_doubled_row_of_the_sink_is_noticed(job: Job, rows: dict[int, list[KeyCount]]) -> None:
    rows[2].append(rows[2][0])
    (difference,) = write_all(job, rows).differences
    assert difference.startswith("batch 2: 0 rows missing, 1 too many")


def test_a_lost_record_of_the_topic_is_noticed_in_every_later_batch_of_its_key(
    job: Job, topic: Topic
) -> None:
    key = topic[0][0].key
    short = {0: [Record(key, 0, 0)._replace(key="nobody"), *topic[0][1:]], 1: topic[1]}
    wrong = recompute_counts(OFFSETS, short)
    kept = {b: [r for r in part.elements() if r.key != "nobody"] for b, part in wrong.items()}
    differing = [
        batch
        for batch, part in recompute_counts(OFFSETS, topic).items()
        if any(row.key == key for row in part)
    ]
    differences = write_all(job, kept).differences
    assert [int(d.split()[1].rstrip(":")) for d in differences] == differing
    assert differing[0] == 0


def test_a_state_that_lost_an_update_is_noticed(job: Job, rows: dict[int, list[KeyCount]]) -> None:
    """A partition reloaded from one batch too early: batch 1 happened, batch 2 does not know it."""
    before = {row.key: row for row in rows[0]}
    updated = next(row for row in rows[1] if row.key in before)
    gained = updated.rows - before[updated.key].rows
    rows[2] = [
        row._replace(rows=row.rows - gained) if row.key == updated.key else row for row in rows[2]
    ]
    (difference,) = write_all(job, rows).differences
    assert difference.startswith("batch 2: 1 rows missing, 1 too many")
    assert f"{updated.key}: " in difference


def test_a_record_that_was_counted_twice_is_noticed(
    job: Job, rows: dict[int, list[KeyCount]]
) -> None:
    rows[2][0] = rows[2][0]._replace(rows=rows[2][0].rows + 1)
    assert len(write_all(job, rows).differences) == 1


def test_rows_in_the_wrong_batch_are_noticed(job: Job, rows: dict[int, list[KeyCount]]) -> None:
    rows[0], rows[1] = rows[1], rows[0]
    assert len(write_all(job, rows).differences) == 2


def test_a_committed_batch_without_output_is_noticed(
    job: Job, rows: dict[int, list[KeyCount]]
) -> None:
    del rows[1]
    (difference,) = write_all(job, rows).differences
    assert difference == f"batch 1: no finished output, {len(set(rows_of(job, 1)))} rows expected"


def test_an_unfinished_output_of_a_committed_batch_is_noticed(
    job: Job, rows: dict[int, list[KeyCount]]
) -> None:
    job.write(0, rows.pop(0), finished=False)
    (difference,) = write_all(job, rows).differences
    assert difference.startswith("batch 0: no finished output")


def test_a_batch_that_is_not_committed_yet_is_left_out(
    job: Job, rows: dict[int, list[KeyCount]]
) -> None:
    (job.checkpoint / "commits" / "2").unlink()
    comparison = write_all(job, rows)
    assert comparison == Comparison(batches=2, records=30, differences=())


def test_a_job_that_has_not_begun_has_nothing_to_compare(tmp_path: Path, topic: Topic) -> None:
    job = Job(tmp_path / "none", tmp_path / "sink", {})
    assert job.compare() == Comparison(batches=0, records=0, differences=())


def test_batches_that_were_purged_from_the_log_are_an_error(job: Job) -> None:
    (job.checkpoint / "commits" / "0").unlink()
    with pytest.raises(UnreadableLogError, match="not every batch from 0 on"):
        job.compare()


def test_another_form_of_the_offset_log_is_an_error_not_a_guess(job: Job) -> None:
    job.commit(2, OFFSETS[2], version="v2")
    with pytest.raises(UnreadableLogError, match="version v2"):
        job.compare()


def test_a_log_without_the_topic_is_an_error(job: Job) -> None:
    with pytest.raises(UnreadableLogError, match="no line for the topic other"):
        read_offset_log(job.checkpoint, "other")


def test_a_message_shows_a_few_keys_and_counts_the_rest() -> None:
    expected = Counter(KeyCount(f"k{number}", 1, 1, 1) for number in range(20))
    text = describe_difference(4, expected, Counter())
    assert text.count("expected, nothing written") == 5
    assert text.endswith("and 15 more keys")


def rows_of(job: Job, batch: int) -> list[KeyCount]:
    return list(recompute_counts(OFFSETS, job.topic)[batch].elements())
