"""Another number of state partitions, beside a new checkpoint from the beginning of the rows.

A query keeps the newest 1,000 bytes of each key. Its rows are in files, five a key. The one way is
`balancedstream repartition` on its stopped checkpoint, Java's start and the comparison of all keys
and values included. The other one is a new checkpoint with the new number, to which the query
reads all rows again, in an application that runs already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.benchmark import (
    Benchmark,
    MeasurementError,
    alternate,
    make_folder,
    prepare,
    remove_folder,
    run,
)
from harness.results import Case
from harness.sessions import open_session
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tables.repartitioning import REPARTITION, REREAD

from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.settings import SHUFFLE_PARTITIONS

EXECUTORS = 2
SIZES_MB = (10, 100, 1000)


@dataclass(frozen=True)
class Workload:
    """What both ways start from.

    Attributes:
        before: state partitions.
        after: state partitions.
        value_bytes: of each key.
        rows_per_key: that the files hold.
        driver_memory: of the command, as `SPARK_DRIVER_MEMORY` says it.
    """

    before: int = 4
    after: int = 16
    value_bytes: int = 1000
    rows_per_key: int = 5
    driver_memory: str = "4g"


def main() -> None:
    with prepare("repartitioning", __doc__ or "") as benchmark:
        sizes = SIZES_MB[:1] if benchmark.smoke else SIZES_MB
        cases: list[Case] = [
            {"state_mb": size, "repetition": repetition}
            for size in sizes
            for repetition in benchmark.repetitions
        ]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        workload = Workload()
        with open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS)) as spark:
            for size in dict.fromkeys(int(case["state_mb"]) for case in missing):
                stopped = Stopped(benchmark, spark, workload, size)
                for case in missing:
                    if case["state_mb"] == size:
                        measured = stopped.measure(int(case["repetition"]))
                        benchmark.record(spark, case, asdict(workload), measured)
                remove_folder(stopped.folder)


class Stopped:
    """The rows of a query, and its checkpoint with all of them.

    Args:
        benchmark: that runs.
        spark: the session.
        workload: what the query keeps.
        state_mb: size of its state.
    """

    def __init__(
        self, benchmark: Benchmark, spark: SparkSession, workload: Workload, state_mb: int
    ) -> None:
        self._spark = spark
        self._workload = workload
        self.folder = make_folder(benchmark.work, f"state-{state_mb}")
        keys = state_mb * 1_000_000 // workload.value_bytes
        self._write_rows(keys)
        self._read_all(self.folder / "checkpoint", workload.before)

    def measure(self, repetition: int) -> dict[str, Any]:
        """Seconds of both ways, in an order that alternates, and the state's size on disk."""
        ways = {REPARTITION: self._repartition, REREAD: self._reread}
        measured = {way: ways[way]() for way in alternate(repetition, *ways)}
        state = self.folder / "checkpoint" / "state"
        size = sum(file.stat().st_size for file in state.rglob("*") if file.is_file())
        return {**measured, "disk_mb": round(size / 1e6, 1)}

    def _write_rows(self, keys: int) -> None:
        """Rows of all keys, then newer ones of all keys, and so on; the text repeats hardly."""
        workload = self._workload
        digests = -(-workload.value_bytes // 128)
        id_ = F.col("id").cast("string")
        text = F.concat(*(F.sha2(F.concat(F.lit(f"{n} "), id_), 512) for n in range(digests)))
        self._spark.range(keys * workload.rows_per_key).select(
            (F.col("id") % keys).alias("key"),
            F.col("id").alias("number"),
            F.substring(text, 1, workload.value_bytes).alias("text"),
        ).write.parquet(str(self.folder / "rows"))

    def _reread(self) -> float:
        """Seconds until a new checkpoint holds all rows."""
        checkpoint = make_folder(self.folder, "reread")
        begun_s = time.monotonic()
        self._read_all(checkpoint, self._workload.after)
        seconds = time.monotonic() - begun_s
        remove_folder(checkpoint)
        return round(seconds, 2)

    def _read_all(self, checkpoint: Path, partitions: int) -> None:
        self._spark.conf.set(SHUFFLE_PARTITIONS, partitions)
        rows = self._spark.readStream.schema("key long, number long, text string")
        newest = F.max(F.struct("number", "text")).alias("newest")
        query = (
            rows.parquet(str(self.folder / "rows"))
            .groupBy("key")
            .agg(newest)
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _repartition(self) -> float:
        """Seconds of the command on a copy of the checkpoint."""
        copy = make_folder(self.folder, "copy") / "checkpoint"
        shutil.copytree(self.folder / "checkpoint", copy)
        command = [sys.executable, "-m", "balancedstream.cli", "repartition", str(copy)]
        command += ["--partitions", str(self._workload.after)]
        environment: Mapping[str, str] = {
            **os.environ,
            "SPARK_DRIVER_MEMORY": self._workload.driver_memory,
        }
        begun_s = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - begun_s
        if done.returncode:
            message = f"repartition ended with {done.returncode}: {done.stderr[-1000:]}"
            raise MeasurementError(message)
        remove_folder(copy.parent)
        return round(seconds, 2)


if __name__ == "__main__":
    run(main)
