"""A query in Real-Time Mode ends if any other job has a task at the edge of its batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from real_time import RealTimeStream, start_real_time
from stateful_queries import aggregate

from balancedstream.engine.engine import SparkEngine

pytestmark = pytest.mark.integration

OURS = "balancedstream"
"""Each of our jobs has it in its description."""


@pytest.fixture
def begin(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[int], RealTimeStream]]:
    """Starts a query in Real-Time Mode with so many partitions; the end stops it."""
    begun: list[RealTimeStream] = []

    def start(partitions: int) -> RealTimeStream:
        begun.append(start_real_time(spark, "live", tmp_path / "live", partitions))
        return begun[-1]

    yield start
    for stream in begun:
        stream.query.stop()


def list_own_jobs(spark: SparkSession) -> list[str]:
    """The descriptions of the jobs that were ours."""
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    found = [jobs.apply(i).description() for i in range(jobs.size())]
    return [str(text.get()) for text in found if text.isDefined() and OURS in str(text.get())]


def await_batches(stream: RealTimeStream, count: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while stream.count_batches() < count:
        failure = stream.query.exception()
        assert failure is None, failure
        assert time.monotonic() < deadline_s
        stream.add_rows(20)
        time.sleep(0.2)


def test_a_real_time_query_that_takes_every_slot_goes_on_while_it_is_watched(
    spark: SparkSession, begin: Callable[[int], RealTimeStream]
) -> None:
    before = len(list_own_jobs(spark))
    own = SparkEngine(spark)
    try:
        stream = begin(2)
        await_batches(stream, 3)
        assert len(list_own_jobs(spark)) == before
    finally:
        own.close()


def test_what_is_to_be_loaded_waits_for_the_end_of_a_real_time_query(
    spark: SparkSession,
    begin: Callable[[int], RealTimeStream],
    stream: Callable[[int], DataFrame],
    start: Callable[..., StreamingQuery],
) -> None:
    own = SparkEngine(spark)
    try:
        live = begin(1)
        await_batches(live, 1)
        while not own.executors():
            own.wait(1.0)
        before = len(list_own_jobs(spark))
        assert own.list_real_time() == ("live",)
        own.prepare("live", 0, {0: sorted(own.executors())[0]})
        await_batches(live, 3)
        assert len(list_own_jobs(spark)) == before
        live.query.stop()
        assert own.list_real_time() == ()
        start(aggregate(stream), "after", "update")
        while len(list_own_jobs(spark)) == before:
            own.wait(1.0)
    finally:
        own.close()
