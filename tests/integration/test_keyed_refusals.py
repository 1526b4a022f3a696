"""What cannot be balanced is refused with the field named, and a key that cannot move stays."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from keyed_jobs import HELD, ROWS, SEEN, USERS, Ledger, Run, count, hold, users
from patience import PATIENCE_S
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from balancedstream import balanced
from balancedstream.core.keys.epochs import Wish
from balancedstream.errors import InvalidInputError, PlanTooLargeError

pytestmark = [pytest.mark.integration, pytest.mark.turn]

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_one_balanced_frame_is_refused_to_a_second_query_and_serves_the_next_one(
    begin_keyed: Callable[..., Run], tmp_path: Path
) -> None:
    run = begin_keyed(count)

    def start_again(checkpoint: str) -> StreamingQuery:
        transformed = count(run.frame)
        location = str(tmp_path / checkpoint)
        writer = transformed.writeStream.outputMode("update").format("noop")
        return writer.option("checkpointLocation", location).start()

    run.wait_batches(1)
    with pytest.raises(StreamingQueryException, match=r"uses the same balanced\(\.\.\.\)"):
        start_again("second").awaitTermination(60)
    run.wait_batches(1)
    run.query.stop()
    later = start_again("second")
    deadline_s = time.monotonic() + 60
    while later.lastProgress is None and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert later.lastProgress
    later.stop()


def test_what_cannot_be_balanced_is_refused_with_the_field_named(
    spark: SparkSession,
    stream: Callable[[int], DataFrame],
    begin_keyed: Callable[..., Run],
    tmp_path: Path,
) -> None:
    rows = users(stream(ROWS))
    with pytest.raises(InvalidInputError, match=r"keys: there is no column 'nobody', only user, n"):
        balanced(rows, "nobody")
    with pytest.raises(InvalidInputError, match="keys: name the column"):
        balanced(rows)
    with pytest.raises(InvalidInputError, match="balancedstream_route has a reserved name"):
        balanced(rows.withColumn("balancedstream_route", F.lit(1)), "user")
    with pytest.raises(InvalidInputError, match="this DataFrame is no stream"):
        count(balanced(spark.createDataFrame([("u", 1)], "user string, n long"), "user"))
    with pytest.raises(InvalidInputError, match="stateStructType: its field held is of type"):
        balanced(rows, "user").applyInPandasWithState(
            hold, HELD, "n long, held variant", "update", "NoTimeout"
        )
    frame = balanced(rows, "user")
    assert frame.control is not None
    with pytest.raises(InvalidInputError, match="key u1: is no key of this stream"):
        frame.control.want(Wish({"u1": 1}))
    with pytest.raises(InvalidInputError, match="rows without a key are never moved"):
        frame.control.want(Wish({"null": 1}))
    with pytest.raises(PlanTooLargeError, match="has 20001 keys, at most 20000 fit"):
        frame.control.want(Wish({f'"u{n}"': 1 for n in range(20_001)}))

    plain = rows.groupBy("user").transformWithState(Ledger(), SEEN, "update", "none")
    query = (
        plain.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "plain"))
        .trigger(availableNow=True)
        .start()
    )
    while not query.lastProgress:
        assert query.exception() is None
        time.sleep(0.1)
    query.stop()
    planned = {*(tmp_path / "plain" / "offsets").iterdir()}
    refused = r"planned with no balanced operator named 'keys'; no row was processed"
    with pytest.raises(StreamingQueryException, match=refused):
        begin_keyed(count, checkpoint="plain").wait_batches(1)
    assert {*(tmp_path / "plain" / "offsets").iterdir()} == planned


def test_a_checkpoint_that_python_cannot_reach_is_refused_before_there_is_any_data(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "input").mkdir()
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.default.link./store", f"file://{tmp_path}/store")
    rows = spark.readStream.schema("user string, n long").json(str(tmp_path / "input"))
    query = (
        count(balanced(rows, "user")).writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", "viewfs:///store/app")
        .start()
    )  # fmt: skip
    with pytest.raises(StreamingQueryException, match=r"store/app is neither on a mounted"):
        query.awaitTermination(PATIENCE_S)
    assert query.lastProgress is None
    app = tmp_path / "store" / "app"
    assert (app / "metadata").exists()
    assert not [*app.glob("offsets/[0-9]*")]


def test_keys_with_the_time_of_the_watermark_are_never_moved(
    stream: Callable[[int], DataFrame],
) -> None:
    at = F.timestamp_seconds("n").alias("at")
    timed = users(stream(ROWS)).select("user", "n", at).withWatermark("at", "3 seconds")
    modes = SEEN, "update"
    for key in ("at", "window"):
        frame = balanced(timed.withColumn("window", F.window("at", "1 minute")), "user", key)
        assert is_movable(frame.transformWithState(Ledger(), *modes, "processingTime"))
        with pytest.warns(UserWarning, match="keys with the time of the watermark do not move"):
            assert not is_movable(frame.transformWithState(Ledger(), *modes, "eventTime"))
        assert frame.control is None


def is_movable(transformed: DataFrame) -> bool:
    return "balancedstream_route" in transformed._jdf.queryExecution().logical().toString()


def test_keys_of_a_type_with_another_hash_are_never_moved_and_the_job_runs(
    spark: SparkSession, stream: Callable[[int], DataFrame], tmp_path: Path
) -> None:
    collated = F.expr("collate(user, 'UNICODE')").alias("user")
    begins = spark.createDataFrame([(1000, "u2", "May")], "total long, user string, since string")
    initial = begins.select("total", collated, "since")
    with pytest.warns(UserWarning, match="another collation") as warned:
        frame = balanced(users(stream(ROWS)).select(collated, "n"), "user")
    assert len(warned) == 1
    counted = frame.transformWithState(
        Ledger(), SEEN, "update", "none", initialState=balanced(initial, "user")
    )
    assert frame.control is None
    rows: list[Row] = []
    query = (
        counted.writeStream.outputMode("update")
        .foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    while not rows and query.isActive:
        time.sleep(0.1)
    query.stop()
    assert {row.user: row.total for row in rows if not row.batch} == {
        f"u{n}": ROWS // USERS + (1000 if n == 2 else 0) for n in range(USERS)
    }
