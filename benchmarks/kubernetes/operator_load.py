"""What the operator costs: processor time and memory with up to 200 BalancedStreams.

This release's and 0.1.0's take turns. The API server, Prometheus and the operator in its pod are
real. The drivers are not: their pods are never given to a node and are said to run by writing
their status, and their metrics come from the product's own exporter, one for each stream, fed with
made-up batches.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import open_site
from harness.benchmark import Benchmark, MeasurementError, prepare
from harness.results import Case
from installing import Operator
from kube import Kube
from prometheus_client.parser import text_string_to_metric_families
from releases import build_old_release
from sites import Site
from streams import API_VERSION, KIND
from waiting import wait_until

from balancedstream.core.samples import BatchSample, TaskSample
from balancedstream.metrics.exporter import Exporter

SIZES = (
    {"streams": 1, "partitions": 200},
    {"streams": 50, "partitions": 200},
    {"streams": 200, "partitions": 200},
    {"streams": 1, "partitions": 10_000},
)
WINDOW_S = 30.0
"""Two of the operator's intervals for each stream."""
BATCH_S = 10.0
EXECUTORS = ("1", "2")
NAMESPACE = "operator-load"
PROMETHEUS_PORT = 9090
"""What the chart lets the operator reach."""
FIRST_PORT = 19100
SCRAPE_S = 15
PATIENCE_S = 600.0


def main() -> None:
    with prepare("operator_load", __doc__ or "") as benchmark:
        sizes = SIZES[:1] if benchmark.smoke else SIZES
        with open_site() as site, build_old_release(site.cluster.node) as old:
            url = f"http://{site.kube.own_address}:{PROMETHEUS_PORT}"
            operators = {
                "0.1.0": Operator(site.kube, url, old.chart, old.operator),
                "now": Operator(site.kube, url),
            }
            for size in sizes:
                for release, operator in operators.items():
                    cases: list[Case] = [
                        {**size, "release": release, "repetition": number}
                        for number in benchmark.repetitions
                    ]
                    missing = benchmark.find_missing(cases)
                    if missing:
                        measure(benchmark, site, operator, size, missing)


def measure(
    benchmark: Benchmark,
    site: Site,
    operator: Operator,
    size: dict[str, int],
    cases: list[Case],
) -> None:
    """One installation of an operator, its streams, and a window for each case."""
    partitions = size["partitions"]
    names = [f"stream-{n}" for n in range(size["streams"])]
    with (
        fed_exporters(names, partitions),
        prometheus(names),
        site.installed(operator),
        site.namespace(NAMESPACE),
    ):
        site.kube.apply(*(describe(name, partitions) for name in names))
        pretend_to_run(site.kube, names)
        wait_until_running(site.kube, names)
        for case in cases:
            before = read_process(operator)
            time.sleep(WINDOW_S)
            after = read_process(operator)
            passed_s = after["at_s"] - before["at_s"]
            measured = {
                "cpu_cores": (after["cpu_s"] - before["cpu_s"]) / passed_s,
                "passes_per_s": (after["passes"] - before["passes"]) / passed_s,
                "memory_mib": after["memory_bytes"] / 2**20,
            }
            benchmark.record(None, case, {"interval_s": 15, "scrape_s": SCRAPE_S}, measured)
            benchmark.tell(str(measured))


def describe(name: str, partitions: int) -> dict[str, Any]:
    """A stream whose driver no scheduler takes."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "image": "localhost/none:1",
            "application": {"file": "/app/none.py"},
            "executors": {"min": len(EXECUTORS), "max": 4},
            "checkpoints": {"claim": "none"},
            "partitions": partitions,
            "driver": {"podTemplate": {"spec": {"schedulerName": "nobody"}}},
        },
    }


def pretend_to_run(kube: Kube, names: list[str]) -> None:
    """Writes each driver pod's status as its kubelet would."""
    status = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "driver",
                "image": "localhost/none:1",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }
        ],
    }
    waiting = set(names)

    def write_to_new_pods() -> bool:
        for pod in kube.pods(NAMESPACE):
            name = pod["metadata"]["name"].removesuffix("-driver-0")
            if name in waiting:
                patch = json.dumps({"status": status})
                kube.kubectl(
                    "patch", "pod", pod["metadata"]["name"], "--subresource=status", "-p", patch,
                    namespace=NAMESPACE,
                )  # fmt: skip
                waiting.discard(name)
        return not waiting

    wait_until(
        "a pod of every driver",
        write_to_new_pods,
        timeout_s=PATIENCE_S,
        last_seen=lambda: f"{len(waiting)} drivers without one",
    )


def wait_until_running(kube: Kube, names: list[str]) -> None:
    """Until the operator says of all streams that their batches progress."""

    def count() -> int:
        streams = kube.find_all(API_VERSION, KIND, namespace=NAMESPACE)
        return [stream.get("status", {}).get("phase") for stream in streams].count("Running")

    wait_until(
        f"{len(names)} streams that run",
        lambda: count() == len(names),
        timeout_s=PATIENCE_S,
        interval_s=2,
        last_seen=count,
    )


def read_process(operator: Operator) -> dict[str, float]:
    """The operator's own account of itself, from its /metrics."""
    pod = operator.pod()
    if pod is None:
        message = "the operator is gone"
        raise MeasurementError(message)
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8081/metrics") as answer:
        text = answer.read().decode()
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return {
        "at_s": time.monotonic(),
        "cpu_s": values["process_cpu_seconds_total"],
        "memory_bytes": values["process_resident_memory_bytes"],
        "passes": values["balancedstream_operator_pass_seconds_count"],
    }


@contextmanager
def fed_exporters(names: list[str], partitions: int) -> Iterator[None]:
    """An exporter for each stream, and a thread that finishes a batch of all every ten seconds."""
    exporters = [Exporter(stream=f"{NAMESPACE}/{name}") for name in names]
    for port, exporter in enumerate(exporters, FIRST_PORT):
        exporter.start(port)
    closing = threading.Event()

    def feed() -> None:
        batch = 0
        while True:
            for exporter in exporters:
                finish_batch(exporter, partitions, batch)
            batch += 1
            if closing.wait(BATCH_S):
                return

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()
        for exporter in exporters:
            exporter.close()


def finish_batch(exporter: Exporter, partitions: int, batch: int) -> None:
    """A balanced load: the usual case, in which there is nothing to do."""
    now_s = time.time()
    tasks = tuple(
        TaskSample("q", 0, p, batch, EXECUTORS[p % 2], 0.8, 1000, 100_000, now_s)
        for p in range(partitions)
    )
    sample = BatchSample("q", batch, now_s, 7.0, 16_000, interval_s=BATCH_S, backlog_rows=100.0)
    exporter.on_batch(sample, tasks, dict.fromkeys(EXECUTORS, 1))


@contextmanager
def prometheus(names: list[str]) -> Iterator[None]:
    """Debian's Prometheus, scraping all exporters."""
    ports = range(FIRST_PORT, FIRST_PORT + len(names))
    scrape = {
        "job_name": "drivers",
        "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
    }
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "prometheus.json"
        # JSON is YAML as well.
        configuration.write_text(
            json.dumps({"global": {"scrape_interval": f"{SCRAPE_S}s"}, "scrape_configs": [scrape]})
        )
        command = [
            shutil.which("prometheus") or "prometheus",
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=0.0.0.0:{PROMETHEUS_PORT}",
            "--log.level=error",
        ]
        with subprocess.Popen(command) as process:
            try:
                yield
            finally:
                process.terminate()


if __name__ == "__main__":
    main()
