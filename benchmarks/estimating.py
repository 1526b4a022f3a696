"""How near `balancedstream estimate` comes to what balancing does.

Each run is a pair: the same rows, once with Spark alone and once balanced, in the same session one
after the other, with Spark's event log on. The estimate is made from the log of Spark alone, and
compared with the batches of the balanced query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.arms import ArmRunner
from harness.benchmark import MeasurementError, prepare, run
from harness.results import Case
from harness.rows import (
    count_keys,
    draw_rank,
    draw_uniform,
    read_rows,
    send_to_state,
    wait_in_place,
)
from harness.sessions import open_session
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from balancedstream.core.estimates.application import QueryEstimate
from balancedstream.core.policy import Policy
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.estimate.files import find_event_log
from balancedstream.estimate.reading import read_log

KINDS = ("aggregation", "deduplication", "join", "even", "hot")
"""Skewed keys in three operators; even keys; and one key with most of the rows."""

ARMS = ("vanilla", "balanced")
HOT_SHARE = 0.6
S = 1.2
EVERY_RIGHT = 400
"""Of so many rows, one is in the right stream of the join, too."""


@dataclass(frozen=True)
class Workload:
    """What both arms get.

    Attributes:
        executors: with one core each.
        partitions: eight state partitions an executor.
        keys: distinct keys.
        rows_per_batch: rows in every batch.
        wait_ms: how long the stateful task waits for each row.
        batches: of each arm.
        settled: the last so many batches of the balanced arm have its moves behind them.
    """

    executors: int = 4
    partitions: int = 32
    keys: int = 200
    rows_per_batch: int = 4000
    wait_ms: int = 2
    batches: int = 14
    settled: int = 6


SMOKE = Workload(executors=3, partitions=12, rows_per_batch=600, wait_ms=5, batches=9, settled=4)
WARM_UP_BATCHES = 2


def main() -> None:
    with prepare("estimating", __doc__ or "") as benchmark:
        workload = SMOKE if benchmark.smoke else Workload()
        cases: list[Case] = [
            {"kind": kind, "repetition": repetition}
            for repetition in benchmark.repetitions
            for kind in KINDS
        ]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        logs = benchmark.work / "event-logs"
        logs.mkdir(parents=True, exist_ok=True)
        settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": logs.as_uri()}
        executors = LocalExecutors(workload.executors, workload.executors)
        with open_session(benchmark, executors, settings) as spark:
            runner = EstimatingRunner(benchmark.work, spark, workload)
            runner.warm_up(runner.build("even", 0), WARM_UP_BATCHES)
            log = logs / f"eventlog_v2_{spark.sparkContext.applicationId}"
            for case in missing:
                measured = runner.measure_pair(str(case["kind"]), int(case["repetition"]), log)
                benchmark.record(spark, case, asdict(workload), measured)


class EstimatingRunner(ArmRunner[Workload]):
    """Runs pairs, and estimates each from the log of the arm without balancing."""

    def measure_pair(self, kind: str, repetition: int, log: Path) -> dict[str, Any]:
        """The same rows with Spark alone and balanced, and the estimate from the first."""

        def run_arm(arm: str) -> dict[str, Any]:
            name = f"{arm}-{kind}-{repetition}"
            finished = self.run_query(self.build(kind, repetition), name, self._workload.batches)
            return {"batch_s": [event.sample.duration_s for event in finished]}

        arms, _ = self.run_in_turns(repetition, ARMS, run_arm)
        estimate = read_estimate(log, f"vanilla-{kind}-{repetition}")
        return {"order": list(arms), **arms, "estimate": describe(estimate, self._workload, arms)}

    def build(self, kind: str, seed: int) -> DataFrame:
        """The stream of a kind; the seed decides which partition a key falls into."""
        workload = self._workload
        drawn = draw_uniform(seed)
        s = 0.0 if kind in {"even", "hot"} else S
        rank = draw_rank(drawn, s, workload.keys)
        if kind == "hot":
            rank = F.when(drawn < HOT_SHARE, F.lit(0)).otherwise(rank)
        rows = self._read(rank, seed)
        waited = wait_in_place(send_to_state(rows, workload.partitions), workload.wait_ms)
        if kind == "deduplication":
            # Another column would shuffle the rows again, away from where they waited.
            return waited.dropDuplicates(["key"])
        if kind == "join":
            right = self._read(rank, seed).where(F.col("value") % EVERY_RIGHT == 0)
            return waited.join(right.select("key", F.col("value").alias("other")), "key")
        return count_keys(waited)

    def _read(self, rank: Column, seed: int) -> DataFrame:
        rows = read_rows(self._spark, self._workload.rows_per_batch)
        return rows.select(F.xxhash64(rank, F.lit(seed)).alias("key"), "value")


def read_estimate(log: Path, query: str) -> QueryEstimate:
    """What the log says of a query.

    Raises:
        MeasurementError: it says nothing.
    """
    found = read_log(find_event_log(log), Policy()).application.queries
    for label, estimate in found.items():
        if label == query or label.startswith(f"{query} ("):
            return estimate
    message = f"the log has no query {query}, only {', '.join(found)}"
    raise MeasurementError(message)


def describe(
    estimate: QueryEstimate, workload: Workload, arms: Mapping[str, Mapping[str, Sequence[float]]]
) -> dict[str, Any]:
    """The estimate, and how far it is from what balancing did."""
    spread = estimate.spread
    before_s = fmean(arms["vanilla"]["batch_s"][1:])
    after_s = fmean(arms["balanced"]["batch_s"][-workload.settled :])
    foretold_s = spread.balanced_batch_s or before_s
    return {
        "imbalance": spread.imbalance,
        "bound": spread.bound,
        "batch_s": round(before_s, 3),
        "foretold_s": round(foretold_s, 3),
        "balanced_s": round(after_s, 3),
        "error": round(foretold_s / after_s - 1.0, 4),
        "moves": estimate.moves,
    }


if __name__ == "__main__":
    run(main)
