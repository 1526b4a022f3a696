"""Executors that join a running query are warmed up before they count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from balancedstream.engine import warming
from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished, ExecutorAdded

pytestmark = [pytest.mark.integration, pytest.mark.turn]


@pytest.fixture
def warming_engine(engine: SparkEngine) -> Iterator[SparkEngine]:
    engine.set_warm_up(wanted=True)
    yield engine
    engine.set_warm_up(wanted=False)


@pytest.fixture
def replaced(
    warming_engine: SparkEngine,
    stream: Callable[[int], DataFrame],
    start: Callable[[DataFrame, str, str], StreamingQuery],
    batches: Callable[[str], BatchFinished],
) -> Callable[[], str]:
    """Under a query that runs Python, replaces an executor; gives the id of the new one."""
    engine = warming_engine

    def replace() -> str:
        double = F.udf(lambda value: 2 * value, "long")
        counts = stream(60).groupBy((F.col("value") % 10).alias("k")).count()
        start(counts.withColumn("count", double("count")), "warmed", "update")
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


def list_outcomes(spark: SparkSession, executor: str) -> list[str]:
    """How the warm-up jobs of an executor ended."""
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(f"balancedstream-warm-up-{executor}")
    return [info.status for info in map(tracker.getJobInfo, jobs) if info]


def list_python_workers(executor: str, application: str) -> list[str]:
    """The Python daemons that an executor has started."""
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


def test_an_executor_counts_once_it_has_run_a_job_of_its_own_with_python(
    replaced: Callable[[], str], spark: SparkSession
) -> None:
    executor = replaced()
    assert set(list_outcomes(spark, executor)) == {"SUCCEEDED"}
    assert list_python_workers(executor, spark.sparkContext.applicationId)


def test_one_that_does_not_get_warm_in_time_counts_as_it_is(
    replaced: Callable[[], str], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warming, "WARM_UP_S", 0.1)
    executor = replaced()
    assert "SUCCEEDED" not in list_outcomes(spark, executor)
