"""A stream that is being deleted, while finalizers hold it, gets nothing more."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from supervised import KeepingCluster, Scene, Shown, TargetScene, conditions

from balancedstream_operator.api.annotations import APPROVE_ANNOTATION, RESTART_ANNOTATION
from balancedstream_operator.api.resource import Manifest, Stream
from balancedstream_operator.errors import StreamGoneError

FOREIGN = "example.com/hold"
DELETED_AT = "2026-01-01T00:00:00Z"


def delete(scene: Scene) -> None:
    """`kubectl delete` of a stream that somebody's finalizer holds."""
    metadata = scene.resource["metadata"]
    metadata |= {"deletionTimestamp": DELETED_AT, "finalizers": [FOREIGN]}
    metadata["generation"] += 1


def collect(cluster: KeepingCluster) -> None:
    """What the collector of garbage does at a deletion in the foreground: all children go."""
    cluster.objects = {
        key: found for key, found in cluster.objects.items() if key[0] == "BalancedStream"
    }


def list_writes(cluster: KeepingCluster) -> list[object]:
    return [[*cluster.applied], [*cluster.deleted], [*cluster.annotated]]


def make_scene(kind: type[Scene]) -> Scene:
    scene = kind()
    scene.run_until_running()
    return scene


def lose_plan(scene: Scene) -> None:
    del scene.cluster.objects["ConfigMap", "clicks-plan"]


def spoil_plan(scene: Scene) -> None:
    scene.cluster.objects["ConfigMap", "clicks-plan"]["data"]["plan.json"] = "{"


def change_limits(scene: Scene) -> None:
    scene.resource["spec"]["executors"] = {"min": 1, "max": 7}


def break_spec(scene: Scene) -> None:
    scene.resource["spec"]["executors"] = {"min": 9, "max": 1}


def ask_restart(scene: Scene) -> None:
    scene.resource["metadata"].setdefault("annotations", {})[RESTART_ANNOTATION] = "now"


def approve(scene: Scene) -> None:
    scene.resource["metadata"].setdefault("annotations", {})[APPROVE_ANNOTATION] = "1-abcdef"


def lose_pod(scene: Scene) -> None:
    for key in [key for key in scene.cluster.objects if key[0] == "Pod"]:
        del scene.cluster.objects[key]


def wait_long(scene: Scene) -> None:
    scene.now_s += 3600.0


@pytest.mark.parametrize("kind", [Scene, TargetScene])
@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "operator restarts"])
@pytest.mark.parametrize(
    "happens",
    [
        lambda scene: collect(scene.cluster),
        lose_plan,
        spoil_plan,
        change_limits,
        break_spec,
        ask_restart,
        approve,
        lose_pod,
        wait_long,
    ],
)
def test_a_stream_that_is_being_deleted_gets_nothing_but_a_status_that_says_so(
    kind: type[Scene], restarts: bool, happens: Callable[[Scene], None]
) -> None:
    scene = make_scene(kind)
    delete(scene)
    happens(scene)
    if restarts:
        scene.passes = scene.make_passes()
    before, data = list_writes(scene.cluster), copy.deepcopy(scene.cluster.objects)
    for _ in range(40):
        done = scene.run_pass()
        assert list_writes(scene.cluster) == before
    for key, value in data.items():
        assert key[0] == "BalancedStream" or scene.cluster.objects[key] == value
    assert conditions(done)["Ready"] == ("False", "BeingDeleted")
    assert done.status["phase"] == "Deleting"
    assert FOREIGN in done.status["reason"]
    assert DELETED_AT in done.status["reason"]
    assert done.failure is None


def test_a_stream_that_goes_at_last_is_looked_after_no_more() -> None:
    scene = make_scene(Scene)
    delete(scene)
    scene.run_pass()
    del scene.cluster.objects["BalancedStream", "clicks"]
    with pytest.raises(StreamGoneError):
        scene.run_pass()


class _Interrupting(KeepingCluster):
    """Lets something happen just before its so many-th call from now on."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.at = 0
        self.act: Callable[[], None] = lambda: None

    def call(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            self.act()

    def get(self, version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        self.call()
        return super().get(version, kind, namespace, name)

    def apply(self, manifest: Manifest, uid: str = "") -> str:
        self.call()
        return super().apply(manifest, uid)

    def apply_plan(self, manifest: Manifest) -> Manifest:
        self.call()
        return super().apply_plan(manifest)

    def list_pods(self, namespace: str, selector: str) -> list[Manifest]:
        self.call()
        return super().list_pods(namespace, selector)


@pytest.mark.parametrize("at", range(1, 40))
@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made anew under its name"])
def test_a_deletion_between_any_two_calls_of_a_pass_holds_from_the_next_pass_on(
    at: int, anew: bool
) -> None:
    cluster = _Interrupting()
    scene = Scene(cluster=cluster)

    def act() -> None:
        if anew:
            made = copy.deepcopy(scene.resource)
            made["metadata"]["uid"] = "uid-2"
            cluster.objects["BalancedStream", "clicks"] = made
        else:
            delete(scene)

    cluster.at, cluster.act = cluster.calls + at, act
    while cluster.calls < at + 1:
        try:
            scene.run_pass()
        except StreamGoneError:
            break
    if not anew:
        # As the watch tells it.
        scene.run_pass()
    collect(cluster)
    before = list_writes(cluster)
    done: Shown | None = None
    for _ in range(5):
        scene.now_s += 400.0
        try:
            done = scene.run_pass()
        except StreamGoneError:
            assert anew
        assert list_writes(cluster) == before
    assert anew or (done and done.status["phase"] == "Deleting")


def test_the_stream_that_comes_after_it_under_its_name_waits_for_nothing_of_it() -> None:
    scene = make_scene(Scene)
    delete(scene)
    scene.run_pass()
    collect(scene.cluster)
    again = Scene(Stream("shop", "clicks", "uid-2"), scene.cluster)
    again.run_until_running()
    assert again.resource["status"]["phase"] == "Running"
