"""Only the newest plan of this very stream is written and restored, whoever else writes."""

from __future__ import annotations

import pytest
from supervised import POD, Scene, conditions

from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.errors import ClusterError

PLAN = ("ConfigMap", "clicks-plan")


def test_an_operator_that_restores_a_deleted_plan_does_not_overwrite_a_newer_one() -> None:
    scene = Scene()
    scene.run_until_running()
    del scene.cluster.objects[PLAN]
    other = scene.make_passes()
    works = scene.cluster.apply

    def interrupt(manifest: Manifest, uid: str = "") -> str:
        scene.cluster.apply = works  # type: ignore[method-assign]
        other.run(scene.resource, scene.now_s)
        return works(manifest, uid)

    scene.cluster.apply = interrupt  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="another operator has written"):
        scene.run_pass()
    newer = scene.cluster.plan()
    assert newer is not None
    assert newer.epoch > 1
    scene.finish_batches()
    scene.run_pass()
    assert scene.cluster.plan() == newer


def test_the_plan_of_a_deleted_stream_of_the_same_name_is_not_taken_over() -> None:
    scene = Scene()
    scene.run_until_running()
    left = scene.cluster.objects[PLAN]
    driver = scene.cluster.objects["StatefulSet", "clicks-driver"]
    for theirs in (left, driver):
        theirs["metadata"]["ownerReferences"][0]["uid"] = "uid-0"
    scene.passes = scene.make_passes()
    scene.resource["status"] = {}
    assert conditions(scene.run_pass())["Running"] == ("False", "Refused")
    for key in (PLAN, ("StatefulSet", "clicks-driver"), ("Pod", POD)):
        del scene.cluster.objects[key]
    scene.run_pass()
    assert scene.cluster.plan() is None, "and is not restored when it has gone"
