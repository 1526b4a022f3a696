"""Why executors do not start is said in Kubernetes' own words."""

from __future__ import annotations

from typing import Any

from manifests import SMALLEST, STREAM, make_spec

from balancedstream_operator.executors import (
    MAX_WORDS,
    count_live,
    describe_next,
    explain_shortage,
)
from balancedstream_operator.spec import read_spec


def pod(name: str = "e-1", *, phase: str = "Pending", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": phase, **status}}


def unschedulable(message: str) -> dict[str, Any]:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "message": message}])


def test_the_words_that_most_pods_have_come_first() -> None:
    pods = [unschedulable("no memory"), unschedulable("no cpu"), unschedulable("no cpu")]
    assert explain_shortage(pods) == "no cpu; no memory"


def test_an_image_that_cannot_be_pulled_is_named() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    statuses = [{"name": "executor", "state": {"waiting": waiting}}]
    assert explain_shortage([pod(containerStatuses=statuses)]) == "ImagePullBackOff: no such image"


def test_a_pod_that_starts_is_named_and_one_that_runs_or_goes_is_not() -> None:
    creating = [{"name": "executor", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    leaving = unschedulable("no cpu")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-25T10:00:00Z"
    pods = [pod("e-2", containerStatuses=creating), pod(phase="Running"), leaving]
    assert explain_shortage(pods) == "pod e-2 is starting"


def test_without_a_pod_that_waits_and_without_a_refusal_only_the_driver_knows_more() -> None:
    assert "the driver's log" in explain_shortage([pod(phase="Running")])


def test_what_the_api_server_says_of_one_more_comes_before_what_other_pods_wait_for() -> None:
    pods = [unschedulable("no cpu"), pod(phase="Running")]
    assert explain_shortage(pods, "exceeded quota") == "exceeded quota; no cpu"


def test_a_pod_that_has_ended_or_goes_is_no_executor_any_more() -> None:
    leaving = pod(phase="Running")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-25T10:00:00Z"
    pods = [unschedulable("no cpu"), pod(phase="Running"), pod(phase="Failed"), leaving]
    assert count_live(pods) == 2


def test_the_next_executor_is_like_one_that_is_there_and_on_no_node_yet() -> None:
    there = {
        "metadata": {
            "name": "clicks-exec-1",
            "namespace": "shop",
            "uid": "uid-7",
            "labels": {"spark-role": "executor"},
            "ownerReferences": [{"uid": "uid-8"}],
        },
        "spec": {"nodeName": "n-1", "containers": [{"name": "executor", "image": "clicks:1"}]},
        "status": {"phase": "Running"},
    }
    assert describe_next(STREAM, make_spec(), [there]) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "clicks-executor",
            "namespace": "shop",
            "labels": {"spark-role": "executor"},
            "annotations": {},
        },
        "spec": {"containers": [{"name": "executor", "image": "clicks:1"}]},
    }


def test_the_first_executor_is_as_the_spec_and_its_pod_template_say() -> None:
    limits = {"name": "executor", "resources": {"limits": {"cpu": "2"}}}
    executors = {
        "max": 4,
        "cores": 2,
        "memory": "1g",
        "memoryOverhead": "512m",
        "podTemplate": {"spec": {"priorityClassName": "low", "containers": [limits]}},
    }
    first = describe_next(STREAM, make_spec(executors=executors), [])
    assert first is not None
    assert first["spec"]["priorityClassName"] == "low"
    (container,) = first["spec"]["containers"]
    assert container["image"] == "clicks:1"
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "1536Mi"},
        "limits": {"cpu": "2", "memory": "1536Mi"},
    }


def test_nobody_but_its_driver_knows_the_first_executor_of_an_application_of_another_operator() -> (
    None
):
    target = {"selector": {"app": "clicks"}}
    spec = read_spec({"targetRef": target, "executors": SMALLEST["executors"]})
    assert describe_next(STREAM, spec, []) is None


def test_long_words_leave_room_for_the_rest_of_a_message() -> None:
    assert len(explain_shortage([unschedulable("x" * 5000)])) == MAX_WORDS
