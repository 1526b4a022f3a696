"""Hot keys on four executors: Spark alone, placement alone, and placement with keys reassigned.

The same rows go through the same stateful processor, which waits for each row, in three arms: Spark
alone; balanced, with keys that stay where Spark hashes them; and `balanced(...)`, whose keys can be
reassigned. Keys follow Zipf's law, or two of them share a state partition and have a third of the
rows each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from harness import (
    Bench,
    Case,
    draw_uniform,
    measure_balance,
    open_session,
    prepare,
    read_rows,
    run,
    use_own_workers,
)
from placement import draw_rank
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from balancedstream import balanced
from balancedstream.core.routes import Primitive, partition_of, spark_hash
from balancedstream.engine.events import BatchFinished
from balancedstream.engine.session import LocalExecutors

PAIR = "pair"
KINDS = (PAIR, "1.2", "1.5")
EXECUTORS = 4
ARMS = ("vanilla", "placement", "routes")
KEY = Primitive("long")


@dataclass(frozen=True)
class Load:
    """What all arms get.

    Attributes:
        partitions: eight state partitions an executor.
        keys: distinct keys.
        rows_per_batch: rows in every batch.
        wait_ms: how long the processor waits for each row.
        batches: in each arm.
        measured_batches: the last ones, which are compared.
    """

    partitions: int = 8 * EXECUTORS
    keys: int = 200
    rows_per_batch: int = 400
    wait_ms: int = 20
    batches: int = 12
    measured_batches: int = 4


WARM_UP_BATCHES = 2
SMOKE = Load(rows_per_batch=150, batches=7, measured_batches=1)


class Waiter(StatefulProcessor):  # type: ignore[misc]
    """Counts the rows of a key, and waits for each: a call to an outside service."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._rows = handle.getValueState("rows", "n LONG")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        seen = (self._rows.get() or (0,))[0]
        for _ in rows:
            seen += 1
            time.sleep(self._wait_s)
        self._rows.update((seen,))
        yield Row(key=key[0], rows=seen)

    def close(self) -> None:
        pass


def main() -> None:
    with prepare("hot_keys", __doc__ or "") as benchmark:
        kinds = (PAIR,) if benchmark.smoke else KINDS
        load = SMOKE if benchmark.smoke else Load()
        cases: list[Case] = [
            {"keys": kind, "repetition": repetition}
            for repetition in benchmark.repetitions
            for kind in kinds
        ]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        with open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS)) as spark:
            bench = HotKeysBench(benchmark.work, spark, load)
            bench.warm_up(bench.count_rows("vanilla", PAIR, 0), WARM_UP_BATCHES)
            for case in missing:
                measured = bench.measure(str(case["keys"]), int(case["repetition"]))
                benchmark.record(spark, case, asdict(load), measured)


class HotKeysBench(Bench[Load]):
    """Measures the arms beside each other, one kind of keys at a time."""

    def measure(self, kind: str, repetition: int) -> dict[str, Any]:
        """The same rows in each arm."""
        arms, moves = self.run_in_turns(
            repetition, ARMS, lambda arm: self._run_arm(arm, kind, repetition)
        )
        for arm, moved in moves.items():
            arms[arm]["moves"] = moved
        return {"order": list(arms), "hottest_key_s": find_hottest_s(kind, self._load), **arms}

    def _run_arm(self, arm: str, kind: str, repetition: int) -> dict[str, Any]:
        """Runs one query from its beginning; gives one figure a batch of each kind."""
        name = f"{arm}-{kind.replace('.', '')}-{repetition}"
        finished = self.run_query(self.count_rows(arm, kind, repetition), name, self._load.batches)
        balance = [measure_balance(event, self._engine.executors()) for event in finished]
        return {
            "batch_s": [event.sample.duration_s for event in finished],
            "imbalance": [round(decision.imbalance_before, 4) for decision in balance],
            "mean_busy_s": [round(self._find_mean_busy_s(event), 3) for event in finished],
            "rows": [event.sample.input_rows for event in finished],
        }

    def _find_mean_busy_s(self, event: BatchFinished) -> float:
        """What each executor would have been busy for if all had been alike, loading left out."""
        return sum(task.work_s for task in event.tasks) / len(self._engine.executors())

    def count_rows(self, arm: str, kind: str, seed: int) -> DataFrame:
        """The rows of each key so far, counted by an arm's processor."""
        use_own_workers(self._spark, arm)
        rows = self._draw_rows(kind, seed)
        grouped: Any = balanced(rows, "key") if arm == "routes" else rows.groupBy("key")
        states: DataFrame = grouped.transformWithState(
            Waiter(self._load.wait_ms / 1000), "key LONG, rows LONG", "update", "none"
        )
        return states

    def _draw_rows(self, kind: str, seed: int) -> DataFrame:
        """Rows with a `key`; the seed also decides which partitions keys fall into."""
        load = self._load
        drawn = draw_uniform(seed)
        rows = read_rows(self._spark, load.rows_per_batch)
        if kind == PAIR:
            first, second = find_pair(seed, load.partitions)
            others = F.floor((drawn * 3 - 2) * load.keys) + 1_000_000
            hot = F.when(drawn < 1 / 3, first).when(drawn < 2 / 3, second)
            return rows.select(hot.otherwise(others).cast("long").alias("key"))
        rank = draw_rank(drawn, float(kind), load.keys)
        return rows.select(F.xxhash64(rank, F.lit(seed)).alias("key"))


def find_pair(seed: int, partitions: int) -> tuple[int, int]:
    """Two keys of one partition, both where Spark hashes the key alone and where with route 0."""

    def places(key: int) -> tuple[int, int]:
        return spark_hash(key, KEY) % partitions, partition_of(0, key, KEY, partitions)

    first = 1000 * seed
    return first, next(key for key in count(first + 1) if places(key) == places(first))


def find_hottest_s(kind: str, load: Load) -> float:
    """What the hottest key's rows wait in a batch: no executor that has it can be done sooner."""
    share = 1 / 3
    if kind != PAIR:
        weights: list[float] = [rank ** -float(kind) for rank in range(1, load.keys + 1)]
        share = weights[0] / sum(weights)
    return share * load.rows_per_batch * load.wait_ms / 1000


if __name__ == "__main__":
    run(main)
