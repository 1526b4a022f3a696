"""The cost-aware shuffle beside round robin, chance, and a scheduler that knows every cost.

On Spark: a stream whose rows cost what their item says, on five executors. The function waits as a
call to an outside service would. Round robin is Spark's own `repartition`. The others route through
the same UDF as ours: random follows from a hash of the row, and all-knowing is given true costs for
what is known.

`--overhead` times what measuring adds to a function that does nothing. `--simulate` does without
Spark, see `shuffle_simulation`: a line of its results is one case with all its repetitions, because
a run takes a moment.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from harness.benchmark import Benchmark, alternate, prepare, remove_folder, run
from harness.measuring import await_progress
from harness.results import Case
from harness.rows import draw_rank, draw_uniform, read_rows, start_query
from harness.sessions import open_session, use_own_workers
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from shuffle_cases import (
    ARMS,
    BRIEFEST_CASE,
    BRIEFEST_REPETITIONS,
    COMPARED_ARMS,
    EVEN_REPETITIONS,
    LONG_CASES,
    RARE_ITEMS_CASE,
    SMOKE,
    SPARK_CASES,
    WARM_UP,
    WARM_UP_WORKLOAD,
    Workload,
    find_workload,
)
from shuffle_overhead import measure_overhead
from shuffle_simulation.cases import simulate_all
from shuffle_simulation.rows import EXECUTORS, ITEMS

import balancedstream
from balancedstream.core.samples import ShuffleRecord
from balancedstream.core.shuffle.costs import LearntCosts
from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.shuffling.collecting import watch
from balancedstream.shuffling.folders import CostFolder
from balancedstream.shuffling.routing import ROUTED, make_router
from balancedstream.shuffling.sketching import SketchFiller


@dataclass(frozen=True)
class TrueCosts:
    """Routes all batches by known costs: a source as `folders` has them.

    It is read from a file, as learnt costs are: otherwise it would be sent to every task.
    """

    folder: str

    def find_costs(self) -> LearntCosts | None:
        return CostFolder(Path(self.folder)).newest()


class ShuffleRunner:
    """A session in which one query after the other is measured."""

    def __init__(self, benchmark: Benchmark, spark: SparkSession, workload: Workload) -> None:
        self._work = benchmark.work
        self._spark = spark
        self._workload = workload

    def measure(self, case: Case, arms: Sequence[str]) -> dict[str, Any]:
        """The same rows in every arm."""
        measured: dict[str, Any] = {"order": [*alternate(int(case["repetition"]), *arms)]}
        for arm in measured["order"]:
            measured[arm] = self.run_arm(case, arm)
        return measured

    def run_arm(self, case: Case, arm: str) -> dict[str, Any]:
        """Runs one query from its beginning."""
        work = partial(wait_for_rows, cost_ms=self._cost_ms(case))
        use_own_workers(self._spark, arm)
        rows = self._draw_rows(case)
        records: list[ShuffleRecord] = []
        stop = watch(records.append)
        name = "-".join([arm, *map(str, case.values())]).replace(" ", "_")
        checkpoint = self._work / name
        if arm == "ours":
            shuffled = balancedstream.shuffle(
                rows, cost_key="item", partitions=EXECUTORS, folder=str(self._work / "costs")
            )
            worked = shuffled.mapInArrow(work, rows.schema)
        else:
            worked = self._send(rows, arm, case).mapInArrow(work, rows.schema)
        query = start_query(worked, name, checkpoint)
        try:
            batches = await_progress(query, self._workload.warm_up_batches, self._workload.batches)
        finally:
            query.stop()
            stop()
            remove_folder(checkpoint)
        measured: dict[str, Any] = {
            "batch_s": [batch["durationMs"]["triggerExecution"] / 1000 for batch in batches]
        }
        if arm == "ours":
            numbers = {batch["batchId"] for batch in batches}
            own = [batch for batch in records if batch.batch in numbers]
            measured["by_estimates"] = [batch.by_estimates for batch in own]
            measured["error"] = [batch.error for batch in own]
            measured["imbalance"] = [batch.imbalance() for batch in own]
        return measured

    def _send(self, rows: DataFrame, arm: str, case: Case) -> DataFrame:
        if arm == "round robin":
            return rows.repartition(EXECUTORS)
        mark = F.xxhash64("value", F.lit(7))
        if arm == "random":
            routed = rows.withColumn("route", F.pmod(mark, F.lit(EXECUTORS)).cast("int"))
        else:
            folder = self._work / "true-costs"
            CostFolder(folder).publish(self._know(case))
            router = make_router(TrueCosts(str(folder)).find_costs, EXECUTORS)
            udf = F.arrow_udf(router, ROUTED).asNondeterministic()
            routed = rows.withColumn("route", udf(F.xxhash64("item"), mark, F.xxhash64("value")))
            routed = routed.withColumn("route", F.col("route")["partition"])
        return routed.repartitionById(EXECUTORS, "route").drop("route")

    def _know(self, case: Case) -> LearntCosts:
        """A sketch so wide that items rarely share a cell."""
        filler = SketchFiller(CostSketch(0.0003, 0.1, seed=0))
        items = self._spark.range(ITEMS).select("id", F.xxhash64("id").alias("item")).collect()
        cost_ms = self._cost_ms(case)
        filler.update(
            np.array([row["item"] for row in items]),
            np.array([cost_ms[row["id"]] / 1000 for row in items]),
            np.ones(ITEMS, np.int64),
        )
        sketch = filler.make_sketch()
        return LearntCosts(0, 1, None, sketch, trusted=True, reason="every cost is known")

    def _cost_ms(self, case: Case) -> list[int]:
        levels = self._workload.max_ms - self._workload.min_ms + 1
        if case["costs"] == "constant":
            return [(self._workload.min_ms + self._workload.max_ms) // 2] * ITEMS
        # Item 0 is the most frequent one.
        rank = np.arange(ITEMS)
        if case["costs"] == "independent":
            rank = np.random.default_rng(int(case["repetition"])).permutation(ITEMS)
        elif case["costs"] == "frequent dear":
            rank = rank[::-1]
        return (self._workload.min_ms + rank * levels // ITEMS).tolist()

    def _draw_rows(self, case: Case) -> DataFrame:
        """Rows whose items follow Zipf's law, drawn by Spark alone."""
        drawn = draw_uniform(int(case["repetition"]))
        rows = read_rows(self._spark, self._workload.rows_per_batch).select("value")
        # Spark hashes an int and a long differently, and the all-knowing arm has items as longs.
        item = draw_rank(drawn, float(case["zipf"]), ITEMS).cast("long")
        return rows.withColumn("item", item)


def wait_for_rows(batches: Iterator[Any], cost_ms: list[int]) -> Iterator[Any]:
    """The function: it waits for each row as long as the row's item costs."""
    for batch in batches:
        for item in batch.column("item").to_pylist():
            time.sleep(cost_ms[item] / 1000)
        yield batch


def measure_on_spark() -> None:
    with prepare("shuffle", __doc__ or "") as benchmark:
        workload = SMOKE if benchmark.smoke else Workload()
        kinds = SPARK_CASES[2:3] if benchmark.smoke else SPARK_CASES
        long_kinds = () if benchmark.smoke else LONG_CASES
        repetitions = benchmark.repetitions if benchmark.smoke else range(1, EVEN_REPETITIONS + 1)
        cases: list[Case] = []
        for repetition in repetitions:
            cases += [{"zipf": z, "costs": c, "repetition": repetition} for z, c in kinds]
            cases += [
                {"zipf": z, "costs": c, "rows_per_batch": rows, "repetition": repetition}
                for z, c, rows, *_ in long_kinds
            ]
            if not benchmark.smoke:
                cases.append({**RARE_ITEMS_CASE, "repetition": repetition})
        more = () if benchmark.smoke else range(EVEN_REPETITIONS + 1, BRIEFEST_REPETITIONS + 1)
        cases += [{**BRIEFEST_CASE, "repetition": each} for each in more]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        with open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS)) as spark:
            warm_up(benchmark, spark)
            for case in missing:
                own, arms = find_workload(case) or (workload, ARMS)
                measured = ShuffleRunner(benchmark, spark, own).measure(case, arms)
                benchmark.record(spark, case, asdict(own), measured)
                batch_s = {arm: median(measured[arm]["batch_s"]) for arm in arms}
                benchmark.tell(", ".join(f"{arm} {each:.2f} s" for arm, each in batch_s.items()))


def warm_up(benchmark: Benchmark, spark: SparkSession) -> None:
    """Runs round robin and ours until Java has compiled both; the other arms do what ours does.

    Each batch has two map tasks, on two of five executors, so it takes many batches. The first
    queries of a session are slow, and the more so the more they do.
    """
    workload = SMOKE if benchmark.smoke else WARM_UP_WORKLOAD
    for arm in COMPARED_ARMS:
        ShuffleRunner(benchmark, spark, workload).run_arm(WARM_UP, arm)


def main() -> None:
    if "--simulate" in sys.argv:
        simulate_all()
    elif "--overhead" in sys.argv:
        measure_overhead()
    else:
        measure_on_spark()


if __name__ == "__main__":
    run(main)
