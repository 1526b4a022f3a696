"""The cost-aware shuffle on real Spark: the same rows come out as went in."""

from __future__ import annotations

import datetime
import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import Geography, Geometry
from shuffled_jobs import (
    OTHER_POINT,
    POINT,
    ROWS,
    collected,
    echo_arrow,
    echo_pandas,
    echo_row,
    take_time,
    texts,
)
from spark_versions import SPARK

import balancedstream
from balancedstream.core.samples import ShuffleRecord
from balancedstream.shuffling.folders import CostFolder
from balancedstream.shuffling.marking import mark_rows

pytestmark = pytest.mark.integration

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_rows_of_every_type_come_out_as_they_went_in(spark: SparkSession) -> None:
    moment = datetime.datetime(2026, 3, 1, 12, 30)  # noqa: DTZ001 - as Spark gives it
    df = spark.createDataFrame(
        [
            (n, kind, {"a": n}, [n, None], (n, "x"), moment, b"\x00", 0.5, None)
            for n in range(30)
            for kind in ("long", "short", None)
        ],
        "id long, kind string, m map<string, long>, a array<long>, s struct<n: long, t: string>, "
        "at timestamp, b binary, d double, nothing string",
    )
    expected = collected(df)
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=4)
    assert collected(shuffled.mapInPandas(echo_pandas, df.schema)) == expected
    assert collected(shuffled.mapInArrow(echo_arrow, df.schema)) == expected
    assert collected(shuffled.map(echo_row, df.schema)) == expected


LOOK_ALIKES: dict[str, list[Any]] = {
    "s string": ["x", ""],
    "t string": ["x"],
    "c string collate UTF8_LCASE": ["a", "A"],
    "d double": [0.0, -0.0, float("nan")],
    "f float": [0.0, -0.0],
    "b binary": [b"", b"x"],
    "a array<int>": [[], [None], [1], [1, None], [None, 1]],
    "l array<array<string>>": [[], [[]], [["x"], []], [[], ["x"]], [None, ["x"]]],
    "m map<string, int>": [{}, {"k": None}, {"k": 1}],
    "r struct<x: int, map: string>": [(None, None), (1, None), (None, "1")],
    "n array<struct<x: string, y: string>>": [[None], [("x", None)], [(None, "x")]],
    "q struct<`a.b`: string, `A.B`: string>": [(None, "x"), ("x", None)],
    "p map<struct<x: int>, array<int>>": [{(1,): [None]}, {(1,): []}],
}
if SPARK >= (4, 2):  # Spark 4.1 has these types turned off.
    LOOK_ALIKES |= {
        "g geometry(any)": [Geometry(POINT, 0), Geometry(POINT, 4326), Geometry(OTHER_POINT, 0)],
        "h geography(any)": [Geography(POINT, 4326), Geography(OTHER_POINT, 4326)],
    }


def test_rows_that_differ_at_all_are_told_apart(spark: SparkSession) -> None:
    # Each row has one value, the others are null.
    columns = list(LOOK_ALIKES)
    rows: list[list[Any]] = [[None] * len(columns)]
    for at, column in enumerate(columns):
        for value in LOOK_ALIKES[column]:
            rows.append([None] * len(columns))
            rows[-1][at] = value
    df = spark.createDataFrame(rows, ", ".join(columns))
    marks = mark_rows([(df[field.name], field.dataType) for field in df.schema])
    for mark in marks:
        assert len({row[0] for row in df.select(mark).collect()}) == len(rows)


def test_variants_that_differ_are_told_apart(spark: SparkSession) -> None:
    texts = [None, "null", "1", "{}", '{"a": null}', '{"a": 1}', "[]", '"2020-01-01"', "1.5"]
    df = spark.createDataFrame([(text,) for text in texts], "text string")
    parsed = df.select(F.parse_json("text").alias("v"))
    typed = spark.range(1).selectExpr("inline(array(struct(date'2020-01-01' :: variant AS v)))")
    variants = parsed.union(typed)
    for mark in mark_rows([(variants["v"], variants.schema["v"].dataType)]):
        assert len({row[0] for row in variants.select(mark).collect()}) == len(texts) + 1


def test_each_partition_is_one_task_and_an_empty_one_is_no_trouble(spark: SparkSession) -> None:
    df = texts(spark).where("id < 2")
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=5)
    out = shuffled.mapInPandas(echo_pandas, df.schema).withColumn("p", F.spark_partition_id())
    assert sorted(row.id for row in out.collect()) == [0, 1]
    assert out.rdd.getNumPartitions() == 5


class Carried:
    """Travels with the function that names it: each task has a class of its own."""


def carry(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        Carried()
        yield batch


def look_around(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How much a worker has frozen, and of how many tasks it still has something."""
    for _ in batches:
        frozen = gc.get_freeze_count()
        gc.unfreeze()
        kept = sum(type(o) is type and o.__name__ == Carried.__name__ for o in gc.get_objects())
        yield pa.RecordBatch.from_pydict({"frozen": [frozen], "kept": [kept]})


def test_workers_freeze_what_they_have_loaded_and_nothing_of_their_tasks(
    spark: SparkSession,
) -> None:
    df = texts(spark)
    for _ in range(8):
        shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=2)
        shuffled.mapInArrow(carry, df.schema).collect()
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=1)
    seen = shuffled.mapInArrow(look_around, "frozen long, kept long").collect()
    assert max(row.frozen for row in seen) > 10_000
    assert max(row.kept for row in seen) == 1


def fail_once(folder: Path) -> Callable[[Row], Row]:
    """Each task's first attempt fails in the middle."""

    def echo(row: Row) -> Row:
        take_time(row["kind"])
        context = TaskContext.get()
        if context.attemptNumber() == 0 and row["id"] % 50 == 7:
            (folder / f"failed-{context.partitionId()}").touch()
            message = "the first attempt fails"
            raise RuntimeError(message)
        return row

    return echo


def test_a_task_that_is_tried_again_gives_its_rows_once_and_teaches_once(
    spark: SparkSession, shuffle_records: list[ShuffleRecord], tmp_path: Path
) -> None:
    df = texts(spark)
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=3)
    assert collected(shuffled.map(fail_once(tmp_path), df.schema)) == collected(df)
    assert list(tmp_path.iterdir())
    # A Python worker's first row is not learnt from.
    assert ROWS - 6 <= shuffle_records[-1].records <= ROWS


def fail_always(frames: Iterator[Any]) -> Iterator[Any]:
    for frame in frames:
        if 13 in frame["id"].to_numpy():
            message = "this text cannot be read: 13"
            raise ValueError(message)
        yield frame


def test_the_functions_own_error_is_shown_and_nothing_is_learnt_from_the_batch(
    spark: SparkSession, shuffle_records: list[ShuffleRecord], tmp_path: Path
) -> None:
    df = texts(spark)
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=3, folder=str(tmp_path))
    with pytest.raises(Exception, match="ValueError: this text cannot be read: 13"):
        shuffled.mapInPandas(fail_always, df.schema).collect()
    assert not shuffle_records
    assert CostFolder(tmp_path / "fail_always-by-kind").newest() is None


def find_long(row: Row) -> Row:
    return next(row for _ in range(1) if row["kind"] == "long")


def test_a_stopiteration_that_escapes_the_function_is_an_error_and_no_end_of_the_rows(
    spark: SparkSession,
) -> None:
    df = texts(spark)
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=3)
    with pytest.raises(Exception, match="StopIteration"):
        shuffled.map(find_long, df.schema).collect()
