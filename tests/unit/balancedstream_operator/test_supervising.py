"""One pass after the other over a stream, in a cluster that only keeps what it is given."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from balancedstream.core.observations import BatchSample, TaskSample
from balancedstream.core.plan import Answer, Plan, parse_plan
from balancedstream.core.policy import Policy
from balancedstream_operator.errors import ClusterError, StreamGoneError
from balancedstream_operator.measurements import (
    Measurement,
    MissingMeasurementsError,
    ShuffleSample,
)
from balancedstream_operator.resource import Manifest, Stream
from balancedstream_operator.status import parse_time
from balancedstream_operator.supervising import Pass, Supervisor

STREAM = Stream("shop", "clicks", "uid-1")
POD = "clicks-driver-0"
SKEWED = {0: 4.0, 1: 3.0, 2: 0.5, 3: 0.5}
ALL_ON_1 = dict.fromkeys(range(4), "1")


class KeepingCluster:
    """Holds objects; the test plays kubelet and driver."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.applied: list[str] = []
        self.deleted: list[str] = []
        self.refuses: str = ""
        self.written: list[dict[str, Any]] = []

    def get(self, version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        return self.objects.get((kind, name))

    def apply(self, manifest: Manifest) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind == self.refuses:
            message = f"the API server did not take {kind} {name}: invalid"
            raise ClusterError(message, refused=True)
        self.applied.append(f"{kind}/{name}")
        kept = self.objects.get((kind, name), {})
        self.objects[kind, name] = {**kept, **copy.deepcopy(manifest)}

    def apply_plan(self, manifest: Manifest) -> None:
        self.apply(manifest)

    def delete_pod(self, namespace: str, name: str) -> None:
        self.deleted.append(name)
        self.objects.pop(("Pod", name), None)

    def write_status(self, namespace: str, name: str, status: dict[str, Any]) -> None:
        self.written.append(status)

    def plan(self) -> Plan | None:
        text = self.objects.get(("ConfigMap", "clicks-plan"), {}).get("data", {}).get("plan.json")
        return parse_plan(text) if text else None


class Scene:
    """A stream, its supervisor, and a driver that does as it is told."""

    def __init__(self, **spec: Any) -> None:
        self.now_s = 10_000.0
        self.cluster = KeepingCluster()
        self.measured: Measurement | str = "nothing yet"
        self.resource: dict[str, Any] = {
            "metadata": {"name": "clicks", "namespace": "shop", "uid": "uid-1", "generation": 1},
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
        self.cluster.objects["BalancedStream", "clicks"] = self.resource
        self.supervisor = self.make_supervisor()

    def make_supervisor(self) -> Supervisor:
        return Supervisor(STREAM, self.cluster, lambda _: self, "")

    def observe(self, stream: str, policy: Policy, now_s: float) -> Measurement:
        if isinstance(self.measured, str):
            raise MissingMeasurementsError(self.measured)
        return self.measured

    def run_pass(self) -> Pass:
        self.now_s += 15.0
        done = self.supervisor.run_pass(self.resource, self.now_s)
        self.resource["status"] = dict(done.status)
        return done

    def start_driver(self) -> None:
        self.cluster.objects["Pod", POD] = {
            "metadata": {"name": POD, "namespace": "shop", "labels": {}},
            "status": {"containerStatuses": [{"name": "driver", "state": {"running": {}}}]},
        }

    def finish_batches(self, busy_s: Mapping[int, float] = SKEWED, count: int = 5) -> None:
        """Batches run where the newest plan wants them; Prometheus sees the last three."""
        plan = self.cluster.plan()
        if plan:
            self.epoch = plan.epoch
            self.placement |= {p: e for p, e in plan.owners("q", 0).items() if e in self.executors}
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
            self.now_s, self.epoch, dict(self.executors), tasks, batches, {"q": self.batch}
        )
        answer = Answer(self.epoch)
        self.cluster.objects["ConfigMap", "clicks-answer"]["data"] = {
            "answer.json": answer.to_json()
        }

    def shuffle(self, shuffle: ShuffleSample) -> None:
        """The driver's last batches went through a cost-aware shuffle, too."""
        assert isinstance(self.measured, Measurement)
        self.measured = dataclasses.replace(self.measured, shuffles=(shuffle,))

    def run_until_running(self) -> Pass:
        self.run_pass()
        self.start_driver()
        self.finish_batches()
        return self.run_pass()


def conditions(done: Pass) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in done.status["conditions"]}


def test_a_new_stream_gets_its_children_and_waits_for_its_driver() -> None:
    scene = Scene()
    done = scene.run_pass()
    assert "StatefulSet/clicks-driver" in scene.cluster.applied
    assert done.status["phase"] == "Pending"
    assert conditions(done)["Ready"] == ("True", "Accepted")
    assert conditions(done)["Running"][0] == "False"
    assert done.status["partitions"] == 48
    assert done.interval_s < 15.0, "what is on its way is looked at more often"


def test_what_is_as_it_should_be_makes_no_event_when_it_gets_known() -> None:
    scene = Scene()
    scene.placement = {0: "1", 1: "2", 2: "1", 3: "2"}
    scene.run_pass()
    scene.start_driver()
    scene.finish_batches(dict.fromkeys(range(4), 1.0))
    assert {e.reason for e in scene.run_pass().events} == {"BatchesProgress"}


def test_a_script_that_crashes_at_its_start_makes_an_event() -> None:
    scene = Scene()
    scene.run_pass()
    scene.start_driver()
    scene.run_pass()
    scene.cluster.objects["Pod", POD]["status"] = {
        "containerStatuses": [
            {"name": "driver", "state": {"terminated": {"exitCode": 1, "message": "no such file"}}}
        ]
    }
    (event,) = scene.run_pass().events
    assert event.warning
    assert "no such file" in event.message


def test_unchanged_children_are_not_applied_again_but_repaired_now_and_then() -> None:
    scene = Scene()
    scene.run_pass()
    count = len(scene.cluster.applied)
    scene.run_pass()
    assert len(scene.cluster.applied) == count
    scene.now_s += 600
    scene.run_pass()
    assert len(scene.cluster.applied) == 2 * count


def test_a_skewed_stream_is_balanced_by_a_plan_and_then_said_to_be_balanced() -> None:
    scene = Scene()
    done = scene.run_until_running()
    assert conditions(done)["Balanced"] == ("False", "Skewed")
    plan = scene.cluster.plan()
    assert plan is not None
    assert plan.owners("q", 0)[0] != plan.owners("q", 0)[1], "the two heavy ones are apart"
    assert done.status["planEpoch"] == plan.epoch == 1
    assert done.status["decisions"][0]["kind"] == "move"
    assert {e.reason for e in done.events} >= {"Skewed", "Moving"}
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["Balanced"] == ("True", "Even")
    assert done.status["appliedEpoch"] == 1
    assert done.status["imbalance"] < 1.2
    assert "5 batches later" in done.status["decisions"][0]["effect"]
    assert scene.cluster.plan() == plan, "and nothing more is planned"


def test_no_second_plan_is_made_before_the_first_one_shows() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.run_pass()
    done = scene.run_pass()
    assert done.status["planEpoch"] == 1
    assert "plan 1 is not applied yet" in done.status["reason"]


def test_a_new_executor_is_given_state_as_soon_as_it_is_there() -> None:
    scene = Scene(executors={"min": 2, "max": 4, "fixed": 3})
    scene.placement = {0: "1", 1: "1", 2: "1", 3: "2", 4: "2", 5: "2"}
    scene.run_pass()
    scene.start_driver()
    level = dict.fromkeys(range(6), 1.0)
    scene.finish_batches(level)
    assert scene.run_pass().status["planEpoch"] == 1
    scene.executors["3"] = 1
    scene.finish_batches(level, count=1)
    done = scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    assert done.status["planEpoch"] == plan.epoch == 2, "plan 1 moved nothing: no need to wait"
    assert "3" in plan.owners("q", 0).values()


def test_a_restarted_operator_goes_on_with_the_next_epoch() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.finish_batches()
    scene.supervisor = scene.make_supervisor()
    scene.finish_batches({0: 0.5, 1: 0.5, 2: 9.0, 3: 9.0})
    scene.placement = dict(ALL_ON_1)
    scene.finish_batches({0: 4.0, 1: 4.0, 2: 4.0, 3: 4.0}, count=1)
    scene.measured = Measurement(
        scene.now_s,
        1,
        scene.executors,
        tuple(TaskSample("q", 0, p, 12, "1", 4.0, 1, 1, scene.now_s) for p in range(4)),
        (),
        {"q": 12},
    )
    done = scene.run_pass()
    assert done.status["planEpoch"] == 2


def test_advice_is_written_once_and_nothing_is_done() -> None:
    scene = Scene(balancing={"mode": "Advise"}, scaling={"mode": "Advise"})
    done = scene.run_until_running()
    assert scene.cluster.plan() is None
    assert [d["kind"] for d in done.status["decisions"]] == ["advise"]
    assert "would move" in done.status["decisions"][0]["reason"]
    assert done.status["mode"] == "Advise"
    scene.finish_batches()
    done = scene.run_pass()
    assert len(done.status["decisions"]) == 1


def test_a_fixed_number_is_asked_for_and_out_of_bounds_it_is_limited() -> None:
    scene = Scene(executors={"min": 2, "max": 4, "fixed": 9})
    done = scene.run_until_running()
    plan = scene.cluster.plan()
    assert plan is not None
    assert len(plan.executors) == 4
    assert done.status["desiredExecutors"] == 4
    assert conditions(done)["ScalingLimited"] == ("True", "OutOfBounds")
    assert done.status["mode"] == "Auto/Fixed 4"
    assert parse_time(done.status["lastScaleTime"]) == scene.now_s


def test_executors_that_are_missing_for_a_minute_are_said_to_be_missing() -> None:
    scene = Scene()
    scene.executors = {"1": 1}
    assert conditions(scene.run_until_running())["ScalingLimited"][0] == "False", "just started"
    for _ in range(5):
        done = scene.run_pass()
    assert conditions(done)["ScalingLimited"] == ("True", "ExecutorsPending")
    scene.executors = {"1": 1, "2": 1}
    scene.finish_batches()
    assert conditions(scene.run_pass())["ScalingLimited"][0] == "False"


def test_after_three_missing_measurements_the_present_state_is_held() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.measured = "Prometheus at http://prometheus cannot be asked: refused"
    for expected in ("Unknown", "Unknown", "True"):
        done = scene.run_pass()
        assert conditions(done)["MetricsAvailable"] == ("False", "Missing")
        assert conditions(done).get("Fallback", ("Unknown", ""))[0] in {expected, "False"}
    assert conditions(done)["Fallback"] == ("True", "MetricsMissing")
    assert done.status["planEpoch"] == 1
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["Fallback"] == ("False", "InControl")


def test_a_driver_that_does_not_answer_gets_no_new_plan() -> None:
    scene = Scene()
    scene.run_until_running()
    for _ in range(6):
        done = scene.run_pass()
    assert conditions(done)["Fallback"] == ("True", "DriverSilent")
    assert done.status["planEpoch"] == 1


def test_a_plan_that_somebody_wrote_over_is_restored_and_told() -> None:
    scene = Scene()
    scene.run_until_running()
    plan = scene.cluster.plan()
    scene.cluster.objects["ConfigMap", "clicks-plan"]["data"] = {"plan.json": "rubbish"}
    done = scene.run_pass()
    assert "PlanOverwritten" in {e.reason for e in done.events}
    assert scene.cluster.plan() == plan


def test_a_refused_plan_is_told_once() -> None:
    scene = Scene()
    scene.run_until_running()
    refused = Answer(1, refused="plan.epoch: 0 is older than 1")
    scene.cluster.objects["ConfigMap", "clicks-answer"]["data"] = {"answer.json": refused.to_json()}
    assert "PlanRefused" in {e.reason for e in scene.run_pass().events}
    assert "PlanRefused" not in {e.reason for e in scene.run_pass().events}


def test_a_driver_pod_of_an_older_spec_is_replaced() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.cluster.objects["StatefulSet", "clicks-driver"]["status"] = {"updateRevision": "new"}
    scene.cluster.objects["Pod", POD]["metadata"]["labels"]["controller-revision-hash"] = "old"
    done = scene.run_pass()
    assert scene.cluster.deleted == [POD]
    assert conditions(done)["Running"] == ("False", "Replacing")


@pytest.mark.parametrize(
    ("container", "reason", "says"),
    [
        (
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
            "ImageUnavailable",
            "correct spec.image",
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 1, "message": "NameError: x"}},
            },
            "ApplicationFailed",
            "NameError: x",
        ),
    ],
)
def test_a_driver_that_cannot_run_says_why(
    container: dict[str, Any], reason: str, says: str
) -> None:
    scene = Scene()
    scene.run_pass()
    scene.start_driver()
    scene.cluster.objects["Pod", POD]["status"] = {
        "containerStatuses": [{"name": "driver", **container}]
    }
    done = scene.run_pass()
    assert done.status["phase"] == "Failing"
    assert conditions(done)["Running"] == ("False", reason)
    assert says in done.status["reason"]
    assert conditions(done)["Ready"][0] == "True", "the spec is fine"


def test_a_driver_on_a_lost_node_is_left_alone_and_the_command_is_named() -> None:
    scene = Scene()
    scene.run_pass()
    scene.start_driver()
    scene.cluster.objects["Pod", POD]["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z"
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "DriverStuck")
    assert "kubectl delete pod clicks-driver-0 --namespace shop --force" in done.status["reason"]
    assert scene.cluster.deleted == []


def test_a_wrong_spec_is_said_and_repaired_by_itself() -> None:
    scene = Scene(balancing={"mode": "Sometimes"})
    done = scene.run_pass()
    assert (done.status["phase"], conditions(done)["Ready"]) == (
        "Invalid",
        ("False", "InvalidSpec"),
    )
    assert scene.cluster.applied == []
    scene.resource["spec"]["balancing"] = {"mode": "Auto"}
    done = scene.run_pass()
    assert conditions(done)["Ready"] == ("True", "Accepted")
    assert scene.cluster.applied


def test_what_the_api_server_refuses_is_a_condition() -> None:
    scene = Scene(driver={"podTemplate": {"spec": {"containers": "none"}}})
    scene.cluster.refuses = "StatefulSet"
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "Refused")
    assert "Correct the spec" in done.status["reason"]


def test_an_object_of_somebody_else_is_never_taken_over() -> None:
    scene = Scene()
    scene.cluster.objects["ConfigMap", "clicks-plan"] = {"metadata": {"name": "clicks-plan"}}
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "Refused")
    assert (
        "ConfigMap clicks-plan exists and does not belong to this stream" in done.status["reason"]
    )
    assert scene.cluster.applied == []
    del scene.cluster.objects["ConfigMap", "clicks-plan"]
    scene.run_pass()
    assert "ConfigMap/clicks-plan" in scene.cluster.applied


def test_what_was_measured_is_unknown_while_the_driver_does_not_run() -> None:
    scene = Scene()
    scene.run_until_running()
    del scene.cluster.objects["Pod", POD]
    done = scene.run_pass()
    assert conditions(done)["Balanced"][0] == "Unknown"
    assert "imbalance" not in done.status or done.status["imbalance"] is None


def test_a_shuffle_whose_estimates_are_missed_for_long_is_told_until_they_are_trusted() -> None:
    scene = Scene()
    assert conditions(scene.run_until_running())["CostsTrusted"] == ("Unknown", "NoShuffle")
    events = []
    for batches, trusted, expected in (
        (0, False, ("Unknown", "Learning")),
        (0, True, ("True", "EstimatesHold")),
        (9, False, ("Unknown", "Learning")),
        (10, False, ("False", "EstimatesOff")),
        (11, False, ("False", "EstimatesOff")),
        (0, True, ("True", "EstimatesHold")),
    ):
        scene.finish_batches()
        scene.shuffle(ShuffleSample("label-by-kind", trusted, batches, 0.62, 0.58))
        done = scene.run_pass()
        assert conditions(done)["CostsTrusted"] == expected
        events += [e for e in done.events if e.message.startswith("CostsTrusted")]
    assert [(e.reason, e.warning) for e in events] == [
        ("EstimatesOff", True),
        ("EstimatesHold", False),
    ]
    assert "label-by-kind" in events[0].message
    del scene.cluster.objects["Pod", POD]
    assert conditions(scene.run_pass())["CostsTrusted"][0] == "Unknown"


def test_a_stream_that_was_deleted_unseen_gets_no_children_again() -> None:
    scene = Scene()
    scene.run_until_running()
    del scene.cluster.objects["BalancedStream", "clicks"]
    scene.cluster.applied.clear()
    scene.now_s += 3600.0
    with pytest.raises(StreamGoneError, match="shop/clicks was deleted"):
        scene.run_pass()
    assert not scene.cluster.applied


def test_a_suspended_stream_says_so() -> None:
    scene = Scene(suspend=True)
    scene.run_pass()
    done = scene.run_pass()
    assert done.status["phase"] == "Suspended"
    assert conditions(done)["Suspended"][0] == "True"
    assert done.status["executors"] == 0


def test_only_what_changed_is_written() -> None:
    scene = Scene()
    scene.run_pass()
    scene.cluster.written.clear()
    scene.run_pass()
    assert scene.cluster.written == []


def test_the_partitions_stay_as_they_were_chosen_when_the_limits_grow() -> None:
    scene = Scene()
    scene.run_pass()
    scene.resource["spec"]["executors"]["max"] = 100
    assert scene.run_pass().status["partitions"] == 48
