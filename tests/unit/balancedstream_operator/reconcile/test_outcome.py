"""A pass as a value: it tells what was found and done, and nobody was told yet."""

from __future__ import annotations

from supervised import SETTINGS, Scene

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.status import read_status
from balancedstream_operator.kube.stream_reader import StreamReader
from balancedstream_operator.plan.shares import Shares
from balancedstream_operator.reconcile.reconciler import Reconciler


def make_reconciler(scene: Scene, holder: Stream | None = None) -> Reconciler:
    """The reconciler of a scene's stream; `holder` has the turn to replace its driver."""
    return Reconciler(
        scene.stream,
        scene.cluster,
        StreamReader(scene.stream, scene.cluster),
        lambda _: scene,
        SETTINGS,
        find_streams=scene.find_streams,
        take_turn=lambda _: holder,
        shares=Shares(SETTINGS.caps),
    )


def test_a_pass_writes_its_plan_and_no_status() -> None:
    scene = Scene()
    scene.run_pass()
    scene.start_driver()
    scene.finish_batches()
    scene.cluster.written.clear()
    status = read_status(scene.resource)
    outcome = make_reconciler(scene).reconcile(scene.resource, status, scene.now_s)
    assert outcome.decided is not None
    assert outcome.decided.choice.plan == scene.cluster.plan() is not None
    assert outcome.due_in_s == 15.0
    assert scene.cluster.written == []


def test_a_pass_over_a_stream_without_a_driver_decides_nothing() -> None:
    scene = Scene()
    status = read_status(scene.resource)
    outcome = make_reconciler(scene).reconcile(scene.resource, status, scene.now_s)
    assert outcome.driver is not None
    assert not outcome.driver.running
    assert (outcome.answer, outcome.control, outcome.decided) == (None, None, None)
    assert "StatefulSet/clicks-driver" in scene.cluster.applied
