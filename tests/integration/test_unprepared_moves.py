"""State that cannot be loaded ahead: its partitions move at once, and the reason is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
from prepared import MAX_BATCHES, Batches, Start, move, others
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from stateful_queries import CountRows, Stream, aggregate, join, keyed

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished
from balancedstream.engine.session.settings import CHECKPOINT_FORMAT, PROVIDER

pytestmark = pytest.mark.integration

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


class CountOn(CountRows):
    """Counts on from an initial state."""

    def handleInitialState(self, key: object, initial: object, timers: object) -> None:
        pass


def count_on(stream: Stream) -> DataFrame:
    rows = keyed(stream(200))
    known = rows.sparkSession.range(40).selectExpr("id AS k", "0L AS n").groupBy("k")
    return rows.groupBy("k").transformWithState(
        CountOn(), "k long, n long", "update", "none", initialState=known
    )


@pytest.fixture
def use(spark: SparkSession) -> Iterator[Callable[[dict[str, str]], None]]:
    """Sets settings of the session until the test ends."""
    before: dict[str, str | None] = {}

    def use_settings(settings: dict[str, str]) -> None:
        for name, value in settings.items():
            before[name] = spark.conf.get(name, None)
            spark.conf.set(name, value)

    yield use_settings
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.mark.parametrize(
    ("build", "mode", "settings", "reason"),
    [
        pytest.param(
            aggregate, "update", {CHECKPOINT_FORMAT: "1"}, "has format 1", id="checkpoint format 1"
        ),
        pytest.param(
            aggregate,
            "update",
            {
                CHECKPOINT_FORMAT: "1",
                PROVIDER: (
                    "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
                ),
            },
            "not in RocksDB",
            id="Spark's default store",
        ),
        pytest.param(
            join, "append", {JOIN_FORMAT: "3"}, "both sides in one store", id="join in one store"
        ),
    ],
)
def test_what_cannot_be_loaded_ahead_moves_at_once_and_says_why(
    build: Callable[[Stream], DataFrame],
    mode: str,
    settings: dict[str, str],
    reason: str,
    use: Callable[[dict[str, str]], None],
    stream: Stream,
    start: Start,
    batches: Batches,
    engine: SparkEngine,
) -> None:
    use(settings)
    query = start(build(stream), "unprepared", mode)
    seen = move_all(engine, batches, "unprepared")
    assert {report.state for report in seen.preparations} == {"impossible"}
    assert all(reason in report.failure for report in seen.preparations)
    assert query.exception() is None


def test_a_move_after_the_batch_of_an_initial_state_is_prepared(
    stream: Stream, start: Start, batches: Batches, engine: SparkEngine
) -> None:
    query = start(count_on(stream), "initial", "update")
    seen = move_all(engine, batches, "initial")
    assert {report.state for report in seen.preparations} == {"due"}
    assert query.exception() is None


def move_all(engine: SparkEngine, batches: Batches, query: str) -> BatchFinished:
    """Has all partitions moved after the first batch; gives the one that ran them elsewhere."""
    targets = others(engine, batches(query))
    move(engine, query, targets)
    for _ in range(MAX_BATCHES):
        seen = batches(query)
        if {(t.operator, t.partition): t.executor for t in seen.tasks} == targets:
            return seen
    message = f"partitions of {query} do not move"
    raise AssertionError(message)
