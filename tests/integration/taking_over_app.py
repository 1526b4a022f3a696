"""An application that balances itself where the plugin is: it counts, and then counts movable keys.

taking_over_app.py FOLDER starts the second query when FOLDER has a file `balance`, ends with a file
`stop`, and then leaves `result.json` there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from balancedstream import balanced

USERS = 8
ROWS = 80


class Count(StatefulProcessor):
    """How many rows a user had."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count = (self.count.get() or (0,))[0] + sum(1 for _ in rows)
        self.count.update((count,))
        yield Row(user=key[0], count=count)

    def close(self) -> None:
        pass


def run_until(path: Path, query: StreamingQuery) -> None:
    """Until there is such a file; if the query ends before, so does this process."""
    while not path.exists():
        if query.awaitTermination(1):
            raise SystemExit(1)
    query.stop()


def main(folder: Path) -> None:
    spark = SparkSession.builder.getOrCreate()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    users = rows.select((F.col("value") % USERS).alias("user"))
    wrong: list[str] = []
    batches: list[int] = []

    def check(frame: DataFrame, batch: int) -> None:
        counts = frame.collect()
        batches.append(batch)
        if [row["count"] for row in counts] != [ROWS // USERS * (batch + 1)] * USERS:
            wrong.append(f"batch {batch}: {counts}")

    def start(counts: DataFrame, name: str) -> StreamingQuery:
        writer = counts.writeStream.queryName(name).outputMode("update").foreachBatch(check)
        return writer.option("checkpointLocation", str(folder / name)).start()

    first = start(users.groupBy("user").count(), "counts")
    run_until(folder / "balance", first)
    first_batches = batches.copy()
    batches.clear()
    keyed = balanced(users, "user").transformWithState(
        Count(), "user long, count long", "update", "none"
    )
    second = start(keyed, "keyed")
    run_until(folder / "stop", second)
    listeners = spark.sparkContext._jsc.sc().listenerBus().listeners()
    names = [listener.getClass().getName() for listener in listeners]
    done = {
        "wrong": wrong,
        "batches": [first_batches, batches],
        "listeners": names.count("io.balancedstream.BatchListener"),
    }
    (folder / "result.json").write_text(json.dumps(done))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
