"""A paused stream runs on as it is, and its status says who is to blame for that."""

from __future__ import annotations

import pytest
from supervised import POD, Scene, conditions

from balancedstream_operator.api.annotations import PAUSED_ANNOTATION


def pause(scene: Scene, value: str) -> None:
    scene.resource["metadata"]["annotations"] = {PAUSED_ANNOTATION: value}


def test_a_paused_stream_is_measured_and_nothing_is_moved_until_it_is_resumed() -> None:
    scene = Scene()
    pause(scene, "load test until five")
    assert "Asked" in {event.reason for event in scene.run_pass().events}
    done = scene.run_until_running()
    assert conditions(done)["Balanced"] == ("False", "Skewed")
    assert conditions(done)["Paused"] == ("True", "Asked")
    assert conditions(done)["Ready"][0] == "True", "it runs"
    assert done.status["mode"] == "Paused"
    assert done.status["reason"].startswith("paused (load test until five); query q")
    assert scene.cluster.plan() is None
    assert done.status["decisions"] == []
    scene.resource["metadata"]["annotations"] = {}
    done = scene.run_pass()
    assert conditions(done)["Paused"] == ("False", "NotPaused")
    assert done.status["decisions"][0]["kind"] == "move"
    assert scene.cluster.plan() is not None


def test_a_paused_stream_gets_no_executors_even_where_its_limits_change() -> None:
    scene = Scene()
    pause(scene, "true")
    scene.run_until_running()
    scene.resource["spec"]["executors"] = {"min": 3, "max": 4}
    scene.finish_batches()
    done = scene.run_pass()
    assert scene.cluster.plan() is None
    assert done.status["desiredExecutors"] == 2


def test_a_paused_stream_is_repaired_and_follows_its_spec() -> None:
    scene = Scene()
    scene.run_until_running()
    pause(scene, "true")
    scene.resource["spec"]["suspend"] = True
    scene.run_pass()
    assert scene.cluster.objects["StatefulSet", "clicks-driver"]["spec"]["replicas"] == 0
    scene.cluster.objects.pop(("Pod", POD))
    assert conditions(scene.run_pass())["Suspended"][0] == "True"


def test_advice_of_a_paused_stream_is_none_until_it_is_resumed() -> None:
    scene = Scene(balancing={"mode": "Advise"}, scaling={"mode": "Advise"})
    pause(scene, "true")
    assert scene.run_until_running().status["proposal"] is None
    scene.resource["metadata"]["annotations"] = {}
    assert scene.run_pass().status["proposal"]


@pytest.mark.parametrize("value", ["false", "False", ""])
def test_false_and_nothing_do_not_pause(value: str) -> None:
    scene = Scene()
    pause(scene, value)
    assert conditions(scene.run_until_running())["Paused"] == ("False", "NotPaused")
    assert scene.cluster.plan() is not None


def test_what_is_missing_keeps_the_reason_as_it_was() -> None:
    scene = Scene()
    pause(scene, "true")
    scene.run_until_running()
    scene.measured = "nothing"
    scene.run_pass()
    assert scene.run_pass().status["reason"].count("paused") == 1
