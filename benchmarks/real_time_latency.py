"""A query in Real-Time Mode that BalancedStream watches, beside the same query alone.

NEXMark's bids arrive in Kafka at a constant rate; the query keeps each bidder's number of bids and
highest price, and writes each change to Kafka. A row is done when the first result that counts it
is there, by the broker's clock. Both arms run in one session, one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from uuid import uuid4

from flink.figures import Done, count_wrong, find_done
from flink.following import Following
from flink.on_spark import count_bids, read_bids, write_best
from flink.topics import BidProducer, Topics, open_broker, open_topics
from harness.benchmark import alternate, make_folder, prepare, remove_folder, run
from harness.measuring import check_alive
from harness.results import Case
from harness.sessions import open_session
from kafka_broker import find_connector
from nexmark.events import Event, draw_events
from nexmark.events import Workload as Events
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tables.real_time_latency import ALONE, WATCHED

import balancedstream
from balancedstream.engine.session.local import LocalExecutors

EXECUTORS, CORES = 2, 3
EVENTS = 10_000_000
"""More than are ever drawn."""

MOST_S = 600.0
"""Rows arrive no longer than so, whatever happens."""

WARM_UP_S = 20.0


@dataclass(frozen=True)
class Workload:
    """What both arms get.

    Attributes:
        topic_partitions: of the topic with the rows; each takes a slot for all of a batch.
        partitions: of the state, likewise.
        batch_s: how long a batch lasts; the shortest that Spark takes are 5 s.
        rows_per_s: that arrive.
        lead_s: rows arrive for so long before anything counts, once the first of them are done.
        measured_s: for so long rows are measured.
    """

    topic_partitions: int = 2
    partitions: int = 2
    batch_s: int = 10
    rows_per_s: float = 100.0
    lead_s: float = 10.0
    measured_s: float = 60.0


def main() -> None:
    with prepare("real_time_latency", __doc__ or "") as benchmark:
        workload = Workload(lead_s=8.0, measured_s=10.0) if benchmark.smoke else Workload()
        cases: list[Case] = [{"repetition": repetition} for repetition in benchmark.repetitions]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        settings = {
            "spark.jars": ",".join(map(str, find_connector())),
            "spark.executor.cores": str(CORES),
            "spark.sql.shuffle.partitions": str(workload.partitions),
        }
        with (
            open_broker(make_folder(benchmark.work, "broker")) as address,
            open_session(benchmark, LocalExecutors(EXECUTORS, EXECUTORS), settings) as spark,
        ):
            # The first rows of a session are slow, and are not measured.
            short = replace(workload, lead_s=0.0, measured_s=WARM_UP_S)
            first = Run(short, spark, make_topics(address), benchmark.work)
            first.measure(draw_events(Events(EVENTS), seed=0), watched=True)
            for case in missing:
                repetition = int(case["repetition"])
                measured = {
                    arm: Run(workload, spark, make_topics(address), benchmark.work).measure(
                        draw_events(Events(EVENTS), seed=repetition), watched=arm == WATCHED
                    )
                    for arm in alternate(repetition, WATCHED, ALONE)
                }
                benchmark.record(spark, case, asdict(workload), measured)


def make_topics(address: str) -> Topics:
    """Names of topics that are not there yet."""
    name = uuid4().hex[:8]
    return Topics(address, f"bids-{name}", f"best-{name}")


@dataclass(frozen=True)
class Run:
    """The query, once.

    Attributes:
        workload: what it gets.
        spark: the session.
        topics: of its own.
        work: folder for checkpoints and logs.
    """

    workload: Workload
    spark: SparkSession
    topics: Topics
    work: Path

    def measure(self, events: Iterator[Event], *, watched: bool) -> dict[str, Any]:
        """The latencies of its rows, in milliseconds, and what is wrong with its results."""
        workload, folder = self.workload, make_folder(self.work, "run")
        with (
            open_topics(self.topics, workload.topic_partitions, folder / "topics.log") as traffic,
            watching(self.spark, wanted=watched),
            self._running(folder / "checkpoint") as query,
        ):
            following = Following(partial(check_alive, query), traffic)
            producer = BidProducer(traffic, events)
            producer.begin_s = time.time()
            with producer.produce(lambda s: workload.rows_per_s * s, producer.begin_s, MOST_S):
                following.await_that(lambda: traffic.done > 0, "no row is in a result")
                following.rest(workload.lead_s)
                from_s = time.time()
                following.rest(workload.measured_s)
                until_s = time.time()
            following.await_all()
        done = find_done(traffic.written, traffic.results)
        remove_folder(folder)
        return {
            **summarize([row for row in done if from_s < row.at_s <= until_s]),
            **count_wrong(traffic.written, traffic.results),
        }

    @contextmanager
    def _running(self, checkpoint: Path) -> Iterator[StreamingQuery]:
        """The query in Real-Time Mode."""
        best = count_bids(read_bids(self.spark, self.topics))
        writer = write_best(best, self.topics, checkpoint)
        query = writer.trigger(realTime=f"{self.workload.batch_s} seconds").start()
        try:
            yield query
        finally:
            query.stop()


def summarize(done: list[Done]) -> dict[str, float]:
    """The median latency, the 99th percentile and the longest one, in milliseconds."""
    latencies_ms = [1000.0 * row.latency_s for row in done]
    return {
        "rows": len(done),
        "median_ms": round(median(latencies_ms), 1),
        "p99_ms": round(quantiles(latencies_ms, n=100)[-1], 1),
        "longest_ms": round(max(latencies_ms), 1),
    }


@contextmanager
def watching(spark: SparkSession, *, wanted: bool) -> Iterator[None]:
    """Balances the application meanwhile, if that is wanted."""
    attachment = balancedstream.attach(spark) if wanted else None
    try:
        yield
    finally:
        if attachment:
            attachment.detach()


if __name__ == "__main__":
    run(main)
