"""Ten thousand keys change their state partition: all at once, when touched, or in shares.

A stateful query has 10,000 keys with 1 KB of state each, most of them cold. After some steady
batches every key is assigned to the next partition. Shares have a fixed size, or the size that the
policy's latency budget allows: a tenth of the keys goes first, to learn what a key costs.

Besides, the same query without any move is timed with and without `balanced(...)`: that is what
routing costs. A processor that does next to nothing with its rows shows it best, in short batches
and in longer ones with ten and a hundred times the rows; beside it one that waits for each row, as
the other benchmarks' do, and one that is given frames of pandas.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import pandas as pd
from harness.arms import ArmRunner
from harness.benchmark import alternate, prepare, run
from harness.measuring import watching
from harness.results import Case
from harness.rows import read_rows
from harness.sessions import open_session, use_own_workers
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from balancedstream import BalancedFrame, balanced
from balancedstream.core.balance.restoring import RestoreCost, fit_keys, learn_key_cost
from balancedstream.core.keys.epochs import HANDOFF_STRATEGIES, Wish
from balancedstream.core.keys.routes import partition_of
from balancedstream.core.keys.types import Primitive
from balancedstream.core.policy import MigrationPolicy
from balancedstream.engine.events import BatchFinished
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.keyed.control import KeyControl

EXECUTORS = 2
KEY = Primitive("long")
IDLE_ARMS = ("unmoved", "plain")
IDLE_PANDAS_ARMS = ("pandas-unmoved", "pandas-plain")
BUDGETED = "budgeted"
"""Hybrid handoff in shares of the size that `realizing` gives them."""


@dataclass(frozen=True)
class Workload:
    """What all arms get.

    Attributes:
        partitions: state partitions.
        keys: with state; all of them move.
        warm_keys: the ones that rows keep coming for.
        rows_per_batch: rows in every batch; the first ones make the keys.
        wait_ms: how long the processor waits for each row: a call to an outside service.
        state_bytes: of each key.
        share: keys a batch under hybrid handoff.
        budget_s: what handoff may add to a batch where that says how large a share is.
        first_keys: that go before the others then, to learn what a key costs.
        first_batches: for them.
        steady_batches: measured before the moves begin.
        moving_batches: measured from then on.
        idle_batches: measured where no key moves.
    """

    partitions: int = 8
    keys: int = 10_000
    warm_keys: int = 1_000
    rows_per_batch: int = 2_000
    wait_ms: int = 0
    state_bytes: int = 1_000
    share: int = 500
    budget_s: float = MigrationPolicy.budget_s
    first_keys: int = 1_000
    first_batches: int = 8
    steady_batches: int = 5
    moving_batches: int = 36
    idle_batches: int = 12

    @property
    def filling_batches(self) -> int:
        return -(-self.keys // self.rows_per_batch)


WARM_UP_BATCHES = 5
MORE_ROWS = (10, 100)
"""With this many times the rows, the fixed cost of a batch matters less and less."""

WAIT_MS = 1
SMOKE = Workload(
    keys=1_000,
    warm_keys=100,
    rows_per_batch=500,
    share=200,
    first_keys=100,
    first_batches=5,
    moving_batches=8,
    idle_batches=3,
)


class Keeper(StatefulProcessor):  # type: ignore[misc]
    """Counts a key's rows, waits for each, and keeps a text beside the count."""

    def __init__(self, state_bytes: int, wait_ms: int) -> None:
        self._text = "x" * state_bytes
        self._wait_s = wait_ms / 1000

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("kept", "n LONG, text STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        yield Row(key=key[0], rows=self._count(sum(1 for _ in rows)))

    def _count(self, rows: int) -> int:
        if self._wait_s:
            time.sleep(rows * self._wait_s)
        seen: int = (self._kept.get() or (0,))[0] + rows
        self._kept.update((seen, self._text))
        return seen

    def close(self) -> None:
        pass


class PandasKeeper(Keeper):
    """The same in frames."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        yield pd.DataFrame({"key": [key[0]], "rows": [self._count(sum(map(len, rows)))]})


def main() -> None:
    with prepare("handoff", __doc__ or "") as benchmark:
        workload = SMOKE if benchmark.smoke else Workload()
        arms = {
            (workload.rows_per_batch, 0): (*HANDOFF_STRATEGIES, BUDGETED, *IDLE_ARMS),
            (workload.rows_per_batch, WAIT_MS): IDLE_ARMS,
            **{(workload.rows_per_batch * times, 0): IDLE_ARMS for times in MORE_ROWS},
        }
        for times in (1, MORE_ROWS[-1]):
            arms[workload.rows_per_batch * times, 0] += IDLE_PANDAS_ARMS
        cases: list[Case] = [
            {"arm": arm, "rows_per_batch": rows, "wait_ms": wait_ms, "repetition": repetition}
            for repetition in benchmark.repetitions
            for rows, wait_ms in arms
            for arm in alternate(repetition, *arms[rows, wait_ms])
        ]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        settings = {"spark.sql.shuffle.partitions": str(workload.partitions)}
        with open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS), settings) as spark:
            runner = HandoffRunner(benchmark.work, spark, workload)
            states, _ = runner.keep_texts("unmoved", workload)
            runner.warm_up(states, WARM_UP_BATCHES)
            for case in missing:
                rows, wait_ms = int(case["rows_per_batch"]), int(case["wait_ms"])
                own = replace(workload, rows_per_batch=rows, wait_ms=wait_ms)
                measured = runner.measure(str(case["arm"]), own, int(case["repetition"]))
                benchmark.record(spark, case, asdict(own), measured)


class HandoffRunner(ArmRunner[Workload]):
    """Measures one arm at a time, with its own number of rows a batch."""

    def measure(self, arm: str, workload: Workload, repetition: int) -> dict[str, Any]:
        """Seconds of every batch, and how many keys have moved after it."""
        states, control = self.keep_texts(arm, workload)
        with watching(self._engine):
            query = f"{arm}-{repetition}"
            share = workload.share
            if control is None or arm in (*IDLE_ARMS, *IDLE_PANDAS_ARMS):
                count = workload.filling_batches + workload.idle_batches
                finished, moved = self.run_query(states, query, count), []
            else:
                finished, share = self._run_moving(states, control, arm, query)
                moved = [self._count_moved(control, event.sample.batch) for event in finished]
        return {
            "batch_s": [event.sample.duration_s for event in finished],
            "rows": [event.sample.input_rows for event in finished],
            "moved": moved,
            "share": share,
        }

    def _run_moving(
        self, states: DataFrame, control: KeyControl, arm: str, name: str
    ) -> tuple[list[BatchFinished], int]:
        """Moves all keys once the steady batches are over; also gives the size of a share."""
        workload = self._workload
        before = workload.filling_batches + workload.steady_batches
        routes = self._route_all(control)
        strategy, share = arm, workload.share
        query = self.start(states, name)
        try:
            self._engine.await_batches(query, before)
            if arm == BUDGETED:
                strategy, cost = "hybrid", RestoreCost()
                first = dict(islice(routes.items(), workload.first_keys))
                control.want(Wish(first, "hybrid", share=fit_keys(cost, workload.budget_s)))
                for batch in range(before, before + workload.first_batches):
                    self._engine.await_batches(query, batch + 1)
                    cost = learn_key_cost(cost, *control.take_handoffs(batch))
                before += workload.first_batches
                share = fit_keys(cost, workload.budget_s)
            control.want(Wish(routes, strategy, share=share))  # type: ignore[arg-type]
            count = before + workload.moving_batches
            return self._engine.await_batches(query, count)[:count], share
        finally:
            query.stop()

    def keep_texts(self, arm: str, workload: Workload) -> tuple[DataFrame, KeyControl | None]:
        """The query of an arm, and what moves its keys; None for Spark's own."""
        use_own_workers(self._spark, arm)
        rows = self._draw_rows(workload)
        grouped: Any = rows.groupBy("key")
        control: KeyControl | None = None
        if not arm.endswith("plain"):
            frame: BalancedFrame = balanced(rows, "key")
            grouped, control = frame, frame.control
        in_pandas = arm in IDLE_PANDAS_ARMS
        transform = grouped.transformWithStateInPandas if in_pandas else grouped.transformWithState
        keeper = (PandasKeeper if in_pandas else Keeper)(workload.state_bytes, workload.wait_ms)
        return transform(keeper, "key LONG, rows LONG", "update", "none"), control

    def _draw_rows(self, workload: Workload) -> DataFrame:
        """At first each key once, then warm keys only."""
        rows = read_rows(self._spark, workload.rows_per_batch)
        warm = F.pmod(F.xxhash64("value"), F.lit(workload.warm_keys))
        return rows.select(
            F.when(F.col("value") < workload.keys, F.col("value")).otherwise(warm).alias("key")
        )

    def _route_all(self, control: KeyControl) -> dict[str, int]:
        """Every key to the partition after its own."""
        partitions = self._workload.partitions
        return control.find_routes(
            {
                str(key): (partition_of(0, key, KEY, partitions) + 1) % partitions
                for key in range(self._workload.keys)
            },
            partitions,
        )

    def _count_moved(self, control: KeyControl, batch: int) -> int:
        return len(control.read_epoch(batch).routes)


if __name__ == "__main__":
    run(main)
