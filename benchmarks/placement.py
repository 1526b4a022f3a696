"""Skewed keys on four executors: Spark alone against Spark balanced, and what being attached costs.

Each run is a pair: the same rows, once with Spark alone and once balanced, in the same session one
after the other. The keys are uniform for a few batches, so that both arms begin with a placement
that knows nothing of what follows; then a hot set appears (Zipf's law), and then another one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from harness.arms import ArmRunner
from harness.benchmark import alternate, prepare, run
from harness.measuring import await_progress, balancing, measure_balance
from harness.results import Case
from harness.rows import count_keys, draw_rank, draw_uniform, read_rows, wait_per_row
from harness.sessions import open_session
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from balancedstream.engine.session.local import LocalExecutors

EXPONENTS = (0.0, 0.8, 1.0, 1.2, 1.5)
EXECUTORS = 4
ARMS = ("vanilla", "balanced")


@dataclass(frozen=True)
class Workload:
    """What both arms get.

    Attributes:
        partitions: eight state partitions an executor.
        keys: distinct keys; the hottest of 200 has 17 % of the rows at s = 1.
        rows_per_batch: rows in every batch.
        wait_ms: how long the stateful task waits for each row.
        uniform_batches: batches before the hot set appears.
        first_batches: batches of the first hot set.
        second_batches: batches of the second, which has no hot key in common with the first.
        idle_batches: batches in each of the four blocks of an idle run.
        settle_batches: batches before each block, which do not count: to attach costs more than to
            be attached.
    """

    partitions: int = 8 * EXECUTORS
    keys: int = 200
    rows_per_batch: int = 4000
    wait_ms: int = 2
    uniform_batches: int = 2
    first_batches: int = 7
    second_batches: int = 8
    idle_batches: int = 6
    settle_batches: int = 2

    @property
    def batches(self) -> int:
        return self.uniform_batches + self.first_batches + self.second_batches


WARM_UP_BATCHES = 3

SMOKE = Workload(rows_per_batch=800, first_batches=2, second_batches=2, idle_batches=1)


def main() -> None:
    with prepare("placement", __doc__ or "") as benchmark:
        exponents = (1.0,) if benchmark.smoke else EXPONENTS
        workload = SMOKE if benchmark.smoke else Workload()
        cases: list[Case] = []
        for repetition in benchmark.repetitions:
            cases += [{"s": s, "repetition": repetition} for s in exponents]
            cases += [{"idle": "yes", "repetition": repetition}]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        with open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS)) as spark:
            runner = PlacementRunner(benchmark.work, spark, workload)
            runner.warm_up(runner.count_rows(0.0, 0), WARM_UP_BATCHES)
            for case in missing:
                repetition = int(case["repetition"])
                if "idle" in case:
                    measured = runner.measure_idle(repetition)
                else:
                    measured = runner.measure_pair(float(case["s"]), repetition)
                benchmark.record(spark, case, asdict(workload), measured)


class PlacementRunner(ArmRunner[Workload]):
    """Measures Spark alone beside Spark balanced, and what being attached costs."""

    def measure_pair(self, s: float, repetition: int) -> dict[str, Any]:
        """The same rows with Spark alone and balanced; every other time the other way round."""
        arms, histories = self.run_in_turns(
            repetition, ARMS, lambda arm: self._run_arm(arm, s, repetition)
        )
        for arm, history in histories.items():
            arms[arm]["moves"] = history.totals.moves
        return {"order": list(arms), **arms}

    def measure_idle(self, repetition: int) -> dict[str, Any]:
        """Batch times of one query over uniform keys, with us and without, in alternating blocks.

        Spark times the batches (`StreamingQueryProgress`): in the blocks called `alone` there is
        not even a listener.
        """
        context: Any = self._spark.sparkContext._jsc.sc()
        listener = self._engine.capabilities.listener
        batch_s: dict[str, list[float]] = {"attached": [], "alone": []}
        moves = 0
        context.removeSparkListener(listener)
        query = self.start(self.count_rows(0.0, repetition), f"idle-{repetition}")
        try:
            take_batches(query, self._workload.uniform_batches)
            there_and_back = alternate(repetition, "attached", "alone")
            for block in there_and_back + there_and_back[::-1]:
                if block == "alone":
                    batch_s[block] += self._take_block(query)
                    continue
                context.addSparkListener(listener)
                with balancing(self._engine) as history:
                    batch_s[block] += self._take_block(query)
                moves += history.totals.moves
                context.removeSparkListener(listener)
        finally:
            query.stop()
            context.addSparkListener(listener)
        return {**batch_s, "moves": moves}

    def _take_block(self, query: StreamingQuery) -> list[float]:
        """The batch times of a block of an idle run."""
        take_batches(query, self._workload.settle_batches)
        return take_batches(query, self._workload.idle_batches)

    def _run_arm(self, arm: str, s: float, repetition: int) -> dict[str, Any]:
        """Runs one query from its beginning; gives one figure a batch of each kind."""
        states = self.count_rows(s, repetition)
        finished = self.run_query(states, f"{arm}-{s}-{repetition}", self._workload.batches)
        balance = [measure_balance(event, self._engine.executors()) for event in finished]
        return {
            "batch_s": [event.sample.duration_s for event in finished],
            "busy_s": [round(sum(task.busy_s for task in event.tasks), 3) for event in finished],
            "imbalance": [round(measured.imbalance, 4) for measured in balance],
            "bound": [round(measured.bound, 4) for measured in balance],
            "handoffs": [event.moved_partitions for event in finished],
        }

    def count_rows(self, s: float, seed: int) -> DataFrame:
        """The rows of each key so far, after a wait for each row."""
        rows = self._draw_rows(s, seed)
        return count_keys(wait_per_row(rows, self._workload.partitions, self._workload.wait_ms))

    def _draw_rows(self, s: float, seed: int) -> DataFrame:
        """Rows with a `key`: uniform at first, then Zipf-distributed, then with others hot.

        The seed also decides which partition a key falls into, so that no repetition is like
        another.
        """
        workload = self._workload
        batch = F.floor(F.col("value") / workload.rows_per_batch)
        drawn = draw_uniform(seed)
        rank = F.when(batch < workload.uniform_batches, F.floor(drawn * workload.keys)).otherwise(
            draw_rank(drawn, s, workload.keys)
        )
        shifted = batch >= workload.uniform_batches + workload.first_batches
        place = F.pmod(
            rank + F.when(shifted, workload.keys // 2).otherwise(0), F.lit(workload.keys)
        )
        rows = read_rows(self._spark, workload.rows_per_batch)
        return rows.select(F.xxhash64(place, F.lit(seed)).alias("key"))


def take_batches(query: StreamingQuery, count: int) -> list[float]:
    """Seconds of the next batches; the one under way is left out."""
    progress = await_progress(query, 1, count)
    return [batch["durationMs"]["triggerExecution"] / 1000 for batch in progress]


if __name__ == "__main__":
    run(main)
