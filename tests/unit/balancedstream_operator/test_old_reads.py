"""An API server that is behind shows old streams; an operator does not go back to them."""

from __future__ import annotations

import copy

import pytest
from supervised import Scene

from balancedstream_operator.errors import StreamGoneError


def test_an_operator_that_starts_with_an_old_list_does_not_stop_a_resumed_driver() -> None:
    scene = Scene()
    scene.run_until_running()
    old = copy.deepcopy(scene.resource)
    old["spec"]["suspend"] = True
    scene.resource["metadata"]["generation"] = 2
    scene.supervisor = scene.make_supervisor()
    for now_s in (scene.now_s + 15.0, scene.now_s + 30.0):
        done = scene.supervisor.run_pass(old, now_s)
        assert done.status["observedGeneration"] == 2
        driver = scene.cluster.objects["StatefulSet", "clicks-driver"]
        assert driver["spec"]["replicas"] == 1
    assert scene.cluster.deleted == []


def test_a_change_that_comes_after_an_old_list_is_taken() -> None:
    scene = Scene()
    old = copy.deepcopy(scene.resource)
    scene.resource["metadata"]["generation"] = 2
    scene.supervisor.run_pass(old, scene.now_s)
    scene.resource["metadata"]["generation"] = 3
    scene.resource["spec"]["suspend"] = True
    assert scene.run_pass().status["observedGeneration"] == 3
    assert scene.cluster.objects["StatefulSet", "clicks-driver"]["spec"]["replicas"] == 0


def test_a_stream_that_only_an_old_list_has_gets_nothing() -> None:
    scene = Scene()
    old = copy.deepcopy(scene.resource)
    scene.resource["metadata"]["uid"] = "uid-2"
    with pytest.raises(StreamGoneError, match="was deleted"):
        scene.supervisor.run_pass(old, scene.now_s)
    assert scene.cluster.applied == []
