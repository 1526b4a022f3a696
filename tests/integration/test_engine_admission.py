"""Batches that are bounded while a query runs: each row is read once, and limits are given back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bounded_streams import (
    Begin,
    Bounder,
    MakeBounder,
    read_limits,
    read_output,
    write_files,
)
from counted_source import ROWS, CountedSource
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark_versions import needs_spark

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchPlanned

pytestmark = [pytest.mark.integration, pytest.mark.turn]


def test_bounds_of_files_that_change_in_every_batch_and_a_restart_lose_and_double_no_row(
    spark: SparkSession, tmp_path: Path, begin: Begin, bounder: MakeBounder
) -> None:
    folder = tmp_path / "in"
    written = Counter(write_files(folder, range(2), 50))
    query = begin(spark.readStream.text(str(folder)), "files", sink="json")
    first = bounder("files", 300)
    first.read_until(lambda: len(first.finished) == 1)
    first.wait_for_tick()
    written.update(write_files(folder, range(2, 32), 50))
    first.read_until(lambda: len(first.finished) >= 5)
    query.stop()
    first.read_until(lambda: not spark.streams.active, bounds=False)

    query = begin(spark.readStream.text(str(folder)), "files", sink="json")
    written.update(write_files(folder, range(32, 40), 50))
    second = bounder("files", 300)
    out = tmp_path / "files-out"
    second.read_until(lambda: read_output(spark, out).total() >= written.total())
    assert query.exception() is None
    assert read_output(spark, out) == written

    bounded = [b.sample for b in (*first.finished, *second.finished) if b.sample.bound_rows]
    assert bounded
    assert all(b.input_rows <= max(50, 1.3 * (b.bound_rows or 0)) for b in bounded)
    # A batch says what it reads, and what is left, before it ends.
    rows = {b.sample.batch: b.sample.input_rows for b in first.finished}
    told = {p.batch: p.rows for p in first.planned if p.rows is not None}
    assert told
    assert all(
        rows[batch] == pytest.approx(told[batch], rel=0.3) for batch in rows.keys() & told.keys()
    )
    assert any((plan.waiting_rows or 0) > 300 for plan in first.planned)
    assert any((batch.sample.backlog_rows or 0) > 300 for batch in first.finished)


def test_a_count_over_two_bounded_folders_with_one_watermark_is_right_after_a_restart(
    spark: SparkSession, tmp_path: Path, begin: Begin, bounder: MakeBounder
) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    # The user limits the files of one of them, and bounds of ours stay below that.
    right_reader = spark.readStream.option("maxFilesPerTrigger", "3")

    def count() -> DataFrame:
        both = spark.readStream.text(str(left)).unionByName(right_reader.text(str(right)))
        at = F.timestamp_seconds(F.split("value", "-")[0].cast("long"))
        watermarked = both.withColumn("at", at).withWatermark("at", "1 hour")
        return watermarked.groupBy(
            F.window("at", "4 seconds"), F.length("value").alias("l")
        ).count()

    write_files(left, range(1), 30)
    write_files(right, range(1), 30)
    query = begin(count(), "watched", sink="memory")
    first = bounder("watched", 200)
    first.read_until(lambda: len(first.finished) >= 1)
    write_files(left, range(1, 12), 30)
    write_files(right, range(1, 12), 30)
    first.read_until(lambda: first.count_rows() >= 300)
    counted = Counter(read_counts(spark, "watched"))
    query.stop()
    query = begin(count(), "watched", sink="memory")
    second = bounder("watched", 200)

    def is_read() -> bool:
        for key, rows in read_counts(spark, "watched").items():
            counted[key] = max(counted[key], rows)
        return counted.total() >= 2 * 12 * 30

    try:
        second.read_until(is_read)
    except AssertionError:
        print(f"counted: {counted}; Spark says: {query.status}, {query.lastProgress}")
        raise
    lines = [(number, len(f"{number}-{row}")) for number in range(12) for row in range(30)]
    expected = Counter((number // 4 * 4, length) for number, length in lines * 2)
    assert counted == expected


def read_counts(spark: SparkSession, name: str) -> dict[tuple[int, int], int]:
    at = F.unix_timestamp("window.start").alias("s")
    rows = spark.table(name).groupBy(at, "l").agg(F.max("count").alias("n")).collect()
    return {(row.s, row.l): row.n for row in rows}


@needs_spark((4, 2))
def test_a_source_in_python_is_bounded_below_its_own_limit(
    spark: SparkSession, tmp_path: Path, begin: Begin, bounder: MakeBounder
) -> None:
    spark.dataSource.register(CountedSource)
    numbers = spark.readStream.format("counted").load()
    query = begin(numbers.selectExpr("cast(id as string) value"), "python", sink="json")
    own = bounder("python", 900)
    own.read_until(lambda: own.count_rows() >= ROWS)
    assert query.exception() is None
    assert own.reasons == {""}
    assert max(b.sample.input_rows for b in own.finished) <= 500
    assert any(b.sample.input_rows < 500 for b in own.finished[:-1])
    assert read_output(spark, tmp_path / "python-out") == Counter(map(str, range(ROWS)))


def test_limits_of_the_user_hold_again_when_bounds_end(
    spark: SparkSession,
    tmp_path: Path,
    begin: Begin,
    engine: SparkEngine,
    bounder: MakeBounder,
) -> None:
    folder = tmp_path / "in"
    write_files(folder, range(1), 20)
    limited = spark.readStream.option("maxFilesPerTrigger", "7").text(str(folder))
    query = begin(limited, "limited")
    seen = bounder("limited", 1)
    seen.read_until(lambda: len(seen.finished) == 1, bounds=False)
    (own,) = read_limits(spark, query)
    assert "7" in own

    # The lower one of both holds.
    assert engine.bound("limited", 20 * 100) == ""
    assert read_limits(spark, query) == [own]
    assert engine.bound("limited", 20 * 3) == ""
    assert read_limits(spark, query) == [own.replace("7", "3")]
    assert engine.bound("limited", None) == ""
    assert read_limits(spark, query) == [own]

    # Nobody renews it.
    assert engine.bound("limited", 20 * 2) == ""
    seen.wait_for_tick()
    write_files(folder, range(1, 30), 20)
    seen.read_until(lambda: read_limits(spark, query) == [own], bounds=False)
    bounded = [b.sample for b in seen.finished if b.sample.bound_rows is not None]
    assert {b.bound_rows for b in bounded} == {40.0}
    seen.read_until(lambda: seen.count_rows() == 30 * 20, bounds=False)
    assert seen.finished[-1].sample.bound_rows is None


def test_limits_of_the_user_hold_again_when_balancing_ends(
    spark: SparkSession, tmp_path: Path, begin: Begin
) -> None:
    own = SparkEngine(spark)
    own.watch_sources(wanted=True)
    folder = tmp_path / "in"
    write_files(folder, range(1), 20)
    query = begin(spark.readStream.text(str(folder)), "closed")
    seen = Bounder(own, "closed", random.Random(0), 1)
    seen.read_until(lambda: len(seen.finished) == 1, bounds=False)
    before = read_limits(spark, query)
    assert own.bound("closed", 40) == ""
    assert read_limits(spark, query) != before
    own.close()
    assert read_limits(spark, query) == before
    write_files(folder, range(1, 3), 20)
    query.processAllAvailable()
    assert query.exception() is None


def rate(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.format("rate").load()


def batches_of_rate(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()


def newest_first(spark: SparkSession, folder: Path) -> DataFrame:
    options = {"latestFirst": "true", "maxFilesPerTrigger": "1"}
    return spark.readStream.options(**options).text(str(folder))


def one_file(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder))


@pytest.mark.parametrize(
    ("build", "trigger", "reason"),
    [
        (rate, {}, "Spark lets nobody limit it"),
        (batches_of_rate, {}, "what bounds it is not known"),
        (newest_first, {}, "newest files first"),
        (one_file, {"processingTime": "0 seconds"}, "interval"),
        (one_file, {"availableNow": True}, "interval"),
    ],
)
def test_what_cannot_be_bounded_is_left_alone_and_it_is_said_why(
    build: Callable[[SparkSession, Path], DataFrame],
    trigger: dict[str, Any],
    reason: str,
    spark: SparkSession,
    tmp_path: Path,
    begin: Begin,
    engine: SparkEngine,
) -> None:
    write_files(tmp_path / "in", range(4), 20)
    query = begin(build(spark, tmp_path / "in"), "alone", **trigger)
    seen = Bounder(engine, "alone", random.Random(0), 1)
    seen.read_until(lambda: len(seen.finished) >= 1, bounds=False)
    before = read_limits(spark, query)
    assert reason in engine.bound("alone", 5)
    assert read_limits(spark, query) == before
    seen.read_until(lambda: len(seen.finished) >= 3, bounds=False)
    assert query.exception() is None
    assert engine.bound("nobody", 5) == "the query does not run"


def test_a_batch_is_told_when_it_is_planned_and_before_it_ends(
    spark: SparkSession,
    stream: Callable[[int], DataFrame],
    begin: Begin,
    bounder: MakeBounder,
) -> None:
    begin(stream(30), "told", processingTime="2 seconds")
    seen = bounder("told", 1)
    seen.read_until(lambda: len(seen.finished) >= 3, bounds=False)
    numbers = [plan.batch for plan in seen.planned]
    assert numbers == sorted(set(numbers))
    assert {b.sample.batch for b in seen.finished[1:]} <= set(numbers)
    # `rate-micro-batch` says nothing of its rows.
    assert {(plan.rows, plan.trigger_s) for plan in seen.planned} == {(None, 2.0)}
    ended = {b.sample.batch: b.sample.finished_s for b in seen.finished}
    assert all(plan.at_s <= ended.get(plan.batch, plan.at_s) for plan in seen.planned)
    assert isinstance(seen.planned[0], BatchPlanned)
