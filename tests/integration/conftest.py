"""One Spark application with three executor processes, shared by all tests of this folder."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bounded_streams import Begin, Bounder, MakeBounder
from harness.storage import SCHEME, build_slow_storage
from joining import await_executors
from patience import PATIENCE_S
from processes import SETTINGS
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from spark_versions import SPARK

from balancedstream.core.samples import ShuffleRecord
from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished, QueryEnded
from balancedstream.engine.session import labels
from balancedstream.engine.session.java import check_java
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.session import remove_work_folder, tuned_sessions
from balancedstream.engine.traits import FEATURES, LOADING_AHEAD_SINCE, REPARTITION_SINCE
from balancedstream.shuffling.collecting import watch

if TYPE_CHECKING:
    from keyed_jobs import Run

    from balancedstream import BalancedFrame

PARTITIONS = 6
SLOW_OPEN_MS = 200
"""What an open of a file takes where a test asks for slow storage."""

collect_ignore_glob = [
    files
    for first, names in (
        (FEATURES["balanced"][0], ("test_aggregate.py", "test_keyed_*.py", "test_routes.py")),
        (FEATURES["balanced"][0], ("test_examples.py", "test_exactness.py")),  # use it, too
        (FEATURES["balanced"][0], ("test_plugin_stands_down.py", "taking_over_app.py")),
        (FEATURES["shuffle"][0], ("test_shuffle*.py",)),
        (LOADING_AHEAD_SINCE, ("test_*prepared_moves.py", "test_hand_overs.py")),
        (LOADING_AHEAD_SINCE, ("test_faulty_steps.py",)),
        (REPARTITION_SINCE, ("test_repartition.py",)),
    )
    for files in names
    if first > SPARK
]
"""The tests of what the installed Spark does not have."""

WARNINGS_OF_OLDER_SPARKS = (
    "ignore:distutils:DeprecationWarning",
    # They read results over sockets that they do not close.
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SPARK >= (4, 2):
        return
    for item in items:
        for warning in WARNINGS_OF_OLDER_SPARKS:
            item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    check_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings: list[str] = []
    with tuned_sessions(LocalExecutors(3, 3), lambda session: None, warnings.append):
        session = (
            SparkSession.builder.appName("integration")
            .config(map=dict(SETTINGS))
            .config(map=build_slow_storage(tmp_path_factory.mktemp("storage"), SLOW_OPEN_MS))
            .config("spark.sql.shuffle.partitions", str(PARTITIONS))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
    application_id = session.sparkContext.applicationId
    session.stop()
    remove_work_folder(application_id)


@pytest.fixture(scope="session")
def engine(spark: SparkSession) -> SparkEngine:
    """One listener for all tests; each test drains what others left."""
    engine = SparkEngine(spark)
    await_executors(engine, 3)
    engine.set_locality_wait_s(10.0)
    return engine


@pytest.fixture(autouse=True)
def _a_new_application(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries of other tests had these names, too, in what is one application to the engine."""
    monkeypatch.setattr(labels, "of_process", labels.QueryLabels())
    if "engine" in request.fixturenames:
        request.getfixturevalue("engine")._labels = labels.of_process


@pytest.fixture
def stream(spark: SparkSession) -> Callable[[int], DataFrame]:
    """A stream of so many rows a batch: `value` counts from 0."""

    def build(rows_per_batch: int) -> DataFrame:
        return (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows_per_batch)
            .option("numPartitions", 2)
            .load()
        )

    return build


@pytest.fixture
def start(engine: SparkEngine, tmp_path: Path) -> Iterator[Callable[..., StreamingQuery]]:
    """Starts a query that throws its output away, also from slow storage; the end stops it."""
    queries: list[StreamingQuery] = []

    def begin(
        frame: DataFrame,
        name: str,
        mode: str,
        *,
        in_own_jobs: bool = False,
        slow: bool = False,
        trigger: str = "0 seconds",
    ) -> StreamingQuery:
        writer = frame.writeStream.queryName(name).outputMode(mode).trigger(processingTime=trigger)
        writer = writer.foreachBatch(write_in_own_job) if in_own_jobs else writer.format("noop")
        checkpoint = f"{SCHEME}:{tmp_path / name}" if slow else str(tmp_path / name)
        query = writer.option("checkpointLocation", checkpoint).start()
        queries.append(query)
        return query

    yield begin
    for query in queries:
        query.stop()
    while engine.wait(0.5):
        pass


@pytest.fixture
def begin(engine: SparkEngine, tmp_path: Path) -> Iterator[Begin]:
    """Starts a query whose sources are watched, on a checkpoint of its name; the end stops it."""
    begun: list[StreamingQuery] = []

    def start(frame: DataFrame, name: str, *, sink: str = "noop", **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.queryName(name).format(sink)
        if sink == "json":
            writer = writer.option("path", str(tmp_path / f"{name}-out"))
        if sink == "memory":
            writer = writer.outputMode("complete")
        begun.append(
            writer.option("checkpointLocation", str(tmp_path / name))
            .trigger(**(trigger or {"processingTime": "1 second"}))
            .start()
        )
        return begun[-1]

    engine.watch_sources(wanted=True)
    yield start
    engine.watch_sources(wanted=False)
    for query in begun:
        query.stop()
    while engine.wait(0.5):
        pass


@pytest.fixture
def bounder(engine: SparkEngine) -> MakeBounder:
    """Bounds a query's batches anew after each one, by rows of a seed that is printed."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"bounds are drawn with seed {seed}")
    return lambda query, most: Bounder(engine, query, random.Random(seed), most)


def write_in_own_job(rows: DataFrame, batch: int) -> None:
    """As people do who look for their jobs in Spark's UI."""
    rows.sparkSession.sparkContext.setJobGroup(f"batch {batch}", "a job of mine")
    rows.write.format("noop").mode("append").save()


def next_batch(engine: SparkEngine, query: str) -> BatchFinished:
    """The query's next finished batch."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        event = engine.wait(1.0)
        if isinstance(event, BatchFinished) and event.query == query:
            return event
        if isinstance(event, QueryEnded) and event.query == query and event.error:
            raise AssertionError(event.error)
    message = f"no batch of {query} within {PATIENCE_S:.0f} s"
    raise AssertionError(message)


@pytest.fixture
def batches(engine: SparkEngine) -> Callable[[str], BatchFinished]:
    """Waits for the next finished batch of a query."""
    return lambda query: next_batch(engine, query)


@pytest.fixture
def begin_keyed(stream: Callable[[int], DataFrame], tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts a balanced query on the users, with their rows kept; stops it when the test ends."""
    # Not every Spark has it.
    from keyed_jobs import ROWS, Run, users  # noqa: PLC0415

    from balancedstream import balanced  # noqa: PLC0415

    runs: list[Run] = []

    def start(
        transform: Callable[[BalancedFrame], DataFrame],
        *,
        data: DataFrame | None = None,
        where: str = "true",
        checkpoint: str = "checkpoint",
    ) -> Run:
        given = users(stream(ROWS)).where(where) if data is None else data
        frame = balanced(given, "user")
        assert frame.control is not None
        rows: list[Row] = []

        def keep(batch: DataFrame, number: int) -> None:
            # As people do who look for their jobs in Spark's UI.
            batch.sparkSession.sparkContext.setJobGroup(f"batch {number}", "a job of mine")
            rows.extend(batch.collect())

        writer = transform(frame).writeStream.queryName(f"keyed-{len(runs)}")
        query = (
            writer.outputMode("update")
            .foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .start()
        )
        runs.append(Run(query, frame, frame.control, rows))
        return runs[-1]

    yield start
    for run in runs:
        run.query.stop()


@pytest.fixture
def shuffle_records() -> Iterator[list[ShuffleRecord]]:
    """The batches that were shuffled."""
    records: list[ShuffleRecord] = []
    stop = watch(records.append)
    yield records
    stop()
