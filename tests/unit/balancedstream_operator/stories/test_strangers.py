"""Objects of somebody else that have the name of a stream's own: left alone, and said."""

from __future__ import annotations

import copy

import pytest
from supervised import Scene, TargetScene, conditions

from balancedstream_operator.api.annotations import APPROVE_ANNOTATION
from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.errors import RefusedError, StreamGoneError

THEIRS = {"metadata": {"name": "clicks-driver", "namespace": "shop", "uid": "theirs"}}


def test_an_object_of_another_owner_is_never_taken_over() -> None:
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


def test_what_somebody_else_makes_before_it_could_be_applied_is_not_taken_over() -> None:
    scene = Scene()
    scene.cluster.refuses = "StatefulSet"
    scene.run_pass()
    scene.cluster.refuses = ""
    theirs = {"metadata": {"name": "clicks-driver", "namespace": "shop"}}
    scene.cluster.objects["StatefulSet", "clicks-driver"] = theirs
    done = scene.run_pass()
    assert "StatefulSet clicks-driver exists and does not belong" in done.status["reason"]
    assert scene.cluster.objects["StatefulSet", "clicks-driver"] == theirs


@pytest.mark.parametrize("kind", ["Service", "StatefulSet"])
def test_what_somebody_else_makes_in_place_of_a_deleted_child_is_not_taken_over(kind: str) -> None:
    scene = Scene()
    scene.run_until_running()
    ours = scene.cluster.objects.pop((kind, "clicks-driver"))
    theirs = {"metadata": {"name": "clicks-driver", "namespace": "shop", "uid": "theirs"}}
    scene.cluster.objects[kind, "clicks-driver"] = theirs
    scene.now_s += 600
    done = scene.run_pass()
    assert f"{kind} clicks-driver exists and does not belong" in str(done.status["conditions"])
    assert scene.cluster.objects[kind, "clicks-driver"] == theirs
    del scene.cluster.objects[kind, "clicks-driver"]
    scene.now_s += 600
    scene.run_pass()
    assert scene.cluster.objects[kind, "clicks-driver"]["spec"] == ours["spec"]


def lose_plan_while_a_child_is_refused(scene: Scene) -> None:
    """And the operator starts anew, which then knows neither the plan nor the record."""
    scene.run_until_running()
    del scene.cluster.objects["ConfigMap", "clicks-plan"]
    scene.cluster.objects["Service", "clicks-driver"] = THEIRS
    scene.passes = scene.make_passes()


def test_a_stream_that_runs_is_said_to_run_if_its_plan_is_lost_while_a_child_is_refused() -> None:
    scene = Scene()
    lose_plan_while_a_child_is_refused(scene)
    done = scene.run_pass()
    assert conditions(done)["Stalled"] == ("True", "Refused")
    assert conditions(done)["Running"][0] == "True"
    assert done.status["phase"] == "Running"
    scene.now_s += 700.0
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("Unknown", "NoLongerMeasured")
    assert done.status["phase"] == "Running"
    del scene.cluster.objects["Service", "clicks-driver"]
    assert conditions(scene.run_pass())["Ready"][0] == "True"


def test_what_was_measured_before_a_stream_was_left_alone_is_not_said_of_it_any_more() -> None:
    scene = Scene()
    lose_plan_while_a_child_is_refused(scene)
    scene.resource["metadata"]["annotations"] = {APPROVE_ANNOTATION: "1-abcdef"}
    done = scene.run_pass()
    for kind in ("MetricsAvailable", "Balanced", "Fallback"):
        assert conditions(done)[kind] == ("Unknown", "Refused")
    assert done.status["reason"].startswith("Service clicks-driver exists and does not belong")
    assert "the stream is stalled: Service clicks" in done.status["approval"]["message"]


def test_a_stream_that_was_never_seen_to_run_fails_if_it_is_left_alone() -> None:
    scene = Scene()
    lose_plan_while_a_child_is_refused(scene)
    scene.resource["status"] = {}
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("Unknown", "NotMeasured")
    assert done.status["phase"] == "Failing"


def test_the_pod_of_somebody_elses_stateful_set_is_no_driver_and_is_not_deleted() -> None:
    scene = Scene()
    scene.cluster.objects["StatefulSet", "clicks-driver"] = copy.deepcopy(THEIRS)
    scene.start_driver()
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "Refused")
    assert done.status["phase"] == "Failing"

    scene = Scene()
    scene.run_until_running()
    rolled = copy.deepcopy(THEIRS) | {"status": {"updateRevision": "theirs"}}
    scene.cluster.objects["StatefulSet", "clicks-driver"] = rolled
    scene.run_pass()
    assert scene.cluster.deleted == []


def test_a_plans_config_map_that_somebody_else_has_made_is_not_written() -> None:
    scene = Scene()
    scene.run_until_running()
    theirs = {"metadata": {"name": "clicks-plan", "uid": "theirs"}, "data": {"a": "b"}}
    scene.cluster.objects["ConfigMap", "clicks-plan"] = copy.deepcopy(theirs)
    for _ in range(4):
        scene.finish_batches()
        done = scene.run_pass()
        assert scene.cluster.objects["ConfigMap", "clicks-plan"] == theirs
        assert conditions(done)["Stalled"] == ("True", "Refused")
        assert done.status["phase"] == "Running"
        assert "PlanOverwritten" not in [event.reason for event in done.events]
    del scene.cluster.objects["ConfigMap", "clicks-plan"]
    scene.run_pass()
    assert scene.cluster.plan() is not None
    assert conditions(scene.run_pass())["Ready"][0] == "True"


def test_a_deleted_stream_is_let_go_of_although_somebody_has_taken_the_name_of_its_plan() -> None:
    scene = Scene()
    scene.run_until_running()
    theirs = {"metadata": {"name": "clicks-plan", "uid": "theirs"}, "data": {"a": "b"}}
    scene.cluster.objects["ConfigMap", "clicks-plan"] = theirs
    scene.run_pass()
    del scene.cluster.objects["BalancedStream", "clicks"]
    with pytest.raises(StreamGoneError):
        scene.run_pass()


def test_a_driver_that_the_api_server_refuses_to_look_for_is_a_refusal() -> None:
    scene = TargetScene()

    def refuse(namespace: str, selector: str) -> list[Manifest]:
        message = "the API server did not list pods: unable to parse requirement"
        raise RefusedError(message)

    scene.cluster.list_pods = refuse  # type: ignore[method-assign]
    done = scene.run_pass()
    assert done.failure is None
    assert conditions(done)["Accepted"] == ("True", "Accepted")
    assert conditions(done)["Running"] == ("Unknown", "Refused")
    assert conditions(done)["Stalled"] == ("True", "Refused")
    assert done.status["phase"] == "Failing"
