"""Applications one after the other in one driver, each with settings of which an agent is no use.

refused_app.py FOLDER runs one for each file NAME.settings there, until there is a file NAME.stop.
If the query of one does not go on after that, this process fails.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

MORE_BATCHES = 2


def find_last_batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return progress["batchId"] if progress else -1


def run_until(query: StreamingQuery, is_so: Callable[[], bool]) -> None:
    while not is_so():
        if query.awaitTermination(1):
            raise SystemExit(1)


def run(given: Path) -> None:
    spark = SparkSession.builder.config(map=json.loads(given.read_text())).getOrCreate()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.trigger(processingTime="1 second").format("noop").start()
    run_until(query, given.with_suffix(".stop").exists)
    wanted = find_last_batch(query) + MORE_BATCHES
    run_until(query, lambda: find_last_batch(query) >= wanted)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    for file in sorted(Path(sys.argv[1]).glob("*.settings")):
        run(file)
