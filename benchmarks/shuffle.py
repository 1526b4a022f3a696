"""The cost-aware shuffle beside round robin, chance, and a scheduler that knows every cost.

On Spark: a stream whose rows cost what their item says, on five executors. The function waits as a
call to an outside service would. Round robin is Spark's own `repartition`. The others route through
the same UDF as ours: random follows from a hash of the row, and all-knowing is given true costs for
what is known.

`--overhead` times what measuring adds to a function that does nothing. `--simulate` does without
Spark, see `shuffle_simulation.py`: a line of its results is one case with all its repetitions, for
a run takes a moment.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import shuffle_simulation as simulation
from harness import (
    REPOSITORY,
    Benchmark,
    Case,
    alternate,
    await_progress,
    describe_code,
    draw_rank,
    draw_uniform,
    open_session,
    prepare,
    read_rows,
    remove_folder,
    run,
    start_query,
    use_own_workers,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from shuffle_simulation import EXECUTORS, ITEMS, simulate

import balancedstream
from balancedstream.core.costs import LearntCosts
from balancedstream.core.observations import ShuffleRecord
from balancedstream.core.sketches import CostSketch
from balancedstream.engine.session import LocalExecutors
from balancedstream.shuffling.collecting import watch
from balancedstream.shuffling.folders import CostFolder
from balancedstream.shuffling.joining import ARROW, join_outputs, make_pandas_form
from balancedstream.shuffling.routing import ROUTED, make_router
from balancedstream.shuffling.sketching import SketchFiller
from balancedstream.shuffling.timing import (
    FunctionMeter,
    HiddenColumns,
    Piece,
    cut_arrow,
    cut_pandas,
)

ZIPF = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
COSTS = ("independent", "frequent dear", "frequent cheap", "constant")
CHANGED_ZIPF = (0.0, 1.0, 2.0)
"""Where an executor becomes slow, or costs shift."""
LONG_WARM_UP: Case = {"zipf": 1.5, "costs": "frequent cheap", "slowed": 0, "warm_up_batches": 128}
"""Where dear items are rare, it takes long until most of them were seen."""

REPETITIONS = 60
FIRST_SEED = 100
"""With those below, the thresholds and the size of the sketch were chosen."""


@dataclass(frozen=True)
class Load:
    """What every arm gets.

    Attributes:
        rows_per_batch: rows in every batch.
        batches: that are measured.
        warm_up_batches: before them; costs are learnt meanwhile.
        least_ms: what the cheapest item costs.
        most_ms: what the dearest item costs.
    """

    rows_per_batch: int = 400
    batches: int = 8
    warm_up_batches: int = 4
    least_ms: int = 1
    most_ms: int = 64


PIECES = 10_000
"""What measuring costs is timed with so many pieces."""

LONG_LOAD = Load(batches=5, warm_up_batches=3)
LONG_RUN_LOAD = Load(batches=8, warm_up_batches=12)
EVEN_ITEMS_LOAD = Load(batches=8, warm_up_batches=24)
"""Where items are nearly as frequent as each other: they were seen two or three times each."""

SHORT_BATCHES_LOAD = Load(batches=24, warm_up_batches=24)
RARE_ITEMS_LOAD = Load(batches=24, warm_up_batches=328)
"""Where dear items are rare: 131,200 rows have been when it is measured."""

WARM_UP_LOAD = Load(rows_per_batch=4000, batches=96, warm_up_batches=0, least_ms=0, most_ms=0)
SMOKE_LOAD = Load(rows_per_batch=100, batches=2, warm_up_batches=3)
ARMS: tuple[str, ...] = ("random", "round robin", "ours", "all-knowing")
"""Those that are compared most closely run one after the other."""

EVEN_REPETITIONS = 6
"""Queries of a session become faster one after another, by up to a tenth where batches take 0.4 s.
So each of two arms runs before the other as often as after it."""

BRIEFEST = (1.5, "frequent cheap")
BRIEFEST_CASE: Case = {"zipf": BRIEFEST[0], "costs": BRIEFEST[1]}
RARE_ITEMS_CASE: Case = {
    **BRIEFEST_CASE,
    "rows_per_batch": RARE_ITEMS_LOAD.rows_per_batch,
    "warm_up_batches": RARE_ITEMS_LOAD.warm_up_batches,
}
BRIEFEST_REPETITIONS = 12
"""In batches of a third of a second chance is a tenth: more of them are compared."""

SPARK_CASES = (
    (0.0, "independent"),
    (0.5, "independent"),
    (1.0, "independent"),
    (2.0, "independent"),
    (3.0, "independent"),
    (1.0, "constant"),
    (1.0, "frequent dear"),
    BRIEFEST,
)
"""Uniform to very uneven, and all ways in which costs may follow; all of both are simulated."""

WARM_UP: Case = {"zipf": 1.0, "costs": "constant", "repetition": 0}
COMPARED_ARMS = ("round robin", "ours")
KNOWING_ARMS = (*COMPARED_ARMS, "all-knowing")
LONG_CASES = (
    (1.0, "constant", 800, LONG_LOAD, COMPARED_ARMS),
    (0.0, "independent", 800, LONG_LOAD, COMPARED_ARMS),
    (1.5, "frequent cheap", 6400, LONG_LOAD, COMPARED_ARMS),
    (1.0, "constant", 400, LONG_RUN_LOAD, COMPARED_ARMS),
    (0.0, "independent", 400, LONG_RUN_LOAD, COMPARED_ARMS),
    (0.5, "independent", 400, EVEN_ITEMS_LOAD, KNOWING_ARMS),
    (1.5, "frequent cheap", 400, SHORT_BATCHES_LOAD, COMPARED_ARMS),
)
"""Where routing may cost more than it brings, in batches of 3 to 6 s; and longer runs."""


@dataclass(frozen=True)
class TrueCosts:
    """What all batches are routed by where every cost is known: a source as `folders` has them.

    It is read from a file, as ours are: a function that holds it is sent to every task anew.
    """

    folder: str

    def find_costs(self) -> LearntCosts | None:
        return CostFolder(Path(self.folder)).newest()


class Bench:
    """A session in which one query after the other is measured."""

    def __init__(self, benchmark: Benchmark, spark: SparkSession, load: Load) -> None:
        self._work = benchmark.work
        self._spark = spark
        self._load = load

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
        told: list[ShuffleRecord] = []
        stop = watch(told.append)
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
            batches = await_progress(query, self._load.warm_up_batches, self._load.batches)
        finally:
            query.stop()
            stop()
            remove_folder(checkpoint)
        measured: dict[str, Any] = {
            "batch_s": [batch["durationMs"]["triggerExecution"] / 1000 for batch in batches]
        }
        if arm == "ours":
            numbers = {batch["batchId"] for batch in batches}
            own = [batch for batch in told if batch.batch in numbers]
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
            router = make_router(TrueCosts(str(folder)), EXECUTORS)
            udf = F.arrow_udf(router, ROUTED).asNondeterministic()
            routed = rows.withColumn("route", udf(F.xxhash64("item"), mark, F.xxhash64("value")))
            routed = routed.withColumn("route", F.col("route")["partition"])
        return routed.repartitionById(EXECUTORS, "route").drop("route")

    def _know(self, case: Case) -> LearntCosts:
        """A sketch so wide that hardly two items share a cell."""
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
        levels = self._load.most_ms - self._load.least_ms + 1
        if case["costs"] == "constant":
            return [(self._load.least_ms + self._load.most_ms) // 2] * ITEMS
        # Item 0 is the most frequent one.
        rank = np.arange(ITEMS)
        if case["costs"] == "independent":
            rank = np.random.default_rng(int(case["repetition"])).permutation(ITEMS)
        elif case["costs"] == "frequent dear":
            rank = rank[::-1]
        return (self._load.least_ms + rank * levels // ITEMS).tolist()

    def _draw_rows(self, case: Case) -> DataFrame:
        """Rows whose items follow Zipf's law, drawn by Spark alone."""
        drawn = draw_uniform(int(case["repetition"]))
        rows = read_rows(self._spark, self._load.rows_per_batch).select("value")
        # Spark hashes an int unlike a long, and the all-knowing arm knows items as longs.
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
        load = SMOKE_LOAD if benchmark.smoke else Load()
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
                own, arms = find_load(case) or (load, ARMS)
                measured = Bench(benchmark, spark, own).measure(case, arms)
                benchmark.record(spark, case, asdict(own), measured)
                batch_s = {arm: median(measured[arm]["batch_s"]) for arm in arms}
                benchmark.tell(", ".join(f"{arm} {each:.2f} s" for arm, each in batch_s.items()))


def warm_up(benchmark: Benchmark, spark: SparkSession) -> None:
    """Runs round robin and ours until Java has compiled both; the other arms do what ours does.

    Each batch has two map tasks, on two of five executors, so it takes many batches. The first
    queries of a session are slow, and the more so the more they do.
    """
    load = SMOKE_LOAD if benchmark.smoke else WARM_UP_LOAD
    for arm in COMPARED_ARMS:
        Bench(benchmark, spark, load).run_arm(WARM_UP, arm)


def find_load(case: Case) -> tuple[Load, tuple[str, ...]] | None:
    """The load of one of `LONG_CASES` or the like, and its arms; None for another case."""
    if "warm_up_batches" in case:
        return RARE_ITEMS_LOAD, KNOWING_ARMS
    for zipf, costs, rows, load, arms in LONG_CASES:
        if (zipf, costs, rows) == (case["zipf"], case["costs"], case.get("rows_per_batch")):
            return replace(load, rows_per_batch=rows), arms
    return None


def list_simulated(*, smoke: bool) -> list[Case]:
    """All combinations; something changes in a few of them."""
    if smoke:
        return [{"zipf": 1.0, "costs": "independent", "slowed": slowed} for slowed in (0, 1)]
    cases: list[Case] = [{"zipf": z, "costs": c, "slowed": 0} for z in ZIPF for c in COSTS]
    cases += [{"zipf": z, "costs": "shifting", "slowed": 0} for z in CHANGED_ZIPF]
    cases += [{"zipf": z, "costs": "independent", "slowed": 1} for z in CHANGED_ZIPF]
    return [*cases, LONG_WARM_UP]


def simulate_cases(
    benchmark: Benchmark, setting: simulation.Setting, repetitions: int, workers: Executor
) -> None:
    """Simulates the cases that have no result yet."""
    settings = {
        "executors": EXECUTORS,
        "items": ITEMS,
        "repetitions": repetitions,
        "first_seed": FIRST_SEED,
    }
    seeds = range(FIRST_SEED, FIRST_SEED + repetitions)
    for case in benchmark.find_missing(list_simulated(smoke=benchmark.smoke)):
        warm_up = int(case.get("warm_up_batches", setting.warm_up_batches))
        batches = setting.batches - setting.warm_up_batches + warm_up
        own = replace(setting, warm_up_batches=warm_up, batches=batches)
        runs = list(workers.map(partial(simulate, case, own), seeds))
        measured = simulation.summarize(runs, own)
        benchmark.record(None, case, asdict(own) | settings, measured)
        benchmark.tell(simulation.describe(case, measured))


def simulate_all() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--simulate", action="store_true", help="without Spark")
    parser.add_argument(
        "--smoke", action="store_true", help="two small cases, to see that it works"
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="runs of each case")
    parser.add_argument("--out", type=Path, metavar="FILE", help="for the results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shuffle-") as work:
        folder = Path(work) if options.smoke else REPOSITORY / "benchmarks" / "results"
        results = options.out or folder / "shuffle_simulated.jsonl"
        name = "shuffle, simulated"
        benchmark = Benchmark(name, Path(work), results, options.smoke, describe_code())
        setting, repetitions = (
            (simulation.SMOKE, 2) if options.smoke else (simulation.Setting(), options.repetitions)
        )
        with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as workers:
            simulate_cases(benchmark, setting, repetitions, workers)


def measure_overhead() -> None:
    """What a piece of one row costs to cut, measure and join.

    The function does nothing, and all items are distinct.
    """
    file = REPOSITORY / "benchmarks" / "results" / "shuffle_overhead.jsonl"
    benchmark = Benchmark("shuffle, overhead", file.parent, file, smoke=False, code=describe_code())
    chance = np.random.default_rng(1)
    columns: dict[str, Any] = {
        "item": chance.integers(0, 2**60, PIECES),
        "estimated_s": chance.random(PIECES),
        "number": np.arange(PIECES),
        "text": [f"text {n}" for n in range(PIECES)],
    }
    frame = pd.DataFrame(columns)
    batch = pa.RecordBatch.from_pandas(frame)
    pieces = [Piece(item, 1, 0.001, None) for item in columns["item"]]
    hidden = HiddenColumns("item", "estimated_s")
    ways: dict[str, tuple[Callable[[], list[Piece[Any]]], Callable[[Any], Iterator[Any]]]] = {
        "pandas": (
            lambda: cut_pandas(frame, hidden),
            partial(join_outputs, form=make_pandas_form()),
        ),
        "Arrow": (lambda: cut_arrow(batch, hidden), partial(join_outputs, form=ARROW)),
        "rows": (lambda: pieces, iter),
    }
    cases: list[Case] = [{"way": way, "repetition": n} for way in ways for n in range(1, 6)]
    for case in benchmark.find_missing(cases):
        # The first pass is slower, whatever it does.
        for _ in range(2):
            meter = FunctionMeter[Any, Any]("f", CostSketch(0.001, 0.1, seed=0))
            began_s = time.perf_counter()
            cut, join = ways[str(case["way"])]
            for _ in join(meter.run(iter, (cut() for _ in range(1)))):
                pass
            meter.summarize()
            piece_us = (time.perf_counter() - began_s) / PIECES * 1e6
        benchmark.record(None, case, {"pieces": PIECES}, {"piece_us": round(piece_us, 2)})


def main() -> None:
    if "--simulate" in sys.argv:
        simulate_all()
    elif "--overhead" in sys.argv:
        measure_overhead()
    else:
        measure_on_spark()


if __name__ == "__main__":
    run(main)
