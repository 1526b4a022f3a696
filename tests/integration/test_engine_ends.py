"""Queries end between two batches, whenever that is asked for: what they began is committed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkpoints import rest
from patience import PATIENCE_S
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from spark_versions import needs_spark

from balancedstream.core.repartition import choose_step, find_stage
from balancedstream.engine.repartition.ends import QueryEnds
from balancedstream.engine.repartition.files import read_checkpoint
from balancedstream.errors import RepartitionError

pytestmark = [pytest.mark.integration, needs_spark((4, 2))]

BATCH_S = 0.6
PAUSE_S = 0.2

Begin = Callable[..., StreamingQuery]


@pytest.fixture
def begin(spark: SparkSession, tmp_path: Path) -> Iterator[Begin]:
    """Starts a query with counts, whose batches wait; the end stops it."""
    queries: list[StreamingQuery] = []

    def wait(rows: DataFrame, batch: int) -> None:
        rows.count()
        time.sleep(BATCH_S)

    def start(name: str, trigger: str = "0 seconds", *, state: bool = True) -> StreamingQuery:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load()
        counted = source.groupBy((F.col("value") % 7).alias("k")).count() if state else source
        writer = counted.writeStream.queryName(name).outputMode("update" if state else "append")
        queries.append(
            writer.foreachBatch(wait)
            .trigger(processingTime=trigger)
            .option("checkpointLocation", str(tmp_path / name))
            .start()
        )
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


def await_checkpoints(ends: QueryEnds) -> tuple[str, ...]:
    deadline_s = time.monotonic() + PATIENCE_S
    while not (found := ends.find_checkpoints()):
        assert time.monotonic() < deadline_s
        time.sleep(PAUSE_S)
    return found


def end(ends: QueryEnds) -> float:
    """How long it takes, in seconds."""
    began_s = time.monotonic()
    while not ends.end():
        assert time.monotonic() < began_s + PATIENCE_S
        time.sleep(PAUSE_S)
    return time.monotonic() - began_s


def test_queries_that_are_ended_at_any_moment_have_committed_what_they_began(
    spark: SparkSession, begin: Begin, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(4):
        busy, waits = begin("busy"), begin("waits", "1 hour")
        ends = QueryEnds(spark)
        assert await_checkpoints(ends) == (str(tmp_path / "busy"), str(tmp_path / "waits"))
        time.sleep(chance.uniform(0.0, 2.0 * BATCH_S))
        assert end(ends) < PATIENCE_S
        for query in (busy, waits):
            assert query.awaitTermination(int(PATIENCE_S))
            assert query.exception() is None
        for name in ("busy", "waits"):
            found = read_checkpoint(tmp_path / name)
            assert find_stage(found) == "plain"
            assert choose_step(found, found.partitions + 1) == "begin"
            rest(tmp_path / name)


def test_queries_without_state_are_left_out_and_if_all_are_so_that_is_refused(
    spark: SparkSession, begin: Begin, tmp_path: Path
) -> None:
    ends = QueryEnds(spark)
    assert ends.find_checkpoints() == ()
    begin("plain", state=False)
    with pytest.raises(RepartitionError, match="no query of this stream has state"):
        await_checkpoints(ends)
    begin("counted")
    assert await_checkpoints(ends) == (str(tmp_path / "counted"),)
    end(ends)
