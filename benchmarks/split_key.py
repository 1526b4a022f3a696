"""One key with most of the rows, on four executors: kept whole, reassigned, and split.

The same rows go through the same work, which waits for each row, in three arms: Spark's own
`groupBy(...).transformWithState`; `balanced(...).transformWithState`, which can move the key and
not split it; and `balanced(...).aggregate`, which does the work where the rows are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import hot_keys
from harness.arms import ArmRunner
from harness.benchmark import Benchmark, prepare, run
from harness.results import Case
from harness.rows import draw_uniform, read_rows
from harness.sessions import open_session, use_own_workers
from hot_keys import EXECUTORS
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from balancedstream import Aggregator, balanced
from balancedstream.engine.session.local import LocalExecutors

# Executors have no folder of benchmarks to import its processor from.
register_pickle_by_value(hot_keys)

ARMS = ("vanilla", "balanced", "aggregate")


@dataclass(frozen=True)
class Workload(hot_keys.Workload):
    """What all arms get; `keys` are those besides the hot one.

    Attributes:
        hot_share: how much of the rows the one key has.
    """

    hot_share: float = 0.6


WARM_UP_BATCHES = 2
SMOKE = Workload(rows_per_batch=150, batches=4, measured_batches=1)


class Counter(Aggregator):
    """The same work as `Waiter`'s: counts the rows of a key, and waits for each."""

    state_schema = "rows LONG"
    output_schema = "rows LONG"

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    def zero(self) -> tuple[Any, ...]:
        return (0,)

    def add(self, state: tuple[Any, ...], rows: Sequence[Row]) -> tuple[Any, ...]:
        for _ in rows:
            time.sleep(self._wait_s)
        return (state[0] + len(rows),)

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return (left[0] + right[0],)

    def finish(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        return state


def main() -> None:
    with prepare("split_key", __doc__ or "") as benchmark:
        workload = SMOKE if benchmark.smoke else Workload()
        cases: list[Case] = [{"repetition": repetition} for repetition in benchmark.repetitions]
        missing = benchmark.find_missing(cases)
        if missing:
            measure_all(benchmark, workload, missing)


def measure_all(benchmark: Benchmark, workload: Workload, cases: Sequence[Case]) -> None:
    with open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS)) as spark:
        runner = SplitKeyRunner(benchmark.work, spark, workload)
        runner.warm_up(runner.count_rows("vanilla", 0), WARM_UP_BATCHES)
        for case in cases:
            benchmark.record(spark, case, asdict(workload), runner.measure(int(case["repetition"])))


class SplitKeyRunner(ArmRunner[Workload]):
    """Measures the arms beside each other."""

    def measure(self, repetition: int) -> dict[str, Any]:
        """The same rows in each arm."""
        arms, _ = self.run_in_turns(repetition, ARMS, lambda arm: self._run_arm(arm, repetition))
        return {"order": list(arms), "bound_s": find_bound_s(self._workload), **arms}

    def _run_arm(self, arm: str, repetition: int) -> dict[str, Any]:
        """Runs one query from its beginning; gives one figure a batch of each kind."""
        states = self.count_rows(arm, repetition)
        finished = self.run_query(states, f"{arm}-{repetition}", self._workload.batches)
        return {
            "batch_s": [event.sample.duration_s for event in finished],
            "rows": [event.sample.input_rows for event in finished],
        }

    def count_rows(self, arm: str, seed: int) -> DataFrame:
        """The rows of each key so far, counted as an arm does it."""
        use_own_workers(self._spark, arm)
        rows = self._draw_rows(seed)
        wait_s = self._workload.wait_ms / 1000
        if arm == "aggregate":
            return balanced(rows, "key").aggregate(Counter(wait_s))
        grouped: Any = balanced(rows, "key") if arm == "balanced" else rows.groupBy("key")
        states: DataFrame = grouped.transformWithState(
            hot_keys.Waiter(wait_s), "key LONG, rows LONG", "update", "none"
        )
        return states

    def _draw_rows(self, seed: int) -> DataFrame:
        """Rows with a `key`; the seed also decides which partitions keys fall into."""
        workload = self._workload
        drawn = draw_uniform(seed)
        others = F.floor(drawn * 1_000_000) % workload.keys + 1_000_000
        key = F.when(drawn < workload.hot_share, 1000 * seed).otherwise(others)
        # `aggregate` does the work in the tasks that read the rows.
        rows = read_rows(self._spark, workload.rows_per_batch, input_partitions=EXECUTORS)
        return rows.select(key.cast("long").alias("key"))


def find_bound_s(workload: Workload) -> dict[str, float]:
    """The waiting that no batch can do without: with the key on one executor, and split."""
    work_s = workload.rows_per_batch * workload.wait_ms / 1000
    whole_s = work_s * max(workload.hot_share, 1 / EXECUTORS)
    return {"whole": whole_s, "split": work_s / EXECUTORS}


if __name__ == "__main__":
    run(main)
