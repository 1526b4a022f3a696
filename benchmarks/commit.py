"""What a micro-batch costs to commit on POSIX storage: Spark's settings against the tuned ones.

The same streaming aggregation, with nothing to wait for, under three sets of settings: those that
Spark has by default, RocksDB with changelog alone, and all that a balanced job has. Nothing is
attached and nothing is moved; there is an executor for each of two cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.benchmark import alternate, prepare, remove_folder, run
from harness.measuring import await_progress
from harness.results import Case
from harness.rows import count_keys, draw_uniform, read_rows, start_query
from harness.sessions import close_session, create_session
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from balancedstream.engine.session.filemanagers import FILE_MANAGER
from balancedstream.engine.session.settings import SETTINGS, SHUFFLE_PARTITIONS

PARTITIONS = (8, 32, 128)
ROCKSDB_ALONE_AT = 32
"""The arm in between says which part of the gain is whose; one number of partitions suffices."""

WARM_UP_BATCHES = 2
TUNED = {s.key: s.value for s in SETTINGS if s.key.startswith("spark.sql.")}
ARMS: Mapping[str, Mapping[str, str]] = {
    "defaults": {},
    "rocksdb": {key: value for key, value in TUNED.items() if key != FILE_MANAGER},
    "tuned": TUNED,
}
CLUSTER = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1024m"}


@dataclass(frozen=True)
class Workload:
    """What every arm gets."""

    rows_per_batch: int = 20_000
    keys: int = 10_000
    batches: int = 6


def main() -> None:
    with prepare("commit", __doc__ or "") as benchmark:
        workload = Workload(batches=2) if benchmark.smoke else Workload()
        counts = PARTITIONS[:2] if benchmark.smoke else PARTITIONS
        cases: list[Case] = [
            {"partitions": partitions, "repetition": repetition}
            for repetition in benchmark.repetitions
            for partitions in counts
        ]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        spark = create_session(benchmark, CLUSTER)
        try:
            measure_arm(spark, benchmark.work, "defaults", PARTITIONS[0], workload)  # warms up
            for case in missing:
                partitions = int(case["partitions"])
                arms = [a for a in ARMS if a != "rocksdb" or partitions == ROCKSDB_ALONE_AT]
                order = alternate(int(case["repetition"]), *arms)
                batch_s = {
                    arm: measure_arm(spark, benchmark.work, arm, partitions, workload)
                    for arm in order
                }
                benchmark.record(
                    spark, case, asdict(workload), {"order": order, "batch_s": batch_s}
                )
        finally:
            close_session(spark)


def measure_arm(
    spark: SparkSession, work: Path, arm: str, partitions: int, workload: Workload
) -> list[float]:
    """Runs the query under an arm's settings; gives the seconds of each measured batch."""
    settings = {**ARMS[arm], SHUFFLE_PARTITIONS: str(partitions)}
    for key, value in settings.items():
        spark.conf.set(key, value)
    keyed = F.floor(draw_uniform(0) * workload.keys).alias("key")
    counts = count_keys(read_rows(spark, workload.rows_per_batch).select(keyed))
    checkpoint = work / f"{arm}-{partitions}"
    remove_folder(checkpoint)
    query = start_query(counts, f"{arm}-{partitions}", checkpoint)
    try:
        progress = await_progress(query, WARM_UP_BATCHES, workload.batches)
    finally:
        query.stop()
        for key in settings:
            spark.conf.unset(key)
        remove_folder(checkpoint)
    return [batch["durationMs"]["triggerExecution"] / 1000 for batch in progress]


if __name__ == "__main__":
    run(main)
