"""NEXMark's streaming queries give what DuckDB gives over the same rows; nothing is moved.

Their answers under moves, with killed executors and drivers, are for `test_exactness.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from nexmark import processors
from nexmark.answers import answer, fold
from nexmark.events import Workload, draw_events
from nexmark.files import divide, write_files
from nexmark.queries import QUERIES
from nexmark.streams import read_files
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark_versions import SPARK

FILES = 3
PARTITIONS = 2
SEED = 1
"""Of the rows. A drawn one could leave some answer empty, which would show nothing."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",  # some answers are by the day
    "spark.sql.shuffle.partitions": str(PARTITIONS),
}

pytestmark = [pytest.mark.integration, pytest.mark.turn]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a small auction, as files."""
    folder = tmp_path_factory.mktemp("nexmark")
    events = list(draw_events(Workload(2000, group=50), SEED))
    for table, files in divide(events, FILES).items():
        write_files(folder / table, files)
    return folder


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """The application of the other tests, with settings of its own."""
    # Spark's Python workers cannot import it.
    cloudpickle.register_pickle_by_value(processors)
    session = spark.newSession()
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    return session


@pytest.mark.parametrize("name", [n for n, query in QUERIES.items() if query.since <= SPARK])
def test_a_stream_ends_with_the_answer_of_another_engine(
    name: str, session: SparkSession, folder: Path, tmp_path: Path
) -> None:
    query = QUERIES[name]
    batches: list[list[dict[str, Any]]] = []

    def keep(batch: DataFrame, number: int) -> None:
        rows = batch.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
        batches.append([json.loads(row) for (row,) in rows])

    result = query.build(lambda table: read_files(session, folder, table, maxFilesPerTrigger=1))
    stream = result.writeStream.queryName(name).outputMode(query.output_mode).foreachBatch(keep)
    stream = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    stream.start().awaitTermination()
    expected = answer(name, folder)
    assert expected
    assert Counter(fold(batches, query.keys)) == Counter(expected)
