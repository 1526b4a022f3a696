"""Departure monitor for New York's three airports: two streaming queries in one session.

1. `stations`: for every airline at every airport (its *station*) the delay statistics of all its
   departures so far, and an alert when a station has had no departure for a day.
   `transformWithState` with a value state, a map state (an exact histogram of the delays) and an
   event-time timer.
2. `hours`: flights, cancellations and mean departure delay per airport and hour, a windowed
   aggregation.

Both write one JSON file a micro-batch under OUTPUT. A batch that is run again overwrites its own
file, so the files are right whatever was restarted; the newest line of a station or of an hour is
the one that counts. `check.py` compares them with a batch recomputation.

Run it with `python app.py INPUT OUTPUT`, `spark-submit app.py INPUT OUTPUT` or
`balancedstream run app.py INPUT OUTPUT`. `replay.py` fills INPUT.
"""

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

WATERMARK_DELAY_H = 6
SILENCE_H = 25
SILENCE_MS = SILENCE_H * 3600 * 1000
PERCENTILES = (50, 90, 99)

FLIGHT_SCHEMA = """
    carrier STRING, origin STRING, tailnum STRING, dep_delay BIGINT, arr_delay BIGINT,
    minute BIGINT, time_hour STRING
"""
TOTALS_SCHEMA = """
    flights BIGINT, cancelled BIGINT, no_arrival BIGINT, unknown_aircraft BIGINT,
    delay_sum_min BIGINT, last_departure_ms BIGINT, silent BOOLEAN
"""
STATION_SCHEMA = """
    origin STRING, carrier STRING, event STRING, flights BIGINT, cancelled BIGINT,
    no_arrival BIGINT, unknown_aircraft BIGINT, mean_delay_min DOUBLE, p50_delay_min BIGINT,
    p90_delay_min BIGINT, p99_delay_min BIGINT, last_departure_ms BIGINT
"""


def nearest_rank(histogram: dict[int, int], percent: int) -> int:
    """The smallest value that at least `percent` % of the counted values do not exceed."""
    rank = -(-sum(histogram.values()) * percent // 100)
    for value in sorted(histogram):
        rank -= histogram[value]
        if rank <= 0:
            return value
    msg = "an empty histogram has no percentiles"
    raise ValueError(msg)


class StationMonitor(StatefulProcessor):
    """Delay statistics of one (origin, carrier), and an alert when it falls silent.

    A silence is a gap of `SILENCE_H` hours or more after a departure. The timer raises it as soon
    as the watermark is past the gap; if the next departure is in the same batch, that departure
    raises it first. Each silence is raised once, so the alerts do not depend on how the stream is
    cut into batches.
    """

    def __init__(self, lookup_s: float) -> None:
        self.lookup_s = lookup_s

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.totals = handle.getValueState("totals", TOTALS_SCHEMA)
        self.delays = handle.getMapState("delays", "delay_min BIGINT", "departures BIGINT")

    def handleInputRows(  # noqa: N802
        self,
        key: tuple[str, str],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        # A station is silent, with no timer running, until its first departure.
        stored = self.totals.get() if self.totals.exists() else (0, 0, 0, 0, 0, 0, True)
        flights, cancelled, no_arrival, unknown_aircraft, delay_sum_min, last_ms, silent = stored
        stored_last_ms, was_silent = last_ms, silent
        new_delays: Counter[int] = Counter()

        for flight in sorted(rows, key=lambda row: row.scheduled_ms):
            self.look_up()
            flights += 1
            unknown_aircraft += flight.tailnum is None
            if flight.dep_delay is None:
                cancelled += 1
                continue
            no_arrival += flight.arr_delay is None
            delay_sum_min += flight.dep_delay
            new_delays[flight.dep_delay] += 1
            if flight.scheduled_ms > last_ms:
                if not silent and flight.scheduled_ms >= last_ms + SILENCE_MS:
                    yield self.silence(key, last_ms)
                last_ms, silent = flight.scheduled_ms, False

        if last_ms > stored_last_ms:
            if not was_silent:
                self.handle.deleteTimer(stored_last_ms + SILENCE_MS)
            self.handle.registerTimer(last_ms + SILENCE_MS)
        self.totals.update(
            (flights, cancelled, no_arrival, unknown_aircraft, delay_sum_min, last_ms, silent)
        )
        histogram = {delay: departures for (delay,), (departures,) in self.delays.iterator()}
        for delay, departures in new_delays.items():
            histogram[delay] = histogram.get(delay, 0) + departures
            self.delays.updateValue((delay,), (histogram[delay],))

        yield self.row(
            key,
            "statistics",
            flights=flights,
            cancelled=cancelled,
            no_arrival=no_arrival,
            unknown_aircraft=unknown_aircraft,
            mean_delay_min=delay_sum_min / (flights - cancelled) if histogram else None,
            last_departure_ms=last_ms or None,
            **{
                f"p{percent}_delay_min": nearest_rank(histogram, percent)
                for percent in PERCENTILES
                if histogram
            },
        )

    def handleExpiredTimer(  # noqa: N802
        self,
        key: tuple[str, str],
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        *totals, last_ms, _ = self.totals.get()
        self.totals.update((*totals, last_ms, True))
        yield self.silence(key, last_ms)

    def silence(self, key: tuple[str, str], last_departure_ms: int) -> Row:
        return self.row(key, "silence", last_departure_ms=last_departure_ms)

    def row(self, key: tuple[str, str], event: str, **values: object) -> Row:
        names = [column.split()[0] for column in STATION_SCHEMA.split(",")]
        values |= {"origin": key[0], "carrier": key[1], "event": event}
        return Row(**{name: values.get(name) for name in names})

    def look_up(self) -> None:
        """Stands for a call to an outside service, as a real monitor makes: it only waits."""
        if self.lookup_s:
            time.sleep(self.lookup_s)


def read_flights(spark: SparkSession, folder: str, files_per_batch: int) -> DataFrame:
    """The stream of flights with their scheduled departure, an instant, as event time."""
    flights = (
        spark.readStream.schema(FLIGHT_SCHEMA)
        .option("maxFilesPerTrigger", files_per_batch)
        .parquet(folder)
    )
    scheduled = F.col("time_hour").cast("timestamp") + F.make_dt_interval(mins=F.col("minute"))
    return flights.withColumn("scheduled", scheduled).withWatermark(
        "scheduled", f"{WATERMARK_DELAY_H} hours"
    )


def monitor_stations(flights: DataFrame, lookup_s: float) -> DataFrame:
    """Statistics and alerts per (origin, carrier)."""
    events = (
        flights.withColumn("scheduled_ms", F.unix_millis("scheduled"))
        .groupBy("origin", "carrier")
        .transformWithState(
            statefulProcessor=StationMonitor(lookup_s),
            outputStructType=STATION_SCHEMA,
            outputMode="Update",
            timeMode="EventTime",
        )
    )
    last_departure = F.timestamp_millis("last_departure_ms").alias("last_departure")
    return events.select("*", last_departure).drop("last_departure_ms")


def count_hours(flights: DataFrame) -> DataFrame:
    """Flights, cancellations and mean departure delay per airport and hour."""
    return (
        flights.groupBy("origin", F.window("scheduled", "1 hour"))
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
            F.avg("dep_delay").alias("mean_delay_min"),
        )
        .select(
            "origin", F.col("window.start").alias("hour"), "flights", "cancelled", "mean_delay_min"
        )
    )


def write_batches(folder: Path) -> Callable[[DataFrame, int], None]:
    """A sink that is exact across restarts: batch N is always, and only, the file of batch N."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, batch_id: int) -> None:
        lines = [line for (line,) in batch.select(F.to_json(F.struct("*"))).collect()]
        unfinished = folder / f".batch-{batch_id:06}.unfinished"
        unfinished.write_text("".join(line + "\n" for line in lines))
        os.replace(unfinished, folder / f"batch-{batch_id:06}.jsonl")

    return write


def start(
    spark: SparkSession, name: str, rows: DataFrame, output: Path, every_s: float | None
) -> StreamingQuery:
    """Start one query; its files and its checkpoint live and die together under `output`."""
    writer = (
        rows.writeStream.queryName(name)
        .outputMode("update")
        .option("checkpointLocation", str(output / "checkpoints" / name))
        .foreachBatch(write_batches(output / name))
    )
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_s} seconds").start()


class Progress(StreamingQueryListener):
    """Prints a line for each batch of one query: how far it is, and what the batch took."""

    def __init__(self, query: str, files: int) -> None:
        self.query, self.files, self.flights = query, files, 0

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        batch = event.progress
        if batch.name != self.query or not batch.numInputRows:
            return
        self.flights += batch.numInputRows
        number = f"{batch.batchId + 1} of {self.files}" if self.files else f"{batch.batchId + 1}"
        print(
            f"batch {number}: {batch.numInputRows:,} flights in {batch.batchDuration / 1000:.1f} s,"
            f" {self.flights:,} replayed",
            flush=True,
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        if event.name == self.query:
            print(
                f"{self.query} has started: its first batch starts Python on every core", flush=True
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...  # noqa: N802
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...  # noqa: N802


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("input", help="folder of Parquet files of flights (see replay.py)")
    parser.add_argument("output", type=Path, help="folder for the results and the checkpoints")
    parser.add_argument("--files-per-batch", type=int, default=1, metavar="N")
    parser.add_argument(
        "--every-s",
        type=float,
        metavar="SECONDS",
        help="a micro-batch every so often, until stopped (default: what is there, then end)",
    )
    parser.add_argument(
        "--lookup-ms",
        type=float,
        default=0.0,
        metavar="MS",
        help="wait so long for each flight, as for a call to an outside service (default: 0)",
    )
    args = parser.parse_args()

    spark = (
        SparkSession.builder.appName("flights")
        # transformWithState keeps its state in RocksDB and refuses Spark's default store.
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    # How many batches there will be is known where each file is one, and none comes later.
    one_each = args.every_s is None and args.files_per_batch == 1
    files = len(list(Path(args.input).glob("*.parquet"))) if one_each else 0
    spark.streams.addListener(Progress("stations", files))
    flights = read_flights(spark, args.input, args.files_per_batch)
    stations = monitor_stations(flights, args.lookup_ms / 1000)
    queries = [
        start(spark, "stations", stations, args.output, args.every_s),
        start(spark, "hours", count_hours(flights), args.output, args.every_s),
    ]
    spark.streams.awaitAnyTermination()
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
