"""The query on Spark: balanced, or alone and stopped and started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.benchmark import Benchmark
from harness.measuring import MeasuringEngine, await_that, balancing, check_alive, watching
from harness.quotas import QUICK_JVM, limiting_executors
from harness.rows import send_to_state
from harness.sessions import open_session
from kafka_broker import find_connector
from nexmark.streams import describe_schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from balancedstream.engine.events import ExecutorRemoved
from balancedstream.engine.session.local import LocalExecutors
from flink.arms import Arm, Setting
from flink.topics import Topics


class Balanced(Arm):
    """Executors join and leave while the query runs on."""

    def __init__(self, engine: MeasuringEngine, query: StreamingQuery) -> None:
        self._engine = engine
        self._query = query

    def rescale(self, workers: int) -> None:
        """Asks for executors, or takes all state off the newest ones and retires them."""
        present = sorted(self._engine.executors(), key=int)
        if workers > len(present):
            self._engine.set_executor_count(workers)
            await_that(lambda: len(self._engine.executors()) == workers, self._query)
            return
        leaving = set(present[workers:])
        for executor in leaving:
            self._engine.drain(executor)
        drained_after = len(self._engine.batches(self._query.name))

        def are_drained() -> bool:
            later = self._engine.batches(self._query.name)[drained_after:]
            return bool(later) and leaving.isdisjoint(t.executor for t in later[-1].tasks)

        await_that(are_drained, self._query)
        for executor in leaving:
            self._engine.remove_executor(executor)

        def are_gone() -> bool:
            removed = [e for e in self._engine.events() if isinstance(e, ExecutorRemoved)]
            return leaving <= {event.executor for event in removed}

        await_that(are_gone, self._query)

    def check_alive(self) -> None:
        """Raises MeasurementError if the query failed."""
        check_alive(self._query)


@contextmanager
def open_balanced(benchmark: Benchmark, setting: Setting, workers: int) -> Iterator[Arm]:
    """A query that is balanced by the default policy."""
    with open_spark(benchmark, setting, LocalExecutors(workers, setting.most)) as spark:
        engine = MeasuringEngine(spark)
        with balancing(engine):
            await_that(lambda: len(engine.executors()) == workers)
            query = start_query(spark, setting)
            try:
                yield Balanced(engine, query)
            finally:
                query.stop()


class Restarted(Arm):
    """The naive way: the application is stopped, and started again with other executors.

    Spark alone. Its driver's JVM stays and is warm, which a new application's would not be.

    Attributes:
        stack: of what is to be closed.
    """

    def __init__(self, benchmark: Benchmark, setting: Setting) -> None:
        self._benchmark = benchmark
        self._setting = setting
        self._query: StreamingQuery | None = None
        self.stack = ExitStack()

    def start(self, workers: int) -> None:
        """Starts the application, where it was."""
        executors = LocalExecutors(workers, workers)
        spark = self.stack.enter_context(open_spark(self._benchmark, self._setting, executors))
        engine = MeasuringEngine(spark)
        self.stack.enter_context(watching(engine))
        await_that(lambda: len(engine.executors()) == workers)
        self._query = start_query(spark, self._setting)
        self.stack.callback(self._query.stop)

    def rescale(self, workers: int) -> None:
        """Stops the application and starts it again; the first batch may still have to come."""
        self.stack.close()
        self.start(workers)

    def check_alive(self) -> None:
        """Raises MeasurementError if the query failed."""
        if self._query is not None:
            check_alive(self._query)


@contextmanager
def open_restarted(benchmark: Benchmark, setting: Setting, workers: int) -> Iterator[Arm]:
    """A query of Spark alone."""
    restarted = Restarted(benchmark, setting)
    with restarted.stack:
        restarted.start(workers)
        yield restarted


@contextmanager
def open_spark(
    benchmark: Benchmark, setting: Setting, executors: LocalExecutors
) -> Iterator[SparkSession]:
    """A session whose executors have the quota, the connector and the work."""
    jars = [*find_connector(), setting.jar]
    settings = QUICK_JVM | {"spark.jars": ",".join(map(str, jars))}
    with (
        open_session(benchmark, executors, settings) as spark,
        limiting_executors(spark.sparkContext.applicationId, setting.cores),
    ):
        yield spark


def start_query(spark: SparkSession, setting: Setting) -> StreamingQuery:
    """Starts the query, from where its checkpoint is."""
    worked = F.java_method(F.lit("Work"), F.lit("burn"), F.col("price"), F.lit(setting.rounds))
    bids = send_to_state(read_bids(spark, setting.topics), setting.partitions)
    best = count_bids(bids.where(worked != F.lit("")))
    return write_best(best, setting.topics, setting.folder / "checkpoint").start()


def write_best(best: DataFrame, topics: Topics, checkpoint: Path) -> DataStreamWriter:
    """Writes each result to its topic as it changes."""
    written = best.select(
        F.col("key").cast("string").alias("key"),
        F.to_json(F.struct(F.col("key").alias("bidder"), "bids", "price")).alias("value"),
    )
    return (
        # A process calls no second query by the name alone.
        written.writeStream.queryName(topics.best)
        .outputMode("update")
        .format("kafka")
        .option("kafka.bootstrap.servers", topics.address)
        .option("topic", topics.best)
        .option("checkpointLocation", str(checkpoint))
    )


def read_bids(spark: SparkSession, topics: Topics) -> DataFrame:
    """The stream of bids."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", topics.address)
        .option("subscribe", topics.bids)
        .option("startingOffsets", "earliest")
        .load()
    )
    bid = F.from_json(F.col("value").cast("string"), describe_schema("bid"))
    return records.select(bid.alias("bid")).select(F.col("bid.bidder").alias("key"), "bid.price")


def count_bids(bids: DataFrame) -> DataFrame:
    """Each bidder's bids and highest price."""
    return bids.groupBy("key").agg(F.count("*").alias("bids"), F.max("price").alias("price"))
