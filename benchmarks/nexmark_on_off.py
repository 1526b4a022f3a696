"""NEXMark's queries on four executors: balancing off and on, at two loads.

Each run is a pair: the same events, with Spark alone and balanced, one after the other in the same
session. Events arrive at a rate of their own, whatever the stream does, and keep their order. Their
keys are hot by NEXMark's definition, or follow Zipf's law. The task that holds a key's state waits
for each row: that stands for a call to an outside service, occupies the executor and no core.

An event's latency is the time from its arrival until the batch that read it has ended. Under the
lower load an executor that has most of the keys keeps up; under the higher one it does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import accumulate, islice
from pathlib import Path
from statistics import median
from time import time
from typing import Any

from harness.arms import ArmRunner
from harness.benchmark import make_folder, prepare, run
from harness.measuring import await_that
from harness.producing import Producer, write_whole
from harness.results import Case
from harness.rows import wait_in_place
from harness.sessions import open_session, use_own_workers
from nexmark.events import TABLES, Event, draw_events
from nexmark.events import Workload as Events
from nexmark.queries import QUERIES
from nexmark.streams import read_files
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from balancedstream.core.samples import BatchSample
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.settings import SHUFFLE_PARTITIONS

EXECUTORS = 4
ARMS = ("vanilla", "balanced")
LOADS = (100, 200)
"""Events a second."""

SKEWS: Mapping[str, float | None] = {"hot": None, "zipf": 1.0}
KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "q18": {"bid": ("bidder", "auction")},
    "q20": {"bid": ("auction",), "auction": ("id",)},
}
"""By which columns each query's state of a table is in partitions: rows wait where their state is.
One query has an aggregation, the other one a join."""


@dataclass(frozen=True)
class Workload:
    """What both arms get.

    Attributes:
        partitions: eight state partitions an executor.
        wait_ms: how long the task with the state waits for each row.
        lead_s: events arrive for so long before anything counts: the first batches start what they
            need, and decisions need some.
        measured_s: events arrive for so long then.
    """

    partitions: int = 8 * EXECUTORS
    wait_ms: int = 10
    lead_s: float = 30.0
    measured_s: float = 60.0

    @property
    def length_s(self) -> float:
        return self.lead_s + self.measured_s


SMOKE = Workload(lead_s=5.0, measured_s=10.0)


def main() -> None:
    with prepare("nexmark_on_off", __doc__ or "") as benchmark:
        workload = SMOKE if benchmark.smoke else Workload()
        cases: list[Case] = [
            {"query": query, "keys": skew, "load": load, "repetition": repetition}
            for repetition in benchmark.repetitions
            for query in (("q20",) if benchmark.smoke else KEYS)
            for skew in (("hot",) if benchmark.smoke else SKEWS)
            for load in LOADS
        ]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        with open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS)) as spark:
            spark.conf.set(SHUFFLE_PARTITIONS, workload.partitions)
            runner = NexmarkRunner(benchmark.work, spark, workload)
            runner.warm_up_with(str(missing[0]["query"]))
            for case in missing:
                benchmark.record(spark, case, asdict(workload), runner.measure(case))


class AuctionProducer(Producer):
    """Writes events as files of JSON lines, a folder for each table.

    Args:
        folder: of the folders of the tables.
        events: in the order of their arrival.
        events_per_s: that are due.
        read: the tables that the query reads.

    Attributes:
        arrived_s: when each row of these tables was due, in seconds since the begin.
    """

    def __init__(
        self, folder: Path, events: Iterator[Event], events_per_s: float, read: Sequence[str]
    ) -> None:
        self._folder = folder
        self._events = events
        self._events_per_s = events_per_s
        self._read = read
        self._files = 0
        self.arrived_s: list[float] = []
        for table in TABLES:
            (folder / table).mkdir(parents=True)

    def write(self, rows: int, arrived_s: float) -> None:
        """Writes a file for each table of which rows have come."""
        drawn = list(islice(self._events, max(0, rows)))
        for table in TABLES:
            lines = [json.dumps(event.row) for event in drawn if event.table == table]
            if lines:
                write_whole(self._folder / table / f"{self._files:06}.json", lines)
        self._files += 1
        self.arrived_s += [
            event.number / self._events_per_s for event in drawn if event.table in self._read
        ]


class NexmarkRunner(ArmRunner[Workload]):
    """Measures the arms beside each other, one query, skew and load at a time."""

    def warm_up_with(self, query: str) -> None:
        """The first query of a session is slow, whatever it does."""
        case: Case = {"query": query, "keys": "hot", "load": LOADS[0], "repetition": 0}
        short = self.under(SMOKE)
        short.run_in_turns(0, ARMS[:1], lambda arm: short._run_arm(arm, case))

    def measure(self, case: Case) -> dict[str, Any]:
        """The same events in both arms."""
        arms, histories = self.run_in_turns(
            int(case["repetition"]), ARMS, lambda arm: self._run_arm(arm, case)
        )
        for arm, history in histories.items():
            arms[arm]["moves"] = history.totals.moves
        return {"order": list(arms), **arms}

    def _run_arm(self, arm: str, case: Case) -> dict[str, Any]:
        """Runs a query from its beginning until it has read all."""
        name = "-".join([arm, *(str(value) for value in case.values())])
        load = int(case["load"])
        length_s = self._workload.length_s
        input_folder = make_folder(self._work, "input")
        begin_s = time()
        events = Events(
            events=round(load * length_s) + 1,
            events_per_s=load,
            zipf=SKEWS[str(case["keys"])],
            first_at=datetime.fromtimestamp(begin_s, UTC),
        )
        read = KEYS[str(case["query"])]
        drawn = draw_events(events, seed=int(case["repetition"]))
        producer = AuctionProducer(input_folder, drawn, load, tuple(read))
        use_own_workers(self._spark, arm)
        query = self._start_query(str(case["query"]), name, input_folder)
        try:
            with producer.produce(lambda at_s: at_s * load, begin_s, length_s) as thread:
                await_that(lambda: not thread.is_alive(), query)
            await_that(lambda: self._count_read(name) >= len(producer.arrived_s), query)
            samples = [event.sample for event in self._engine.batches(name)]
        finally:
            query.stop()
        return summarize_batches(
            samples, producer.arrived_s, begin_s, (self._workload.lead_s, length_s)
        )

    def _count_read(self, name: str) -> int:
        return sum(event.sample.input_rows for event in self._engine.batches(name))

    def _start_query(self, name: str, called: str, folder: Path) -> StreamingQuery:
        query = QUERIES[name]

        def read(table: str) -> DataFrame:
            rows = read_files(self._spark, folder, table)
            placed = rows.repartition(self._workload.partitions, *KEYS[name][table])
            return wait_in_place(placed, self._workload.wait_ms)

        self._engine.forget_events()
        return (
            query.build(read)
            .writeStream.queryName(called)
            .outputMode(query.output_mode)
            .format("noop")
            .option("checkpointLocation", str(make_folder(self._work, called)))
            .start()
        )


def summarize_batches(
    samples: Sequence[BatchSample],
    arrived_s: Sequence[float],
    begin_s: float,
    counts_s: tuple[float, float],
) -> dict[str, Any]:
    """The figures of an arm.

    Args:
        samples: all batches, oldest first.
        arrived_s: when each row arrived, in the order in which they are read.
        begin_s: that from which other times count, in seconds since the Unix epoch.
        counts_s: from when to when a row that arrives counts, and a batch that ends.

    Returns:
        `batch_s`: of the batches that read such rows. `median_latency_s` and `p99_latency_s`: from
        the arrival of a row to the end of its batch. `rows_per_s`: rows of the batches that ended
        then, which are fewer than arrived where a stream falls behind. `rows`: that arrived.
    """
    since_s, until_s = counts_s
    ends = [sample.finished_s - begin_s for sample in samples]
    read = [0, *accumulate(sample.input_rows for sample in samples)]
    latencies: list[float] = []
    batch_s: list[float] = []
    done = 0
    for sample, ended_s, first, last in zip(samples, ends, read, read[1:], strict=False):
        counted = [ended_s - at_s for at_s in arrived_s[first:last] if since_s <= at_s <= until_s]
        latencies += counted
        if counted:
            batch_s.append(sample.duration_s)
        if since_s < ended_s <= until_s:
            done += last - first
    latencies.sort()
    return {
        "batch_s": batch_s,
        "median_latency_s": round(median(latencies), 3),
        "p99_latency_s": round(find_percentile(latencies, 99), 3),
        "rows_per_s": round(done / (until_s - since_s), 1),
        "rows": len(latencies),
    }


def find_percentile(values: Sequence[float], percent: int) -> float:
    """The least value that so many percent of them do not exceed.

    >>> find_percentile([float(n) for n in range(1, 201)], 99)
    198.0

    Args:
        values: sorted, at least one.
        percent: from 1 to 100.
    """
    return values[-(-len(values) * percent // 100) - 1]


if __name__ == "__main__":
    run(main)
