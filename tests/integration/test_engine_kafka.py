"""Kafka: what a batch reads is known when it is planned, and its rows can be bounded."""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from bounded_streams import Begin, MakeBounder, read_limits, read_output
from kafka_broker import Broker, run_broker
from patience import PATIENCE_S
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from spark_versions import SPARK
from waiting import wait_until

from balancedstream.engine.engine import SparkEngine

pytestmark = [pytest.mark.integration, pytest.mark.turn]


@pytest.fixture(scope="module")
def broker(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with run_broker(spark, tmp_path_factory.mktemp("kafka")) as running:
        yield running


def test_bounds_of_rows_that_change_in_every_batch_and_a_restart_lose_and_double_no_row(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    begin: Begin,
    bounder: MakeBounder,
) -> None:
    limits = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "5s", "maxOffsetsPerTrigger": "900"}
    broker.write("bounded", range(300))
    query = begin(broker.read("bounded", **limits).select("value"), "bounded", sink="json")
    first = bounder("bounded", 1200)
    first.read_until(lambda: len(first.finished) >= 1)
    first.wait_for_tick()
    broker.write("bounded", range(300, 4000))
    first.read_until(lambda: len(first.finished) >= 5)
    assert first.reasons == {""}
    query.stop()
    first.read_until(lambda: not spark.streams.active, bounds=False)

    query = begin(broker.read("bounded", **limits).select("value"), "bounded", sink="json")
    # Fewer than a batch of the user's has at least: they are read after the delay.
    broker.write("bounded", range(4000, 4004))
    if ends_at_once(query):
        query = begin(broker.read("bounded", **limits).select("value"), "bounded", sink="json")
    second = bounder("bounded", 1200)
    out = tmp_path / "bounded-out"
    second.read_until(lambda: read_output(spark, out).total() >= 4004)
    assert query.exception() is None
    assert read_output(spark, out) == Counter(map(str, range(4004)))

    batches = [b.sample for b in (*first.finished, *second.finished)]
    assert max(batch.input_rows for batch in batches) <= 900 + 3
    bounded = [batch for batch in batches if batch.bound_rows is not None]
    assert bounded
    # A partition that has a row gives one.
    assert all(b.input_rows <= max(3, (b.bound_rows or 0)) + 3 for b in bounded)
    rows = {batch.batch: batch.input_rows for batch in batches}
    # Of a batch that was planned before the restart, the new run knows no latest offsets.
    plans = [plan for plan in (*first.planned, *second.planned) if plan.rows is not None]
    assert {p.batch: p.rows for p in plans if p.batch in rows} == {
        p.batch: rows[p.batch] for p in plans if p.batch in rows
    }
    assert plans
    assert any((plan.waiting_rows or 0) > 1000 for plan in first.planned)


def ends_at_once(query: StreamingQuery) -> bool:
    """Whether Spark ends a query that begins with a batch of the run before (4.1, SPARK-57438)."""
    if SPARK == (4, 1):
        wait_until(
            "the query's first batch",
            lambda: not query.isActive or bool(query.recentProgress),
            timeout_s=PATIENCE_S,
            interval_s=0.1,
        )
    return "IterableOps.map" in str(query.exception() or "")


def test_rows_that_come_between_two_batches_are_seen_before_the_next_one(
    spark: SparkSession,
    broker: Broker,
    begin: Begin,
    bounder: MakeBounder,
) -> None:
    broker.write("seldom", range(50))
    begin(broker.read("seldom").select("value"), "seldom", processingTime="30 seconds")
    seen = bounder("seldom", 1)
    seen.read_until(lambda: len(seen.finished) >= 1, bounds=False)
    seen.wait_for_tick(30.0)
    broker.write("seldom", range(50, 170))
    seen.read_until(lambda: any(said.rows > 0 for said in seen.waiting), bounds=False)
    said = next(said for said in seen.waiting if said.rows > 0)
    seen.read_until(lambda: seen.count_rows() == 170, bounds=False)
    later = [plan for plan in seen.planned if plan.at_s > said.at_s]
    assert sum(plan.rows or 0 for plan in later) >= said.rows
    assert {(plan.waiting_rows, plan.trigger_s) for plan in later} == {(0.0, 30.0)}
    times_s = [said.at_s for said in seen.waiting]
    assert all(after - before >= 0.9 for before, after in itertools.pairwise(times_s))
    # What a batch has planned does not wait any more.
    seen.read_until(lambda: seen.waiting[-1].rows == 0, bounds=False)


def test_two_bounded_topics_with_one_watermark_are_counted_right(
    engine: SparkEngine,
    spark: SparkSession,
    broker: Broker,
    begin: Begin,
    bounder: MakeBounder,
) -> None:
    broker.write("many", range(200))
    broker.write("few", range(50))

    def count() -> DataFrame:
        both = (
            broker.read("many").unionByName(broker.read("few")).withWatermark("timestamp", "1 hour")
        )
        key = (F.col("value").cast("long") % 20).alias("k")
        return both.groupBy(F.window("timestamp", "10 hours"), key).count()

    query = begin(count(), "joined", sink="memory")
    first = bounder("joined", 500)
    first.read_until(lambda: len(first.finished) >= 1)
    broker.write("many", range(200, 2200))
    broker.write("few", range(50, 550))
    first.read_until(lambda: first.count_rows() >= 900)
    counted = Counter(read_counts(spark, "joined"))
    query.stop()
    # Of the run that has ended, nothing comes any more.
    while engine.wait(0.5):
        pass
    query = begin(count(), "joined", sink="memory")
    if ends_at_once(query):
        begin(count(), "joined", sink="memory")
    second = bounder("joined", 500)
    # A producer that had to try again wrote rows twice: what the topics hold is what is right.
    wanted = broker.count("many", "few", modulo=20)
    assert wanted.total() >= 2200 + 550

    def is_read() -> bool:
        for key, rows in read_counts(spark, "joined").items():
            counted[key] = max(counted[key], rows)
        return counted.total() >= wanted.total()

    second.read_until(is_read)
    assert counted == wanted
    assert {*first.reasons, *second.reasons} == {""}


def read_counts(spark: SparkSession, name: str) -> dict[int, int]:
    """A key's windows may be two, where midnight is near."""
    newest = spark.table(name).groupBy("window", "k").agg(F.max("count").alias("n"))
    rows = newest.groupBy("k").agg(F.sum("n").alias("n")).collect()
    return {row.k: row.n for row in rows}


def test_a_broker_that_does_not_answer_is_said_once_a_cause_and_asked_again_later(
    spark: SparkSession,
    broker: Broker,
    begin: Begin,
    bounder: MakeBounder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.write("silent", range(50))
    query = begin(broker.read("silent").select("value"), "silent", processingTime="60 seconds")
    seen = bounder("silent", 1)
    with caplog.at_level(logging.WARNING, "balancedstream"):
        seen.read_until(lambda: bool(seen.waiting), bounds=False)
        with broker.stopped():
            seen.read_until(lambda: bool(caplog.records), bounds=False)
            until_s = time.monotonic() + 12
            seen.read_until(lambda: time.monotonic() > until_s, bounds=False)
        told = len(seen.waiting)
        seen.read_until(lambda: len(seen.waiting) > told, bounds=False)
    told_of = [record.getMessage() for record in caplog.records]
    assert all(text.startswith("silent: what waits at its sources is not") for text in told_of)
    # Kafka's client gives up with one cause, and the wait for it with another.
    causes = [text.split(":")[2] for text in told_of]
    assert len(causes) == len(set(causes)) <= 2
    broker.write("silent", range(50, 60))
    seen.read_until(lambda: seen.count_rows() == 60, bounds=False)
    assert query.exception() is None


def test_the_limits_of_a_topic_are_given_back_when_nobody_renews_a_bound(
    spark: SparkSession,
    broker: Broker,
    begin: Begin,
    engine: SparkEngine,
    bounder: MakeBounder,
) -> None:
    broker.write("renewed", range(10))
    options = {"maxOffsetsPerTrigger": "700", "minOffsetsPerTrigger": "5"}
    query = begin(broker.read("renewed", **options).select("value"), "renewed")
    seen = bounder("renewed", 1)
    seen.read_until(lambda: len(seen.finished) >= 1, bounds=False)
    own = read_limits(spark, query)
    assert engine.bound("renewed", 30) == ""
    assert read_limits(spark, query) != own
    seen.wait_for_tick()
    broker.write("renewed", range(10, 1000))
    seen.read_until(lambda: read_limits(spark, query) == own, bounds=False)
    assert any(b.sample.bound_rows == 30.0 for b in seen.finished)
    seen.read_until(lambda: seen.count_rows() == 1000, bounds=False)
    assert query.exception() is None
