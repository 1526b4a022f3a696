"""A thousand batches on a cluster with moves throughout: what everything keeps does not grow.

One stream on two executors. Other keys are hot every twenty batches, so that partitions move from
the first batches to the last; at the end the output of each batch is compared with a recomputation.
Memory is all that a process holds.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from cluster import open_site, open_stream
from harness.benchmark import Benchmark, MeasurementError, prepare
from harness.counting import read_held_mib
from installing import Operator
from kube import Manifest
from nodes import find_processes
from producing import PacedProducer, ZipfKeys
from recomputation import compare
from sites import Site
from streaming import describe_counts
from streams import Stream

BATCHES = 1_000
SHIFT_BATCHES = 20
SAMPLE_BATCHES = 40
KEYS = 100
HOT = 10.0
RATE = 80
RETAIN = 20
"""Batches that a query can go back to. Spark's default of 100 would hide growth for longer."""


def main() -> None:
    with prepare("soak_cluster", __doc__ or "") as benchmark:
        batches = 3 * SAMPLE_BATCHES if benchmark.smoke else BATCHES
        if not benchmark.find_missing([{"home": "cluster", "repetition": 1}]):
            return
        with open_site() as site, site.operator(site.prometheus.in_pods) as operator:
            measured = soak(benchmark, site, operator, batches)
        settings = {"batches": batches, "shift_batches": SHIFT_BATCHES, "retain": RETAIN}
        benchmark.record(None, {"home": "cluster", "repetition": 1}, settings, measured)


def soak(
    benchmark: Benchmark, site: Site, operator: Operator, batches: int
) -> dict[str, list[float]]:
    """Runs the batches, and gives each figure at each look.

    Raises:
        MeasurementError: a batch wrote something wrong.
    """
    keys = ZipfKeys(KEYS, 0.5, seed=1)
    figures: dict[str, list[float]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as scratch,
        open_stream(site, "soak", on_object_store=False) as (stream, topic),
        PacedProducer(site.broker, topic, keys) as producer,
    ):
        producer.set_rate(RATE)
        stream.apply(
            describe_counts(
                stream, site.broker, topic, executors=(2, 2), trigger_s=1, retain=RETAIN
            )
        )
        stream.wait_for_condition("Running", timeout_s=240)
        log = Path(scratch)
        hot: set[str] = set()
        for batch in range(1, batches + 1):
            stream.wait_for_batches(batch - stream.last_batch(), timeout_s=120)
            keep_log(stream.checkpoint / "counts", log)
            if batch % SHIFT_BATCHES == 0:
                keys.favor(hot, 1 / HOT)
                hot = {f"k{(batch + 7 * n) % KEYS}" for n in range(10)}
                keys.favor(hot, HOT)
            if batch % SAMPLE_BATCHES == 0:
                looked = {"batches": float(batch), **look(site, operator, stream)}
                for name, figure in looked.items():
                    figures[name].append(figure)
                benchmark.tell(" ".join(f"{name}={figure}" for name, figure in looked.items()))
        compared = compare(log, stream.sink, topic, site.broker.read_topic)
        if compared.differences:
            raise MeasurementError(str(compared))
    return dict(figures)


def keep_log(checkpoint: Path, kept: Path) -> None:
    """Copies what is new in a query's log, of which Spark deletes old batches."""
    for folder in ("offsets", "commits"):
        (kept / folder).mkdir(exist_ok=True)
        for entry in (checkpoint / folder).glob("[0-9]*"):
            if not (kept / folder / entry.name).exists():
                with suppress(FileNotFoundError):
                    shutil.copy(entry, kept / folder)


def look(site: Site, operator: Operator, stream: Stream) -> dict[str, float]:
    """What is kept at present; of executors, the most that one holds."""
    status: Manifest = stream.status()
    driver = stream.driver() or {}
    prometheus = site.prometheus
    return {
        "moves": prometheus.value(f"balancedstream_moves_settled_total{stream.label}") or 0.0,
        "operator_mib": sum_held_mib(operator.pod() or {}),
        "driver_mib": sum_held_mib(driver),
        "executor_mib": max(map(sum_held_mib, stream.wait_for_executors(2))),
        "files": float(sum(path.is_file() for path in stream.checkpoint.rglob("*"))),
        "series": prometheus.value(f"count({stream.label})") or 0.0,
        "status_kib": round(len(json.dumps(status)) / 1024, 1),
    }


def sum_held_mib(pod: Manifest) -> float:
    """Memory that a pod's processes hold now."""
    held_mib = 0.0
    for process in find_processes(None, pod):
        # It may end meanwhile.
        with suppress(OSError):
            held_mib += read_held_mib(str(process))
    return round(held_mib, 1)


if __name__ == "__main__":
    main()
