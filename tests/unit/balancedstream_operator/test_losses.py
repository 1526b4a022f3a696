"""What is lost on the way to the API server, or in it, is made good with few calls."""

from __future__ import annotations

import pytest
from supervised import Scene

from balancedstream_operator.errors import ClusterError, StreamGoneError


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
