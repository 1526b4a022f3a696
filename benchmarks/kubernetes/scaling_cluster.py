"""What autoscaling is worth on a real cluster: ours beside fixed sizes and dynamic allocation.

One load from Kafka runs under each way to choose the number of executors: a step up, a ramp down, a
quiet end. Ours is a BalancedStream under the operator, on a shorter clock than its defaults. The
others are the same application under plain Spark, without the operator: with a fixed number of
executors, or with Spark's own dynamic allocation and its defaults. The executors are pods that
share the cores of one machine; rows wait, which occupies an executor and no core.

When a batch began and ended, and which rows it read, is in the query's offset log and commit log. A
pod counts from its creation to its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cluster import open_site, open_stream
from harness.benchmark import Benchmark, prepare, run
from harness.counting import counting, list_changes, sum_executor_s
from harness.results import Case
from kube import Kube
from plain_driver import run_plain_driver
from producing import PacedProducer
from recomputation import compare, read_offset_log
from simulation.figures import compute_figures
from simulation.model import Job
from simulation.scalers import count_for
from simulation.spark import BatchRun
from simulation.traces import Phase, Trace, make_phases
from sites import Site
from streaming import FAST, describe_counts, skewed
from streams import Stream
from tables.scaling_real import PEAK, WAYS
from waiting import wait_until

from balancedstream.core.scaling.executors import HOLD_S

LEAST, MOST = 1, 3
"""Executors that any way may use; the load begins with what one carries."""

TRIGGER_S = 8.0
OBJECTIVE_S = 2.5 * TRIGGER_S
WAIT_MS = 8
SPLITS, PARTITIONS = 3, 6
JOB = Job(
    splits=SPLITS,
    partitions=PARTITIONS,
    map_row_s=0.0,
    state_row_s=WAIT_MS / 1000,
    trigger_s=TRIGGER_S,
)
"""By which the fixed sizes are chosen."""

LOW, HIGH = 10.0, 180.0
PHASES: tuple[Phase, ...] = (
    (60.0, LOW, LOW),
    (240.0, HIGH, HIGH),
    (60.0, HIGH, LOW),
    (240.0, LOW, LOW),
)
SMOKE_PHASES: tuple[Phase, ...] = ((20.0, LOW, LOW),)

LEAD_ROWS = 100
LEAD_BATCHES = 4
"""Before the load: the first batches of a driver are slow, whatever it does."""

SEND_S = 0.2
START_S = 400.0
END_S = 600.0

SCALING = {**FAST["scaling"], "mode": "Auto"}
"""Ours: the product's policy on a clock that fits a load of ten minutes."""

DYNAMIC_ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": str(LEAST),
    "spark.dynamicAllocation.minExecutors": str(LEAST),
    "spark.dynamicAllocation.maxExecutors": str(MOST),
}
"""All else is Spark's default: a second of waiting tasks adds, and 60 s without a task remove."""


def main() -> None:
    with prepare("scaling_cluster", __doc__ or "") as benchmark:
        ways = WAYS[:1] if benchmark.smoke else WAYS
        trace = make_phases("step and ramp", SMOKE_PHASES if benchmark.smoke else PHASES)
        settings = {
            "executors": [LEAST, MOST],
            "splits": SPLITS,
            "partitions": PARTITIONS,
            "wait_ms": WAIT_MS,
            "trigger_s": TRIGGER_S,
            "phases": PHASES,
            "objective_s": OBJECTIVE_S,
            "scaling": SCALING,
        }
        cases: list[Case] = [{"way": way, "repetition": 1} for way in ways]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        with open_site() as site, site.operator(site.prometheus.in_pods):
            for case in missing:
                measured = measure(site, str(case["way"]), trace)
                benchmark.record(None, case, settings, measured)
                tell(benchmark, measured)


def tell(benchmark: Benchmark, measured: Mapping[str, Any]) -> None:
    """The figures without the long lists."""
    shown = {name: value for name, value in measured.items() if not isinstance(value, list)}
    benchmark.tell(str(shown))


def measure(site: Site, way: str, trace: Trace) -> dict[str, Any]:
    """Runs the load under one way; its figures, with batches and the changes of its executors."""
    with (
        open_stream(site, "scaling", on_object_store=False) as (stream, topic),
        PacedProducer(site.broker, topic, skewed(seed=1), partitions=SPLITS) as producer,
        running(site, stream, topic, way, trace),
    ):
        for _ in range(LEAD_BATCHES):
            producer.send(LEAD_ROWS)
            lead = stream.wait_for_batches(1, timeout_s=START_S)
        lead_rows = read_all(stream, topic, producer)
        with counting(lambda: count_pods(site.kube, stream)) as samples:
            begin_s = samples[0][0]
            play(trace, producer, begin_s)
            read_all(stream, topic, producer)
        comparison = compare(
            stream.checkpoint / "counts", stream.sink, topic, site.broker.read_topic
        )
        batches = list_batches(stream, topic, lead, lead_rows, begin_s)
    since = [(at_s - begin_s, count) for at_s, count in samples]
    changes = list_changes(since)
    figures = compute_figures(
        trace,
        batches,
        changes,
        executor_s=sum_executor_s(since, trace.length_s),
        left_rows=0.0,
        objective_s=OBJECTIVE_S,
        stabilization_s=HOLD_S,
    )
    return figures.to_json() | {
        "batches_compared": comparison.batches,
        "wrong_keys": len(comparison.differences),
        "changes": [[round(at_s, 1), before, after] for at_s, before, after in changes],
        "batches": [
            [round(b.start_s, 2), round(b.end_s, 2), int(b.last_row - b.first_row)] for b in batches
        ],
    }


@contextmanager
def running(site: Site, stream: Stream, topic: str, way: str, trace: Trace) -> Iterator[None]:
    """The application under one way, as long as it is open."""
    options = {"wait_ms": WAIT_MS, "rows": 100_000, "trigger_s": int(TRIGGER_S)}
    manifest = describe_counts(
        stream,
        site.broker,
        topic,
        executors=(LEAST, MOST),
        partitions=PARTITIONS,
        scaling=SCALING,
        **options,
    )
    if way == "ours":
        stream.apply(manifest)
        stream.wait_for_condition("Running", timeout_s=START_S)
    else:
        rate = trace.peak if way == PEAK else trace.mean_rate(0.0, trace.length_s)
        dynamic = way == "dynamic allocation"
        application = manifest["spec"]["application"]
        run_plain_driver(
            site.kube,
            stream.namespace,
            stream.name,
            [application["file"], *application["arguments"]],
            executors=LEAST if dynamic else min(MOST, count_for(JOB, rate)),
            conf={
                "spark.sql.shuffle.partitions": str(PARTITIONS),
                **(DYNAMIC_ALLOCATION if dynamic else {}),
            },
        )
    # What runs ends with its namespace.
    yield


def play(trace: Trace, producer: PacedProducer, begin_s: float) -> None:
    """Sends the rows of the trace in real time; returns at its end."""
    sent, at_s = 0, 0.0
    while at_s < trace.length_s:
        at_s = min(time.time() - begin_s, trace.length_s)
        due = round(trace.count_until(at_s))
        producer.send(due - sent)
        sent = due
        time.sleep(SEND_S)


def read_all(stream: Stream, topic: str, producer: PacedProducer) -> int:
    """Waits until all rows that were sent are in committed batches; returns how many."""
    producer.flush()

    def count_read() -> int:
        ends = read_offset_log(stream.checkpoint / "counts", topic)
        return sum(ends[max(ends)].values()) if ends else 0

    wait_until(
        "the end of the backlog",
        lambda: count_read() >= producer.sent,
        timeout_s=END_S,
        last_seen=count_read,
    )
    return producer.sent


def count_pods(kube: Kube, stream: Stream) -> int:
    """Executor pods that are there, from their creation on."""
    pods = kube.pods(stream.namespace, {"spark-role": "executor"})
    return sum(pod["status"]["phase"] in {"Pending", "Running"} for pod in pods)


def list_batches(
    stream: Stream, topic: str, lead: int, lead_rows: int, begin_s: float
) -> Sequence[BatchRun]:
    """The batches after the lead, in the trace's time; its first row is row 0.

    Spark writes the offset log before it runs a batch, and the commit log after it.
    """
    log = stream.checkpoint / "counts"
    found, first = [], 0
    for batch, ends in read_offset_log(log, topic).items():
        last = sum(ends.values()) - lead_rows
        if batch > lead and last > max(first, 0):
            start_s, end_s = (
                (log / folder / str(batch)).stat().st_mtime - begin_s
                for folder in ("offsets", "commits")
            )
            found.append(BatchRun(start_s, end_s, max(first, 0), last))
        first = last
    return found


if __name__ == "__main__":
    run(main)
