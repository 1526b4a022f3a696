"""What is lost on the way to the API server, or in it, is made good with few calls."""

from __future__ import annotations

import pytest
from supervised import Scene, TargetScene, conditions

from balancedstream_operator.api.status import format_time
from balancedstream_operator.errors import ClusterError, StreamGoneError
from balancedstream_operator.plan.record import Record

PLAN = ("ConfigMap", "clicks-plan")


def fail_to_write_the_status(scene: Scene) -> None:
    """A pass whose status the API server does not take."""
    scene.resource["spec"]["executors"]["fixed"] = 3
    scene.finish_batches()
    scene.cluster.takes_no_status = True
    with pytest.raises(ClusterError):
        scene.run_pass()


def test_a_status_that_cannot_be_written_applies_no_child_again() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.cluster.applied.clear()
    fail_to_write_the_status(scene)
    with pytest.raises(ClusterError):
        scene.run_pass()
    scene.cluster.takes_no_status = False
    scene.run_pass()
    assert scene.cluster.applied == ["ConfigMap/clicks-plan"], "the plan for three executors"


def test_a_stream_that_was_made_again_before_its_status_was_written_gets_nothing_more() -> None:
    scene = Scene()
    scene.run_until_running()
    fail_to_write_the_status(scene)
    metadata = scene.resource["metadata"] | {"uid": "uid-2"}
    scene.cluster.objects["BalancedStream", "clicks"] = scene.resource | {"metadata": metadata}
    scene.cluster.applied.clear()
    with pytest.raises(StreamGoneError):
        scene.run_pass()
    assert scene.cluster.applied == []


# --- plan, record and status are lost at once


def lose_all(scene: Scene) -> None:
    """What operators have written down is gone, and so is the operator that knew it."""
    del scene.cluster.objects[PLAN]
    scene.resource["status"] = {}
    scene.passes = scene.make_passes()


def test_an_epoch_is_not_used_again_although_nothing_is_left_that_knows_it() -> None:
    scene = Scene()
    scene.run_until_running()
    lost = scene.cluster.plan()
    # The driver has not taken it yet, and may do so later: its answer knows nothing of it.
    lose_all(scene)
    scene.finish_batches()
    done = scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    assert lost is not None
    assert plan.epoch > lost.epoch
    assert done.status["planEpoch"] == plan.epoch


def test_of_two_operators_the_one_that_knew_of_no_plan_goes_on_from_what_the_other_wrote() -> None:
    scene = Scene()
    scene.run_pass()
    del scene.cluster.objects[PLAN]
    other = scene.make_passes()
    other.run(scene.resource, scene.now_s)
    scene.start_driver()
    scene.finish_batches()
    scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    other.run(scene.resource, scene.now_s)
    assert scene.cluster.plan() == plan


def test_a_forged_record_counts_for_nothing() -> None:
    scene = Scene()
    scene.run_until_running()
    plan = scene.cluster.plan()
    forged = Record(48, epoch=2**53 - 1)
    scene.cluster.objects[PLAN]["data"] = {"record.json": forged.write()}
    scene.run_pass()
    assert scene.cluster.plan() == plan, "whoever knows better restores it"
    scene.cluster.objects[PLAN]["data"] = {"record.json": forged.write()}
    scene.passes = scene.make_passes()
    scene.finish_batches()
    scene.run_pass()
    new = scene.cluster.plan()
    assert new is not None
    assert 1 < new.epoch < 1_000


def test_an_application_that_runs_on_gets_no_epoch_again_either() -> None:
    scene = TargetScene()
    scene.run_until_running()
    lost = scene.needed_plan()
    lose_all(scene)
    scene.finish_batches()
    scene.run_pass()
    assert scene.needed_plan().epoch > lost.epoch


def test_the_first_plan_of_a_stream_that_no_operator_has_seen_before_is_the_first() -> None:
    scene = Scene()
    scene.resource["metadata"]["creationTimestamp"] = format_time(scene.now_s - 3600.0)
    assert scene.run_until_running().status["planEpoch"] == 1


def test_a_driver_with_a_plan_that_was_lost_is_given_one_that_is_known() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.finish_batches()
    scene.run_pass()
    lose_all(scene)
    done = scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None, "although nothing has to move"
    assert plan.epoch == done.status["planEpoch"] > 1


def test_a_driver_with_a_newer_plan_than_a_restored_one_is_given_a_newer_one() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.finish_batches()
    old = dict(scene.cluster.objects[PLAN]["data"])
    scene.resource["spec"]["executors"]["fixed"] = 3
    scene.run_pass()
    scene.finish_batches()
    assert scene.epoch == 2
    scene.resource["spec"]["executors"]["fixed"] = 0
    scene.cluster.objects[PLAN]["data"] = old
    scene.passes = scene.make_passes()
    done = scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    assert (plan.epoch, len(plan.executors)) == (3, 2)
    assert conditions(done)["PlanRefused"][0] == "True"
    scene.finish_batches()
    assert conditions(scene.run_pass())["PlanRefused"][0] == "False"
