"""What kubectl, Helm, Flux and Argo CD believe of a stream."""

from __future__ import annotations

from typing import Any

import pytest
from supervised import POD, Scene, Shown, conditions

from balancedstream_operator.errors import RefusedError
from balancedstream_operator.observe.measurement import Measurement

READY = ("True", "False", "False")
ON_ITS_WAY = ("False", "True", "False")
STUCK = ("False", "False", "True")
AT_REST = ("False", "False", "False")


def summary(done: Shown) -> tuple[str, ...]:
    """Ready, Reconciling and Stalled."""
    found = conditions(done)
    return tuple(found[kind][0] for kind in ("Ready", "Reconciling", "Stalled"))


def set_container(scene: Scene, **state: Any) -> None:
    scene.cluster.objects["Pod", POD]["status"] = {
        "containerStatuses": [{"name": "driver", **state}]
    }


def test_a_stream_is_ready_when_its_batches_end_and_not_before() -> None:
    scene = Scene()
    assert summary(scene.run_pass()) == ON_ITS_WAY
    scene.start_driver()
    done = scene.run_pass()
    assert summary(done) == ON_ITS_WAY
    assert conditions(done)["Running"] == ("Unknown", "NotMeasured")
    scene.finish_batches()
    done = scene.run_pass()
    assert summary(done) == READY
    assert done.status["observedGeneration"] == 1


@pytest.mark.parametrize(
    "state",
    [
        {"state": {"waiting": {"reason": "ImagePullBackOff"}}},
        {
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1}},
            "restartCount": 3,
        },
    ],
)
def test_a_driver_that_cannot_run_stalls_the_stream(state: dict[str, Any]) -> None:
    scene = Scene()
    scene.run_until_running()
    set_container(scene, **state)
    assert summary(scene.run_pass()) == STUCK


def test_a_wrong_spec_and_a_refused_object_stall_the_stream() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.resource["spec"]["balancing"] = {"mode": "Sometimes"}
    assert summary(scene.run_pass()) == STUCK
    scene.resource["spec"]["balancing"] = {}
    scene.cluster.refuses = "StatefulSet"
    scene.now_s += 600.0
    assert summary(scene.run_pass()) == STUCK
    scene.cluster.refuses = ""
    scene.finish_batches()
    assert summary(scene.run_pass()) == READY


def test_a_query_that_hangs_stalls_the_stream_and_one_without_input_does_not() -> None:
    scene = Scene()
    scene.run_until_running()
    for backlog, expected in ((70.0, STUCK), (0.0, READY)):
        scene.measured = Measurement(
            scene.now_s,
            1,
            {"1": 1, "2": 1},
            finished_s={"q": scene.now_s - 700.0},
            backlog_rows={"q": backlog},
        )
        assert summary(scene.run_pass()) == expected


def test_a_driver_whose_broker_may_come_yet_is_on_its_way_and_its_end_is_told() -> None:
    scene = Scene()
    scene.run_pass()
    scene.start_driver()
    ended = {"exitCode": 1, "message": "no brokers"}
    for restarts in range(3):
        set_container(
            scene,
            state={"waiting": {"reason": "CrashLoopBackOff"}},
            lastState={"terminated": ended},
            restartCount=restarts,
        )
        done = scene.run_pass()
        assert summary(done) == ON_ITS_WAY
        assert conditions(done)["Running"] == ("False", "ApplicationFailed")


def test_a_stream_stays_ready_while_prometheus_is_away() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.measured = "Prometheus cannot be queried"
    for _ in range(4):
        done = scene.run_pass()
        assert summary(done) == READY
        assert done.status["phase"] == "Running"
        assert done.interval_s == 15.0, "three missing measurements are 45 s without"


def test_that_batches_end_is_not_believed_for_long_without_prometheus() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.measured = "Prometheus cannot be queried"
    begun_s = scene.now_s
    while scene.now_s - begun_s <= 600.0:
        assert summary(scene.run_pass()) == READY
    for _ in range(2):
        done = scene.run_pass()
    assert summary(done) == ("Unknown", "True", "False")
    assert conditions(done)["Running"] == ("Unknown", "NoLongerMeasured")
    assert done.status["phase"] == "Running"
    scene.finish_batches()
    assert summary(scene.run_pass()) == READY


def test_a_query_that_hung_when_it_was_last_measured_still_hangs_without_prometheus() -> None:
    scene = Scene()
    scene.run_until_running()
    finished_s, waiting = {"q": scene.now_s - 700.0}, {"q": 70.0}
    scene.measured = Measurement(scene.now_s, 1, {}, finished_s=finished_s, backlog_rows=waiting)
    scene.run_pass()
    scene.measured = "Prometheus cannot be queried"
    begun_s = scene.now_s
    while scene.now_s - begun_s <= 700.0:
        done = scene.run_pass()
        assert summary(done) == STUCK
    assert conditions(done)["Running"] == ("False", "NoProgress")


def test_what_was_measured_of_a_stream_that_is_left_alone_is_not_believed_for_long() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.resource["spec"]["balancing"] = {"mode": "Sometimes"}
    scene.run_pass()
    scene.now_s += 700.0
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("Unknown", "NoLongerMeasured")
    assert summary(done) == STUCK, "because of its spec"


def test_what_a_stream_was_is_not_believed_while_no_pass_comes_to_its_end() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.cluster.unreadable["Pod"] = RefusedError("pods is forbidden")
    begun_s = scene.now_s
    while scene.now_s - begun_s <= 120.0:
        assert summary(scene.run_pass()) == READY, "for a while nothing else is known"
    for _ in range(2):
        done = scene.run_pass()
    assert summary(done) == ("Unknown", "True", "False")
    assert conditions(done)["Ready"][1] == "PassFailed"
    del scene.cluster.unreadable["Pod"]
    assert summary(scene.run_pass()) == READY


def test_a_stream_whose_driver_was_replaced_is_ready_when_batches_end_again() -> None:
    scene = Scene()
    scene.run_until_running()
    del scene.cluster.objects["Pod", POD]
    assert summary(scene.run_pass()) == ON_ITS_WAY
    scene.start_driver()
    scene.measured = "the newest scrape is old"
    done = scene.run_pass()
    assert summary(done) == ON_ITS_WAY
    assert conditions(done)["Running"][0] == "Unknown"


def test_a_stream_is_not_ready_before_its_stateful_set_was_acted_on() -> None:
    scene = Scene()
    scene.run_until_running()
    stateful_set = scene.cluster.objects["StatefulSet", "clicks-driver"]
    stateful_set["metadata"]["generation"] = 2
    stateful_set["status"] = {"observedGeneration": 1}
    scene.finish_batches()
    assert summary(scene.run_pass()) == ON_ITS_WAY


def test_a_suspended_stream_is_at_rest() -> None:
    scene = Scene(suspend=True)
    scene.run_pass()
    done = scene.run_pass()
    assert summary(done) == AT_REST
    assert conditions(done)["Ready"] == ("False", "Suspended")
    assert done.interval_s == 60.0


def test_a_driver_that_ends_while_the_spec_is_not_valid_is_not_said_to_run() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.resource["spec"]["balancing"] = {"mode": "Sometimes"}
    done = scene.run_pass()
    assert conditions(done)["Running"][0] == "True"
    del scene.cluster.objects["Pod", POD]
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "NoDriver")
    assert conditions(done)["Balanced"][0] == "Unknown"
    assert done.status["phase"] == "Invalid"
    assert "Sometimes" in done.status["reason"]
