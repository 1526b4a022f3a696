"""Queries of one name, which Spark tells apart by their ids."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import PATIENCE_S
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished, Event, QueryEnded, QueryStarted

pytestmark = pytest.mark.integration


def start(session: SparkSession, partitions: int, checkpoint: Path) -> StreamingQuery:
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    rows: DataFrame = (
        session.readStream.format("rate-micro-batch").option("rowsPerBatch", 40).load()
    )
    return (
        rows.groupBy("value")
        .count()
        .writeStream.queryName("events")
        .outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def read_until(engine: SparkEngine, is_enough: Callable[[list[Event]], bool]) -> list[Event]:
    events: list[Event] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_enough(events):
        assert time.monotonic() < deadline_s, events
        event = engine.wait(1.0)
        # Queries of other tests may still be told of.
        if event is not None and getattr(event, "query", "").startswith("events"):
            events.append(event)
    return events


def count_partitions(events: list[Event]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for event in events:
        if isinstance(event, BatchFinished) and event.tasks:
            found.setdefault(event.query, set()).add(len(event.tasks))
    return found


def test_two_queries_of_one_name_are_two_and_one_goes_on_when_the_other_ends(
    spark: SparkSession, engine: SparkEngine, tmp_path: Path
) -> None:
    first = start(spark.newSession(), 4, tmp_path / "first")
    queries = [first]
    try:
        second = start(spark.newSession(), 5, tmp_path / "second")
        queries.append(second)
        other = f"events ({second.id[:8]})"
        seen = read_until(engine, lambda events: len(count_partitions(events)) == 2)
        assert count_partitions(seen) == {"events": {4}, other: {5}}
        assert {e.query for e in seen if isinstance(e, QueryStarted)} == {"events", other}

        target = sorted(engine.executors())[0]
        engine.place(other, 0, dict.fromkeys(range(5), target))
        first.stop()

        def has_moved(events: list[Event]) -> bool:
            batches = [e for e in events if isinstance(e, BatchFinished) and e.query == other]
            return any({t.executor for t in batch.tasks} == {target} for batch in batches)

        seen = read_until(engine, has_moved)
        assert [e.query for e in seen if isinstance(e, QueryEnded)] == ["events"]
    finally:
        for query in queries:
            query.stop()
        while engine.wait(0.5):
            pass


def test_a_query_goes_on_under_its_label_from_its_checkpoint_and_another_gets_another(
    spark: SparkSession, engine: SparkEngine, tmp_path: Path
) -> None:
    labels = []
    for checkpoint in ("again", "again", "elsewhere"):
        query = start(spark.newSession(), 2, tmp_path / checkpoint)
        try:
            seen = read_until(
                engine, lambda events: any(isinstance(e, BatchFinished) for e in events)
            )
            labels += [e.query for e in seen if isinstance(e, QueryStarted)]
        finally:
            query.stop()
            while engine.wait(0.5):
                pass
    assert labels[0] == labels[1] != labels[2]
    assert labels[2].startswith("events")
