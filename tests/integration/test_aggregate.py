"""The work on one key is split over all tasks that read its rows, and nothing else shows."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from pyspark import TaskContext, cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from balancedstream import Aggregator, balanced, read_state
from balancedstream.core.keys.epochs import Wish
from balancedstream.errors import InvalidInputError

pytestmark = [pytest.mark.integration, pytest.mark.turn]

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

PARTITIONS = 6
ROWS = 20
HOT = "hot"
"""The key of six rows in ten."""

Said = dict[int, list[tuple[Any, ...]]]


class Sums(Aggregator):
    """Rows and their sum, and which tasks of the first stage have had some."""

    state_schema = "rows LONG, total LONG, tasks ARRAY<INT>"
    output_schema = "rows LONG, total LONG, tasks ARRAY<INT>"

    def zero(self) -> tuple[Any, ...]:
        return (0, 0, [])

    def add(self, state: tuple[Any, ...], rows: Sequence[Row]) -> tuple[Any, ...]:
        task: Any = TaskContext.get()
        total = sum(row.n for row in rows)
        return (state[0] + len(rows), state[1] + total, [task.partitionId()])

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return (left[0] + right[0], left[1] + right[1], sorted({*left[2], *right[2]}))

    def finish(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        return state


class Totals(Sums):
    """Only what Spark's own functions give, too."""

    output_schema = "rows LONG, total LONG"

    def finish(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        return state[:2]


class Forgetful(Sums):
    def add(self, state: tuple[Any, ...], rows: Sequence[Row]) -> tuple[Any, ...]:
        return (len(rows),)


class Floating(Sums):
    def zero(self) -> tuple[Any, ...]:
        return (0.0, 0, [])


def users(frame: DataFrame) -> DataFrame:
    """`value` counts from 0; one row of each ten has no user."""
    tenth = F.col("value") % 10
    name = F.when(tenth < 6, HOT).when(tenth < 9, F.concat(F.lit("u"), tenth.cast("string")))
    return frame.select(name.alias("user"), F.col("value").alias("n"))


def name_user(n: int) -> str | None:
    return HOT if n % 10 < 6 else f"u{n % 10}" if n % 10 < 9 else None


def recompute(batch: int) -> list[tuple[Any, ...]]:
    """What all rows up to this batch give."""
    numbers: defaultdict[str | None, list[int]] = defaultdict(list)
    for n in range((batch + 1) * ROWS):
        numbers[name_user(n)].append(n)
    return [(user, len(of_user), sum(of_user)) for user, of_user in numbers.items()]


def sort(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=str)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., tuple[StreamingQuery, Said]]]:
    """Starts a query and keeps what it says, batch by batch; stops it when the test ends."""
    queries: list[StreamingQuery] = []

    def start(
        frame: DataFrame, mode: str = "update", checkpoint: str = "aggregate"
    ) -> tuple[StreamingQuery, Said]:
        said: Said = {}

        def keep(rows: DataFrame, batch: int) -> None:
            said[batch] = [tuple(row) for row in rows.collect()]

        writer = frame.writeStream.queryName(f"{checkpoint}-{len(queries)}").outputMode(mode)
        location = str(tmp_path / checkpoint)
        query = writer.foreachBatch(keep).option("checkpointLocation", location).start()
        queries.append(query)
        return query, said

    yield start
    for query in queries:
        query.stop()


def wait(query: StreamingQuery, done: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not done():
        error = query.exception()
        if error:
            raise error
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def has_batches(said: Said, count: int) -> bool:
    return len(said) >= count


def test_every_batch_gives_what_a_recomputation_gives_also_moved_and_restarted(
    stream: Callable[[int], DataFrame],
    begin: Callable[..., tuple[StreamingQuery, Said]],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    frame = balanced(users(stream(ROWS)), "user")
    control = frame.control
    assert control is not None
    query, said = begin(frame.aggregate(Sums()))
    wait(query, lambda: len(said) > 1)

    def find_partition() -> int:
        raw = spark.read.format("statestore").option("stateVarName", "state")
        found = raw.load(str(tmp_path / "aggregate")).where(F.col("key.user") == HOT)
        return int(found.select("partition_id").collect()[0][0])

    target = (find_partition() + 1) % PARTITIONS
    control.want(Wish(control.find_routes({f'"{HOT}"': target}, PARTITIONS)))
    moved_by = max(said) + 4
    wait(query, lambda: max(said) >= moved_by)
    query.stop()
    assert find_partition() == target

    again, said_again = begin(balanced(users(stream(ROWS)), "user").aggregate(Sums()))
    wait(again, lambda: len(said_again) > 2)
    again.stop()
    assert min(said_again) <= max(said) + 1
    for batch, rows in (said | said_again).items():
        assert sort([row[:-1] for row in rows]) == sort(recompute(batch)), batch
        (tasks,) = {tuple(row[-1]) for row in rows if row[0] == HOT}
        assert len(tasks) > 1, "one task had all rows of the hot key"

    states = read_state(spark, str(tmp_path / "aggregate"), stateVarName="state").collect()
    assert {row.key.user for row in states} == {name_user(n) for n in range(10)}


def test_windows_end_late_rows_drop_and_results_are_appended_as_in_sparks_own_aggregation(
    stream: Callable[[int], DataFrame], begin: Callable[..., tuple[StreamingQuery, Said]]
) -> None:
    second = F.col("value") - F.when(F.col("value") % 7 == 0, 60).otherwise(0)
    rows = stream(ROWS).select("value", F.timestamp_seconds(second).alias("at"))
    timed = rows.withWatermark("at", "3 seconds").select(
        F.when(F.col("value") % 10 < 6, HOT).otherwise("cold").alias("user"),
        F.window("at", "15 seconds").alias("window"),
        F.col("value").alias("n"),
    )
    own = timed.groupBy("user", "window").agg(F.count("*"), F.sum("n"))
    ours = balanced(timed, "user", "window").aggregate(Totals(), "append", window="window")
    runs = [begin(own, "append", "own"), begin(ours, "append", "ours")]
    for query, said in runs:
        wait(query, partial(has_batches, said, 6))
        query.stop()
    (_, own_said), (_, our_said) = runs
    for batch in range(6):
        assert sort(our_said[batch]) == sort(own_said[batch]), batch
    assert sum(len(own_said[batch]) for batch in range(6)) > 6


def test_what_cannot_be_aggregated_is_refused_with_the_field_named(
    spark: SparkSession,
    stream: Callable[[int], DataFrame],
    begin: Callable[..., tuple[StreamingQuery, Said]],
) -> None:
    rows = users(stream(ROWS)).withColumn("at", F.timestamp_seconds("n"))
    frame = balanced(rows, "user")
    no_aggregator: Any = object()
    with pytest.raises(InvalidInputError, match="aggregator: must be an instance of a class"):
        frame.aggregate(no_aggregator)
    with pytest.raises(InvalidInputError, match="keys: there is no column 'nobody'"):
        balanced(rows, "nobody").aggregate(Sums())
    with pytest.raises(InvalidInputError, match=r"Floating.zero\(\): returned \(0.0, 0, \[\]\)"):
        frame.aggregate(Floating())
    with pytest.raises(InvalidInputError, match=r"Untyped.state_schema: Spark cannot read 'n NO'"):
        frame.aggregate(type("Untyped", (Sums,), {"state_schema": "n NO"})())
    with pytest.raises(InvalidInputError, match="output_schema: its column 'user' is a column of"):
        frame.aggregate(type("Twice", (Sums,), {"output_schema": "user STRING"})())
    with pytest.raises(InvalidInputError, match="outputMode: append returns final results"):
        frame.aggregate(Sums(), "append")
    with pytest.raises(InvalidInputError, match="ttl_s: must be a number of seconds"):
        frame.aggregate(Sums(), ttl_s=0)
    with pytest.raises(InvalidInputError, match="window: 'at' is no column of the key"):
        frame.aggregate(Sums(), window="at")
    with pytest.raises(InvalidInputError, match="window: the column 'at' is no window"):
        balanced(rows, "user", "at").aggregate(Sums(), window="at")
    with pytest.raises(InvalidInputError, match="ttl_s: Spark counts a time to live"):
        balanced(rows, "user", "at").aggregate(Sums(), window="at", ttl_s=1)
    with pytest.raises(InvalidInputError, match="this DataFrame is no stream"):
        balanced(spark.createDataFrame([("u", 1)], "user string, n long"), "user").aggregate(Sums())

    query, said = begin(frame.aggregate(Forgetful()))
    with pytest.raises(
        StreamingQueryException, match=r"Forgetful.add\(\): returned .*not committed"
    ):
        wait(query, lambda: said)
    assert said == {}
