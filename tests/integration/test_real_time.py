"""A query in Real-Time Mode ends if any other job has a task at the edge of its batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from processes import write_submit_arguments
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from real_time import RealTimeStream, start_real_time
from stateful_queries import aggregate

from balancedstream.engine.engine import SparkEngine

pytestmark = pytest.mark.integration

EDGES, PARTITIONS = 4, 3
"""Of `real_time_app.py`."""

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
        assert [holder.query for holder in own.list_holders()] == ["live"]
        own.prepare("live", 0, {0: sorted(own.executors())[0]})
        await_batches(live, 3)
        assert len(list_own_jobs(spark)) == before
        live.query.stop()
        assert own.list_holders() == ()
        start(aggregate(stream), "after", "update")
        while len(list_own_jobs(spark)) == before:
            own.wait(1.0)
    finally:
        own.close()


def test_partitions_of_another_query_move_beside_a_query_in_real_time_mode_that_never_fails(
    tmp_path: Path,
) -> None:
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("real_time_app.py")), str(tmp_path)],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": write_submit_arguments(),
        },
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    assert said["failures"] == []
    assert said["holder"] == ["live", "real-time", 3, 3], "all tasks of its two stages"
    assert said["triggers"] == ["real-time"]
    assert said["edges"] > EDGES
    assert said["moved"] > 0
    assert "due" in said["prepared"], "side jobs ran, in slots that nobody needed"
    assert said["tasks"] == [PARTITIONS], "no batch lost a task"
    assert said["counts"] == said["expected"]
    assert said["still"], "the other one began to fail, and this one runs on"
    (too_big,) = said["too big"]
    assert "it needs 9 slots, and 5 were free" in too_big
    assert said["flow"] == [["flow", "continuous", 2]]
