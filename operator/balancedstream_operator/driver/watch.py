"""Looks at the driver of a stream and its executors, and asks why they do not run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from balancedstream_operator.api.resource import (
    Manifest,
    Stream,
    belongs_to,
    driver_name,
    driver_pod_name,
)
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.api.status import format_time
from balancedstream_operator.api.target import TargetRef, driver_selector
from balancedstream_operator.children.pods import copy_pod
from balancedstream_operator.driver.shortage import (
    SHORT_AFTER_S,
    TAKEN,
    count_live,
    describe_next,
    explain_shortage,
)
from balancedstream_operator.driver.start_problems import (
    HINDERED_AFTER_S,
    WAKES_EACH_S,
    WOKEN_ANNOTATION,
    explain_absence,
    explain_config_map,
    explain_pause,
    list_config_maps,
)
from balancedstream_operator.driver.state import DriverState, describe_driver, describe_target
from balancedstream_operator.errors import ClusterError
from balancedstream_operator.kube.cluster import Cluster


class Stopwatch:
    """Measures for how long a state has lasted."""

    def __init__(self) -> None:
        self._state: object = None
        self._since_s = 0.0

    def measure(self, state: object, now_s: float) -> float:
        """The seconds for which the state has been this one.

        A clock that is set back begins anew.

        >>> stopwatch = Stopwatch()
        >>> [stopwatch.measure(state, now_s) for state, now_s in (("a", 5), ("a", 7), ("b", 9))]
        [0, 2, 0]
        """
        if state != self._state or now_s < self._since_s:
            self._state, self._since_s = state, now_s
        return now_s - self._since_s


class DriverWatch:
    """Looks at the driver of one stream."""

    def __init__(self, stream: Stream, cluster: Cluster) -> None:
        self._stream = stream
        self._cluster = cluster
        self._shortage = Stopwatch()
        self._start = Stopwatch()
        self._seen = Stopwatch()

    def find_driver(self, now_s: float) -> DriverState:
        """The state of our own driver."""
        pod, stateful_set = self._find()
        return describe_driver(pod, stateful_set, now_s, self._measure_seen(pod, now_s))

    def _measure_seen(self, pod: Manifest | None, now_s: float) -> float:
        """For how long this process has seen a pod leave, or start, without any change."""
        status = (pod or {}).get("status") or {}
        deleted = ((pod or {}).get("metadata") or {}).get("deletionTimestamp")
        times = sorted(str(c.get("lastTransitionTime")) for c in status.get("conditions") or [])
        uid = ((pod or {}).get("metadata") or {}).get("uid")
        return self._seen.measure((uid, deleted, *([] if deleted else times)), now_s)

    def _find(self) -> tuple[Manifest | None, Manifest | None]:
        namespace = self._stream.namespace
        found = self._cluster.get("apps/v1", "StatefulSet", namespace, driver_name(self._stream))
        if found and not belongs_to(found["metadata"], self._stream):
            return None, None
        pod = self._cluster.get("v1", "Pod", namespace, driver_pod_name(self._stream))
        return pod, found

    def look(
        self,
        wanted: Collection[str],
        first_spec: str,
        restart: str,
        take_turn: Callable[[], Stream | None],
        now_s: float,
    ) -> DriverState:
        """The state of our own driver; a pod that was made for another spec is replaced.

        A driver that runs stays if only the operator's release has changed its template.

        Args:
            wanted: fingerprints that a driver of this spec may have.
            first_spec: fingerprint for drivers that do not tell which spec they were made for.
            restart: value of the annotation that asks for a new driver; empty without one.
            take_turn: called before the annotation has a running driver replaced; gives the stream
                that comes first, if there is one.
            now_s: seconds since the Unix epoch.
        """
        pod, stateful_set = self._find()
        driver = describe_driver(pod, stateful_set, now_s, self._measure_seen(pod, now_s))
        if driver.outdated and not (driver.running and (driver.spec or first_spec) in wanted):
            first = take_turn() if driver.running and restart != driver.restart else None
            if first:
                return replace(driver, waits_for=str(first))
            pod_name = driver_pod_name(self._stream)
            self._cluster.delete_pod(self._stream.namespace, pod_name, driver.uid)
            message = "the spec changed: a new driver continues from the checkpoint"
            return DriverState("Pending", "Replacing", message)
        # A driver without a pod is told from one whose pod leaves by its reason.
        if self._start.measure(driver.uid or driver.reason, now_s) <= HINDERED_AFTER_S:
            return driver
        if stateful_set and driver.reason == "NoDriver":
            template = stateful_set["spec"]["template"]
            name = driver_name(self._stream)
            error = self._judge(copy_pod(template, name, self._stream.namespace))
            if error is not None:
                return explain_absence(driver, error)
            return explain_pause(self._stream, driver, self._wake_controller(stateful_set, now_s))
        if pod and driver.reason in {"ContainerCreating", "StartStuck"}:
            return self._explain_start(driver, pod)
        return driver

    def _wake_controller(self, stateful_set: Manifest, now_s: float) -> ClusterError | None:
        """Wakes the controller of a StatefulSet, which pauses after each refusal.

        Returns:
            Why the API server did not take the annotation; None if it did.
        """
        minute = format_time(now_s // WAKES_EACH_S * WAKES_EACH_S)
        try:
            self._cluster.annotate(stateful_set, WOKEN_ANNOTATION, minute)
        except ClusterError as error:
            return error
        return None

    def _explain_start(self, driver: DriverState, pod: Manifest) -> DriverState:
        for name, keys in list_config_maps(pod):
            found = self._cluster.get("v1", "ConfigMap", self._stream.namespace, name)
            explained = explain_config_map(driver, name, keys, found)
            if explained is not None:
                return explained
        return driver

    def look_at_target(
        self, target: TargetRef, read_application: Callable[[], str], now_s: float
    ) -> DriverState:
        """The state of a driver that another operator runs; the driver stays as it is.

        If no label of the pod has Spark's id of the application, `read_application` gives it.

        Raises:
            ClusterError: the API server cannot be reached, or takes the labels for none.
        """
        pods = self._cluster.list_pods(self._stream.namespace, driver_selector(target))
        newest = max(pods, key=lambda p: str(p["metadata"].get("creationTimestamp")), default=None)
        driver = describe_target(target, pods, now_s, self._measure_seen(newest, now_s))
        if driver.pod and not driver.application:
            # Spark labels the drivers that it makes. In a pod that runs spark-submit, only the
            # application itself can tell its id.
            driver = replace(driver, application=read_application())
        return driver

    def find_shortage(
        self, desired: int, running: int, selector: str, spec: StreamSpec, now_s: float
    ) -> str:
        """Why executors have been missing for long; empty if none is missing.

        `selector` of the executor pods is empty if unknown.
        """
        lasted_s = self._shortage.measure(running < desired, now_s)
        if running >= desired or lasted_s <= SHORT_AFTER_S:
            return ""
        pods = self._cluster.list_pods(self._stream.namespace, selector) if selector else []
        like = describe_next(self._stream, spec, pods) if count_live(pods) < desired else None
        # Without a pod to copy, there is nothing to try.
        asked = str(self._judge(like) or TAKEN) if like else ""
        return explain_shortage(pods, asked)

    def _judge(self, pod: Manifest) -> ClusterError | None:
        """What the API server has against a pod; None if it would take it."""
        try:
            self._cluster.try_pod(pod)
        except ClusterError as error:
            return error
        return None
