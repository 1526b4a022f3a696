"""A stream gets another number of state partitions: what the operator makes, and when."""

from __future__ import annotations

from typing import Any

import pytest
from supervised import POD, Scene, Shown, conditions

from balancedstream.core.samples import BatchSample, StageSample
from balancedstream.core.wire.objects import STOP_KEY, STOPPED_KEY
from balancedstream.core.wire.stopping import Stopped, parse_stop
from balancedstream_operator.api.annotations import APPROVE_ANNOTATION, PAUSED_ANNOTATION
from balancedstream_operator.errors import RefusedError, UnreachableError
from balancedstream_operator.reconcile.approvals import PROPOSED_FOR_S
from balancedstream_operator.repartition.steps import WATCHED_S

PATHS = ("/checkpoints/clicks/q",)
JOB = "Job", "clicks-repartition"
UNDO = "Job", "clicks-undo"
SET = "StatefulSet", "clicks-driver"


class Repartitioned(Scene):
    """A stream with four partitions that runs, and is asked for sixteen."""

    def __init__(self) -> None:
        super().__init__(partitions=4)
        self.run_until_running()
        self.resource["spec"]["partitions"] = 16

    def tell(self, **stopped: Any) -> None:
        """The driver says how far a stop is."""
        data = self.cluster.objects["ConfigMap", "clicks-plan"]["data"]
        asked = parse_stop(data[STOP_KEY])
        told = Stopped(asked.id, **stopped)
        self.cluster.objects["ConfigMap", "clicks-answer"]["data"][STOPPED_KEY] = told.to_json()

    def stop(self) -> Shown:
        """The driver's queries end, and then its pod."""
        self.run_pass()
        self.tell(checkpoints=PATHS, done=True)
        self.run_pass()
        del self.cluster.objects["Pod", POD]
        return self.run_pass()

    def end_job(self, key: tuple[str, str], ended: str, said: str = "") -> None:
        """A Job is over; its pod has had its last words."""
        job = self.cluster.objects[key]
        job["status"] = {"conditions": [{"type": ended, "status": "True"}]}
        code = 0 if ended == "Complete" else 2
        state = {"terminated": {"exitCode": code, "message": f"line\nbalancedstream: {said}\n"}}
        self._put_pod(
            key,
            {
                "phase": "Succeeded" if ended == "Complete" else "Failed",
                "containerStatuses": [{"name": "driver", "state": state}],
            },
        )

    def begin_pod(self, key: tuple[str, str]) -> None:
        """The pod of a Job runs."""
        self._put_pod(key, {"phase": "Running"})

    def _put_pod(self, key: tuple[str, str], status: dict[str, Any]) -> None:
        job, name = self.cluster.objects[key], f"{key[1]}-x"
        self.cluster.objects["Pod", name] = {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "labels": job["spec"]["template"]["metadata"]["labels"],
                "ownerReferences": [{"uid": job["metadata"]["uid"]}],
            },
            "status": status,
        }

    def fail_driver(self) -> None:
        """The driver ends again and again."""
        self.start_driver()
        ended = {"exitCode": 1, "message": "no"}
        entry = {"name": "driver", "state": {"terminated": ended}, "restartCount": 9}
        self.cluster.objects["Pod", POD]["status"] = {"containerStatuses": [entry]}

    def run_again(self) -> Shown:
        """The driver starts, and its batches end for longer than it is watched."""
        self.start_driver()
        self.finish_batches()
        self.run_pass()
        self.now_s += WATCHED_S
        self.finish_batches()
        self.run_pass()
        return self.run_pass()

    @property
    def replicas(self) -> int:
        replicas: int = self.cluster.objects[SET]["spec"]["replicas"]
        return replicas

    @property
    def command(self) -> list[str]:
        """Of the Job that rewrites."""
        (container,) = self.cluster.objects[JOB]["spec"]["template"]["spec"]["containers"]
        command: list[str] = container["args"]
        return command

    @property
    def configured(self) -> str:
        data: dict[str, str] = self.cluster.objects["ConfigMap", "clicks-configuration"]["data"]
        return data["spark-defaults.conf"]


def test_the_driver_ends_its_queries_then_a_job_runs_then_the_driver_starts_again() -> None:
    scene = Repartitioned()
    done = scene.run_pass()
    assert conditions(done)["Repartitioning"] == ("True", "Stopping")
    assert scene.replicas == 1, "a batch may run"
    assert scene.cluster.deleted == []
    scene.tell(checkpoints=PATHS, done=True)
    done = scene.run_pass()
    assert (scene.replicas, done.status["phase"]) == (0, "Repartitioning")
    assert JOB not in scene.cluster.objects, "the driver's pod is still there"
    del scene.cluster.objects["Pod", POD]
    scene.run_pass()
    assert scene.command == ["balancedstream", "repartition", *PATHS, "--partitions", "16"]
    assert "shuffle.partitions=4" in scene.configured
    scene.run_pass()
    assert scene.replicas == 0
    scene.end_job(JOB, "Complete")
    done = scene.run_pass()
    assert (scene.replicas, done.status["partitions"]) == (1, 16)
    assert "shuffle.partitions=16" in scene.configured
    assert not scene.cluster.objects["ConfigMap", "clicks-plan"]["data"].get(STOP_KEY)
    done = scene.run_again()
    assert conditions(done)["PartitionsAsAsked"] == ("True", "AsAsked")
    assert done.status["repartition"]["step"] == "Done"
    assert done.status["repartition"]["downtimeSeconds"] > 0.0
    assert done.status["decisions"][0]["kind"] == "repartition"


def test_a_request_that_somebody_put_back_is_withdrawn() -> None:
    scene = Repartitioned()
    scene.run_pass()
    plan = scene.cluster.objects["ConfigMap", "clicks-plan"]["data"]
    scene.resource["spec"]["partitions"] = 4
    asked = plan[STOP_KEY]
    scene.run_pass()
    scene.cluster.objects["ConfigMap", "clicks-plan"]["data"][STOP_KEY] = asked
    scene.run_pass()
    assert not scene.cluster.objects["ConfigMap", "clicks-plan"]["data"].get(STOP_KEY)


@pytest.mark.parametrize("checkpoints", [(), PATHS])
def test_no_plan_is_made_once_queries_end_but_before_the_first_batch_of_each(
    checkpoints: tuple[str, ...],
) -> None:
    scene = Repartitioned()
    scene.run_pass()
    scene.tell(checkpoints=checkpoints)
    scene.run_pass()
    before = scene.cluster.plan()
    for hot in (0, 1):
        scene.now_s += 300.0
        scene.finish_batches(dict.fromkeys(range(4), 0.5) | {hot: 4.0, hot + 2: 3.0})
        scene.run_pass()
    assert (scene.cluster.plan() == before) == bool(checkpoints)


def test_the_job_has_the_drivers_pod_without_what_belongs_to_a_driver() -> None:
    scene = Repartitioned()
    scene.stop()
    job, driver = (scene.cluster.objects[key] for key in (JOB, SET))
    assert job["metadata"]["ownerReferences"][0]["uid"] == scene.stream.uid
    pod, made = (found["spec"]["template"]["spec"] for found in (job, driver))
    assert pod["restartPolicy"] == "Never"
    for field in ("serviceAccountName", "volumes", "securityContext"):
        assert pod[field] == made[field]
    (container,), (of_driver,) = pod["containers"], made["containers"]
    for field in ("image", "env", "volumeMounts", "resources", "securityContext"):
        assert container[field] == of_driver[field]
    assert not {"ports", "readinessProbe", "livenessProbe"} & container.keys()
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "balancedstream-repartition"


def test_no_job_is_made_while_an_executor_is_there() -> None:
    scene = Repartitioned()
    scene.cluster.objects["Pod", "clicks-exec-1"] = {
        "metadata": {
            "name": "clicks-exec-1",
            "labels": {"spark-role": "executor", "balancedstream.io/stream": "clicks"},
        }
    }
    done = scene.stop()
    assert JOB not in scene.cluster.objects
    assert "executors of the driver have not ended yet" in done.status["reason"]
    del scene.cluster.objects["Pod", "clicks-exec-1"]
    scene.run_pass()
    assert JOB in scene.cluster.objects


def test_a_job_that_fails_is_undone_and_its_words_are_told() -> None:
    scene = Repartitioned()
    scene.stop()
    scene.end_job(JOB, "Failed", "batch 7 was begun and is not committed.")
    scene.run_pass()
    container = scene.cluster.objects[UNDO]["spec"]["template"]["spec"]["containers"][0]
    asked = ["--undo", "--partitions", "16"]
    assert container["args"] == ["balancedstream", "repartition", *PATHS, *asked]
    scene.end_job(UNDO, "Complete")
    done = scene.run_pass()
    assert (scene.replicas, done.status["partitions"]) == (1, 4)
    done = scene.run_again()
    assert conditions(done)["PartitionsAsAsked"] == ("False", "Failed")
    assert "batch 7 was begun" in done.status["repartition"]["message"]
    assert "nothing to undo" not in done.status["repartition"]["message"]
    count = len(scene.cluster.applied)
    scene.run_pass()
    assert [*filter(lambda name: "Job" in name, scene.cluster.applied[count:])] == []


def test_another_operator_goes_on_undoing_what_it_finds_being_undone() -> None:
    scene = Repartitioned()
    scene.stop()
    scene.end_job(JOB, "Complete")
    scene.run_pass()
    scene.fail_driver()
    scene.run_pass()
    assert scene.run_pass().status["repartition"]["step"] == "Undoing"
    del scene.cluster.objects["Pod", POD]
    scene.run_pass()
    scene.begin_pod(UNDO)
    scene.passes = scene.make_passes()
    assert scene.run_pass().status["repartition"]["step"] == "Undoing"
    scene.end_job(UNDO, "Complete")
    assert scene.run_pass().status["partitions"] == 4


def test_what_a_deleted_job_may_have_begun_is_undone_before_the_old_number_counts() -> None:
    scene = Repartitioned()
    scene.stop()
    del scene.cluster.objects[JOB]
    scene.resource["spec"]["partitions"] = 4
    done = scene.run_pass()
    assert (scene.replicas, done.status["repartition"]["step"]) == (0, "Undoing")
    scene.run_pass()
    scene.end_job(UNDO, "Complete")
    done = scene.run_pass()
    assert (scene.replicas, done.status["partitions"]) == (1, 4)


def test_what_the_driver_refuses_leaves_it_alone() -> None:
    scene = Repartitioned()
    scene.run_pass()
    scene.tell(refused="the query uses balanced(...).")
    done = scene.run_pass()
    assert conditions(done)["PartitionsAsAsked"] == ("False", "Refused")
    assert conditions(done)["Ready"][0] == "True"
    assert (scene.replicas, done.status["partitions"]) == (1, 4)
    scene.resource["spec"]["partitions"] = 4
    assert conditions(scene.run_pass())["PartitionsAsAsked"] == ("True", "AsAsked")


def test_an_operator_without_rights_on_jobs_runs_streams_and_refuses_other_partitions() -> None:
    scene = Repartitioned()
    scene.cluster.unreadable["Job"] = RefusedError("User operator cannot get jobs")
    scene.passes = scene.make_passes()
    done = scene.run_pass()
    assert conditions(done)["PartitionsAsAsked"] == ("False", "Refused")
    assert conditions(done)["Ready"][0] == "True"
    assert "Upgrade the chart" in done.status["repartition"]["message"]


def test_a_job_that_is_refused_is_told_and_the_old_number_ends_it() -> None:
    scene = Repartitioned()
    scene.cluster.refuses = "Job"
    done = scene.stop()
    assert done.failure is None
    assert "did not take Job clicks-repartition" in done.status["reason"]
    scene.resource["spec"]["partitions"] = 4
    done = scene.run_pass()
    assert (scene.replicas, done.status["partitions"]) == (1, 4)


def test_a_job_of_an_earlier_change_is_deleted_before_the_next_one_is_made() -> None:
    scene = Repartitioned()
    scene.stop()
    scene.end_job(JOB, "Complete")
    scene.run_pass()
    scene.run_again()
    scene.resource["spec"]["partitions"] = 8
    scene.stop()
    assert scene.cluster.deleted == ["clicks-repartition"]
    scene.run_pass()
    assert scene.command[-1] == "8"


@pytest.mark.parametrize("at", ["Stopping", "Rewriting", "Starting"])
def test_another_operator_goes_on_from_what_it_finds(at: str) -> None:
    scene = Repartitioned()
    done = scene.run_pass()
    if at != "Stopping":
        done = scene.stop()
    if at == "Starting":
        scene.end_job(JOB, "Complete")
        done = scene.run_pass()
    assert done.status["repartition"]["step"] == at
    scene.passes = scene.make_passes()
    assert scene.run_pass().status["repartition"]["step"] == at


def test_while_a_job_works_no_driver_starts_even_if_all_else_is_lost() -> None:
    scene = Repartitioned()
    scene.stop()
    scene.cluster.objects["ConfigMap", "clicks-plan"]["data"] = {}
    del scene.resource["status"]
    scene.passes = scene.make_passes()
    done = scene.run_pass()
    assert (scene.replicas, done.status["repartition"]["step"]) == (0, "Rewriting")
    scene.end_job(JOB, "Complete")
    assert scene.run_pass().status["partitions"] == 16


def test_no_job_is_made_for_a_stream_that_was_deleted_meanwhile() -> None:
    scene = Repartitioned()
    scene.run_pass()
    scene.tell(checkpoints=PATHS, done=True)
    scene.run_pass()
    del scene.cluster.objects["Pod", POD]
    listed = dict(scene.resource)
    del scene.cluster.objects["BalancedStream", "clicks"]
    with pytest.raises(Exception, match="was deleted"):
        scene.show(listed)
    assert JOB not in scene.cluster.objects


def test_a_new_stream_waits_for_the_job_of_a_deleted_one_of_its_name() -> None:
    scene = Repartitioned()
    scene.stop()
    job = scene.cluster.objects[JOB]
    template = job["spec"]["template"]
    pod = {**template, "metadata": {**template["metadata"], "name": "x", "namespace": "shop"}}
    cluster_pods = {("Pod", "x"): {**pod, "kind": "Pod", "status": {"phase": "Running"}}}
    later = Scene()
    later.resource["metadata"]["uid"] = "uid-2"
    later.stream = type(later.stream)("shop", "clicks", "uid-2")
    later.passes = later.make_passes()
    later.cluster.objects |= cluster_pods
    done = later.run_pass()
    assert conditions(done)["Running"] == ("False", "Refused")
    assert "pod shop/x" in done.status["reason"]
    del later.cluster.objects["Pod", "x"]
    later.run_pass()
    assert "StatefulSet/clicks-driver" in later.cluster.applied


def test_a_stream_on_an_object_store_is_refused_at_once() -> None:
    scene = Scene(partitions=4, checkpoints={"uri": "s3a://lake/clicks"})
    scene.run_until_running()
    scene.resource["spec"]["partitions"] = 16
    done = scene.run_pass()
    assert conditions(done)["PartitionsAsAsked"] == ("False", "Refused")
    assert not scene.cluster.objects["ConfigMap", "clicks-plan"]["data"].get(STOP_KEY)


def test_a_pass_that_reaches_no_api_server_leaves_all_as_it_is() -> None:
    scene = Repartitioned()
    scene.stop()
    scene.cluster.unreadable["Job"] = UnreachableError("no route")
    with pytest.raises(UnreachableError):
        scene.run_pass()
    assert scene.replicas == 0
    del scene.cluster.unreadable["Job"]
    scene.end_job(JOB, "Complete")
    assert scene.run_pass().status["partitions"] == 16


class Limited(Scene):
    """A stream whose four state partitions are too few for its eight executors."""

    def __init__(self, **fields: Any) -> None:
        scaling = {"latencyObjectiveSeconds": 1}
        super().__init__(partitions=4, executors={"min": 4, "max": 8}, scaling=scaling, **fields)
        self.executors = {str(number): 1 for number in range(4)}
        self.run_pass()
        self.start_driver()
        self._begun_s = self.now_s
        self.run_batches(8)

    def run_batches(self, count: int) -> None:
        """Batches that take longer than their trigger interval, with a pass after each."""
        busy_s = dict.fromkeys(self.executors, 10.0)
        stage = StageSample("q", 0, "stateful", self._begun_s, 4, 10.1, busy_s)
        for _ in range(count):
            batch = BatchSample("q", 0, self.now_s, 10.5, 1000, 10.5, 5000.0, 1.0)
            self.finish_stateless_batches(stage, batch)
            self.run_pass()

    @property
    def partitions(self) -> int:
        """State partitions that the spec asks for."""
        found: int = self.resource["spec"]["partitions"]
        return found


def test_more_partitions_are_proposed_with_gain_and_price_and_an_approval_asks_for_them() -> None:
    scene = Limited()
    proposal = scene.resource["status"]["proposal"]
    assert proposal["id"] == "partitions-64"
    assert "64 state partitions instead of 4" in proposal["reason"]
    assert "would stand still for about" in proposal["reason"]
    scene.resource["metadata"].setdefault("annotations", {})[APPROVE_ANNOTATION] = "partitions-64"
    done = scene.run_pass()
    assert done.status["approval"]["result"] == "CarriedOut"
    assert scene.resource["spec"]["partitions"] == 64
    assert APPROVE_ANNOTATION not in scene.resource["metadata"]["annotations"]
    done = scene.run_pass()
    assert done.status["repartition"]["step"] == "Stopping"
    assert done.status["proposal"] is None


BATCHES_UNTIL_DUE = int(PROPOSED_FOR_S / 10.0)
"""More than are over by then: each takes 10.5 s."""


def test_in_a_period_of_the_schedule_a_number_that_stays_proposed_needs_no_approval() -> None:
    scene = Limited(schedule={"repartitions": [{"cron": "0 0 * * *", "durationSeconds": 86_400}]})
    scene.run_batches(10)
    assert scene.partitions == 4, "it was not proposed for long"
    scene.run_batches(BATCHES_UNTIL_DUE)
    assert scene.partitions == 64
    answer = scene.resource["status"]["approval"]
    assert answer["result"] == "CarriedOut"
    assert "was carried out in the period until 1970-01-02 00:00 UTC; " in answer["message"]
    assert scene.run_pass().status["repartition"]["step"] == "Stopping"


@pytest.mark.parametrize(
    "period",
    [
        pytest.param({"cron": "0 12 * * *", "durationSeconds": 3600}, id="it begins later"),
        pytest.param({"cron": "* * * * *", "durationSeconds": 60}, id="it is too short"),
    ],
)
def test_outside_of_a_period_and_too_near_to_its_end_an_approval_is_needed(
    period: dict[str, Any],
) -> None:
    scene = Limited(schedule={"repartitions": [period]})
    scene.run_batches(BATCHES_UNTIL_DUE + 10)
    assert scene.partitions == 4
    assert scene.resource["status"]["proposal"]["id"] == "partitions-64"


def test_nothing_is_carried_out_in_a_period_that_is_excluded_from_changes() -> None:
    day = {"cron": "0 0 * * *", "durationSeconds": 86_400}
    scene = Limited(schedule={"repartitions": [day], "excluded": []})
    scene.run_batches(5)
    scene.resource["spec"]["schedule"]["excluded"] = [day]
    scene.run_batches(BATCHES_UNTIL_DUE + 10)
    assert scene.partitions == 4


def test_nothing_is_carried_out_in_a_period_while_the_stream_is_paused() -> None:
    scene = Limited(schedule={"repartitions": [{"cron": "0 0 * * *", "durationSeconds": 86_400}]})
    scene.resource["metadata"].setdefault("annotations", {})[PAUSED_ANNOTATION] = "true"
    scene.run_batches(BATCHES_UNTIL_DUE + 10)
    assert scene.partitions == 4
