"""The operator's home in virtual time: its real passes make plans, the driver's real loop follows.

Around them are an API server that keeps what it is given and starts the driver at once, and a
Prometheus that scrapes the driver's real exporter. A pass takes no virtual time.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from balancedstream.core.policy import Mode, Policy
from balancedstream.core.wire.objects import ANSWER_KEY, PLAN_KEY, answer_name, plan_name
from balancedstream.core.wire.plan import Answer
from balancedstream.core.wire.stopping import Stopped
from balancedstream.loop.ports import PlanChannel
from balancedstream.metrics.exporter import MAX_PARTITION_SERIES, Exporter
from balancedstream_operator.api.resource import (
    API_VERSION,
    KIND,
    Manifest,
    Stream,
    driver_pod_name,
)
from balancedstream_operator.kube.cluster import Cluster
from balancedstream_operator.observe.endpoints import Subject
from balancedstream_operator.observe.measurement import (
    PARTITION_METRICS,
    QUERY_METRICS,
    Measurement,
)
from balancedstream_operator.observe.measurer import Source
from balancedstream_operator.observe.prometheus import fetch_measurement
from balancedstream_operator.observe.series import Series
from balancedstream_operator.process.passes import Passes
from balancedstream_operator.settings import Settings
from simulation.running import Change, run_loop
from simulation.spark import VirtualSpark

STREAM = Stream("simulation", "stream", "1")

SCRAPE_S = 15.0
"""Between two scrapes: the default of the chart's PodMonitor."""

_Recorded = tuple[dict[str, str], list[tuple[float, float]]]
"""A series that grows: its labels, and its samples."""


def run_operated(
    spark: VirtualSpark,
    most: int,
    max_partition_series: int = MAX_PARTITION_SERIES,
    admission: Mode = "advise",
) -> list[Change]:
    """Runs it under the operator, with the default policy; its driver follows the plans.

    Args:
        spark: before the run.
        most: executors at most.
        admission: whether batches are bounded.
        max_partition_series: of the driver's exporter; the hottest partitions have them.

    Raises:
        RunFailedError: the driver's loop, a scrape or a pass failed.
    """
    exporter = Exporter(max_partition_series, stream=str(STREAM))
    prometheus = VirtualPrometheus(exporter)
    cluster = VirtualCluster()
    stream = describe_stream(spark, most)
    stream["spec"]["admission"] = {"mode": admission.capitalize()}
    cluster.apply(stream)
    passes = Passes(STREAM, cluster, lambda _: prometheus, Settings("http://prometheus"))

    def scrape() -> None:
        prometheus.scrape(spark.now_s)
        spark.call_at(spark.now_s + SCRAPE_S, scrape)

    def run_pass() -> None:
        done = passes.run(stream, spark.now_s)
        if done.failure is not None:
            raise done.failure
        spark.call_at(spark.now_s + done.interval_s, run_pass)

    # Nobody starts Prometheus and the operator at the same moment.
    spark.call_at(random.Random(spark.seed).uniform(0.0, SCRAPE_S), scrape)
    spark.call_at(0.0, run_pass)
    return run_loop(spark, Policy(), exporter, VirtualPlans(cluster))


def describe_stream(spark: VirtualSpark, most: int) -> Manifest:
    """The BalancedStream of a job that has its first executors already."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": STREAM.name,
            "namespace": STREAM.namespace,
            "uid": STREAM.uid,
            "generation": 1,
        },
        "spec": {
            "image": "virtual",
            "application": {"file": "/virtual.py"},
            "executors": {"min": 1, "max": most},
            "checkpoints": {"claim": "virtual"},
        },
        "status": {"desiredExecutors": spark.asked},
    }


class VirtualCluster(Cluster):
    """An API server that keeps objects; what a StatefulSet asks for runs at once."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], Manifest] = {}

    def get(self, version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        """An object, or None."""
        return self._objects.get((kind, name))

    def apply(self, manifest: Manifest, uid: str = "") -> str:
        """Keeps an object; fields that the manifest does not name stay."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        kept = self._objects.setdefault((kind, name), {})
        kept.update(manifest)
        if kind == "StatefulSet":
            self._start_driver()
        return f"{kind}/{name}"

    def list_pods(self, namespace: str, selector: str) -> list[Manifest]:
        """None: nobody else has the checkpoint, and executors that are missing come."""
        return []

    def apply_plan(self, manifest: Manifest) -> Manifest:
        """The same: there is only one that writes plans."""
        self.apply(manifest)
        return manifest

    def create_secret(self, manifest: Manifest) -> None:
        """Nobody reads it."""

    def try_pod(self, manifest: Manifest) -> None:
        """Every pod would be taken."""

    def set_partitions(self, stream: Stream, partitions: int) -> None:
        """Nobody approves that here."""

    def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """There are none."""

    def annotate(self, manifest: Manifest, name: str, value: str) -> None:
        """No controller has to be woken."""

    def may(self, namespace: str, account: str, verb: str, config_map: str) -> bool:
        """Every account may do everything."""
        return True

    def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Starts it again at once."""
        self._start_driver()

    def write_status(self, stream: Stream, status: dict[str, Any]) -> None:
        """Merges fields into the status; None removes one."""
        kept = self._objects[KIND, stream.name]["status"]
        kept.update(status)
        for field in [field for field, value in kept.items() if value is None]:
            del kept[field]

    def take_annotation(self, stream: Stream, name: str, value: str) -> bool:
        """There are none."""
        return False

    def read_data(self, name: str, key: str) -> str:
        """What a ConfigMap holds under a key; empty for nothing."""
        config_map = self._objects.get(("ConfigMap", name), {})
        return str(config_map.get("data", {}).get(key, ""))

    def write_data(self, name: str, key: str, text: str) -> None:
        """Puts a text into a ConfigMap that is there."""
        self._objects["ConfigMap", name]["data"] = {key: text}

    def _start_driver(self) -> None:
        pod = driver_pod_name(STREAM)
        self._objects["Pod", pod] = {
            "metadata": {"name": pod, "namespace": STREAM.namespace, "uid": pod},
            "status": {"containerStatuses": [{"name": "driver", "state": {"running": {}}}]},
        }


class VirtualPlans(PlanChannel):
    """Plans reach the driver, and answers the operator, as soon as they are written."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self._taken = ""

    def take_plan(self) -> str | None:
        """The plan, if it was not taken yet."""
        text = self._cluster.read_data(plan_name(STREAM.name), PLAN_KEY)
        if text == self._taken:
            return None
        self._taken = text
        return text

    def send_answer(self, answer: Answer) -> None:
        """Writes the answer."""
        self._cluster.write_data(answer_name(STREAM.name), ANSWER_KEY, answer.to_json())

    def find_stop(self) -> str:
        """Nobody asks for that here."""
        return ""

    def tell_stopped(self, stopped: Stopped) -> None:
        """There is nothing to tell."""

    def start_anew(self) -> None:
        """Nothing has ended."""


class VirtualPrometheus(Source):
    """The series of one driver; every sample stays.

    Args:
        exporter: of the driver.
    """

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._names = {*QUERY_METRICS, *PARTITION_METRICS}
        self._series: dict[str, dict[tuple[str, ...], _Recorded]] = defaultdict(dict)

    def scrape(self, now_s: float) -> None:
        """Takes one sample of each series that the driver shows."""
        for family in self._exporter.collect():
            for sample in family.samples:
                if sample.name in self._names:
                    # All series of a metric have the same labels, in the same order.
                    key = tuple(sample.labels.values())
                    known = self._series[sample.name]
                    if key not in known:
                        known[key] = {**sample.labels, "__name__": sample.name}, []
                    known[key][1].append((now_s, sample.value))

    def ask(self, query: str, now_s: float) -> float:
        """No stream here has a query."""
        raise NotImplementedError

    def observe(self, subject: Subject, policy: Policy, now_s: float) -> Measurement:
        """What the driver measured."""

        def fetch(metrics: Sequence[str], look_back_s: float) -> list[Series]:
            return list(self._select(metrics, now_s - look_back_s))

        return fetch_measurement(fetch, subject, policy, now_s)

    def _select(self, metrics: Sequence[str], from_s: float) -> Iterator[Series]:
        for metric in metrics:
            for labels, samples in self._series[metric].values():
                recent = samples[bisect_left(samples, (from_s, 0.0)) :]
                if recent:
                    yield Series(labels, tuple(recent))
