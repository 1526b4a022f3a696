"""An API server that is behind shows old streams; an operator does not go back to them."""

from __future__ import annotations

import copy
import hashlib
import json

import pytest
from supervised import POD, Scene, Shown

from balancedstream_operator.api.annotations import (
    APPROVE_ANNOTATION,
    PAUSED_ANNOTATION,
    RESTART_ANNOTATION,
)
from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.errors import ClusterError, StreamGoneError, UnreachableError


def remember(scene: Scene) -> Manifest:
    """The stream as a server that falls behind from now on lists it."""
    scene.count_changes()
    return copy.deepcopy(scene.resource)


def annotate(scene: Scene, **annotations: str) -> None:
    scene.resource["metadata"]["annotations"] = annotations
    scene.count_changes()


def show(scene: Scene, listed: Manifest) -> Shown:
    """A pass of an operator that is shown a stream, old or not."""
    scene.now_s += 15.0
    done = scene.show(listed)
    scene.count_changes()
    reconcile(scene)
    return done


def reconcile(scene: Scene) -> None:
    """What the controller of StatefulSets does: it names its template, and makes a missing pod."""
    found = scene.cluster.objects["StatefulSet", "clicks-driver"]
    template = found["spec"]["template"]
    revision = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()
    found["status"] = {"updateRevision": revision}
    if ("Pod", POD) not in scene.cluster.objects:
        scene.start_driver()
        metadata = scene.cluster.objects["Pod", POD]["metadata"]
        metadata["labels"]["controller-revision-hash"] = revision
        metadata["annotations"] = copy.deepcopy(template["metadata"]["annotations"])


def run_driver(scene: Scene) -> None:
    show(scene, scene.resource)
    scene.finish_batches()


def replace_driver(scene: Scene) -> None:
    """Somebody asks for a new driver, and gets it."""
    annotate(scene, **{RESTART_ANNOTATION: "at noon"})
    show(scene, remember(scene))
    show(scene, remember(scene))
    assert scene.cluster.deleted == [POD]
    scene.cluster.deleted.clear()


@pytest.mark.parametrize("restarts", [True, False], ids=["a new operator", "a new watch"])
def test_a_driver_that_was_replaced_is_not_replaced_again_for_an_old_list(restarts: bool) -> None:
    scene = Scene()
    run_driver(scene)
    old = remember(scene)
    replace_driver(scene)
    if restarts:
        scene.passes = scene.make_passes()
    for listed in (old, old, scene.resource, old, scene.resource):
        show(scene, listed)
        show(scene, listed)
    assert scene.cluster.deleted == []


@pytest.mark.parametrize("restarts", [True, False], ids=["a new operator", "a new watch"])
def test_a_stream_that_was_paused_gets_no_plan_for_an_old_list(restarts: bool) -> None:
    scene = Scene()
    run_driver(scene)
    old = remember(scene)
    annotate(scene, **{PAUSED_ANNOTATION: "load test"})
    if restarts:
        scene.passes = scene.make_passes()
    else:
        show(scene, remember(scene))
    assert show(scene, old).status["mode"] == "Paused"
    assert show(scene, old).status["mode"] == "Paused"
    assert scene.cluster.plan() is None
    annotate(scene)
    show(scene, remember(scene))
    assert scene.cluster.plan() is not None, "it is resumed, and seen to be"


def test_an_approval_that_was_answered_is_not_answered_again_for_an_old_list() -> None:
    scene = Scene(balancing={"mode": "Advise"}, scaling={"mode": "Advise"})
    run_driver(scene)
    proposal = show(scene, remember(scene)).status["proposal"]["id"]
    annotate(scene, **{APPROVE_ANNOTATION: proposal})
    old = remember(scene)
    answer = show(scene, old).status["approval"]
    assert answer["result"] == "CarriedOut"
    scene.passes = scene.make_passes()
    for _ in range(2):
        done = show(scene, old)
        assert done.status["approval"] == answer
        assert "ApprovalRefused" not in {event.reason for event in done.events}
    plan = scene.cluster.plan()
    assert plan is not None
    assert plan.epoch == 1


def test_an_operator_that_starts_with_an_old_list_does_not_stop_a_resumed_driver() -> None:
    scene = Scene(suspend=True)
    old = remember(scene)
    scene.resource["spec"]["suspend"] = False
    run_driver(scene)
    scene.passes = scene.make_passes()
    for _ in range(2):
        assert show(scene, old).status["observedGeneration"] == 2
        driver = scene.cluster.objects["StatefulSet", "clicks-driver"]
        assert driver["spec"]["replicas"] == 1
    assert scene.cluster.deleted == []


def test_an_operator_that_starts_with_an_old_list_goes_on_with_the_present_status() -> None:
    scene = Scene()
    old = remember(scene)
    run_driver(scene)
    decisions = show(scene, remember(scene)).status["decisions"]
    assert decisions
    scene.passes = scene.make_passes()
    assert show(scene, old).status["decisions"] == decisions


def test_a_change_that_comes_after_an_old_list_is_taken() -> None:
    scene = Scene()
    old = remember(scene)
    scene.resource["spec"]["image"] = "clicks:2"
    scene.count_changes()
    show(scene, old)
    scene.resource["spec"]["suspend"] = True
    assert show(scene, remember(scene)).status["observedGeneration"] == 3
    assert scene.cluster.objects["StatefulSet", "clicks-driver"]["spec"]["replicas"] == 0


def test_a_change_that_cannot_be_read_anew_is_tried_again() -> None:
    scene = Scene()
    run_driver(scene)
    scene.resource["spec"]["suspend"] = True
    changed = remember(scene)
    down = UnreachableError("the API server cannot be reached")
    scene.cluster.unreadable["BalancedStream"] = down
    with pytest.raises(ClusterError):
        show(scene, changed)
    del scene.cluster.unreadable["BalancedStream"]
    assert show(scene, changed).status["phase"] == "Suspended"


def test_a_stream_that_is_as_it_was_before_a_change_is_seen_to_be() -> None:
    scene = Scene()
    run_driver(scene)
    for paused in ({PAUSED_ANNOTATION: "true"}, {}, {PAUSED_ANNOTATION: "true"}, {}):
        annotate(scene, **paused)
        mode = show(scene, remember(scene)).status["mode"]
        assert (mode == "Paused") == bool(paused)


def test_a_stream_that_only_an_old_list_has_gets_nothing() -> None:
    scene = Scene()
    old = remember(scene)
    scene.resource["metadata"]["uid"] = "uid-2"
    with pytest.raises(StreamGoneError, match="was deleted"):
        scene.show(old)
    assert scene.cluster.applied == []


def test_a_list_that_stays_old_costs_one_look_and_a_status_that_is_written_none() -> None:
    scene = Scene()
    run_driver(scene)
    old = remember(scene)
    annotate(scene, **{PAUSED_ANNOTATION: "load test"})
    show(scene, remember(scene))
    asked: list[str] = []
    get = scene.cluster.get

    def count(version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        asked.append(kind)
        return get(version, kind, namespace, name)

    scene.cluster.get = count  # type: ignore[method-assign]
    for _ in range(3):
        show(scene, remember(scene))
    assert "BalancedStream" not in asked
    for _ in range(3):
        show(scene, old)
    assert asked.count("BalancedStream") == 1
