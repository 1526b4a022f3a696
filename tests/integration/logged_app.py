"""A query whose state is first on one of two executors, then on both, with Spark's event log.

logged_app.py FOLDER writes the log there, and prints as JSON which batches ran how.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Set
from pathlib import Path

from harness.rows import count_keys, read_rows, start_query, wait_per_row
from joining import await_executors
from patience import PATIENCE_S
from processes import SETTINGS
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.session import remove_work_folder, tuned_sessions

PARTITIONS = 8
ROWS = 160
WAIT_MS = 20
WARM_UP_BATCHES = 4
BATCHES = 5
QUERY = "logged"


def main(folder: Path) -> None:
    logging = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder.as_uri()}
    with tuned_sessions(LocalExecutors(2, 2), lambda session: None, lambda text: None):
        spark = (
            SparkSession.builder.appName("logged")
            .config(map=dict(SETTINGS))
            .config(map=logging)
            .getOrCreate()
        )
    spark.sparkContext.setLogLevel("OFF")
    engine = SparkEngine(spark)
    await_executors(engine, 2)
    engine.set_locality_wait_s(60.0)
    rows = read_rows(spark, ROWS).select((F.col("value") % 97).alias("key"))
    states = count_keys(wait_per_row(rows, PARTITIONS, WAIT_MS))
    query = start_query(states, QUERY, folder / "checkpoint")
    first, second = sorted(engine.executors())
    run_batches(engine, WARM_UP_BATCHES, lambda on: True)
    engine.place(QUERY, 0, dict.fromkeys(range(PARTITIONS), first))
    uneven = run_batches(engine, BATCHES, lambda on: on == {first})
    engine.place(QUERY, 0, {p: (first, second)[p % 2] for p in range(PARTITIONS)})
    even = run_batches(engine, BATCHES, lambda on: on == {first, second})
    query.stop()
    application_id = spark.sparkContext.applicationId
    spark.stop()
    remove_work_folder(application_id)
    print(json.dumps({"application": application_id, "uneven": uneven, "even": even}))


def run_batches(engine: SparkEngine, count: int, counts: Callable[[Set[str]], bool]) -> list[int]:
    """The numbers of the next batches whose tasks run as wanted."""
    found: list[int] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline_s, "the batches do not run where they should"
        event = engine.wait(1.0)
        if isinstance(event, BatchFinished) and counts({task.executor for task in event.tasks}):
            found.append(event.sample.batch)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
