"""An application whose keys are told to move while timers of theirs are due.

zones_app.py FOLDER FILES KEY... takes keys in microseconds since 1970, gives each a row in each of
so many files, tells it to move, and prints: its route, its rows, and its timers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from balancedstream import balanced
from balancedstream.core.keys.epochs import Wish
from balancedstream.keyed.encoding import KeyEncoding

PARTITIONS = 4
STEP_S = 100


class Count(StatefulProcessor):
    """Counts rows and timers: each row sets one that is due in the batch of the row."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "rows long, timers long")

    def add(self, rows: int, timers: int) -> Iterator[Row]:
        before = self.count.get() or (0, 0)
        self.count.update((before[0] + rows, before[1] + timers))
        yield Row(count=before[0])

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        now_ms = timerValues.getCurrentWatermarkInMs()
        if now_ms > 0:
            self.handle.registerTimer(now_ms - 1)
        yield from self.add(sum(1 for _ in rows), 0)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expired: Any) -> Iterator[Row]:
        yield from self.add(0, 1)

    def close(self) -> None:
        pass


def find_next_routes(encoding: KeyEncoding, keys: list[int]) -> dict[str, int]:
    """Routes to the partition after each key's own, as of a plan that knows nothing of zones."""
    targets = {
        str(key): (encoding.find_partition(str(key), 0, PARTITIONS) + 1) % PARTITIONS
        for key in keys
    }
    return {key: encoding.find_route(key, p, PARTITIONS) for key, p in targets.items()}


def main(folder: Path, files: int, keys: list[int]) -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    data, checkpoint = folder / "data", str(folder / "checkpoint")
    data.mkdir()
    rows = spark.readStream.schema("key_us long, at_s long").json(str(data))
    rows = rows.select(
        F.timestamp_micros("key_us").alias("key"), F.timestamp_seconds("at_s").alias("at")
    ).withWatermark("at", "0 seconds")
    frame = balanced(rows, "key")
    counts = frame.transformWithState(Count(), "count long", "update", "EventTime")
    query = (
        counts.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    control = frame.control
    assert control is not None
    for number in range(files):
        at_s = STEP_S * (1 + number)
        lines = [json.dumps({"key_us": key, "at_s": at_s}) for key in keys]
        (folder / "new.json").write_text("\n".join(lines))
        (folder / "new.json").rename(data / f"{number}.json")
        query.processAllAvailable()
        if number == 1:
            control.want(Wish(find_next_routes(control.encoding, keys)))
    query.stop()
    state = spark.read.format("statestore").option("stateVarName", "count").load(checkpoint)
    columns = (
        F.unix_micros("key.key"),
        "key.balancedstream_route",
        "value.rows",
        "value.timers",
    )
    print(json.dumps([[*row] for row in state.select(*columns).collect()]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), [*map(int, sys.argv[3:])])
