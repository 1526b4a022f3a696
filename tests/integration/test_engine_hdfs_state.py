"""A checkpoint that was made without balancing, with Spark's default store of state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished
from balancedstream.engine.settings import CHANGELOG, CHECKPOINT_FORMAT, PROVIDER

pytestmark = pytest.mark.integration

SPARKS_OWN = {
    PROVIDER: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    CHANGELOG: "false",
    CHECKPOINT_FORMAT: "1",
}


@pytest.fixture
def begin(
    spark: SparkSession, stream: Callable[[int], DataFrame], tmp_path: Path
) -> Iterator[Callable[[str, dict[int, int]], StreamingQuery]]:
    """Starts a query that counts 100 rows a batch; what it counted by key is kept."""
    tuned = {name: str(spark.conf.get(name)) for name in SPARKS_OWN}
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
    for name, value in tuned.items():
        spark.conf.set(name, value)


def test_it_goes_on_with_the_settings_of_a_balanced_job_and_its_partitions_move(
    begin: Callable[[str, dict[int, int]], StreamingQuery],
    batches: Callable[[str], BatchFinished],
    engine: SparkEngine,
    spark: SparkSession,
) -> None:
    tuned = {name: str(spark.conf.get(name)) for name in SPARKS_OWN}
    counts: dict[int, int] = {}
    for name, value in SPARKS_OWN.items():
        spark.conf.set(name, value)
    query = begin("before", counts)
    first = batches("before")
    query.stop()
    for name, value in tuned.items():
        spark.conf.set(name, value)

    query = begin("after", counts)
    seen = batches("after")
    assert not seen.in_rocksdb
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
