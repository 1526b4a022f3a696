"""Executors that join a running query are warmed up before they count."""

from __future__ import annotations

import _sqlite3
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import find_executor_pids
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery
from spark_versions import needs_spark

from balancedstream.engine import warming
from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished, ExecutorAdded
from balancedstream.engine.functions import make_processor

pytestmark = [pytest.mark.integration, pytest.mark.turn]


@pytest.fixture
def warming_engine(engine: SparkEngine) -> Iterator[SparkEngine]:
    engine.set_warm_up(wanted=True)
    yield engine
    engine.set_warm_up(wanted=False)


@pytest.fixture
def replace_under(
    warming_engine: SparkEngine,
    start: Callable[[DataFrame, str, str], StreamingQuery],
    batches: Callable[[str], BatchFinished],
) -> Callable[[DataFrame], str]:
    """Under a running query, replaces an executor; gives the id of the new one."""
    engine = warming_engine

    def replace(rows: DataFrame) -> str:
        start(rows, "warmed", "update")
        batches("warmed")
        leaving = min(engine.executors())
        engine.remove_executor(leaving)
        while leaving in engine._cores:
            batches("warmed")
        engine.set_executor_count(3)
        while True:
            event = engine.wait(1.0)
            if isinstance(event, ExecutorAdded):
                assert len(engine.executors()) == 3
                return event.executor

    return replace


def add_length(value: Column) -> Column:
    """Calls a Python function that needs a module which nothing else needs."""
    return F.udf(lambda number: number + len(_sqlite3.sqlite_version), "long")(value)


@pytest.fixture
def counts(stream: Callable[[int], DataFrame]) -> DataFrame:
    """Calls Python for what it counted."""
    counted = stream(60).groupBy((F.col("value") % 10).alias("k")).count()
    return counted.withColumn("count", add_length(F.col("count")))


@pytest.fixture
def frames(stream: Callable[[int], DataFrame]) -> DataFrame:
    """Calls Python for frames of its rows."""
    rows = (
        stream(60)
        .select("value")
        .mapInPandas(
            lambda frames: (frame + len(_sqlite3.sqlite_version) for frame in frames), "value long"
        )
    )
    return rows.groupBy((F.col("value") % 10).alias("k")).count()


@pytest.fixture
def states(stream: Callable[[int], DataFrame]) -> DataFrame:
    """Calls Python for its rows, then keeps state in Python, which needs protocol buffers."""
    keyed = stream(60).select((add_length(F.col("value")) % 10).alias("k")).groupBy("k")
    return keyed.transformWithStateInPandas(make_processor([]), "k long", "Update", "None")


def list_outcomes(spark: SparkSession, executor: str) -> list[str]:
    """How the warm-up jobs of an executor ended."""
    # Spark's own listener may hear of it later than the engine.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(f"balancedstream-warm-up-{executor}")
    return [info.status for info in map(tracker.getJobInfo, jobs) if info]


def list_daemons(executor: str, application: str) -> list[str]:
    """The Python daemons that an executor has started: some operators have one of their own."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            of_parent = Path("/proc", parent, "cmdline").read_text().split("\0")
            if "pyspark.daemon" not in (process / "cmdline").read_text():
                continue
        except OSError:
            continue
        if application in of_parent and of_parent[of_parent.index("--executor-id") + 1] == executor:
            found.append(process.name)
    return found


def list_libraries(executor: str, application: str) -> str:
    """What the Python workers of an executor have loaded, as the kernel lists it."""
    return "".join(
        Path(f"/proc/{worker}/maps").read_text()
        for daemon in list_daemons(executor, application)
        for worker in Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    )


def test_an_executor_counts_once_it_has_run_a_job_of_its_own(
    replace_under: Callable[[DataFrame], str],
    stream: Callable[[int], DataFrame],
    spark: SparkSession,
) -> None:
    executor = replace_under(stream(60).groupBy((F.col("value") % 10).alias("k")).count())
    assert set(list_outcomes(spark, executor)) == {"SUCCEEDED"}


@pytest.mark.parametrize(
    ("build", "jobs"),
    [
        (lambda rows: rows.select("value"), 2),
        # Whose effects would count twice, and whose state would come here.
        (lambda rows: rows.select(add_length(F.col("value")).alias("value")), 1),
        (lambda rows: rows.coalesce(1).dropDuplicates(["value"]).repartition(2), 1),
    ],
    ids=["read again", "Python", "state"],
)
def test_it_has_read_what_the_query_reads_and_no_batch_counts_that(
    build: Callable[[DataFrame], DataFrame],
    jobs: int,
    replace_under: Callable[[DataFrame], str],
    stream: Callable[[int], DataFrame],
    spark: SparkSession,
) -> None:
    rows = build(stream(60))
    executor = replace_under(rows.groupBy((F.col("value") % 10).alias("k")).count())
    assert list_outcomes(spark, executor) == jobs * ["SUCCEEDED"]
    (running,) = spark.streams.active
    assert {progress["numInputRows"] for progress in running.recentProgress} <= {0, 60}


def test_one_that_replaces_a_killed_executor_is_warmed_up_too(
    warming_engine: SparkEngine,
    stream: Callable[[int], DataFrame],
    start: Callable[[DataFrame, str, str], StreamingQuery],
    batches: Callable[[str], BatchFinished],
    spark: SparkSession,
) -> None:
    engine, application = warming_engine, spark.sparkContext.applicationId
    start(stream(60).groupBy((F.col("value") % 10).alias("k")).count(), "killed", "update")
    batches("killed")
    killed = min(engine.executors())
    os.kill(find_executor_pids(application)[killed], signal.SIGKILL)
    while not isinstance(event := engine.wait(1.0), ExecutorAdded):
        if event is None and killed not in engine.executors():
            assert len(engine.executors()) == 2, "the new one counts before it is warm"
    assert len(engine.executors()) == 3
    assert set(list_outcomes(spark, event.executor)) == {"SUCCEEDED"}


def test_its_python_workers_have_loaded_what_the_query_imports(
    replace_under: Callable[[DataFrame], str], counts: DataFrame, spark: SparkSession
) -> None:
    executor = replace_under(counts)
    assert set(list_outcomes(spark, executor)) == {"SUCCEEDED"}
    assert "_sqlite3" in list_libraries(executor, spark.sparkContext.applicationId)


def test_its_python_workers_have_got_frames_if_the_query_does(
    replace_under: Callable[[DataFrame], str], frames: DataFrame, spark: SparkSession
) -> None:
    executor = replace_under(frames)
    assert set(list_outcomes(spark, executor)) == {"SUCCEEDED"}
    loaded = list_libraries(executor, spark.sparkContext.applicationId)
    assert "pyarrow" in loaded
    assert "_sqlite3" in loaded


@needs_spark((4, 0))
def test_those_that_keep_state_have_kept_some_and_others_have_run_too(
    replace_under: Callable[[DataFrame], str], states: DataFrame, spark: SparkSession
) -> None:
    executor = replace_under(states)
    assert set(list_outcomes(spark, executor)) == {"SUCCEEDED"}
    loaded = list_libraries(executor, spark.sparkContext.applicationId)
    assert "google/_upb" in loaded
    assert "_sqlite3" in loaded


def test_where_python_fails_it_is_warmed_up_without(
    replace_under: Callable[[DataFrame], str],
    counts: DataFrame,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(warming, "make_loader", lambda _: lambda value: value / 0)
    executor = replace_under(counts)
    assert set(list_outcomes(spark, executor)) == {"FAILED", "SUCCEEDED"}
    assert f"executor {executor} joins without having run Python" in caplog.text


def test_one_that_does_not_get_warm_in_time_counts_as_it_is(
    replace_under: Callable[[DataFrame], str],
    counts: DataFrame,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warming, "WARM_UP_S", 0.1)

    def sleep_before(value: object) -> object:
        time.sleep(30)
        return value

    monkeypatch.setattr(warming, "make_loader", lambda _: sleep_before)
    executor = replace_under(counts)
    for thread in threading.enumerate():
        if thread.name.startswith("balancedstream-warm-up"):
            thread.join()
    assert "SUCCEEDED" not in list_outcomes(spark, executor)
