"""A driver that does not start, and whose containers do not say why, is explained."""

from __future__ import annotations

from typing import Any

import pytest
from supervised import POD, Scene, Shown, conditions

from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.driver.start_problems import WOKEN_ANNOTATION
from balancedstream_operator.errors import RefusedError, UnreachableError

FORBIDDEN = 'the API server did not take it: pods "clicks-driver" is forbidden'
ON_ITS_WAY = ("False", "True", "False")
STUCK = ("False", "False", "True")

DRIVER_LABELS = {
    "app.kubernetes.io/name": "balancedstream-driver",
    "balancedstream.io/stream": "clicks",
}


def run_for_a_minute(scene: Scene) -> Shown:
    """A pass, and five more within the 75 s after it."""
    for _ in range(6):
        done = scene.run_pass()
    return done


def summary(done: Shown) -> tuple[str, ...]:
    """Ready, Reconciling and Stalled."""
    found = conditions(done)
    return tuple(found[kind][0] for kind in ("Ready", "Reconciling", "Stalled"))


def say(done: Shown) -> str:
    """The message of Running."""
    (said,) = [c["message"] for c in done.status["conditions"] if c["type"] == "Running"]
    return str(said)


def make_pod(scene: Scene, *volumes: Manifest) -> None:
    """A driver's pod whose container is not made yet."""
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    scene.cluster.objects["Pod", POD] = {
        "metadata": {"name": POD, "namespace": "shop", "labels": dict(DRIVER_LABELS), "uid": "p"},
        "spec": {"volumes": list(volumes)},
        "status": {"containerStatuses": [{"name": "driver", "state": waiting}]},
    }


@pytest.mark.parametrize(
    ("said", "phase", "expected"),
    [
        (f"{FORBIDDEN}: exceeded quota: none, limited: pods=0", "Pending", ON_ITS_WAY),
        (f"{FORBIDDEN}: failed quota: few: must specify limits.cpu", "Failing", STUCK),
        (f"{FORBIDDEN}: violates PodSecurity", "Failing", STUCK),
    ],
)
def test_a_driver_whose_pod_is_refused_for_a_minute_is_reported_in_the_refusals_words(
    said: str, phase: str, expected: tuple[str, ...]
) -> None:
    scene = Scene()
    scene.cluster.refuses_pods = said
    for _ in range(5):
        assert conditions(scene.run_pass())["Running"] == ("False", "NoDriver")
    assert scene.cluster.tried == [], "it has not been missing for long"
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "DriverRefused")
    assert summary(done) == expected
    assert done.status["phase"] == phase
    assert say(done) == f"the driver's pod does not exist yet: {said}"
    assert [(e.reason, e.warning) for e in done.events] == [("DriverRefused", True)]


def test_what_is_asked_about_is_the_pod_of_the_stateful_set_once_in_a_pass() -> None:
    scene = Scene(driver={"podTemplate": {"metadata": {"annotations": {"team": "shop"}}}})
    scene.cluster.refuses_pods = FORBIDDEN
    run_for_a_minute(scene)
    (pod,) = scene.cluster.tried
    template = scene.cluster.objects["StatefulSet", "clicks-driver"]["spec"]["template"]
    assert pod["spec"] == template["spec"]
    assert pod["metadata"]["name"] == "clicks-driver"
    assert pod["metadata"]["annotations"]["team"] == "shop"
    assert pod["metadata"]["labels"].items() >= DRIVER_LABELS.items()
    scene.run_pass()
    assert len(scene.cluster.tried) == 2


def test_a_driver_that_comes_after_all_is_like_any_other() -> None:
    scene = Scene()
    scene.cluster.refuses_pods = FORBIDDEN
    run_for_a_minute(scene)
    scene.cluster.refuses_pods = ""
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "NoDriver")
    assert "would take it now" in say(done)
    ((*woken, _),) = scene.cluster.annotated
    assert woken == ["StatefulSet", "clicks-driver", WOKEN_ANNOTATION], "its controller pauses"
    make_pod(scene)
    assert conditions(scene.run_pass())["Running"] == ("False", "ContainerCreating")
    scene.start_driver()
    scene.finish_batches()
    assert summary(scene.run_pass()) == ("True", "False", "False")


def test_the_controller_of_a_driver_that_does_not_come_is_woken_once_a_minute() -> None:
    scene = Scene()
    run_for_a_minute(scene)
    since_s = scene.now_s
    while scene.now_s < since_s + 600.0:
        scene.run_pass()
    times = {value for *_, value in scene.cluster.annotated}
    assert len(times) in {10, 11}, "the same value wakes nobody"


def test_a_stateful_set_that_the_operator_may_not_change_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbid(manifest: Manifest, name: str, value: str) -> None:
        message = "the API server did not annotate StatefulSet clicks-driver: denied by policy"
        raise RefusedError(message)

    scene = Scene()
    monkeypatch.setattr(scene.cluster, "annotate", forbid)
    run_for_a_minute(scene)
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "NoDriver"), "nobody refuses its pod"
    assert "a pause of up to 17 minutes (the API server did not annotate" in say(done)
    assert "denied by policy" in say(done)


def test_a_server_that_fails_to_judge_the_drivers_pod_fails_no_pass() -> None:
    def fail(manifest: Manifest) -> None:
        message = "the API server did not take it: failed calling webhook"
        raise UnreachableError(message)

    scene = Scene()
    scene.cluster.try_pod = fail  # type: ignore[method-assign]
    done = run_for_a_minute(scene)
    assert done.failure is None
    assert "failed calling webhook" in say(done)
    assert summary(done) == ON_ITS_WAY, "such a failure passes"


def test_a_suspended_stream_has_no_pod_and_nobody_asks_why() -> None:
    scene = Scene(suspend=True)
    scene.cluster.refuses_pods = FORBIDDEN
    assert conditions(run_for_a_minute(scene))["Running"] == ("False", "Suspended")
    assert scene.cluster.tried == []


SCRIPT = {"name": "clicks-script", "items": [{"key": "run.py", "path": "script.py"}]}


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        (None, "waits for ConfigMap clicks-script, which does not exist: add it"),
        ({"data": {"old.py": ""}}, "waits for ConfigMap clicks-script, which has no key run.py"),
        ({}, "waits for ConfigMap clicks-script, which has no key run.py"),
    ],
)
def test_a_config_map_that_a_pod_waits_for_is_named_until_it_is_there(
    kept: dict[str, Any] | None, says: str
) -> None:
    scene = Scene()
    scene.run_pass()
    make_pod(scene, {"name": "script", "configMap": SCRIPT})
    if kept is not None:
        scene.cluster.objects["ConfigMap", "clicks-script"] = kept
    for _ in range(5):
        assert conditions(scene.run_pass())["Running"] == ("False", "ContainerCreating")
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "ConfigMapMissing")
    assert summary(done) == STUCK
    assert says in say(done)
    scene.cluster.objects["ConfigMap", "clicks-script"] = {"binaryData": {"run.py": ""}}
    assert conditions(scene.run_pass())["Running"] == ("False", "ContainerCreating")


def test_a_config_map_in_a_projected_volume_is_waited_for_as_well() -> None:
    scene = Scene()
    scene.run_pass()
    sources = [{"serviceAccountToken": {"path": "token"}}, {"configMap": SCRIPT}]
    make_pod(scene, {"name": "all", "projected": {"sources": sources}})
    assert conditions(run_for_a_minute(scene))["Running"] == ("False", "ConfigMapMissing")


def test_a_pod_starts_without_an_optional_config_map_and_without_other_volumes() -> None:
    scene = Scene()
    scene.run_pass()
    optional = {"name": "more", "configMap": {"name": "more", "optional": True}}
    make_pod(scene, optional, {"name": "tmp", "emptyDir": {}})
    assert conditions(run_for_a_minute(scene))["Running"] == ("False", "ContainerCreating")
