"""The same query beside Flink: one to three workers and back under load, and skewed keys.

NEXMark's bids arrive in Kafka at a constant rate; the query keeps each bidder's number of bids and
highest price, and writes each change to Kafka. For each row, the task that holds its key's state
computes for some milliseconds, by the same Java on both engines. A worker is an executor of Spark
or a TaskManager of Flink with one slot, with 0.4 of a core by a quota of the operating system.

A change is over for a row when the first result that counts it is in Kafka, by the broker's clock.
After a change a burst of rows shows what the workers now do in a second.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from flink.arms import Arm, Setting
from flink.cluster import SETTINGS as FLINK_SETTINGS
from flink.figures import (
    STEADY_S,
    Done,
    count_wrong,
    find_done,
    measure_change,
    measure_steady,
)
from flink.following import Following
from flink.installed import compile_jar, find_flink
from flink.on_flink import open_by_savepoint, open_in_place
from flink.on_spark import open_balanced, open_restarted
from flink.topics import BidProducer, Topics, open_broker, open_topics
from harness.benchmark import Benchmark, make_folder, prepare, remove_folder, run
from harness.quotas import QUICK_JVM
from harness.results import Case
from nexmark.events import Workload as Events
from nexmark.events import draw_events
from scaling_real import rotate
from tables.beside_flink import ARMS, BALANCED, IN_PLACE, RESCALE, RESTARTED, SAVEPOINT, SKEW

FEW, MANY = 1, 3
UNCHANGED = (BALANCED, RESTARTED, IN_PLACE)
"""Where the number of workers stays, Flink is one way, and Spark is not restarted."""

MOST_S = 1200.0
"""Rows arrive no longer than so, whatever happens."""

SETTLE_S = 2.0
WARM_UP_ROUNDS, WARM_UP_ROWS = 5, 50
"""The first rows are slow on both engines, and not measured; to Spark a round is a batch or two."""

EVENTS = 10_000_000
"""More than are ever drawn."""


@dataclass(frozen=True)
class Workload:
    """What all arms get.

    Attributes:
        cores: that a worker may use.
        rounds: of work for each row, see `Work.java`.
        partitions: of Spark's state; Flink has 128 key groups.
        topic_partitions: of the topic with the rows.
        rows_per_s: that arrive where the number of workers changes: what one carries.
        burst_rows: for each worker, after a change.
        skewed_rows_per_s: that arrive at three workers where keys are skewed: what they carry if
            each has its share.
        zipf: exponent of the skewed keys; those of the other scenario have equal weights.
        lead_s: rows arrive for so long before anything counts.
        watch_s: once the query has caught up after a change, before the burst.
        skewed_lead_s: likewise where keys are skewed, which balancing takes some batches for.
        skewed_s: for so long skewed keys are measured.
    """

    cores: float = 0.4
    rounds: int = 1_000_000
    partitions: int = 12
    topic_partitions: int = 3
    rows_per_s: float = 60.0
    burst_rows: int = 300
    skewed_rows_per_s: float = 240.0
    zipf: float = 1.2
    lead_s: float = 6.0
    watch_s: float = 5.0
    skewed_lead_s: float = 20.0
    skewed_s: float = 20.0


SMOKE = Workload(lead_s=5.0, watch_s=2.0, skewed_lead_s=5.0, skewed_s=10.0)


def main() -> None:
    with prepare("beside_flink", __doc__ or "") as benchmark:
        workload = SMOKE if benchmark.smoke else Workload()
        cases: list[Case] = [
            {"scenario": scenario, "arm": arm, "repetition": repetition}
            for repetition in benchmark.repetitions
            for scenario, arms in ((RESCALE, ARMS), (SKEW, UNCHANGED))
            for arm in rotate(arms, repetition)
        ]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        installed = find_flink()
        settings = {
            **asdict(workload),
            "flink": installed.version,
            "flink_settings": FLINK_SETTINGS,
            "spark": QUICK_JVM,
        }
        jar = compile_jar(installed, benchmark.work)
        with open_broker(make_folder(benchmark.work, "broker")) as address:
            for case in missing:
                folder = make_folder(benchmark.work, "run")
                name = uuid4().hex[:8]
                setting = Setting(
                    folder,
                    Topics(address, f"bids-{name}", f"best-{name}"),
                    MANY,
                    workload.cores,
                    workload.partitions,
                    workload.rounds,
                    installed,
                    jar,
                )
                measured = measure(benchmark, case, workload, setting)
                benchmark.record(None, case, settings, measured)
                remove_folder(folder)


@contextmanager
def open_arm(benchmark: Benchmark, arm: str, setting: Setting, workers: int) -> Iterator[Arm]:
    """Starts the query with so many workers, and ends it."""
    opened = {
        BALANCED: lambda: open_balanced(benchmark, setting, workers),
        RESTARTED: lambda: open_restarted(benchmark, setting, workers),
        IN_PLACE: lambda: open_in_place(setting, workers),
        SAVEPOINT: lambda: open_by_savepoint(setting, workers),
    }
    with opened[arm]() as running:
        yield running


def measure(
    benchmark: Benchmark, case: Case, workload: Workload, setting: Setting
) -> dict[str, Any]:
    """Runs one arm in one scenario."""
    is_skewed = case["scenario"] == SKEW
    zipf = workload.zipf if is_skewed else 0.0
    rate = workload.skewed_rows_per_s if is_skewed else workload.rows_per_s
    events = draw_events(Events(EVENTS, zipf=zipf), seed=int(case["repetition"]))
    log = setting.folder / "topics.log"
    with (
        open_topics(setting.topics, workload.topic_partitions, log) as traffic,
        open_arm(benchmark, str(case["arm"]), setting, MANY if is_skewed else FEW) as arm,
    ):
        producer = BidProducer(traffic, events)
        following = Following(arm.check_alive, traffic)
        stream = Stream(arm, following, producer, workload)
        for _ in range(WARM_UP_ROUNDS):
            producer.begin_s = time.time()
            producer.write(WARM_UP_ROWS, 0.0)
            following.await_all()
        producer.begin_s = time.time()

        def count_until(second: float) -> float:
            return rate * second + producer.extra

        with producer.produce(count_until, producer.begin_s, MOST_S):
            following.rest(workload.skewed_lead_s if is_skewed else workload.lead_s)
            times_s = stream.hold() if is_skewed else stream.change()
        following.await_all()
        # What was counted twice would come now.
        following.rest(SETTLE_S)
    done = find_done(traffic.written, traffic.results)
    measure_part = measure_steady if is_skewed else measure_change
    figures = {name: measure_part(done, at_s) for name, at_s in times_s.items()}
    return {
        **figures,
        **count_wrong(traffic.written, traffic.results),
        "rows": len(traffic.written),
        "keys": len({bid.bidder for bid in traffic.written}),
        "results": len(traffic.results),
        "done_per_s": count_per_second(done, producer.begin_s),
        "times_s": {
            name: {mark: round(at - producer.begin_s, 2) for mark, at in at_s.items()}
            for name, at_s in times_s.items()
        },
    }


class Stream:
    """A query whose workers change, or whose keys are skewed."""

    def __init__(
        self, arm: Arm, following: Following, producer: BidProducer, workload: Workload
    ) -> None:
        self._arm = arm
        self._following = following
        self._producer = producer
        self._workload = workload

    def change(self) -> dict[str, dict[str, float]]:
        """Gives it three workers, and takes two away again; returns when all of that was."""
        return {
            "out": self._change_to(MANY),
            "in": self._change_to(FEW),
        }

    def _change_to(self, workers: int) -> dict[str, float]:
        asked_s = time.time()
        self._arm.rescale(workers)
        there_s = time.time()
        self._following.await_all()
        caught_up_s = time.time()
        self._following.rest(self._workload.watch_s)
        burst_s = time.time()
        written = self._following.traffic.written
        before = len(written)
        rows = workers * self._workload.burst_rows
        self._producer.extra += rows
        self._following.await_that(
            lambda: len(written) >= before + rows, "the burst did not arrive"
        )
        self._following.await_all()
        over_s = time.time()
        self._following.rest(STEADY_S)
        return {
            "asked": asked_s,
            "there": there_s,
            "caught_up": caught_up_s,
            "burst": burst_s,
            "over": over_s,
        }

    def hold(self) -> dict[str, dict[str, float]]:
        """Lets it run on."""
        from_s = time.time()
        self._following.rest(self._workload.skewed_s)
        return {"skew": {"from": from_s, "until": time.time()}}


def count_per_second(done: Sequence[Done], begin_s: float) -> list[int]:
    """Rows that came out in each second since the begin."""
    seconds = Counter(int(row.at_s - begin_s) for row in done if row.at_s >= begin_s)
    return [seconds[second] for second in range(max(seconds, default=-1) + 1)]


if __name__ == "__main__":
    run(main)
