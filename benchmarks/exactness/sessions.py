"""The Spark sessions of undisturbed and of disturbed runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.session import tuned_sessions

CLASSES = Path(sys.prefix) / "spark.jsa"
"""Spark's classes, as `make` archives them (`docker/archive_classes.py`)."""

SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" + (
    f" -XX:SharedArchiveFile={CLASSES} -Xlog:cds=off" if CLASSES.exists() else ""
)
"""Processes that are killed after seconds would spend most of them on loading and compiling."""

PLAIN = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark searches the error of an interrupted batch with a regular expression that recurses.
    "spark.driver.extraJavaOptions": f"{SHORT_LIVED_JVM} -Xss8m",
    "spark.sql.session.timeZone": "UTC",
    # transformWithState refuses Spark's default provider.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
"""What undisturbed runs have: Spark's defaults as far as they can do the job."""

DISTURBED = {
    "spark.executor.memory": "768m",
    "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
    # Within eight batches there must be snapshots to load, and maintenance that unloads the
    # stores which moved away; the defaults (10 and 60 s) would come too late.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "4s",
}
"""What disturbed runs have on top, besides the tuned settings."""


def open_plain(partitions: int) -> SparkSession:
    """A session in one process, to which nothing is attached."""
    return _open(PLAIN | {"spark.master": "local[2]"}, partitions)


def open_disturbed(
    partitions: int, executors: int, settings: Mapping[str, str] | None = None
) -> tuple[SparkSession, SparkEngine]:
    """A tuned session with executor processes, and the engine attached to it."""
    engines: list[SparkEngine] = []
    with tuned_sessions(
        LocalExecutors(executors, executors),
        lambda session: engines.append(SparkEngine(session)),
        lambda warning: print(warning, file=sys.stderr),
    ):
        spark = _open(PLAIN | DISTURBED | dict(settings or {}), partitions)
    return spark, engines[0]


def _open(settings: dict[str, str], partitions: int) -> SparkSession:
    # Spark's Python workers must run this interpreter.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("exactness")
    builder = builder.config("spark.sql.shuffle.partitions", str(partitions))
    for key, value in settings.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
