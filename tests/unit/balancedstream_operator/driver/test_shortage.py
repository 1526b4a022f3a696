"""Why executors do not start is said in Kubernetes' own words."""

from __future__ import annotations

from typing import Any

import pytest
from manifests import SMALLEST, STREAM, make_spec

from balancedstream_operator.api.spec import read_spec
from balancedstream_operator.driver.shortage import (
    MAX_WORDS,
    count_live,
    describe_next,
    explain_shortage,
)
from balancedstream_operator.driver.state import describe_driver


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


def of(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, **state}


LOOPS = {
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
    "lastState": {"terminated": {"exitCode": 3, "message": "no such host"}},
}
NOT_PULLED = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
ENDED_WELL = {"state": {"terminated": {"exitCode": 0}}}
FAILED = {"state": {"terminated": {"exitCode": 1, "message": "", "reason": "Error"}}}
NO_SECRET = {"reason": "CreateContainerConfigError", "message": 'secret "a" not found'}
WAITS = of("executor", state={"waiting": {"reason": "PodInitializing"}})


@pytest.mark.parametrize(
    ("phase", "init", "says"),
    [
        ("Pending", NOT_PULLED, "init container setup: ErrImagePull: no such image"),
        ("Pending", LOOPS, "init container setup ended with exit code 3: no such host"),
        (
            "Pending",
            {"state": {"waiting": NO_SECRET}},
            'init container setup: CreateContainerConfigError: secret "a" not found',
        ),
        ("Failed", FAILED, "init container setup ended with exit code 1: Error"),
        ("Pending", ENDED_WELL, "pod e-1 is starting"),
        ("Pending", {"state": {"running": {}}}, "pod e-1 is starting"),
    ],
)
def test_an_init_container_that_keeps_executors_from_starting_is_named(
    phase: str, init: dict[str, Any], says: str
) -> None:
    statuses = [of("first", **ENDED_WELL), of("setup", **init)]
    pods = [pod(phase=phase, initContainerStatuses=statuses, containerStatuses=[WAITS])]
    assert explain_shortage(pods) == says


@pytest.mark.parametrize("fault", [NOT_PULLED, LOOPS, {"state": {"waiting": NO_SECRET}}])
@pytest.mark.parametrize("init", [True, False])
def test_of_a_driver_and_of_an_executor_the_same_is_known(
    fault: dict[str, Any], init: bool
) -> None:
    statuses: dict[str, Any] = {
        "initContainerStatuses": [of("setup", **fault)] if init else [],
        "containerStatuses": [{**(WAITS if init else fault), "name": "driver"}],
    }
    there = pod("clicks-driver-0", **statuses)
    there["metadata"] |= {"namespace": "shop", "uid": "uid-7"}
    driver = describe_driver(there, None, 0.0)
    words = "no such host" if fault is LOOPS else fault["state"]["waiting"]["message"]
    assert driver.phase == "Failing"
    assert words in driver.message
    assert words in explain_shortage([there])
    assert ("setup" in driver.message) == ("setup" in explain_shortage([there]))


def test_what_an_executor_said_that_ran_is_no_reason_of_one_that_does_not_start() -> None:
    pods = [pod(phase="Failed", containerStatuses=[of("executor", **FAILED)])]
    assert "the driver's log" in explain_shortage(pods)


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
