"""A query in Real-Time Mode ends if any other job has a task at the edge of its batch."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from processes import run_script
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from real_time import RealTimeStream, start_real_time
from stateful_queries import aggregate

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished

pytestmark = [pytest.mark.integration, pytest.mark.turn]

PARTITIONS, MANY = 3, 5
"""Of the query beside, in `real_time_app.py`, and its batches at least."""

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
        assert failure is None, str(failure)
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


def test_nothing_is_loaded_ahead_while_a_real_time_query_needs_every_slot(
    spark: SparkSession,
    begin: Callable[[int], RealTimeStream],
    stream: Callable[[int], DataFrame],
    start: Callable[..., StreamingQuery],
) -> None:
    own = SparkEngine(spark)
    try:
        # Its only batch has ended when the other query begins. Spark counts intervals from 1970.
        start(aggregate(stream), "resting", "update", trigger="1000000 days")
        finished = None
        while not isinstance(finished, BatchFinished):
            finished = own.wait(1.0)
        owner = next(t.executor for t in finished.tasks if t.partition == 0)
        target = next(e for e in sorted(own.executors()) if e != owner)
        live = begin(2)
        await_batches(live, 1)
        before = len(list_own_jobs(spark))
        own.prepare("resting", 0, {0: target})
        await_batches(live, 3)
        assert len(list_own_jobs(spark)) == before
        assert [holder.slots for holder in own.list_holders()] == [3]
        live.query.stop()
        assert own.list_holders() == ()
        own.prepare("resting", 0, {})
        own.prepare("resting", 0, {0: target})
        deadline_s = time.monotonic() + PATIENCE_S
        while len(list_own_jobs(spark)) == before:
            assert time.monotonic() < deadline_s, "it was the slots that kept it from being loaded"
            own.wait(1.0)
    finally:
        own.close()


def test_a_query_in_real_time_mode_outlives_moves_and_removals_beside_it(
    tmp_path: Path,
) -> None:
    said = run_script(Path(__file__).with_name("real_time_app.py"), tmp_path, 4 * PATIENCE_S)
    moved, ended = said["move_beside"], said["end_beside"]
    assert ended["failures"] == []
    assert moved["holder"] == ["live", "real-time", 3, 3], "all tasks of its two stages"
    assert moved["triggers"] == ["real-time"]
    assert "due" in moved["prepared"], f"side jobs run where slots are free: {moved['reasons']}"
    assert ended["tasks"] == [PARTITIONS], "no batch lost a task"
    assert ended["batches"] > MANY
    assert ended["is_equal"]
    assert said["remove_executors"]["executors"] == [2, 2], "two have the slots that both need"
    (error,) = said["ask_for_too_much"]["errors"]
    # The executor that was to go may have gone by then.
    assert re.search("it needs 7 slots, and [03] were free", error), error
    assert said["ask_for_too_much"]["live runs on"]
    assert said["process_continuously"]["holder"] == ["flow", "continuous", 2]
