"""Jobs on keyed state whose rows say all that their keys remember, and checks of these rows."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
from patience import PATIENCE_S
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from balancedstream import BalancedFrame
from balancedstream.core.keys.epochs import Wish
from balancedstream.keyed.control import KeyControl
from balancedstream.workers import decoding
from balancedstream.workers.names import BATCH_PROPERTY

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

PARTITIONS = 6
USERS = 8
ROWS = 16
"""Rows of a batch, the same number for each user."""

SEEN = "user string, total long, items array<long>, firsts string, partition int, batch long"


def where() -> tuple[int, int]:
    """State partition and micro-batch of the running task."""
    task: Any = TaskContext.get()
    return task.partitionId(), int(task.getLocalProperty(BATCH_PROPERTY))


WIDE = (
    "cost decimal(20,4), day date, at timestamp, local timestamp_ntz, blob binary, ratio double, "
    "place struct<x: int, name: string>, counts map<string, int>, tags array<string>"
)


def make_wide(number: int) -> tuple[Any, ...]:
    """Values of many types that depend on a number."""
    at = datetime(1969, 12, 31, 12, 30, 0, 123456) + timedelta(days=number)  # noqa: DTZ001
    cost = Decimal("12345678901234.5678") + number
    place, counts = (number, "é"), {"a": number, "b": None}
    return (cost, at.date(), at, at, bytearray(b"\0x"), -0.5, place, counts, ["a", None])


def is_decoding() -> bool:
    """Whether PySpark has opened this task's stream of rows through `workers.decoding`."""
    opener: Any = ArrowStreamSerializer.load_stream
    return opener.__module__ == decoding.__name__ and not decoding._markers


class Ledger(StatefulProcessor):
    """Keeps what a key has seen in all three kinds of state, and says all of it each time."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n long")
        self.items = handle.getListState("items", "n long")
        self.firsts = handle.getMapState("firsts", "batch long", "n long")
        self.wide = handle.getValueState("wide", WIDE)

    def add(self, values: list[int]) -> Row:
        partition, batch = where()
        before = (self.total.get() or (0,))[0]
        total = before + len(values)
        self.total.update((total,))
        assert self.wide.get() == (make_wide(before) if self.items.exists() else None)
        self.wide.update(make_wide(total))
        self.items.appendList([(value,) for value in sorted(values)])
        self.firsts.updateValue((batch,), (min(values),))
        firsts = sorted((k[0], v[0]) for k, v in self.firsts.iterator())
        return Row(
            total=total,
            items=[n for (n,) in self.items.get()],
            firsts=str(firsts),
            partition=partition,
            batch=batch,
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = [*rows]
        assert is_decoding(), "PySpark has not read these rows where they are decoded"
        assert all([*row.__fields__] == ["user", "n"] for row in seen)
        assert len(key) == 1
        yield Row(user=key[0], **self.add([row.n for row in seen]).asDict())

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        assert [*initialState.__fields__] == ["total", "user", "since"]
        self.total.update((initialState.total,))

    def close(self) -> None:
        pass


LARGE = 2**53 + 1
"""No float is this whole number."""


def with_large(frame: DataFrame) -> DataFrame:
    columns = {"large": F.col("n") + LARGE, "even": F.col("n") % 2 == 0}
    return frame.withColumns(columns).withColumn("small", F.lit(7).cast("byte"))


def check_large(frames: list[pd.DataFrame]) -> None:
    """In pandas, values are as they are where nothing moves."""
    for frame in frames:
        assert [*frame.columns] == ["user", "n", "large", "even", "small"]
        assert [t.kind for t in frame.dtypes] == ["O", "i", "i", "b", "i"]
        assert (frame["large"] - LARGE == frame["n"]).all()
        assert (~frame["even"] == (frame["n"] % 2 == 1)).all()
        assert (frame["small"] == 7).all()


HELD = "user string, n long, old_ms long, partition int, batch long"
FOR_LONG_MS = 3_600_000


def hold(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Sets a timeout and then only looks; for u0 it goes on to set it."""
    seen = [*frames]
    check_large(seen)
    rows = sum(map(len, seen))
    if not state.exists or key[0] == "u0":
        state.update((rows + (state.get[0] if state.exists else 0),))
        state.setTimeoutDuration(FOR_LONG_MS)
    partition, batch = where()
    said = {"user": key[0], "n": state.get[0], "old_ms": state.oldTimeoutTimestamp}
    yield pd.DataFrame([said | {"partition": partition, "batch": batch}])


@dataclass
class Run:
    """A running query: what it said so far, row by row."""

    query: StreamingQuery
    frame: BalancedFrame
    control: KeyControl
    rows: list[Row] = field(default_factory=list)

    @property
    def last_batch(self) -> int:
        return max((row.batch for row in self.rows), default=-1)

    def wait(self, done: Callable[[list[Row]], object]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not done(self.rows):
            error = self.query.exception()
            if error:
                raise error
            assert time.monotonic() < deadline_s, self.rows[-USERS:]
            time.sleep(0.1)

    def wait_rows(self, count: int) -> None:
        """Waits until there are that many rows in all."""
        self.wait(lambda rows: len(rows) >= count)

    def wait_batches(self, count: int) -> None:
        last = self.last_batch + count
        self.wait(lambda _: self.last_batch >= last)

    def wait_arrival(self, targets: Mapping[str, int]) -> None:
        """Waits until each of these users was last in this partition."""

        def have_arrived(_: list[Row]) -> bool:
            seen = self.partitions()
            return all(seen.get(user, [None])[-1] == place for user, place in targets.items())

        self.wait(have_arrived)

    def move(self, partitions_of: dict[str, int], **more: Any) -> None:
        routes = self.control.find_routes(
            {f'"{user}"': p for user, p in partitions_of.items()}, PARTITIONS
        )
        self.control.want(Wish(routes, **more))

    def partitions(self) -> dict[str, list[int]]:
        """Where each user was, batch by batch."""
        seen: defaultdict[str, list[int]] = defaultdict(list)
        for row in self.rows:
            seen[row.user].append(row.partition)
        return dict(seen)


def users(frame: DataFrame) -> DataFrame:
    """`value` counts from 0; the users take turns."""
    name = F.concat(F.lit("u"), (F.col("value") % USERS).cast("string"))
    return frame.select(name.alias("user"), F.col("value").alias("n"))


def check_ledgers(rows: list[Row], totals_before: Mapping[str, int] | None = None) -> None:
    """Every row says what one that was never moved would have said."""
    before = totals_before or {}
    seen: defaultdict[str, list[int]] = defaultdict(list)
    firsts: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.batch):
        number = int(row.user[1:])
        new = [row.batch * ROWS + number, row.batch * ROWS + number + USERS]
        seen[row.user] += new
        firsts[row.user].append((row.batch, new[0]))
        assert row.total == before.get(row.user, 0) + len(seen[row.user]), row
        assert row.items == seen[row.user], row
        assert row.firsts == str(firsts[row.user]), row
    batches = max(row.batch for row in rows) + 1
    assert Counter(row.user for row in rows) == dict.fromkeys(seen, batches)


def unique(rows: list[Row]) -> list[Row]:
    """A batch that was interrupted is run again."""
    return [*{(row.user, row.batch): row for row in rows}.values()]


def read_raw(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    """Each user's total, as Spark's own state reader shows it."""
    reader = spark.read.format("statestore").option("stateVarName", "total").options(**options)
    return reader.load(str(folder / "checkpoint"))


def find_partitions(spark: SparkSession, folder: Path, **options: Any) -> dict[str, int]:
    """Where each user's state is."""
    found = read_raw(spark, folder, **options).collect()
    assert len(found) == USERS
    return {row.key["user"]: row.partition_id for row in found}


def count(frame: BalancedFrame, processor: Ledger | None = None) -> DataFrame:
    return frame.transformWithState(processor or Ledger(), SEEN, "update", "none")
