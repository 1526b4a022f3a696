"""A stream under an operator, in a cluster that only keeps what it is given."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from balancedstream.core.policy import Policy
from balancedstream.core.samples import BatchSample, StageSample, TaskSample
from balancedstream.core.wire.plan import NEW_EXECUTOR, Answer, Plan, parse_plan
from balancedstream_operator.api.resource import Manifest, Stream, driver_pod_name
from balancedstream_operator.api.status import StreamEvent, format_time, write_status
from balancedstream_operator.errors import (
    ClusterError,
    MissingMeasurementsError,
    RefusedError,
    UnreachableError,
)
from balancedstream_operator.observe.endpoints import Endpoint, Subject
from balancedstream_operator.observe.measurement import (
    Measurement,
    ShuffleSample,
)
from balancedstream_operator.plan.shares import Shares
from balancedstream_operator.process.passes import Passes
from balancedstream_operator.process.turns import Turns
from balancedstream_operator.settings import Settings

STREAM = Stream("shop", "clicks", "uid-1")
POD = "clicks-driver-0"
TARGET = "clicks-driver"
"""The driver's pod of an application that kubeflow's operator runs."""
SETTINGS = Settings(
    "http://prometheus", allowed_urls=("http://prometheus.shop",), asks_queries=True
)
SKEWED = {0: 4.0, 1: 3.0, 2: 0.5, 3: 0.5}
ALL_ON_1 = dict.fromkeys(range(4), "1")


UID = "4d"
"""Of every object that a test did not give another one."""


class KeepingCluster:
    """Holds objects; the test plays kubelet and driver."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.applied: list[str] = []
        self.deleted: list[str] = []
        self.refuses: str = ""
        self.refuses_pods: str = ""
        self.unreadable: dict[str, ClusterError] = {}
        self.tried: list[Manifest] = []
        self.annotated: list[tuple[str, str, str, str]] = []
        self.takes_no_status = False
        self.versions = 0
        self.written: list[dict[str, Any]] = []
        self.trusted: set[str] = set()
        self.asked_rights: list[str] = []
        self.hides_rights = False
        self.events: list[str] = []
        self.applied_plan: dict[str, str] = {}

    def get(self, version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        """An object, or None; what a kind fails with is raised."""
        if kind in self.unreadable:
            raise self.unreadable[kind]
        found = copy.deepcopy(self.objects.get((kind, name)))
        if found and "metadata" in found:
            found["metadata"].setdefault("uid", UID)
        return found

    def list_pods(self, namespace: str, selector: str) -> list[Manifest]:
        """The pods that a selector selects, of a namespace or all."""
        wanted = dict(term.split("=") for term in selector.split(","))
        pods = [
            copy.deepcopy(o)
            for (kind, _), o in self.objects.items()
            if kind == "Pod" and namespace in {"", o["metadata"].get("namespace", "shop")}
        ]
        return [pod for pod in pods if wanted.items() <= pod["metadata"]["labels"].items()]

    def apply(self, manifest: Manifest, uid: str = "") -> str:
        """Keeps a manifest, unless its kind is refused, or the object is another one."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if uid and uid != ((self.get("", kind, "", name) or {}).get("metadata") or {}).get("uid"):
            return ""
        if kind == self.refuses:
            message = f"the API server did not take {kind} {name}: invalid"
            raise RefusedError(message)
        self.applied.append(f"{kind}/{name}")
        kept = self.objects.get((kind, name), {})
        made = {**kept, **copy.deepcopy(manifest)}
        version = kept.get("metadata", {}).get("resourceVersion")
        if kind == "ConfigMap" and version is None:
            self.versions += 1
            version = str(self.versions)
        if version is not None:
            made["metadata"]["resourceVersion"] = version
        found = kept.get("metadata", {}).get("uid", UID)
        made["metadata"]["uid"] = found
        self.objects[kind, name] = made
        return str(found)

    def apply_plan(self, manifest: Manifest) -> Manifest:
        """Keeps a plan, unless another version of it is there by now."""
        name = manifest["metadata"]["name"]
        kept = self.objects.get(("ConfigMap", name), {}).get("metadata", {})
        wanted = manifest["metadata"].get("resourceVersion")
        if wanted is not None and wanted != kept.get("resourceVersion"):
            message = f"the API server did not apply ConfigMap {name}: it has been modified"
            raise UnreachableError(message)
        before = self.objects.get(("ConfigMap", name), {}).get("data") or {}
        of_others = {
            key: text for key, text in before.items() if self.applied_plan.get(key) != text
        }
        self.applied_plan = dict(manifest["data"])
        self.apply({**manifest, "data": {**of_others, **manifest["data"]}})
        self.versions += 1
        applied = self.objects["ConfigMap", name]
        applied["metadata"]["resourceVersion"] = str(self.versions)
        return copy.deepcopy(applied)

    def create_secret(self, manifest: Manifest) -> None:
        """Keeps a Secret, unless there is one of its name."""
        key = "Secret", manifest["metadata"]["name"]
        self.objects.setdefault(key, copy.deepcopy(manifest))

    def try_pod(self, manifest: Manifest) -> None:
        """Notes a pod, and refuses it in these words, if there are any."""
        self.tried.append(manifest)
        if self.refuses_pods:
            raise RefusedError(self.refuses_pods)

    def annotate(self, manifest: Manifest, name: str, value: str) -> None:
        """Notes an annotation."""
        self.annotated.append((manifest["kind"], manifest["metadata"]["name"], name, value))

    def create_event(self, manifest: Manifest) -> None:
        """Notes the reason of an event."""
        self.events.append(manifest["reason"])

    def may(self, namespace: str, account: str, verb: str, config_map: str) -> bool:
        """Whether an account has the rights of a driver, or the operator may not ask for them."""
        if self.hides_rights:
            message = "the API server did not say whether: forbidden"
            raise RefusedError(message)
        self.asked_rights.append(f"{account}: {verb} {config_map}")
        return account in self.trusted

    def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Forgets a pod."""
        self.deleted.append(name)
        self.objects.pop(("Pod", name), None)

    def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Forgets a Job."""
        self.deleted.append(name)
        self.objects.pop(("Job", name), None)

    def write_status(self, stream: Stream, status: dict[str, Any]) -> None:
        """Notes what was written, unless no status is taken."""
        if self.takes_no_status:
            message = f"the API server cannot be reached to update the status of {stream.name}"
            raise UnreachableError(message)
        self.written.append(status)

    def take_annotation(self, stream: Stream, name: str, value: str) -> bool:
        """Removes an annotation if it still has that value."""
        metadata = self.objects["BalancedStream", stream.name]["metadata"]
        annotations = metadata.get("annotations") or {}
        if annotations.get(name) != value:
            return False
        metadata["annotations"] = {key: v for key, v in annotations.items() if key != name}
        return True

    def set_partitions(self, stream: Stream, partitions: int) -> None:
        """Sets the field."""
        self.objects["BalancedStream", stream.name]["spec"]["partitions"] = partitions

    def plan(self, name: str = "clicks") -> Plan | None:
        """The plan of a stream that was written last."""
        text = self.objects.get(("ConfigMap", f"{name}-plan"), {}).get("data", {}).get("plan.json")
        return parse_plan(text) if text else None


@dataclasses.dataclass(frozen=True)
class Shown:
    """What everybody sees of a pass; the status is as the API server takes it."""

    status: Mapping[str, Any]
    events: tuple[StreamEvent, ...]
    interval_s: float
    failure: Exception | None


class Scene:
    """A stream, the passes over it, and a driver that does as it is told.

    Args:
        stream: which.
        cluster: where; a new one if it is not given.
        turns: of all streams of the operator; new ones if they are not given.
        shares: the same, under no limits if they are not given.
        spec: what is other than usual.
    """

    def __init__(
        self,
        stream: Stream = STREAM,
        cluster: KeepingCluster | None = None,
        turns: Turns | None = None,
        shares: Shares | None = None,
        **spec: Any,
    ) -> None:
        self.stream = stream
        self.now_s = 10_000.0
        self.cluster = cluster or KeepingCluster()
        self.measured: Measurement | str = "nothing yet"
        self.answered: float | str = 0.0
        self.asked: list[str] = []
        self.resource: dict[str, Any] = {
            "metadata": {
                "name": stream.name,
                "namespace": stream.namespace,
                "uid": stream.uid,
                "generation": 1,
                "creationTimestamp": format_time(self.now_s),
            },
            "spec": {
                "image": "clicks:1",
                "application": {"file": "/app/clicks.py"},
                "executors": {"min": 2, "max": 4},
                "checkpoints": {"claim": "checkpoints"},
                "metrics": {"prometheusUrl": "http://prometheus"},
                **spec,
            },
        }
        self.batch = 0
        self.placement = dict(ALL_ON_1)
        self.executors = {"1": 1, "2": 1}
        self.epoch = 0
        self.cluster.objects["BalancedStream", stream.name] = self.resource
        self._before: dict[str, Any] = {}
        self.turns = turns or Turns()
        self.shares = shares or Shares(SETTINGS.caps)
        self.passes = self.make_passes()

    def make_passes(self) -> Passes:
        """What makes the passes, as after a restart of the operator."""
        return Passes(
            self.stream,
            self.cluster,
            self.open_source,
            SETTINGS,
            self.find_streams,
            turns=self.turns,
            shares=self.shares,
        )

    def find_streams(self) -> list[Manifest]:
        """All BalancedStreams."""
        return [o for (kind, _), o in self.cluster.objects.items() if kind == "BalancedStream"]

    def open_source(self, endpoint: Endpoint) -> Scene:
        """The Prometheus at an endpoint."""
        return self

    def observe(self, subject: Subject, policy: Policy, now_s: float) -> Measurement:
        """What was measured, or why nothing was."""
        if isinstance(self.measured, str):
            raise MissingMeasurementsError(self.measured)
        return self.measured

    def ask(self, query: str, now_s: float) -> float:
        """What a query gives, or why it gives nothing."""
        self.asked.append(query)
        if isinstance(self.answered, str):
            raise MissingMeasurementsError(self.answered)
        return self.answered

    def run_pass(self) -> Shown:
        """One pass, 15 s after the one before."""
        self.now_s += 15.0
        self.count_changes()
        return self.show(self.resource)

    def show(self, listed: Manifest) -> Shown:
        """One pass of an operator that is shown a stream, old or not; raises if it writes none."""
        done = self.passes.run(listed, self.now_s)
        if done.status is None:
            assert done.failure is not None
            raise done.failure
        status = write_status(done.status)
        self.resource["status"] = {n: value for n, value in status.items() if value is not None}
        return Shown(status, done.events, done.interval_s, done.failure)

    def count_changes(self) -> None:
        """What the API server does with changes of the stream: it gives them a version."""
        metadata, before = self.resource["metadata"], self._before
        if self.resource == before:
            return
        known = before.get("metadata", metadata)["generation"]
        if before and self.resource["spec"] != before["spec"] and metadata["generation"] == known:
            metadata["generation"] += 1
        self.cluster.versions += 1
        metadata["resourceVersion"] = str(self.cluster.versions)
        self._before = copy.deepcopy(self.resource)

    def start_driver(self) -> None:
        """The driver's container runs."""
        name = driver_pod_name(self.stream)
        labels = {
            "app.kubernetes.io/name": "balancedstream-driver",
            "balancedstream.io/stream": self.stream.name,
        }
        self.cluster.objects["Pod", name] = {
            "metadata": {"name": name, "namespace": self.stream.namespace, "labels": labels},
            "status": {"containerStatuses": [{"name": "driver", "state": {"running": {}}}]},
        }

    def finish_batches(self, busy_s: Mapping[int, float] = SKEWED, count: int = 5) -> None:
        """Batches run where the newest plan wants them; Prometheus sees the last three."""
        plan = self.cluster.plan(self.stream.name)
        if plan:
            self.epoch = plan.epoch
            started = [e for e in plan.executors if e.startswith(NEW_EXECUTOR)]
            joined = dict(zip(started, sorted({*self.executors} - {*plan.executors}), strict=False))
            owners = {p: joined.get(e, e) for p, e in plan.owners("q", 0).items()}
            self.placement |= {p: e for p, e in owners.items() if e in self.executors}
        self.batch += count
        seen = range(self.batch - 2, self.batch + 1)
        tasks = tuple(
            TaskSample("q", 0, p, n, self.placement[p], cost, 100, 1000, self.now_s)
            for n in seen
            for p, cost in busy_s.items()
        )
        batches = tuple(
            BatchSample("q", n, self.now_s + 10.0 * (n - self.batch), 5.0, 400, 10.0, 50.0)
            for n in seen
        )
        self.measured = Measurement(
            self.now_s,
            self.epoch,
            dict(self.executors),
            tasks,
            batches,
            {"q": self.batch},
            {"q": self.now_s},
        )
        answer = Answer(self.epoch)
        self.cluster.objects["ConfigMap", f"{self.stream.name}-answer"]["data"] = {
            "answer.json": answer.to_json()
        }

    def finish_stateless_batches(self, stage: StageSample, batch: BatchSample) -> None:
        """Five batches like this one of a query without state; the newest number counts."""
        self.batch += 5
        interval_s = batch.interval_s or 0.0
        batches = tuple(
            dataclasses.replace(
                batch, batch=self.batch - ago, finished_s=self.now_s - ago * interval_s
            )
            for ago in range(5)
        )
        stages = (dataclasses.replace(stage, batch=self.batch, finished_s=self.now_s),)
        plan = self.cluster.plan(self.stream.name)
        self.epoch = plan.epoch if plan else 0
        self.measured = Measurement(
            self.now_s,
            self.epoch,
            dict(self.executors),
            batches=batches,
            last_batches={"q": self.batch},
            finished_s={"q": self.now_s},
            stages=stages,
        )
        self.cluster.objects["ConfigMap", f"{self.stream.name}-answer"]["data"] = {
            "answer.json": Answer(self.epoch).to_json()
        }

    def shuffle(self, shuffle: ShuffleSample) -> None:
        """The driver's last batches went through a cost-aware shuffle, too."""
        assert isinstance(self.measured, Measurement)
        self.measured = dataclasses.replace(self.measured, shuffles=(shuffle,))

    def run_until_running(self) -> Shown:
        """Two passes, with a driver and batches in between."""
        self.run_pass()
        self.start_driver()
        self.finish_batches()
        return self.run_pass()


class TargetScene(Scene):
    """A stream whose driver kubeflow's operator made, with the plugin in it."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(**spec)
        given = self.resource["spec"]
        for name in ("image", "application", "checkpoints"):
            del given[name]
        given["targetRef"] = {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "name": "clicks",
        }
        given.update(spec)
        self.application = "spark-1"
        self.scales = True
        self.subject = Subject("")
        self.cluster.trusted.add("spark")

    def observe(self, subject: Subject, *arguments: Any) -> Measurement:
        self.subject = subject
        return super().observe(subject, *arguments)

    def start_driver(self, application: str = "spark-1", name: str = TARGET) -> None:
        """A driver's pod as spark-submit makes it for kubeflow's operator; it runs."""
        self.application, self.epoch = application, 0
        self.cluster.objects["Pod", name] = {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": f"uid-{application}",
                "labels": {
                    "spark-role": "driver",
                    "spark-app-selector": application,
                    "sparkoperator.k8s.io/app-name": "clicks",
                    "sparkoperator.k8s.io/launched-by-spark-operator": "true",
                },
            },
            "spec": {
                "serviceAccountName": "spark",
                "containers": [{"name": "istio-proxy"}, {"name": "spark-kubernetes-driver"}],
            },
            "status": {
                "phase": "Running",
                "podIPs": [{"ip": "10.0.0.7"}],
                "containerStatuses": [
                    {"name": "istio-proxy", "state": {"waiting": {"reason": "Creating"}}},
                    {"name": "spark-kubernetes-driver", "state": {"running": {}}},
                ],
            },
        }

    def pod(self, name: str = TARGET) -> dict[str, Any]:
        """The driver's pod, to be changed."""
        return self.cluster.objects["Pod", name]

    def finish_batches(self, *arguments: Any, **more: Any) -> None:
        super().finish_batches(*arguments, **more)
        self.answer(Answer(self.epoch, scales=self.scales), self.application)

    def answer(self, answer: Answer, application: str) -> None:
        """The driver of an application answers."""
        data = {"answer.json": answer.to_json(), "application": application}
        self.cluster.objects["ConfigMap", "clicks-answer"]["data"] = data

    def data(self, key: tuple[str, str]) -> dict[str, str]:
        """What a ConfigMap holds."""
        found: dict[str, str] = self.cluster.objects.get(key, {}).get("data", {})
        return found

    def needed_plan(self) -> Plan:
        """The plan; there is one."""
        plan = self.cluster.plan()
        assert plan is not None
        return plan


def conditions(done: Shown) -> dict[str, tuple[str, str]]:
    """State and reason of each condition."""
    return {c["type"]: (c["status"], c["reason"]) for c in done.status["conditions"]}
