"""Spark's part: rewrites the state of a checkpoint, and takes fingerprints of it.

Only Spark's private API does so: `OfflineStateRepartitionRunner`, and what it reads state with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from balancedstream.core.logs import Format
from balancedstream.core.repartition import PROVIDER, ROCKSDB, Family, Fingerprint, Operator
from balancedstream.engine.session.settings import CHECKPOINT_FORMAT
from balancedstream.engine.traits import check_repartition
from balancedstream.errors import RepartitionError

KEEP_ALL = "1000000"
"""Batches whose state Spark must keep: this session is to remove nothing."""


@contextmanager
def open_session(state_format: Format) -> Iterator[SparkSession]:
    """A session of Spark in this process, for state of a format.

    Raises:
        UnsupportedSparkError: SPARK_HOME names an older Spark.
        RepartitionError: Spark did not start.
    """
    builder = (
        SparkSession.builder.appName("balancedstream repartition")
        .master("local[*]")
        # A driver's settings may be those of a cluster, where executors share a secret in a file.
        .config("spark.authenticate", "false")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.adaptive.enabled", "false")
        .config(PROVIDER, ROCKSDB)
        .config(CHECKPOINT_FORMAT, state_format)
        .config("spark.sql.streaming.minBatchesToRetain", KEEP_ALL)
    )
    try:
        session = builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        message = (
            f"Spark did not start, so the checkpoint is as it was ({_shorten(error)}): look at "
            "the settings in spark-defaults.conf and PYSPARK_SUBMIT_ARGS"
        )
        raise RepartitionError(message) from error
    try:
        check_repartition(session.version)
        yield session
    finally:
        # If Java has died, something else is said of it.
        with suppress(Py4JError, OSError):
            session.stop()


def rewrite_state(session: SparkSession, path: Path, partitions: int) -> None:
    """Has Spark write the state for another number of partitions, as a batch of its own.

    Raises:
        RepartitionError: Spark did not finish; the checkpoint is as before, or half-done.
    """
    jvm: Any = session._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    # Never without the last argument: what Spark does then, it cannot start from.
    runner = streaming.state.OfflineStateRepartitionRunner(
        session._jsparkSession, f"file://{path}", partitions, True
    )
    try:
        runner.run()
    except (Py4JError, PySparkException) as error:
        message = f"Spark did not finish: {_shorten(error)}"
        raise RepartitionError(message) from error


def take_fingerprints(
    session: SparkSession,
    path: Path,
    operators: Sequence[Operator],
    *,
    batch: int,
    partitions: int,
    one_in: int,
) -> dict[Family, Fingerprint]:
    """Reads the state after a batch, all column families, in one job for each store.

    Args:
        session: that `open_session` gave.
        path: of the checkpoint.
        operators: of the checkpoint.
        batch: a batch that is committed.
        partitions: the number of state partitions of that batch.
        one_in: one key in how many is compared; all are counted and their partitions are checked.

    Raises:
        RepartitionError: the state cannot be read.
    """
    taken: dict[Family, Fingerprint] = {}
    for operator in operators:
        for store in operator.stores:
            try:
                state = _read(session, path, batch, operator.id, store)
                rows = _hash(state, partitions, one_in).collect()
                has_keys = len(state.schema["partition_key"].dataType.fieldNames()) > 0
            except (Py4JError, PySparkException) as error:
                message = (
                    f"the state of operator {operator.id}, store {store}, after batch {batch} "
                    f"cannot be read: {_shorten(error)}"
                )
                raise RepartitionError(message) from error
            for row in rows:
                # Without keys all state is in partition 0, whatever the number is; a hash of
                # nothing would be there for some numbers only.
                misplaced = row["misplaced"] if has_keys else row["n"]
                taken[operator.id, store, row["family"]] = Fingerprint(
                    row["n"], int(row["total"] or 0), row["parity"] or 0, misplaced
                )
    return taken


def _read(session: SparkSession, path: Path, batch: int, operator: int, store: str) -> DataFrame:
    jvm: Any = session._jvm
    options = jvm.org.apache.spark.sql.execution.datasources.v2.state.StateSourceOptions
    return (
        session.read.format("statestore")
        .option("path", f"file://{path}")
        .option("batchId", batch)
        .option("operatorId", operator)
        .option("storeName", store)
        .option(options.INTERNAL_ONLY_READ_ALL_COLUMN_FAMILIES(), "true")
        .load()
    )


def _hash(state: DataFrame, partitions: int, one_in: int) -> DataFrame:
    """One row a column family."""
    is_chosen = F.pmod(F.xxhash64(F.lit(2), "key_bytes"), F.lit(one_in)) == 0
    chosen = state.select(
        F.col("column_family_name").alias("family"),
        # As Spark places the rows of a shuffle (`HashPartitioning`). A task reads one partition.
        (F.pmod(F.hash("partition_key"), F.lit(partitions)) != F.spark_partition_id()).alias(
            "away"
        ),
        F.when(is_chosen, F.xxhash64("key_bytes", "value_bytes")).alias("first"),
        F.when(is_chosen, F.xxhash64(F.lit(1), "value_bytes", "key_bytes")).alias("second"),
    )
    return chosen.groupBy("family").agg(
        F.count("*").alias("n"),
        F.sum(F.col("first").cast("decimal(20,0)")).alias("total"),
        F.bit_xor("second").alias("parity"),
        F.count_if("away").alias("misplaced"),
    )


def _shorten(error: Exception) -> str:
    """The first line of what Spark says; its stack traces are for nobody here."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() or java.toString()) if java is not None else str(error)
    return text.strip().partition("\n")[0][:500]
