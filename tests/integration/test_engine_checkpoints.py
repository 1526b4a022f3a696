"""A checkpoint that was made without balancing goes on, whatever its format is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished
from balancedstream.engine.session.formats import find_format
from balancedstream.engine.session.settings import (
    CHANGELOG,
    CHECKPOINT_FORMAT,
    PROVIDER,
    ROCKSDB,
    SHUFFLE_PARTITIONS,
)
from balancedstream.engine.traits import COMMIT_IDS_SINCE, read_version

pytestmark = pytest.mark.integration

STATE_READER_SINCE = (4, 0)

IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def describe(provider: str, checkpoint_format: str) -> dict[str, str]:
    """The settings that a job had that was not balanced."""
    return {PROVIDER: provider, CHANGELOG: "false", CHECKPOINT_FORMAT: checkpoint_format}


needs_both_formats = pytest.mark.skipif(
    read_version(pyspark.__version__) < COMMIT_IDS_SINCE,
    reason="its executors have one format for all queries",
)


@pytest.fixture
def begin(
    spark: SparkSession,
    engine: SparkEngine,
    stream: Callable[[int], DataFrame],
    tmp_path: Path,
) -> Iterator[Callable[[str, dict[int, int]], StreamingQuery]]:
    """Starts a query that counts 100 rows a batch; what it counted by key is kept."""
    queries: list[StreamingQuery] = []

    def start(name: str, counts: dict[int, int]) -> StreamingQuery:
        counted = stream(100).groupBy((F.col("value") % 40).alias("k")).count()
        query = (
            counted.writeStream.queryName(name)
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .foreachBatch(lambda rows, batch: counts.update(map(tuple, rows.collect())))
            .start()
        )
        queries.append(query)
        return query

    yield start
    for query in queries:
        query.stop()
    # What is still told of them would make the next ones second queries of their names.
    while engine.wait(0.5):
        pass
    for name in describe(IN_MEMORY, "1"):
        spark.conf.unset(name)


@pytest.mark.parametrize(
    ("provider", "checkpoint_format"),
    [(IN_MEMORY, "1"), (ROCKSDB, "1"), pytest.param(ROCKSDB, "2", marks=needs_both_formats)],
)
def test_its_state_is_kept_and_its_partitions_move(
    provider: str,
    checkpoint_format: str,
    begin: Callable[[str, dict[int, int]], StreamingQuery],
    batches: Callable[[str], BatchFinished],
    engine: SparkEngine,
    spark: SparkSession,
) -> None:
    before = describe(provider, checkpoint_format)
    after = {CHECKPOINT_FORMAT: "1"} if checkpoint_format == "2" else {}
    counts: dict[int, int] = {}
    for name, value in before.items():
        spark.conf.set(name, value)
    query = begin("before", counts)
    first = batches("before")
    query.stop()
    for name in before:
        spark.conf.unset(name)
    for name, value in after.items():
        spark.conf.set(name, value)

    query = begin("after", counts)
    seen = batches("after")
    assert seen.in_rocksdb is (provider == ROCKSDB)
    assert seen.sample.batch > first.sample.batch
    targets = sorted(engine.executors())
    wanted = {p: targets[p % 2] for p in range(6)}
    engine.place("after", 0, wanted)
    batches("after")  # may have been under way when the placement was asked for
    seen = batches("after")
    assert {t.partition: t.executor for t in seen.tasks} == wanted
    query.stop()
    committed = query.lastProgress
    assert committed is not None
    assert sum(counts.values()) % 100 == 0
    assert sum(counts.values()) >= 100 * (committed["batchId"] + 1)
    assert len(counts) == 40
    assert {name: spark.conf.get(name, None) for name in before} == {
        name: after.get(name) for name in before
    }


def count_in(session: SparkSession, checkpoint: Path, name: str) -> StreamingQuery:
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    counted = rows.groupBy((F.col("value") % 40).alias("k")).count()
    writer = counted.writeStream.queryName(name).outputMode("update").format("noop")
    return writer.option("checkpointLocation", str(checkpoint)).start()


@pytest.mark.parametrize(
    ("name", "own", "partitions", "in_rocksdb"),
    [
        ("later", {PROVIDER: IN_MEMORY}, 6, False),
        ("old", describe(IN_MEMORY, "1") | {SHUFFLE_PARTITIONS: "5"}, 5, False),
        ("ours", {}, 6, True),
        ("plain-log", {CHANGELOG: "false"}, 6, True),
    ],
)
def test_what_the_user_sets_in_a_session_later_counts_and_its_state_can_be_read_in_another(
    name: str,
    own: dict[str, str],
    partitions: int,
    in_rocksdb: bool,
    batches: Callable[[str], BatchFinished],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    session = spark.newSession()
    for key, value in own.items():
        session.conf.set(key, value)
    query = count_in(session, tmp_path, name)
    try:
        batches(name)
        seen = batches(name)
    finally:
        query.stop()
    assert seen.in_rocksdb is in_rocksdb
    assert [o.partitions for o in seen.operators] == [partitions]
    if read_version(pyspark.__version__) >= STATE_READER_SINCE:
        state = spark.newSession().read.format("statestore").load(str(tmp_path))
        assert state.count() == 40


def test_its_format_is_that_of_its_newest_commit(spark: SparkSession, tmp_path: Path) -> None:
    assert find_format(spark, "") is None
    assert find_format(spark, str(tmp_path)) is None
    assert find_format(spark, "no-such-scheme://q") is None
    commits = tmp_path / "commits"
    commits.mkdir()
    assert find_format(spark, str(tmp_path)) is None
    (commits / "9").write_text("v2\n{}")
    (commits / "10").write_text("v1\n{}")
    (commits / ".11.crc").write_text("v2")
    assert find_format(spark, str(tmp_path)) == "1"
    assert find_format(spark, f"file:{tmp_path}") == "1"
    for text in ("", "v3\n{}", "{}"):
        (commits / "11").write_text(text)
        assert find_format(spark, str(tmp_path)) is None
