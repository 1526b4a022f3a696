"""Ten thousand short batches with moves throughout: what the loop and Spark keep does not grow.

One query on two executors. Its hot keys are others every twenty batches, so that partitions move
from the first batches to the last. Memory is what is left after a collection; for the executors,
which keep their state outside of the heap, there is also all that the process holds.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.benchmark import Benchmark, MeasurementError, make_folder, prepare, run
from harness.counting import find_executors, read_held_mib
from harness.measuring import await_that
from harness.rows import count_keys, draw_rank, draw_uniform, read_rows, start_query, wait_per_row
from harness.sessions import open_session
from harness.silent import SilentView
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from balancedstream.engine.session.local import LocalExecutors
from balancedstream.launch.attaching import Attachment, attach
from balancedstream.metrics.exporter import Exporter
from balancedstream.report import render_live_page

EXECUTORS = 2


@dataclass(frozen=True)
class Workload:
    """What runs, and how often it is looked at.

    Attributes:
        partitions: eight state partitions an executor.
        keys: distinct keys.
        s: exponent of Zipf's law.
        rows_per_batch: rows in every batch.
        wait_ms: how long the stateful task waits for each row.
        shift_batches: batches after which other keys are hot.
        batches: of the whole run.
        sample_batches: batches from one look to the next.
    """

    partitions: int = 8 * EXECUTORS
    keys: int = 100
    s: float = 1.2
    rows_per_batch: int = 100
    wait_ms: int = 2
    shift_batches: int = 20
    batches: int = 10_000
    sample_batches: int = 250


SMOKE = Workload(batches=120, sample_batches=30)


def main() -> None:
    with prepare("soak", __doc__ or "") as benchmark:
        workload = SMOKE if benchmark.smoke else Workload()
        missing = benchmark.find_missing([{"home": "embedded", "repetition": 1}])
        if not missing:
            return
        with open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS)) as spark:
            for case in missing:
                measured = soak(benchmark, spark, workload)
                benchmark.record(spark, case, asdict(workload), measured)


def soak(benchmark: Benchmark, spark: SparkSession, workload: Workload) -> dict[str, list[float]]:
    """Runs the batches, and gives each figure at each look.

    Raises:
        MeasurementError: the query or the loop ended, or a batch takes too long.
    """
    exporter = Exporter()
    checkpoint = make_folder(benchmark.work, "soak")
    attachment = attach(spark, open_view=lambda run: SilentView(), metrics=exporter)
    query = start_query(count_keys(draw_rows(spark, workload)), "soak", checkpoint)
    figures: dict[str, list[float]] = defaultdict(list)
    try:
        for batch in range(workload.sample_batches, workload.batches + 1, workload.sample_batches):
            await_batch(query, batch)
            if not attachment.is_balancing:
                message = f"the loop ended before batch {batch}"
                raise MeasurementError(message)
            looked = {"batches": batch, **look(spark, attachment, exporter, checkpoint)}
            for name, figure in looked.items():
                figures[name].append(figure)
            benchmark.tell(" ".join(f"{name}={figure}" for name, figure in looked.items()))
    finally:
        query.stop()
        attachment.detach()
    return dict(figures)


def await_batch(query: StreamingQuery, batch: int) -> None:
    """Waits until a batch has ended, however long it takes while one after the other ends."""
    while (ended := read_batch(query)) < batch:
        await_that(lambda ended=ended: read_batch(query) > ended, query)  # type: ignore[misc]


def draw_rows(spark: SparkSession, workload: Workload) -> DataFrame:
    """Rows with a `key` by Zipf's law, with other hot keys every so many batches."""
    rank = draw_rank(draw_uniform(1), workload.s, workload.keys)
    shift = F.floor(F.col("value") / (workload.rows_per_batch * workload.shift_batches))
    key = F.xxhash64(F.pmod(rank + 7 * shift, F.lit(workload.keys)))
    rows = read_rows(spark, workload.rows_per_batch).select(key.alias("key"))
    return wait_per_row(rows, workload.partitions, workload.wait_ms)


def look(
    spark: SparkSession, attachment: Attachment, exporter: Exporter, checkpoint: Path
) -> dict[str, float]:
    """What is kept at present; sizes in MiB and KiB, the largest of all executors."""
    jvm: Any = spark._jvm
    tool = Path(jvm.System.getProperty("java.home")) / "bin" / "jcmd"
    driver = int(jvm.java.lang.ProcessHandle.current().pid())
    executors = find_executors(spark.sparkContext.applicationId)
    return {
        "moves": attachment.history.totals.moves,
        "python_mib": read_held_mib("self"),
        "driver_heap_mib": read_live_mib(tool, driver),
        "executor_heap_mib": max(read_live_mib(tool, executor) for executor in executors),
        "executor_mib": max(read_held_mib(str(executor)) for executor in executors),
        "files": sum(path.is_file() for path in checkpoint.rglob("*")),
        "series": sum(len(family.samples) for family in exporter.collect()),
        "report_kib": round(len(render_live_page(attachment.history)) / 1024, 1),
    }


def read_batch(query: StreamingQuery) -> int:
    """The last batch that ended, counted from 1."""
    progress = query.lastProgress
    return 0 if progress is None else int(progress["batchId"]) + 1


def read_live_mib(tool: Path, process: int) -> float:
    """Bytes of all objects of a JVM that are left after a collection."""
    command = [str(tool), str(process), "GC.class_histogram"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return round(int(listed.strip().rpartition("\n")[2].split()[2]) / 2**20, 1)


if __name__ == "__main__":
    run(main)
