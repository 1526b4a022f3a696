"""Carries out the steps of another number of state partitions, a pass at a time."""

from __future__ import annotations

from dataclasses import replace

from balancedstream.core.wire.objects import executor_selector
from balancedstream_operator.api.resource import Manifest, Stream, belongs_to, driver_name
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.children.applier import refuse_stranger
from balancedstream_operator.children.pods import copy_pod, is_at_work
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.driver.watch import Stopwatch
from balancedstream_operator.errors import ClusterError, RefusedError
from balancedstream_operator.kube.cluster import Cluster
from balancedstream_operator.kube.stream_reader import StreamReader
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.answers import AnswerReader
from balancedstream_operator.repartition.jobs import (
    build_job,
    describe_job,
    job_name,
    job_names,
    job_pods,
    read_step,
)
from balancedstream_operator.repartition.steps import (
    JobSeen,
    Repartition,
    Sight,
    advance,
    describe,
    is_later,
)

HINDERED_AFTER_S = 60.0
"""A Job without a pod for longer than this is asked about."""


class Repartitioner:
    """Gives the state of one stream another number of partitions."""

    def __init__(
        self, stream: Stream, cluster: Cluster, reader: StreamReader, answers: AnswerReader
    ) -> None:
        self._stream = stream
        self._cluster = cluster
        self._reader = reader
        self._answers = answers
        self._pod_missing = Stopwatch()
        # Whether this process knows that no Job runs of which the record says nothing.
        self._has_looked = False
        self._driver: DriverState | None = None
        self._ran_s: float | None = None
        self._follows = False
        self._job_said = ""
        # The change whose Job this process knows it has not made.
        self._unmade = ""

    def note(
        self, driver: DriverState | None, measurement: Measurement | None, *, follows: bool
    ) -> None:
        """What a pass has seen of the driver, for the next one; no measurement leaves the last."""
        if (
            driver is None
            or not driver.running
            or self._driver is None
            or ((driver.uid, driver.began) != (self._driver.uid, self._driver.began))
        ):
            self._ran_s = None
        self._driver, self._follows = driver, follows
        if measurement is None or driver is None or not driver.running:
            return
        if measurement.finished_s:
            self._ran_s = self._ran_s or min(measurement.finished_s.values())
        elif measurement.idle_s:
            self._ran_s = self._ran_s or measurement.scraped_s

    def step(
        self,
        known: Repartition | None,
        present: int,
        spec: StreamSpec,
        *,
        held: str,
        is_sure: bool,
        now_s: float,
    ) -> Repartition | None:
        """The next step.

        Args:
            known: the step by the record; None without one.
            present: number of state partitions by the record.
            spec: of the stream.
            held: why nothing new is begun now; empty if it may be.
            is_sure: whether the record is the last that was written.
            now_s: seconds since the Unix epoch.

        Raises:
            ClusterError: the API server cannot be reached.
        """
        if spec.target_ref is not None:
            return None
        if not (is_sure and self._has_looked):
            known = self._find_lost(known)
            self._has_looked = True
        sight = Sight(spec.partitions, held=held, suspended=spec.suspend)
        if known is None or known.is_over:
            if spec.partitions not in {None, present}:
                sight = replace(sight, refused=self._refuse(spec))
            return advance(known, present, sight, now_s)
        driver = self._driver
        if known.step == "stopping":
            told = self._answers.read_stopped(known.id)
            sight = replace(sight, told=told, follows=self._follows)
            self._unmade = known.id
        elif known.holds_driver:
            job = self._look_at_job(known, now_s)
            sight = replace(sight, job=job, unmade=self._unmade == known.id)
        elif driver is not None:
            gives_up = driver.reason == "ApplicationFailed" and not driver.retries
            fails = driver.message if gives_up else ""
            sight = replace(sight, fails=fails, ran_s=self._ran_s)
        return advance(known, present, sight, now_s)

    def _refuse(self, spec: StreamSpec) -> str:
        """Why nothing is even begun; empty if it may be."""
        uri = spec.checkpoints.uri
        if uri is not None and not uri.startswith("file:"):
            return (
                f"the checkpoint {uri} is not on a mounted file system, and only there can state "
                "be written anew. Copy it to a claim, and use another BalancedStream"
            )
        try:
            self._get_job(job_names(self._stream)[0])
        except RefusedError as error:
            return f"the operator may not make Jobs: {error}. Upgrade the chart, which grants it"
        return ""

    def _find_lost(self, known: Repartition | None) -> Repartition | None:
        """The step by the newest Job that is not over, if the record says nothing of it."""
        for name in reversed(job_names(self._stream)):
            try:
                job = self._get_job(name)
            except RefusedError:
                # An operator that may not even look has made none.
                return known
            found = read_step(job) if job else None
            if found is None or (known is not None and not is_later(found, known)):
                continue
            pods = self._cluster.list_pods(self._stream.namespace, job_pods(self._stream))
            if job and describe_job(job, pods).state == "running":
                return found
        return known

    def _get_job(self, name: str) -> Manifest | None:
        found = self._cluster.get("batch/v1", "Job", self._stream.namespace, name)
        if found is not None and not belongs_to(found["metadata"], self._stream):
            refuse_stranger("Job", name)
        return found

    def _look_at_job(self, known: Repartition, now_s: float) -> JobSeen | None:
        job = self._get_job(job_name(self._stream, known))
        if job is None or job["metadata"].get("deletionTimestamp"):
            return None
        of_job = read_step(job)
        if of_job is None or of_job.id != known.id:
            return None
        pods = self._cluster.list_pods(self._stream.namespace, job_pods(self._stream))
        seen = describe_job(job, pods)
        waits = seen.state == "running" and not any(map(is_at_work, pods))
        hindered = self._pod_missing.measure(waits, now_s) > HINDERED_AFTER_S and waits
        self._job_said = self._explain_absence(job) if hindered else seen.said
        return seen

    def _explain_absence(self, job: Manifest) -> str:
        template, name = job["spec"]["template"], job["metadata"]["name"]
        try:
            self._cluster.try_pod(copy_pod(template, f"{name}-try", self._stream.namespace))
        except ClusterError as error:
            return str(error)
        return ""

    def act(self, known: Repartition, spec: StreamSpec) -> str:
        """Makes the Job of a step once nothing else can write to the checkpoint.

        Returns:
            What it waits for, for people; empty if that is only the Job's end.

        Raises:
            UnreachableError: the API server cannot be reached.
            ConflictError: an object of another owner has the name of the Job.
            StreamGoneError: the stream was deleted.
            StreamLeavingError: it is being deleted.
        """
        name = job_name(self._stream, known)
        job = self._get_job(name)
        if job is not None:
            of_job = read_step(job)
            if of_job is not None and of_job.id == known.id:
                return self._job_said
            if not job["metadata"].get("deletionTimestamp"):
                self._cluster.delete_job(
                    self._stream.namespace, name, str(job["metadata"].get("uid", ""))
                )
            return f"Job {name} of an earlier change is being deleted"
        waits = self._find_writer()
        if waits:
            return waits
        # A Job for a stream that is gone would write to a checkpoint that may be another one's.
        self._reader.forget_read()
        self._reader.require()
        self._job_said = self._unmade = ""
        try:
            self._cluster.apply(build_job(self._stream, spec, known))
        except RefusedError as error:
            self._unmade = known.id
            return f"{error}. With spec.partitions {known.before} the stream goes on as before"
        return ""

    def _find_writer(self) -> str:
        """What may still write to the checkpoint, or be made to; empty if nothing does."""
        namespace = self._stream.namespace
        name = driver_name(self._stream)
        found = self._cluster.get("apps/v1", "StatefulSet", namespace, name) or {}
        status, generation = found.get("status") or {}, found.get("metadata", {}).get("generation")
        settled = status.get("observedGeneration", generation) == generation
        if not settled or (found.get("spec") or {}).get("replicas") != 0:
            return f"the controller of StatefulSet {name} has not acted yet"
        pod = f"{name}-0"
        # A server that is behind may show no pod where there is one by now.
        if status.get("replicas") or self._cluster.get("v1", "Pod", namespace, pod) is not None:
            return f"pod {pod} has not ended yet"
        if self._cluster.list_pods(namespace, executor_selector(self._stream.name)):
            return "executors of the driver have not ended yet"
        if any(map(is_at_work, self._cluster.list_pods(namespace, job_pods(self._stream)))):
            return "a pod of an earlier Job has not ended yet"
        return ""


def describe_hold(driver: DriverState, known: Repartition, waits: str) -> DriverState:
    """The state of a driver that must not run meanwhile."""
    message = "; ".join(filter(None, (describe(known), waits)))
    return replace(
        driver, phase="Repartitioning", reason="Repartitioning", message=message, running=False
    )
