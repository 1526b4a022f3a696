"""What the status and the events say over several passes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from supervised import POD, Scene, conditions

from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.api.status import parse_time
from balancedstream_operator.errors import UnreachableError
from balancedstream_operator.observe.measurement import Measurement, ShuffleSample


def test_conditions_that_start_as_they_should_be_make_no_event() -> None:
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


def test_a_fixed_number_out_of_bounds_is_limited_and_reported() -> None:
    scene = Scene(executors={"min": 2, "max": 4, "fixed": 9})
    done = scene.run_until_running()
    plan = scene.cluster.plan()
    assert plan is not None
    assert len(plan.executors) == 4
    assert done.status["desiredExecutors"] == 4
    assert conditions(done)["ScalingLimited"] == ("True", "OutOfBounds")
    assert done.status["mode"] == "Auto/Fixed 4"
    assert parse_time(done.status["lastScaleTime"]) == scene.now_s


def add_executor_pod(scene: Scene, name: str, **status: Any) -> None:
    labels = {"spark-role": "executor", "balancedstream.io/stream": "clicks"}
    scene.cluster.objects["Pod", name] = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "executor"}]},
        "status": status,
    }


def describe_missing_executors(scene: Scene, *, passes: int = 1) -> str:
    """The message of ScalingLimited after some passes."""
    for _ in range(passes):
        done = scene.run_pass()
    assert conditions(done)["ScalingLimited"] == ("True", "ExecutorsPending")
    (said,) = [c["message"] for c in done.status["conditions"] if c["type"] == "ScalingLimited"]
    return str(said)


def test_executors_that_are_missing_for_a_minute_are_reported() -> None:
    scene = Scene()
    scene.executors = {"1": 1}
    assert conditions(scene.run_until_running())["ScalingLimited"][0] == "False", "just started"
    waits = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    add_executor_pod(scene, "clicks-exec-1", phase="Running")
    add_executor_pod(scene, "clicks-exec-2", phase="Pending", conditions=[waits])
    for _ in range(4):
        assert conditions(scene.run_pass())["ScalingLimited"][0] == "False", "for 60 s at most"
    said = describe_missing_executors(scene)
    assert "1 of 2 executors did not start: 0/3 nodes are available. Look" in said
    assert scene.cluster.tried == [], "each has a pod, which says why"
    scene.executors = {"1": 1, "2": 1}
    scene.finish_batches()
    assert conditions(scene.run_pass())["ScalingLimited"][0] == "False"


def test_executors_that_are_refused_leave_no_pod_and_are_reported_in_the_refusals_words() -> None:
    scene = Scene()
    scene.executors = {"1": 1}
    scene.run_until_running()
    assert scene.cluster.tried == [], "none is missing for long"
    scene.cluster.refuses_pods = "the API server did not take it: exceeded quota: few"
    said = describe_missing_executors(scene, passes=5)
    assert "1 of 2 executors did not start: the API server did not take it: exceeded quota" in said
    assert scene.cluster.tried[0]["spec"]["containers"][0]["image"] == "clicks:1"
    scene.cluster.refuses_pods = ""
    assert "would take one more" in describe_missing_executors(scene)


def test_a_stream_that_gets_no_executor_at_all_is_told_why() -> None:
    scene = Scene()
    scene.run_pass()
    scene.start_driver()
    scene.cluster.refuses_pods = "the API server did not take it: exceeded quota: few"
    for _ in range(5):
        scene.measured = Measurement(scene.now_s, 0, {})
        scene.run_pass()
    said = describe_missing_executors(scene)
    assert "2 of 2 executors did not start: the API server did not take it: exceeded" in said


def test_a_server_that_fails_to_judge_another_executor_fails_no_pass() -> None:
    scene = Scene()
    scene.executors = {"1": 1}
    scene.run_until_running()

    def fail(manifest: Manifest) -> None:
        message = "the API server did not take it: failed calling webhook"
        raise UnreachableError(message)

    scene.cluster.try_pod = fail  # type: ignore[method-assign]
    assert "failed calling webhook" in describe_missing_executors(scene, passes=5)


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
    assert conditions(done)["Accepted"][0] == "True", "the spec is fine"


def test_a_wrong_spec_is_reported_until_it_is_corrected() -> None:
    scene = Scene(balancing={"mode": "Sometimes"})
    done = scene.run_pass()
    assert (done.status["phase"], conditions(done)["Accepted"]) == (
        "Invalid",
        ("False", "InvalidSpec"),
    )
    assert scene.cluster.applied == []
    scene.resource["spec"]["balancing"] = {"mode": "Auto"}
    done = scene.run_pass()
    assert conditions(done)["Accepted"] == ("True", "Accepted")
    assert scene.cluster.applied


def test_measured_conditions_are_unknown_while_the_driver_does_not_run() -> None:
    scene = Scene()
    scene.run_until_running()
    del scene.cluster.objects["Pod", POD]
    done = scene.run_pass()
    assert conditions(done)["Balanced"][0] == "Unknown"
    assert "imbalance" not in done.status or done.status["imbalance"] is None


def test_a_shuffle_whose_estimates_are_off_for_long_is_reported_until_they_are_trusted() -> None:
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


def test_executors_that_lack_memory_are_a_condition_that_says_what_to_raise() -> None:
    scene = Scene()
    of_an_older_driver = conditions(scene.run_until_running())
    assert of_an_older_driver["ExecutorsLost"] == ("Unknown", "NotMeasured")
    events = []
    for losses, expected in (
        ({"memory": 0, "silence": 1}, ("False", "NoneLost")),
        ({"memory": 2, "silence": 1}, ("True", "OutOfMemory")),
        ({"memory": 2, "silence": 2}, ("True", "OutOfMemory")),
        ({"memory": 0, "silence": 2}, ("True", "ExecutorsSilent")),
        ({"memory": 0, "silence": 0}, ("False", "NoneLost")),
    ):
        scene.finish_batches()
        assert isinstance(scene.measured, Measurement)
        scene.measured = replace(scene.measured, losses=losses)
        done = scene.run_pass()
        assert conditions(done)["ExecutorsLost"] == expected
        events += [e for e in done.events if e.message.startswith("ExecutorsLost")]
    assert [(e.reason, e.warning) for e in events] == [
        ("OutOfMemory", True),
        ("ExecutorsSilent", True),
        ("NoneLost", False),
    ]
    assert "2 killed, because its container used more memory than it may" in events[0].message
    assert "raise executors.memoryOverhead" in events[0].message
    del scene.cluster.objects["Pod", POD]
    assert conditions(scene.run_pass())["ExecutorsLost"][0] == "Unknown"


def test_a_suspended_stream_says_so() -> None:
    scene = Scene(suspend=True)
    scene.run_pass()
    done = scene.run_pass()
    assert done.status["phase"] == "Suspended"
    assert conditions(done)["Suspended"][0] == "True"
    assert done.status["executors"] == 0


def test_a_status_does_not_grow_with_the_executors_that_have_come_and_gone() -> None:
    # kubeflow/spark-operator#2025: a state was kept of each, until etcd took the object no more.
    scene, sizes = Scene(), []
    scene.run_until_running()
    for number in range(60):
        old, new = str(2 * number), str(2 * number + 1)
        scene.executors = {old: 1, new: 1}
        scene.placement = {0: old, 1: old, 2: old, 3: new}
        scene.finish_batches()
        sizes.append(len(json.dumps(scene.run_pass().status)))
    # The first ones fill the list of decisions, and later numbers have more digits.
    assert max(sizes[30:]) <= max(sizes[:30]) + 100


def test_what_a_pass_writes_makes_the_next_one_write_nothing() -> None:
    # nolar/kopf#686: what was written for oneself was an event, which was written again, for ever.
    scene = Scene()
    scene.run_until_running()
    scene.finish_batches()
    scene.run_pass()
    cluster = scene.cluster

    def count() -> list[int]:
        return [len(cluster.written), len(cluster.applied), len(cluster.annotated)]

    before = count()
    for _ in range(5):
        scene.count_changes()
        scene.show(scene.resource)
    assert count() == before
