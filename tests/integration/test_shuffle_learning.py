"""What rows cost is learnt from batch to batch, and learnt anew when it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from shuffled_jobs import EXPENSIVE_S, ROWS, collected, echo_arrow, take_time, texts

import balancedstream
from balancedstream.core.samples import ShuffleRecord
from balancedstream.shuffling.folders import CostFolder

pytestmark = pytest.mark.integration

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_costs_are_learnt_from_two_batches_and_the_third_is_level(
    spark: SparkSession, shuffle_records: list[ShuffleRecord], tmp_path: Path
) -> None:
    df = texts(spark)
    for _ in range(3):
        # Null for what is expensive; and Spark numbers the lambda's variable anew each time.
        short = F.get(F.filter(F.array("kind"), lambda kind: kind == "short"), F.lit(0))
        shuffled = balancedstream.shuffle(df, cost_key=short, partitions=3, folder=str(tmp_path))
        assert collected(shuffled.mapInArrow(echo_arrow, df.schema)) == collected(df)
    assert [batch.by_estimates for batch in shuffle_records] == [False, False, True]
    assert "off by" in shuffle_records[1].reason
    last = shuffle_records[-1]
    # All rows are estimated, by costs that were really measured.
    assert sum(last.estimated_s) > ROWS / 10 * EXPENSIVE_S
    assert max(last.estimated_s) < 1.1 * sum(last.estimated_s) / 3


def test_partitions_that_one_task_runs_after_a_coalesce_are_all_learnt_from(
    spark: SparkSession, shuffle_records: list[ShuffleRecord], tmp_path: Path
) -> None:
    df = texts(spark)
    for _ in range(3):
        shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=8, folder=str(tmp_path))
        assert collected(shuffled.mapInArrow(echo_arrow, df.schema).coalesce(1)) == collected(df)
    assert [(batch.batch, batch.by_estimates) for batch in shuffle_records] == [
        (0, False),
        (1, False),
        (2, True),
    ]
    assert [len(batch.real_s) for batch in shuffle_records] == [8] * 3
    newest = CostFolder(tmp_path / "echo_arrow-by-kind").newest()
    assert newest
    assert newest.batch == 2
    # Those of all partitions; the first row of a Python worker is not learnt from.
    assert min(batch.records for batch in shuffle_records) > ROWS * 7 / 8


def echo_after(seconds: float, row: Row) -> Row:
    time.sleep(seconds)
    return row


def test_a_partial_function_has_the_name_of_the_function(
    spark: SparkSession, shuffle_records: list[ShuffleRecord]
) -> None:
    df = texts(spark)
    shuffled = balancedstream.shuffle(df, cost_key="kind", partitions=3)
    shuffled.map(partial(partial(echo_after), 0.0), df.schema).collect()
    assert shuffle_records[-1].shuffle == "echo_after-by-kind"


def test_costs_that_change_are_learnt_anew_and_rows_go_round_robin_meanwhile(
    spark: SparkSession, shuffle_records: list[ShuffleRecord], tmp_path: Path
) -> None:
    df, changed = texts(spark), tmp_path / "changed"

    def work(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            is_expensive = (frame["kind"].iloc[0] == "long") != changed.exists()
            time.sleep(EXPENSIVE_S * len(frame) if is_expensive else 0)
            yield frame

    def run() -> None:
        shuffled = balancedstream.shuffle(
            df, cost_key="kind", partitions=3, folder=str(tmp_path / "costs")
        )
        rows = shuffled.mapInPandas(work, df.schema).collect()
        assert sorted(row.id for row in rows) == list(range(ROWS))

    for _ in range(3):
        run()
    changed.touch()
    for _ in range(3):
        run()
    by_estimates = [batch.by_estimates for batch in shuffle_records]
    assert by_estimates == [False, False, True, True, False, True]
    assert "learning starts again" in shuffle_records[3].reason


def test_a_function_that_reads_all_its_input_first_cannot_be_measured_and_is_told_so(
    spark: SparkSession, shuffle_records: list[ShuffleRecord], tmp_path: Path
) -> None:
    df = texts(spark)

    def gather(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in list(frames):
            take_time(frame["kind"].iloc[0], len(frame))
            yield frame

    expected = collected(df)
    for _ in range(3):
        shuffled = balancedstream.shuffle(
            df, cost_key="kind", partitions=3, folder=str(tmp_path / "costs")
        )
        assert collected(shuffled.mapInPandas(gather, df.schema)) == expected
    assert [batch.by_estimates for batch in shuffle_records] == [False] * 3
    assert "after it had read all its input" in shuffle_records[-1].reason
