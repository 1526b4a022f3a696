"""Skewed keys where tasks compute and each executor has its own share of CPU, as on a cluster.

Four executors have 0.4 of a core each, by a quota of the operating system; nothing waits or sleeps.
A task computes for each row in the place where its key's state is. Each run is a pair: the same
rows, once with Spark alone and once balanced, in the same session one after the other. Executors
use the quick compiler and the serial collector, so that a quota is not spent on those.

The ideal is computed from each batch of Spark alone: what it would have taken with the same work
spread evenly.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from harness.benchmark import prepare, run
from harness.quotas import QUICK_JVM, limiting_executors
from harness.results import Case
from harness.rows import count_keys, send_to_state
from harness.sessions import open_session
from placement import EXECUTORS, PlacementRunner, Workload
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from balancedstream.engine.session.local import LocalExecutors

EXPONENTS = (0.0, 1.0)
CORES = 0.4
ROUNDS = 40_000
"""Of hashing for each row: about 1.4 ms on a core of its own, so that rows are most of a task."""

WARM_UP_BATCHES = 5

WORKLOAD = Workload(rows_per_batch=4000, wait_ms=0)
SMOKE = replace(WORKLOAD, rows_per_batch=800, first_batches=2, second_batches=2)


def main() -> None:
    with prepare("computing", __doc__ or "") as benchmark:
        exponents = (1.0,) if benchmark.smoke else EXPONENTS
        workload = SMOKE if benchmark.smoke else WORKLOAD
        settings = {
            **asdict(workload),
            "executors": EXECUTORS,
            "cores": CORES,
            "rounds": ROUNDS,
            "spark": QUICK_JVM,
        }
        cases: list[Case] = [
            {"s": s, "repetition": repetition}
            for repetition in benchmark.repetitions
            for s in exponents
        ]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        with open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS), QUICK_JVM) as spark:
            runner = ComputingRunner(benchmark.work, spark, workload)
            with limiting_executors(spark.sparkContext.applicationId, CORES):
                runner.warm_up(runner.count_rows(0.0, 0), WARM_UP_BATCHES)
                for case in missing:
                    repetition = int(case["repetition"])
                    measured = runner.measure_pair(float(case["s"]), repetition)
                    benchmark.record(spark, case, settings, measured)


class ComputingRunner(PlacementRunner):
    """The same streams, whose tasks compute instead of waiting."""

    def count_rows(self, s: float, seed: int) -> DataFrame:
        """The rows of each key so far, after a computation for each row."""
        rows = send_to_state(self._draw_rows(s, seed), self._workload.partitions)
        # A random part keeps Spark from computing before it sends the rows to their tasks. Every
        # row stays: no hash is 0.
        return count_keys(rows.where(hash_often(F.col("key")) + F.rand() != 0))


def hash_often(value: Column) -> Column:
    """A hash of a hash, and so on."""
    rounds = F.sequence(F.lit(1), F.lit(ROUNDS))
    return F.aggregate(rounds, value, lambda found, _: F.xxhash64(found))


if __name__ == "__main__":
    run(main)
