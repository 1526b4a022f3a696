"""Spark sessions of benchmarks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from balancedstream.engine.session.java import check_java
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.session import remove_work_folder, tuned_sessions
from harness.benchmark import Benchmark


@contextmanager
def open_session(
    benchmark: Benchmark, executors: LocalExecutors, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session with the settings of a balanced job, as `balancedstream run` makes it.

    Its queries get theirs when they start, so it stays tuned as long as it is open.
    """
    with tuned_sessions(executors, lambda session: None, benchmark.tell):
        spark = create_session(benchmark, settings or {})
        try:
            yield spark
        finally:
            close_session(spark)


def create_session(benchmark: Benchmark, settings: Mapping[str, str]) -> SparkSession:
    """A session that is quiet and keeps its files in the work folder."""
    # Spark's Python workers must run this interpreter.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    check_java()
    builder: Any = SparkSession.builder
    quiet = {
        "spark.app.name": benchmark.name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(benchmark.work / "spark"),
    }
    for key, value in (quiet | dict(settings)).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    # A query that is stopped in the middle of a batch says so as an error.
    spark.sparkContext.setLogLevel("OFF")
    return spark


def close_session(spark: SparkSession) -> None:
    """Stops Spark and removes what its executors left behind."""
    application_id = spark.sparkContext.applicationId
    spark.stop()
    remove_work_folder(application_id)


def use_own_workers(spark: SparkSession, arm: str) -> None:
    """Gives the queries made from now on Python workers that no other arm has.

    Spark keeps workers by their environment, and a balanced query has its workers collect garbage
    faster for as long as they live. Spark's own query must not gain by it.
    """
    spark.sparkContext.environment["BENCHMARK_ARM"] = arm
