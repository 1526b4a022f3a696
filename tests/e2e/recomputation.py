"""What a stream should have written, computed anew from the topic, batch by batch.

Spark writes each batch's Kafka offsets to the query's offset log before it runs the batch. Those,
and the topic's records between them, fix what the batch must write, whatever was killed or moved
meanwhile: the sink has to equal this recomputation, batch by batch, as multisets of rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

Offsets = dict[int, int]
"""Of each partition of the topic: the first offset that the batch did not read."""

SHOWN_ROWS = 5
SHOWN_BATCHES = 5


class Record(NamedTuple):
    """A row of the topic."""

    key: str
    value: int
    event_time_ms: int


class KeyCount(NamedTuple):
    """A row of the sink: a key's state after a batch that had rows of it (`apps/counts.py`)."""

    key: str
    rows: int
    total: int
    last_event_time_ms: int


Rows = Counter[KeyCount]

Recompute = Callable[[Mapping[int, Offsets], Mapping[int, Sequence[Record]]], dict[int, Rows]]
"""What each batch should have written, from its offsets and the records of the topic."""


class UnreadableLogError(Exception):
    """The checkpoint does not say which offsets each batch had."""


@dataclass(frozen=True)
class Comparison:
    """How a sink compares with its recomputation.

    Attributes:
        batches: how many were compared.
        records: rows of the topic in them.
        differences: a paragraph for each batch that is not as it should be.
    """

    batches: int
    records: int
    differences: tuple[str, ...]

    def __str__(self) -> str:
        """For a failure's message."""
        if not self.differences:
            return f"{self.batches} batches of {self.records} records are as recomputed"
        shown = "\n".join(self.differences[:SHOWN_BATCHES])
        return f"{len(self.differences)} of {self.batches} batches differ:\n{shown}"


def compare(
    checkpoint: Path,
    sink: Path,
    topic: str,
    read_topic: Callable[[str, Offsets], Mapping[int, Sequence[Record]]],
    recompute: Recompute | None = None,
) -> Comparison:
    """Compares all committed batches with what they should have written.

    Args:
        checkpoint: the query's, with its `offsets` and `commits`.
        sink: holds a folder `batch=<id>` for each batch.
        topic: its name, as the offset log has it.
        read_topic: a topic's records from offset 0 up to the given offsets.
        recompute: what each batch should have written; counts by key if left out.

    Raises:
        UnreadableLogError: batches are missing in the offset log.
    """
    offsets = read_offset_log(checkpoint, topic)
    ends = offsets[max(offsets)] if offsets else {}
    expected = (recompute or recompute_counts)(offsets, read_topic(topic, ends))
    # A batch may be committed between two looks at the checkpoint: only those of `offsets` count,
    # and none of them changes any more.
    written = {batch: read_batch(sink, batch) for batch in expected}
    differences = [
        difference
        for batch, rows in expected.items()
        if (difference := describe_difference(batch, rows, written[batch]))
    ]
    return Comparison(len(offsets), sum(ends.values()), tuple(differences))


def read_offset_log(checkpoint: Path, topic: str) -> dict[int, Offsets]:
    """The end offsets of every committed batch, in the order of batches.

    Raises:
        UnreadableLogError: a batch is missing (Spark keeps only the last
            `spark.sql.streaming.minBatchesToRetain`), or has no line for this topic.
    """
    committed = sorted(int(f.name) for f in (checkpoint / "commits").glob("[0-9]*"))
    if committed != list(range(len(committed))):
        message = f"{checkpoint}/commits has not every batch from 0 on: {committed[:3]}…"
        raise UnreadableLogError(message)
    return {batch: _read_offsets(checkpoint / "offsets" / str(batch), topic) for batch in committed}


def _read_offsets(entry: Path, topic: str) -> Offsets:
    try:
        version, _metadata, *sources = entry.read_text().splitlines()
    except (OSError, ValueError) as error:
        message = f"{entry}: {error}"
        raise UnreadableLogError(message) from error
    if version != "v1":
        message = f"{entry} has version {version}; only v1 is understood"
        raise UnreadableLogError(message)
    for line in sources:
        # A source that has no data yet is `-`; other sources may stand beside this one.
        source = json.loads(line) if line.startswith("{") else {}
        if topic in source:
            return {int(partition): end for partition, end in source[topic].items()}
    message = f"{entry} has no line for the topic {topic}"
    raise UnreadableLogError(message)


def recompute_counts(
    offsets: Mapping[int, Offsets], records: Mapping[int, Sequence[Record]]
) -> dict[int, Rows]:
    """The rows that each batch should have written: one for each key that it had rows of.

    >>> topic = {0: [Record("a", 2, 10), Record("a", 3, 11)]}
    >>> recompute_counts({0: {0: 1}, 1: {0: 2}}, topic)[1]
    Counter({KeyCount(key='a', rows=2, total=5, last_event_time_ms=11): 1})
    """
    state: dict[str, KeyCount] = {}
    begins: Offsets = {}
    expected: dict[int, Rows] = {}
    for batch, ends in offsets.items():
        touched = set()
        for partition, end in ends.items():
            for record in records[partition][begins.get(partition, 0) : end]:
                before = state.get(record.key, KeyCount(record.key, 0, 0, 0))
                state[record.key] = KeyCount(
                    record.key,
                    before.rows + 1,
                    before.total + record.value,
                    max(before.last_event_time_ms, record.event_time_ms),
                )
                touched.add(record.key)
        begins = ends
        expected[batch] = Counter(state[key] for key in touched)
    return expected


def recompute_rows(
    offsets: Mapping[int, Offsets], records: Mapping[int, Sequence[Record]]
) -> dict[int, Rows]:
    """The rows that each batch of a stateless job should have written: those that it read.

    >>> recompute_rows({0: {0: 1}, 1: {0: 2}}, {0: [Record("a", 2, 10), Record("b", 3, 11)]})[1]
    Counter({KeyCount(key='b', rows=1, total=3, last_event_time_ms=11): 1})
    """
    begins: Offsets = {}
    expected: dict[int, Rows] = {}
    for batch, ends in offsets.items():
        expected[batch] = Counter(
            KeyCount(record.key, 1, record.value, record.event_time_ms)
            for partition, end in ends.items()
            for record in records[partition][begins.get(partition, 0) : end]
        )
        begins = ends
    return expected


def read_batch(sink: Path, batch: int) -> Rows | None:
    """The rows that a batch wrote; None where it wrote nothing, or did not finish."""
    folder = sink / f"batch={batch}"
    if not (folder / "_SUCCESS").exists():
        return None
    rows: Rows = Counter()
    for file in folder.glob("*.parquet"):
        # One file at a time: a folder's reader would add `batch` as a column.
        table = pq.ParquetFile(file).read(columns=list(KeyCount._fields))
        columns = [table.column(name).to_pylist() for name in KeyCount._fields]
        rows.update(KeyCount(*row) for row in zip(*columns, strict=True))
    return rows


def read_partitions(sink: Path, batch: int) -> dict[str, int]:
    """Which state partition each key of a batch is in: Spark names a partition's file after it."""
    return {
        key: int(file.name.split("-")[1])
        for file in (sink / f"batch={batch}").glob("part-*.parquet")
        for key in pq.ParquetFile(file).read(columns=["key"]).column("key").to_pylist()
    }


def describe_difference(batch: int, expected: Rows, written: Rows | None) -> str:
    """A paragraph on what is wrong with a batch; empty where nothing is.

    >>> print(describe_difference(3, Counter([KeyCount("a", 2, 5, 11)]), Counter()))
    batch 3: 1 rows missing, 0 too many (of 1)
      a: KeyCount(key='a', rows=2, total=5, last_event_time_ms=11) expected, nothing written
    """
    if written is None:
        return f"batch {batch}: no finished output, {expected.total()} rows expected"
    missing, surplus = expected - written, written - expected
    if not missing and not surplus:
        return ""
    lines = [
        f"batch {batch}: {missing.total()} rows missing, {surplus.total()} too many "
        f"(of {expected.total()})"
    ]
    keys = sorted({row.key for row in missing} | {row.key for row in surplus})
    for key in keys[:SHOWN_ROWS]:
        wanted = _name([row for row in missing.elements() if row.key == key])
        found = _name([row for row in surplus.elements() if row.key == key])
        lines.append(f"  {key}: {wanted} expected, {found} written")
    if len(keys) > SHOWN_ROWS:
        lines.append(f"  and {len(keys) - SHOWN_ROWS} more keys")
    return "\n".join(lines)


def _name(rows: Sequence[KeyCount]) -> str:
    return ", ".join(map(str, rows)) or "nothing"
