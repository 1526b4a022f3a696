"""How a driver is, as its pod and its StatefulSet say."""

from __future__ import annotations

from typing import Any

import pytest

from balancedstream_operator.api.status import format_time
from balancedstream_operator.api.target import TargetRef
from balancedstream_operator.driver.state import (
    STARTED_WITHIN_S,
    STUCK_AFTER_S,
    describe_driver,
    describe_target,
)

NOW_S = 1_000_000.0
ENDS_NOW = "1970-01-12T13:46:40Z"


def pod(
    container: dict[str, Any] | None = None, *, revision: str = "", **changes: Any
) -> dict[str, Any]:
    labels = {"controller-revision-hash": revision} if revision else {}
    containers = [] if container is None else [{"name": "driver", **container}]
    return {
        "metadata": {"name": "clicks-driver-0", "namespace": "shop", "labels": labels, **changes},
        "status": {"containerStatuses": containers},
    }


def stateful_set(replicas: int = 1, update_revision: str = "") -> dict[str, Any]:
    return {"spec": {"replicas": replicas}, "status": {"updateRevision": update_revision}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def terminated(exit_code: int, message: str) -> dict[str, Any]:
    return {"exitCode": exit_code, "message": message}


def test_before_anything_was_created_the_driver_is_pending() -> None:
    for owner in (None, stateful_set()):
        driver = describe_driver(None, owner, NOW_S)
        assert (driver.phase, driver.reason, driver.running) == ("Pending", "NoDriver", False)


def test_a_container_that_runs_is_a_running_driver() -> None:
    driver = describe_driver(pod({"state": {"running": {}}}), stateful_set(), NOW_S)
    assert driver.running
    assert (driver.phase, driver.reason) == ("Starting", "DriverRunning")
    assert driver.message == "pod clicks-driver-0 is running"


def test_other_containers_of_the_pod_say_nothing_of_the_driver() -> None:
    found = pod()
    found["status"]["containerStatuses"] = [{"name": "proxy", "state": {"running": {}}}]
    assert not describe_driver(found, stateful_set(), NOW_S).running


@pytest.mark.parametrize(
    ("revision", "update_revision", "outdated"),
    [("a", "b", True), ("a", "a", False), ("", "b", False), ("a", "", False)],
)
def test_a_pod_of_another_revision_is_outdated_whatever_it_does(
    revision: str, update_revision: str, outdated: bool
) -> None:
    running: dict[str, Any] = {"state": {"running": {}}}
    for container in (running, waiting("ImagePullBackOff")):
        found = pod(container, revision=revision)
        driver = describe_driver(found, stateful_set(1, update_revision), NOW_S)
        assert driver.outdated is outdated


@pytest.mark.parametrize(
    ("found", "reason"), [(None, "Suspended"), (pod({"state": {"running": {}}}), "Stopping")]
)
def test_without_replicas_the_driver_is_suspended(
    found: dict[str, Any] | None, reason: str
) -> None:
    driver = describe_driver(found, stateful_set(0), NOW_S)
    assert (driver.phase, driver.reason, driver.running) == ("Suspended", reason, False)


@pytest.mark.parametrize(
    ("late_s", "phase", "reason"),
    [
        (-30.0, "Pending", "DriverLeaving"),
        (STUCK_AFTER_S, "Pending", "DriverLeaving"),
        (STUCK_AFTER_S + 1, "Failing", "DriverStuck"),
    ],
)
def test_a_pod_that_outlives_its_grace_period_by_a_minute_is_stuck(
    late_s: float, phase: str, reason: str
) -> None:
    found = pod({"state": {"running": {}}}, deletionTimestamp=ENDS_NOW)
    driver = describe_driver(found, stateful_set(), NOW_S + late_s)
    assert (driver.phase, driver.reason, driver.running) == (phase, reason, False)


@pytest.mark.parametrize(
    ("owners", "uid", "runs"),
    [
        ([{"uid": "new"}], "new", True),
        ([{"uid": "old"}], "new", False),
        ([{"uid": "old"}], None, False),
        ([], "new", True),
    ],
)
def test_the_pod_of_a_deleted_stream_of_the_same_name_is_not_its_driver(
    owners: list[dict[str, str]], uid: str | None, runs: bool
) -> None:
    found = pod({"state": {"running": {}}}, ownerReferences=owners)
    owner = {**stateful_set(), "metadata": {"uid": uid}} if uid else None
    driver = describe_driver(found, owner, NOW_S)
    assert driver.running is runs
    assert driver.reason == ("DriverRunning" if runs else "DriverLeaving")


def test_for_a_stuck_pod_the_message_has_the_commands_and_what_is_safe() -> None:
    found = pod({"state": {"running": {}}}, deletionTimestamp=ENDS_NOW)
    found["spec"] = {"nodeName": "node-7"}
    message = describe_driver(found, stateful_set(), NOW_S + 90.0).message
    assert "should have stopped 90 s ago" in message
    assert "kubectl delete pod clicks-driver-0 --namespace shop --force --grace-period=0" in message
    assert "kubectl taint nodes node-7 node.kubernetes.io/out-of-service=nodeshutdown" in message
    assert "make sure that the pod does not run" in message
    assert "the checkpoint has everything that was committed" in message


@pytest.mark.parametrize(
    ("container", "phase", "reason", "says"),
    [
        pytest.param(None, "Pending", "ContainerCreating", "is starting", id="no container yet"),
        pytest.param(
            waiting("ContainerCreating"), "Pending", "ContainerCreating", "is starting", id="made"
        ),
        pytest.param(
            waiting("PodInitializing"), "Pending", "ContainerCreating", "is starting", id="waits"
        ),
        pytest.param(
            waiting("ErrImagePull", "not found"),
            "Failing",
            "ImageUnavailable",
            "the image cannot be pulled (not found): correct spec.image",
            id="no image",
        ),
        pytest.param(
            waiting("InvalidImageName"),
            "Failing",
            "ImageUnavailable",
            "cannot be pulled (",
            id="bad image",
        ),
        pytest.param(
            waiting("CreateContainerConfigError", 'secret "s3" not found'),
            "Failing",
            "CannotStart",
            'pod clicks-driver-0 cannot start: CreateContainerConfigError: secret "s3" not found',
            id="no secret",
        ),
        pytest.param(
            {"state": {"terminated": terminated(3, "NameError: x\n")}},
            "Failing",
            "ApplicationFailed",
            "the script ended with exit code 3; it restarts after a pause. "
            "Its last output: NameError: x",
            id="crashed",
        ),
        pytest.param(
            {**waiting("CrashLoopBackOff"), "lastState": {"terminated": terminated(1, "boom")}},
            "Failing",
            "ApplicationFailed",
            "exit code 1; it restarts after a pause. Its last output: boom",
            id="crashes again and again",
        ),
    ],
)
def test_a_driver_that_does_not_run_says_why(
    container: dict[str, Any] | None, phase: str, reason: str, says: str
) -> None:
    driver = describe_driver(pod(container), stateful_set(), NOW_S)
    assert (driver.phase, driver.reason, driver.running) == (phase, reason, False)
    assert says in driver.message


def test_a_sidecar_whose_image_cannot_be_pulled_keeps_the_driver_from_starting() -> None:
    found = pod(waiting("PodInitializing"))
    sidecar = {"name": "balancedstream", **waiting("ErrImagePull", "agent:9 not found")}
    found["status"]["initContainerStatuses"] = [sidecar]
    driver = describe_driver(found, stateful_set(), NOW_S)
    assert (driver.phase, driver.reason) == ("Failing", "ImageUnavailable")
    assert "the image cannot be pulled (agent:9 not found)" in driver.message


def waits_for_init(**container: Any) -> dict[str, Any]:
    found = pod(waiting("PodInitializing"))
    found["status"]["initContainerStatuses"] = [{"name": "fetch", **container}]
    return found


@pytest.mark.parametrize(
    ("container", "reason", "says"),
    [
        pytest.param(
            {"state": {"terminated": terminated(2, "no bucket")}},
            "ApplicationFailed",
            "init container fetch ended with exit code 2; it restarts after a pause. "
            "Its last output: no bucket",
            id="failed",
        ),
        pytest.param(
            {**waiting("CrashLoopBackOff"), "lastState": {"terminated": terminated(0, "done")}},
            "ApplicationFailed",
            "init container fetch ended with exit code 0",
            id="a sidecar that does not stay",
        ),
        pytest.param(
            waiting("CreateContainerConfigError", 'secret "s3" not found'),
            "CannotStart",
            'pod clicks-driver-0 cannot start: CreateContainerConfigError: secret "s3" not found',
            id="no secret",
        ),
    ],
)
def test_an_init_container_that_fails_says_why_the_driver_does_not_start(
    container: dict[str, Any], reason: str, says: str
) -> None:
    driver = describe_driver(waits_for_init(**container), stateful_set(), NOW_S)
    assert (driver.phase, driver.reason) == ("Failing", reason)
    assert says in driver.message


@pytest.mark.parametrize(
    "state", [{"terminated": terminated(0, "")}, {"running": {}}, {"waiting": {}}]
)
def test_an_init_container_that_succeeds_or_runs_is_no_failure(state: dict[str, Any]) -> None:
    driver = describe_driver(waits_for_init(state=state), stateful_set(), NOW_S)
    assert (driver.phase, driver.reason) == ("Pending", "ContainerCreating")


@pytest.mark.parametrize(
    ("since_s", "phase", "reason"),
    [
        (STARTED_WITHIN_S, "Pending", "ContainerCreating"),
        (STARTED_WITHIN_S + 60.0, "Failing", "StartStuck"),
    ],
)
def test_a_pod_of_which_nothing_has_changed_for_minutes_does_not_start(
    since_s: float, phase: str, reason: str
) -> None:
    found = pod(waiting("ContainerCreating"))
    found["status"]["conditions"] = [
        {
            "type": kind,
            "status": status,
            "lastTransitionTime": format_time(NOW_S - ago_s),
        }
        for kind, status, ago_s in (("PodScheduled", "True", 9_000.0), ("Ready", "False", since_s))
    ]
    driver = describe_driver(found, stateful_set(), NOW_S)
    assert (driver.phase, driver.reason) == (phase, reason)
    if reason == "StartStuck":
        assert driver.message == (
            "pod clicks-driver-0 has been starting for 6 minutes; kubectl describe pod "
            "clicks-driver-0 --namespace shop says why"
        )


def test_a_driver_of_another_operator_that_does_not_start_says_why_too() -> None:
    target = TargetRef(selector={"app": "clicks"})
    found = waits_for_init(state={"running": {}})
    found["status"]["conditions"] = [{"type": "Ready", "lastTransitionTime": format_time(0.0)}]
    driver = describe_target(target, [found], NOW_S)
    assert (driver.phase, driver.reason) == ("Failing", "TargetFailed")
    assert "has been starting for 16667 minutes" in driver.message
    failed = waits_for_init(state={"terminated": terminated(2, "no bucket")})
    failed["status"]["phase"] = "Failed"
    driver = describe_target(target, [failed], NOW_S)
    assert "has failed (exit code 2: no bucket)" in driver.message


def test_of_a_long_last_output_the_end_is_shown() -> None:
    output = "x" * 2_000 + "the cause"
    crashed = {"state": {"terminated": terminated(1, output)}}
    message = describe_driver(pod(crashed), stateful_set(), NOW_S).message
    assert message.endswith("the cause")
    assert len(message) < 1_000


def test_a_pod_that_finds_no_node_says_what_the_scheduler_says() -> None:
    found = pod()
    found["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    ]
    driver = describe_driver(found, stateful_set(), NOW_S)
    assert (driver.phase, driver.reason) == ("Pending", "Unschedulable")
    assert driver.message == "pod clicks-driver-0 waits for a node: 0/3 nodes are available"
