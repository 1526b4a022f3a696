"""A stream is routed by what its batches cost, also when one fails or the job starts again."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from processes import SETTINGS, write_submit_arguments
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from shuffled_jobs import ROWS, await_that, echo_arrow, echo_row, take_time

import balancedstream
from balancedstream.core.samples import ShuffleRecord
from balancedstream.core.shuffle.costs import LearntCosts

pytestmark = [pytest.mark.integration, pytest.mark.turn]

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def read_back(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.value for row in spark.read.parquet(str(folder)).collect())


def test_a_stream_is_learnt_from_batch_to_batch_and_a_failed_batch_is_routed_as_before(
    spark: SparkSession,
    stream: Callable[[int], DataFrame],
    shuffle_records: list[ShuffleRecord],
    tmp_path: Path,
) -> None:
    output, checkpoint, broken = (tmp_path / name for name in ("output", "checkpoint", "broken"))
    kinds = stream(ROWS).withColumn(
        "kind", F.when(F.col("value") % 10 == 0, "long").otherwise("short")
    )

    def classify(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            take_time(frame["kind"].iloc[0], len(frame))
            # Batch 2 fails until somebody repairs what is broken.
            if (frame["value"] >= 2 * ROWS).any() and broken.exists():
                raise OSError(os.fspath(broken))
            yield frame[["value"]].assign(partition=TaskContext.get().partitionId())

    def start() -> StreamingQuery:
        shuffled = balancedstream.shuffle(
            kinds, cost_key="kind", partitions=3, folder=f"file://{tmp_path / 'costs'}"
        )
        return (
            shuffled.mapInPandas(classify, "value long, partition int")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint))
            .start(str(output))
        )

    def find_pin() -> Path:
        (pin,) = (tmp_path / "costs").glob("*/*/pinned-2")
        return pin

    broken.touch()
    query = start()
    with pytest.raises(Exception, match="broken"):
        query.awaitTermination(PATIENCE_S)
    assert [batch.batch for batch in shuffle_records] == [0, 1]
    assert read_back(spark, output) == list(range(2 * ROWS))
    routed_by = find_pin().read_bytes()

    broken.unlink()
    query = start()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(shuffle_records) < 4 and time.monotonic() < deadline_s:
        time.sleep(0.1)
    query.stop()
    assert find_pin().read_bytes() == routed_by
    assert [batch.by_estimates for batch in shuffle_records[:4]] == [False, False, True, True]
    values = read_back(spark, output)
    assert len(values) >= 3 * ROWS
    assert values == list(range(len(values)))


def test_the_other_two_methods_run_on_streams_and_in_one_query(
    spark: SparkSession,
    stream: Callable[[int], DataFrame],
    shuffle_records: list[ShuffleRecord],
    tmp_path: Path,
) -> None:
    rows = stream(40).select("value", F.lit("short").alias("kind"))
    spread = partial(
        balancedstream.shuffle, cost_key="value", partitions=2, folder=str(tmp_path / "costs")
    )
    echoed = spread(spread(rows).mapInArrow(echo_arrow, rows.schema)).map(echo_row, rows.schema)
    query = (
        echoed.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "output"))
    )
    await_that(lambda: len(shuffle_records) >= 4)
    query.stop()
    names = ["echo_arrow-by-value", "echo_row-by-value"]
    assert [(batch.shuffle, batch.batch) for batch in shuffle_records[:4]] == [
        (name, batch) for batch in range(2) for name in names
    ]
    values = read_back(spark, tmp_path / "output")
    assert len(values) >= 40
    assert values == list(range(len(values)))


APP = textwrap.dedent(
    """
    import os, sys, time
    from pyspark.sql import SparkSession, functions as F
    import balancedstream

    folder, crash_in = sys.argv[1], int(sys.argv[2])

    def echo(frames):
        for frame in frames:
            time.sleep(0.005 * len(frame) * (frame["kind"][0] == 0))
            yield frame

    def write(batch, number):
        batch.write.mode("overwrite").parquet(f"{folder}/output/{number}")
        if number == crash_in:
            os._exit(1)  # written, and not committed

    spark = SparkSession.builder.getOrCreate()
    rows = spark.readStream.schema("value long").option("maxFilesPerTrigger", 1)
    rows = rows.parquet(f"{folder}/input").withColumn("kind", F.col("value") % 7)
    shuffled = balancedstream.shuffle(rows, cost_key="kind", partitions=3)
    echoed = shuffled.mapInPandas(echo, "value long, kind long")
    placed = echoed.withColumn("partition", F.spark_partition_id())
    query = placed.writeStream.trigger(availableNow=True).queryName("echo").foreachBatch(write)
    query.start().awaitTermination()
    """
)


def test_a_batch_that_is_run_again_after_a_restart_sends_each_row_where_it_went_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(3):
        rows = spark.range(number * 100, number * 100 + 100, 1, 1).withColumnRenamed("id", "value")
        rows.write.mode("append").parquet(str(tmp_path / "input"))
    settings = SETTINGS | {
        "spark.master": "local[2]",
        "spark.sql.streaming.checkpointLocation": f"file://{tmp_path}/checkpoints",
    }

    def run(crash_in: int) -> int:
        return subprocess.run(
            [sys.executable, "-c", APP, str(tmp_path), str(crash_in)],
            env=os.environ
            | {
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_SUBMIT_ARGS": write_submit_arguments(settings),
            },
            check=False,
            timeout=PATIENCE_S,
        ).returncode

    def read(number: int) -> list[Row]:
        return sorted(spark.read.parquet(str(tmp_path / "output" / str(number))).collect())

    assert run(crash_in=2) == 1
    crashed = read(2)
    (pin,) = (tmp_path / "checkpoints" / "_shuffle").glob("*/*/pinned-2")
    assert LearntCosts.from_bytes(pin.read_bytes()).trusted
    assert run(crash_in=-1) == 0
    assert read(2) == crashed
    written = [row.value for number in range(3) for row in read(number)]
    assert sorted(written) == list(range(300))
