"""The harness of the benchmarks measures one arm after the other in one session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from harness.measuring import MeasuringEngine, balancing, watching
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from stateful_queries import aggregate

from balancedstream.engine.engine import SparkEngine

pytestmark = pytest.mark.integration


@pytest.fixture
def measuring(spark: SparkSession) -> Iterator[MeasuringEngine]:
    engine = MeasuringEngine(spark)
    yield engine
    SparkEngine.close(engine)


def test_an_arm_after_a_balanced_one_is_measured_too(
    measuring: MeasuringEngine,
    stream: Callable[[int], DataFrame],
    start: Callable[[DataFrame, str, str], StreamingQuery],
) -> None:
    for name, attach in (("balanced", balancing), ("vanilla", watching)):
        with attach(measuring):
            query = start(aggregate(stream), name, "update")
            assert len(measuring.await_batches(query, 2)) >= 2
            query.stop()
