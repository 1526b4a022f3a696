"""No two drivers run on one checkpoint."""

from __future__ import annotations

import copy
from typing import Any
from unittest import mock

import pytest
from supervised import Scene, conditions

from balancedstream_operator.errors import RefusedError

CLAIM = {"claim": "checkpoints"}


def add_stream(
    scene: Scene, name: str, created: str, checkpoints: dict[str, str], **at: str
) -> None:
    """Another BalancedStream, in the same namespace unless it is given."""
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-of-{name}",
        "creationTimestamp": created,
        **at,
    }
    manifest: dict[str, Any] = {"metadata": metadata, "spec": {"checkpoints": checkpoints}}
    scene.cluster.objects["BalancedStream", name] = manifest


def make_scene(checkpoints: dict[str, str]) -> Scene:
    scene = Scene(checkpoints=checkpoints)
    scene.resource["metadata"]["creationTimestamp"] = "2026-11-24T10:00:00Z"
    return scene


@pytest.mark.parametrize(
    ("mine", "theirs", "at"),
    [
        (CLAIM, {**CLAIM, "path": "clicks"}, {}),
        ({**CLAIM, "path": "a/b"}, {**CLAIM, "path": "a//b/"}, {}),
        ({"uri": "s3a://b/c"}, {"uri": "s3a://b/c/"}, {"namespace": "bank"}),
        ({"uri": "s3a://b/c/d"}, {"uri": "s3://b/c//d"}, {"namespace": "bank"}),
    ],
)
def test_the_younger_of_two_streams_on_one_checkpoint_is_refused_and_the_other_named(
    mine: dict[str, str], theirs: dict[str, str], at: dict[str, str]
) -> None:
    scene = make_scene(mine)
    add_stream(scene, "older", "2026-11-23T10:00:00Z", theirs, **at)
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "Refused")
    assert f"BalancedStream {at.get('namespace', 'shop')}/older" in done.status["reason"]
    assert scene.cluster.applied == []
    del scene.cluster.objects["BalancedStream", "older"]
    scene.run_pass()
    assert "StatefulSet/clicks-driver" in scene.cluster.applied


@pytest.mark.parametrize(
    ("created", "theirs", "at"),
    [
        ("2026-11-25T10:00:00Z", {**CLAIM, "path": "clicks"}, {}),
        ("2026-11-23T10:00:00Z", CLAIM, {}),
        ("2026-11-23T10:00:00Z", {**CLAIM, "path": "clicks"}, {"namespace": "bank"}),
    ],
    ids=["younger", "another folder", "another claim of that name"],
)
def test_a_stream_keeps_its_checkpoint_whatever_others_do(
    created: str, theirs: dict[str, str], at: dict[str, str]
) -> None:
    scene = make_scene(CLAIM)
    add_stream(scene, "other", created, theirs, **at)
    scene.run_pass()
    assert "StatefulSet/clicks-driver" in scene.cluster.applied


@pytest.mark.parametrize(
    ("checkpoints", "name", "namespace"),
    [
        ({**CLAIM, "path": "kept"}, "visits", "shop"),
        ({"uri": "s3a://lake/kept"}, "visits", "shop"),
        ({"uri": "s3a://lake/kept"}, "visits", "bank"),
        ({"uri": "s3a://lake/kept"}, "clicks", "bank"),
    ],
)
def test_a_renamed_or_moved_stream_waits_until_the_old_driver_is_gone(
    checkpoints: dict[str, str], name: str, namespace: str
) -> None:
    old = Scene(checkpoints=checkpoints)
    old.run_pass()
    template = copy.deepcopy(
        old.cluster.objects["StatefulSet", "clicks-driver"]["spec"]["template"]
    )
    template["metadata"]["labels"]["balancedstream.io/stream"] = name
    scene = make_scene(checkpoints)
    pod = f"{name}-driver-0"
    scene.cluster.objects["Pod", f"{namespace}/{pod}"] = {
        **template,
        "metadata": {**template["metadata"], "name": pod, "namespace": namespace},
    }
    done = scene.run_pass()
    words = f"pod {namespace}/{pod}, which still exists, has the checkpoint"
    assert words in done.status["reason"]
    assert scene.cluster.applied == []
    del scene.cluster.objects["Pod", f"{namespace}/{pod}"]
    scene.run_pass()
    assert "StatefulSet/clicks-driver" in scene.cluster.applied


def make_pod(name: str, namespace: str, uri: str) -> dict[str, Any]:
    """What is labelled as a driver, and says that it has a checkpoint."""
    labels = {"app.kubernetes.io/name": "balancedstream-driver", "balancedstream.io/stream": name}
    env = [{"name": "CHECKPOINT_DIR", "value": uri}]
    return {
        "metadata": {"name": f"{name}-driver-0", "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "driver", "env": env}]},
    }


def test_a_checkpoint_that_a_pod_is_leaving_is_waited_for_and_one_that_is_kept_is_not() -> None:
    scene = make_scene({"uri": "s3a://lake/clicks"})
    left = make_pod("old", "shop", "s3a://lake/clicks")
    scene.cluster.objects["Pod", "old"] = left
    found = conditions(scene.run_pass())
    assert (found["Reconciling"][0], found["Stalled"][0]) == ("False", "True")
    left["metadata"]["deletionTimestamp"] = "2026-11-28T10:00:00Z"
    found = conditions(scene.run_pass())
    assert (found["Reconciling"][0], found["Stalled"][0]) == ("True", "False")
    assert (found["Ready"][0], found["Running"]) == ("False", ("False", "Refused"))


def test_a_stream_that_runs_keeps_its_checkpoint_whatever_pods_elsewhere_say() -> None:
    scene = make_scene({"uri": "s3a://lake/kept"})
    scene.run_until_running()
    scene.cluster.objects["Pod", "forged"] = make_pod("forged", "bank", "s3a://lake/kept")
    scene.now_s += 600.0
    scene.finish_batches()
    assert scene.run_pass().status["phase"] == "Running"


def test_a_namespace_that_the_operator_may_not_read_any_more_refuses_no_stream() -> None:
    scene = make_scene({"uri": "s3a://lake/kept"})
    listed = scene.cluster.list_pods

    def list_pods(namespace: str, selector: str) -> list[Any]:
        if namespace != "shop":
            message = "pods is forbidden"
            raise RefusedError(message)
        return listed(namespace, selector)

    with mock.patch.object(scene.cluster, "list_pods", list_pods):
        scene.run_pass()
    assert "StatefulSet/clicks-driver" in scene.cluster.applied


def test_a_deleted_stream_of_the_same_name_that_no_watch_has_told_of_keeps_nothing() -> None:
    scene = make_scene(CLAIM)
    gone = copy.deepcopy(scene.resource)
    gone["metadata"] |= {"uid": "uid-0", "creationTimestamp": "2026-11-23T10:00:00Z"}
    scene.cluster.objects["BalancedStream", "gone"] = gone
    scene.run_pass()
    assert "StatefulSet/clicks-driver" in scene.cluster.applied
