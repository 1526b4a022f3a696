"""Rows that arrive in a Kafka topic at a pace of their own, and the results in another one."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, cast

from broker_process import BROKER, run_broker_process
from harness.benchmark import MeasurementError
from harness.producing import Producer
from jars import fetch_jars
from nexmark.events import Event

from flink.figures import Bid, Result

HERE = Path(__file__).parent
JAVA = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


@dataclass(frozen=True)
class Topics:
    """The topics of one run.

    Attributes:
        address: of the broker.
        bids: topic of the rows.
        best: topic of the results.
    """

    address: str
    bids: str
    best: str


@dataclass
class Traffic:
    """What went into the one topic and came out of the other one, as far as is known.

    Attributes:
        process: writes and reads.
        written: bids, in the order of their arrival.
        results: of the query, in the order in which the broker took them.
        done: rows that are in a result.
    """

    process: subprocess.Popen[str]
    written: list[Bid] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    done: int = 0

    def read(self) -> None:
        """Takes in results until there is no more to come."""
        counted: Counter[int] = Counter()
        for line in cast(IO[str], self.process.stdout):
            at_ms, _, value = line.rstrip("\n").partition("\t")
            row = json.loads(value)
            result = Result(int(at_ms) / 1000, row["bidder"], row["bids"], row["price"])
            self.results.append(result)
            more = max(0, result.bids - counted[result.bidder])
            counted[result.bidder] += more
            self.done += more

    def check_alive(self) -> None:
        """Raises MeasurementError if the process ended."""
        if self.process.poll() is not None:
            message = f"the process that writes rows ended with {self.process.returncode}"
            raise MeasurementError(message)


@contextmanager
def open_broker(folder: Path) -> Iterator[str]:
    """A broker; gives its address."""
    with run_broker_process(folder) as (address, _):
        yield address


@contextmanager
def open_topics(topics: Topics, partitions: int, log: Path) -> Iterator[Traffic]:
    """Makes two topics, and takes in what comes into the second one.

    Args:
        topics: that are not there yet.
        partitions: of the topic of the rows.
        log: for what the process says.
    """
    command = [*JAVA, "-cp", f"{fetch_jars(BROKER)}/*", str(HERE / "Topics.java")]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, topics.address, topics.bids, topics.best, str(partitions)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            bufsize=1,
        ) as process,
    ):
        try:
            if cast(IO[str], process.stdout).readline().strip() != "ready":
                message = f"there are no topics: {log.read_text()[-1000:]}"
                raise MeasurementError(message)
            traffic = Traffic(process)
            reader = threading.Thread(target=traffic.read, daemon=True)
            reader.start()
            yield traffic
        finally:
            process.kill()


class BidProducer(Producer):
    """Writes NEXMark's bids to a topic.

    Args:
        traffic: of the topic.
        events: in the order of their arrival.

    Attributes:
        extra: rows that are due now, beside those of the trace.
    """

    tick_s = 0.1

    def __init__(self, traffic: Traffic, events: Iterator[Event]) -> None:
        self._traffic = traffic
        self._bids = (event.row for event in events if event.table == "bid")
        self.begin_s = 0.0
        self.extra = 0

    def write(self, rows: int, arrived_s: float) -> None:
        """Writes the next rows in one go."""
        lines = cast(IO[str], self._traffic.process.stdin)
        drawn = list(islice(self._bids, max(0, rows)))
        text = "".join(f"{row['bidder']}\t{json.dumps(row)}\n" for row in drawn)
        lines.write(text)
        lines.flush()
        at_s = self.begin_s + arrived_s
        self._traffic.written += [Bid(at_s, int(row["bidder"]), int(row["price"])) for row in drawn]
