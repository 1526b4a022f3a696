"""Why executors do not start is said in Kubernetes' own words."""

from __future__ import annotations

from typing import Any

from balancedstream_operator.executors import MAX_WORDS, explain_shortage


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


def test_without_a_pod_that_waits_the_quota_is_suspected() -> None:
    assert "quota" in explain_shortage([pod(phase="Running")])


def test_long_words_leave_room_for_the_rest_of_a_message() -> None:
    assert len(explain_shortage([unschedulable("x" * 5000)])) == MAX_WORDS
