"""An attached but idle loop on four executors, beside the same query without it.

Uniform keys, so nothing is moved: what is left is the cost of being attached. One query runs in
alternating blocks of batches, with the loop and without any listener, as in the idle case of
`placement.py`; here with short batches, where a fixed cost shows most, and with long ones.
"""

from __future__ import annotations

from dataclasses import asdict

from harness.benchmark import Benchmark, prepare, run
from harness.results import Case
from harness.sessions import open_session
from placement import EXECUTORS, SMOKE, PlacementRunner, Workload

from balancedstream.engine.session.local import LocalExecutors

WORKLOADS = {
    "short": Workload(
        partitions=2 * EXECUTORS, rows_per_batch=200, idle_batches=24, settle_batches=10
    ),
    "long": Workload(rows_per_batch=4800),
}
"""Batches of about 0.3 s and of about 2.5 s."""

WARM_UP_BATCHES = 40
"""Short ones: until compiled code makes them no shorter."""


def choose_workloads(benchmark: Benchmark) -> dict[str, Workload]:
    """The workloads by the length of their batches."""
    return {"short": SMOKE} if benchmark.smoke else WORKLOADS


def find_missing(benchmark: Benchmark) -> list[Case]:
    """The cases that have no result yet."""
    return benchmark.find_missing(
        [
            {"batches": batches, "repetition": repetition}
            for repetition in benchmark.repetitions
            for batches in choose_workloads(benchmark)
        ]
    )


def main() -> None:
    with prepare("idle", __doc__ or "") as benchmark:
        workloads = choose_workloads(benchmark)
        missing = find_missing(benchmark)
        if not missing:
            return
        with open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS)) as spark:
            runner = PlacementRunner(benchmark.work, spark, workloads["short"])
            warm_up_batches = 2 if benchmark.smoke else WARM_UP_BATCHES
            runner.warm_up(runner.count_rows(0.0, 0), warm_up_batches)
            for case in missing:
                workload = workloads[str(case["batches"])]
                measured = runner.under(workload).measure_idle(int(case["repetition"]))
                benchmark.record(spark, case, asdict(workload), measured)


if __name__ == "__main__":
    run(main)
