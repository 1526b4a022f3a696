"""A clock that jumps by hours, or differs from others, delays nothing and makes nobody act."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervised import POD, STREAM, Scene, conditions

from balancedstream.core.observations import ScaleOut
from balancedstream.core.past import Past
from balancedstream.core.wire.plan import Answer, Plan
from balancedstream_operator.api.conditions import RUNNING, Condition
from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.status import Status, format_time
from balancedstream_operator.children.rights import DriverRights
from balancedstream_operator.driver.state import describe_driver
from balancedstream_operator.driver.watch import Stopwatch
from balancedstream_operator.kube.clocks import has_passed
from balancedstream_operator.plan.answers import judge_control
from balancedstream_operator.plan.record import Record, heed_clock
from balancedstream_operator.process.turns import Turns
from balancedstream_operator.report.draft import StatusDraft
from balancedstream_operator.report.writer import StatusWriter

HOURS = [-86_400.0, -7200.0, -600.0, 600.0, 7200.0, 86_400.0]


@given(st.floats(0.0, 1e9), st.floats(0.0, 1e6), st.floats(-1e6, 1e6))
def test_a_period_is_over_after_its_length_and_after_any_jump_back(
    since_s: float, length_s: float, later_s: float
) -> None:
    now_s = since_s + later_s
    assert has_passed(length_s, since_s, now_s) == (now_s < since_s or now_s - since_s >= length_s)


@pytest.mark.parametrize("jump_s", HOURS)
def test_nothing_that_a_record_says_lies_in_the_future(jump_s: float) -> None:
    at_s = 1e6
    out = ScaleOut("q", at_s, 1, 2, 100.0, 0.5)
    record = Record(8, epoch=3, planned_s=at_s, past=Past(scaled_at_s=at_s, scale_outs=(out,)))
    now_s = at_s + jump_s
    found = heed_clock(record, now_s)
    assert found.planned_s <= now_s
    assert (found.past.scaled_at_s or 0.0) <= now_s
    assert all(known.at_s <= now_s for known in found.past.scale_outs)
    assert jump_s < 0.0 or found == record
    # A driver that is silent is found out a minute later, not hours later.
    plan = Plan(3, ("a",), {})
    silent = judge_control(plan, found.planned_s, "", Answer(2), now_s + 61.0)
    assert silent.silent_s is not None


@pytest.mark.parametrize("jump_s", HOURS)
def test_children_are_repaired_and_the_status_is_written_whatever_the_clock_does(
    jump_s: float,
) -> None:
    scene = Scene()
    scene.run_until_running()
    scene.now_s += jump_s + 400.0
    scene.cluster.applied.clear()
    scene.cluster.written.clear()
    scene.run_pass()
    assert "StatefulSet/clicks-driver" in scene.cluster.applied
    assert scene.cluster.written, "it is complete again"


@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "operator restarts"])
@pytest.mark.parametrize("jump_s", HOURS)
def test_a_stream_is_led_on_within_minutes_of_a_jump(jump_s: float, restarts: bool) -> None:
    scene = Scene()
    scene.run_until_running()
    scene.now_s += jump_s
    if restarts:
        scene.passes = scene.make_passes()
    epoch = scene.cluster.plan().epoch  # type: ignore[union-attr]
    # The load goes elsewhere, so that there is something to do.
    for turn in range(60):
        heavy = {p: 4.0 if p == 3 else 0.5 for p in range(4)}
        scene.finish_batches(heavy)
        done = scene.run_pass()
        said = conditions(done)
        assert said["PassFailed"][0] == "False"
        assert said["Fallback"][0] == "False", turn
    plan = scene.cluster.plan()
    assert plan is not None
    assert plan.epoch > epoch, "it moves"
    assert done.status["planEpoch"] == plan.epoch
    for condition in done.status["conditions"]:
        assert condition["lastTransitionTime"] <= format_time(scene.now_s)


def make_pod(**metadata: object) -> dict[str, object]:
    given = {"name": POD, "namespace": "shop", "uid": "1", **metadata}
    changed = [{"type": "Initialized", "status": "True", "lastTransitionTime": format_time(1e6)}]
    return {"metadata": given, "spec": {"nodeName": "n"}, "status": {"conditions": changed}}


@pytest.mark.parametrize("off_s", HOURS)
def test_a_driver_is_not_said_to_be_stuck_because_a_clock_is_off(off_s: float) -> None:
    ends = {"deletionTimestamp": format_time(1e6 + 60.0), "deletionGracePeriodSeconds": 60}
    leaving, starting = make_pod(**ends), make_pod()
    for seen_s, leaves, starts in (
        (10.0, "DriverLeaving", "ContainerCreating"),
        (100.0, "DriverLeaving", "ContainerCreating"),
    ):
        now_s = 1e6 + seen_s + off_s
        assert describe_driver(leaving, None, now_s, seen_s).reason == leaves
        assert describe_driver(starting, {"spec": {}}, now_s, seen_s).reason == starts
    seen_s = 1000.0
    now_s = 1e6 + seen_s + max(off_s, 0.0)
    assert describe_driver(leaving, None, now_s, seen_s).reason == "DriverStuck"
    assert describe_driver(starting, {"spec": {}}, now_s, seen_s).reason == "StartStuck"


@pytest.mark.parametrize("jump_s", HOURS)
def test_what_a_process_keeps_is_looked_at_again_after_a_jump(jump_s: float) -> None:
    scene, now_s = Scene(), 1e6
    turns, other = Turns(), Stream("shop", "other", "2")
    turns.take(other, now_s)
    rights = DriverRights(STREAM, scene.cluster)
    rights.needs_role("spark", now_s)
    writer = StatusWriter(STREAM, scene.cluster)
    writer.write(Status(reason="a"), now_s)
    watch = Stopwatch()
    watch.measure("short", now_s)
    asked = len(scene.cluster.asked_rights)
    now_s += jump_s
    if abs(jump_s) >= 600.0:
        assert turns.take(STREAM, now_s) is None
    scene.cluster.trusted.add("spark")
    rights.needs_role("spark", now_s)
    assert len(scene.cluster.asked_rights) > asked
    writer.write(Status(reason="b"), now_s)
    assert scene.cluster.written[-1]["reason"] == "b"
    watch.measure("short", now_s)
    assert watch.measure("short", now_s + 90.0) >= 90.0


@pytest.mark.parametrize("jump_s", HOURS)
def test_a_status_that_a_wrong_clock_wrote_says_nothing_of_the_future(jump_s: float) -> None:
    now_s = 1e6
    draft = StatusDraft(Status(), 1, now_s - jump_s)
    draft.set(Condition(RUNNING, True, "BatchesProgress", "q"))
    (condition,) = StatusDraft(draft.build().status, 1, now_s).build().status.conditions
    assert condition.last_transition_time == format_time(min(now_s, now_s - jump_s))
