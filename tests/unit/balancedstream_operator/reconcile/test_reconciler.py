"""One pass after the other over a stream, in a cluster that only keeps what it is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from supervised import ALL_ON_1, POD, Scene, conditions

from balancedstream.core.samples import TaskSample
from balancedstream.core.wire.plan import Answer
from balancedstream_operator.api.spec import StreamSpec, read_spec
from balancedstream_operator.errors import (
    ClusterError,
    RefusedError,
    StreamGoneError,
    UnreachableError,
)
from balancedstream_operator.observe.measurement import Measurement


def test_a_new_stream_gets_its_children_and_waits_for_its_driver() -> None:
    scene = Scene()
    done = scene.run_pass()
    assert "StatefulSet/clicks-driver" in scene.cluster.applied
    assert done.status["phase"] == "Pending"
    assert conditions(done)["Accepted"] == ("True", "Accepted")
    assert conditions(done)["Running"][0] == "False"
    assert done.status["partitions"] == 48
    assert done.interval_s < 15.0, "what is on its way is looked at more often"


def test_unchanged_children_are_applied_again_only_to_repair_them() -> None:
    scene = Scene()
    scene.run_pass()
    count = len(scene.cluster.applied)
    scene.run_pass()
    assert len(scene.cluster.applied) == count
    scene.now_s += 600
    scene.run_pass()
    begin, children = scene.cluster.applied[:2], scene.cluster.applied[2:count]
    assert begin == ["ConfigMap/clicks-plan"] * 2, "made, and then the record"
    assert scene.cluster.applied[count:] == children


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="a stream that runs"),
        pytest.param({"balancing": {"mode": "Sometimes"}}, id="an invalid one"),
        pytest.param({"suspend": True}, id="a suspended one"),
    ],
)
def test_a_status_that_somebody_removed_is_written_again(change: dict[str, Any]) -> None:
    scene = Scene()
    scene.run_until_running()
    scene.resource["spec"] |= change
    scene.run_pass()
    scene.cluster.written.clear()
    scene.now_s += 600.0
    done = scene.run_pass()
    (written,) = scene.cluster.written
    assert written == done.status


def test_a_status_that_somebody_removed_while_a_child_is_refused_is_written_again() -> None:
    scene = Scene()
    scene.cluster.refuses = "StatefulSet"
    scene.run_pass()
    scene.cluster.written.clear()
    scene.now_s += 600.0
    done = scene.run_pass()
    assert scene.cluster.written == [done.status]


def test_a_skewed_stream_is_balanced_by_a_plan_and_then_reported_as_balanced() -> None:
    scene = Scene()
    done = scene.run_until_running()
    assert conditions(done)["Balanced"] == ("False", "Skewed")
    plan = scene.cluster.plan()
    assert plan is not None
    assert plan.owners("q", 0)[0] != plan.owners("q", 0)[1], "the two heavy ones are apart"
    assert done.status["planEpoch"] == plan.epoch == 1
    assert done.status["decisions"][0]["kind"] == "move"
    assert {e.reason for e in done.events} >= {"Skewed", "Moving"}
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["Balanced"] == ("True", "Even")
    assert done.status["appliedEpoch"] == 1
    assert done.status["imbalance"] < 1.2
    assert "5 batches later" in done.status["decisions"][0]["effect"]
    assert scene.cluster.plan() == plan, "and nothing more is planned"


def test_no_second_plan_is_made_before_the_first_one_shows() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.run_pass()
    done = scene.run_pass()
    assert done.status["planEpoch"] == 1
    assert "plan 1 is not applied yet" in done.status["reason"]


def test_a_new_executor_is_given_state_as_soon_as_it_is_there() -> None:
    scene = Scene(executors={"min": 2, "max": 4, "fixed": 3})
    scene.placement = {0: "1", 1: "1", 2: "1", 3: "2", 4: "2", 5: "2"}
    scene.run_pass()
    scene.start_driver()
    level = dict.fromkeys(range(6), 1.0)
    scene.finish_batches(level)
    assert scene.run_pass().status["planEpoch"] == 1
    scene.executors["3"] = 1
    scene.finish_batches(level, count=1)
    assert Counter(scene.placement.values()) == {"1": 2, "2": 2, "3": 2}
    assert scene.run_pass().status["planEpoch"] == 1, "the driver needs no word of it"


def test_a_driver_that_begins_with_fewer_executors_than_there_were_is_told_their_number() -> None:
    scene = Scene()
    scene.placement = {p: str(1 + p % 2) for p in range(4)}
    level = dict.fromkeys(range(4), 3.0)
    scene.run_pass()
    scene.start_driver()
    scene.finish_batches(level)
    assert scene.run_pass().status["desiredExecutors"] == 2
    assert scene.cluster.plan() is None, "there was no need of one"
    scene.resource["spec"]["executors"]["min"] = 1
    scene.resource["status"] = {}
    scene.passes = scene.make_passes()
    scene.finish_batches(level)
    assert scene.run_pass().status["desiredExecutors"] == 2, "what runs counts, without a status"
    # A new driver's Spark asks for the least number.
    del scene.executors["2"]
    scene.placement = dict(ALL_ON_1)
    scene.finish_batches(level)
    done = scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    assert len(plan.executors) == done.status["desiredExecutors"] == 2


def test_a_driver_that_waits_for_its_first_rows_is_told_the_number_too() -> None:
    scene = Scene()
    scene.run_pass()
    scene.start_driver()
    scene.measured = Measurement(scene.now_s, 0, {"1": 1, "2": 1}, idle_s={"q": scene.now_s})
    assert scene.run_pass().status["desiredExecutors"] == 2
    assert scene.cluster.plan() is None
    # Its successor was started for a lower limit.
    scene.resource["spec"]["executors"]["min"] = 1
    scene.measured = Measurement(scene.now_s, 0, {"1": 1}, idle_s={"q": scene.now_s})
    done = scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    assert len(plan.executors) == done.status["desiredExecutors"] == 2


def test_a_restarted_operator_continues_with_the_next_epoch() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.finish_batches()
    scene.passes = scene.make_passes()
    scene.finish_batches({0: 0.5, 1: 0.5, 2: 9.0, 3: 9.0})
    scene.placement = dict(ALL_ON_1)
    scene.finish_batches({0: 4.0, 1: 4.0, 2: 4.0, 3: 4.0}, count=1)
    scene.measured = Measurement(
        scene.now_s,
        1,
        scene.executors,
        tuple(TaskSample("q", 0, p, 12, "1", 4.0, 1, 1, scene.now_s) for p in range(4)),
        (),
        {"q": 12},
    )
    done = scene.run_pass()
    assert done.status["planEpoch"] == 2


def test_after_three_missing_measurements_the_stream_is_held_as_it_is() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.measured = "Prometheus at http://prometheus cannot be queried: refused"
    for expected in ("Unknown", "Unknown", "True"):
        done = scene.run_pass()
        assert conditions(done)["MetricsAvailable"] == ("False", "Missing")
        assert conditions(done).get("Fallback", ("Unknown", ""))[0] in {expected, "False"}
    assert conditions(done)["Fallback"] == ("True", "MetricsMissing")
    assert done.status["planEpoch"] == 1
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["Fallback"] == ("False", "InControl")


def test_a_driver_that_does_not_answer_gets_no_new_plan() -> None:
    scene = Scene()
    scene.run_until_running()
    for _ in range(6):
        done = scene.run_pass()
    assert conditions(done)["Fallback"] == ("True", "DriverSilent")
    assert done.status["planEpoch"] == 1
    scene.cluster.objects["ConfigMap", "clicks-answer"] = {
        "metadata": {"name": "clicks-answer"},
        "data": {"answer.json": Answer(2**53 - 1).to_json()},
    }
    done = scene.run_pass()
    assert conditions(done)["Fallback"] == ("True", "AnswerUnusable"), "of a plan of no operator"
    assert "so far ahead of 1" in done.status["reason"]


def test_an_overwritten_plan_is_restored_and_reported() -> None:
    scene = Scene()
    scene.run_until_running()
    plan = scene.cluster.plan()
    scene.cluster.objects["ConfigMap", "clicks-plan"]["data"] = {"plan.json": "rubbish"}
    done = scene.run_pass()
    assert "PlanOverwritten" in {e.reason for e in done.events}
    assert scene.cluster.plan() == plan


def test_a_refused_plan_is_reported_once() -> None:
    scene = Scene()
    scene.run_until_running()
    refused = Answer(1, refused="plan.epoch: 0 is older than 1")
    scene.cluster.objects["ConfigMap", "clicks-answer"]["data"] = {"answer.json": refused.to_json()}
    assert "PlanRefused" in {e.reason for e in scene.run_pass().events}
    assert "PlanRefused" not in {e.reason for e in scene.run_pass().events}


def test_a_driver_pod_of_an_older_spec_is_replaced() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.cluster.objects["StatefulSet", "clicks-driver"]["status"] = {"updateRevision": "new"}
    scene.cluster.objects["Pod", POD]["metadata"]["labels"]["controller-revision-hash"] = "old"
    done = scene.run_pass()
    assert scene.cluster.deleted == [POD]
    assert conditions(done)["Running"] == ("False", "Replacing")


def test_a_stream_that_is_decided_on_once_an_hour_is_looked_at_each_minute() -> None:
    scene = Scene(metrics={"prometheusUrl": "http://prometheus", "intervalSeconds": 3600})
    scene.run_until_running()
    scene.finish_batches()
    epoch = scene.run_pass().status["planEpoch"]
    done = scene.run_pass()
    assert (done.interval_s, done.status["planEpoch"]) == (60.0, epoch), "nothing is decided anew"
    del scene.cluster.objects["Pod", POD]
    assert conditions(scene.run_pass())["Ready"] == ("False", "NoDriver")
    scene.start_driver()
    scene.finish_batches()
    assert conditions(scene.run_pass())["Ready"][0] == "True", "what runs anew is measured at once"
    scene.resource["spec"]["executors"] = {"min": 2, "max": 4, "fixed": 3}
    scene.resource["metadata"]["generation"] = 2
    assert scene.run_pass().status["desiredExecutors"] == 3, "a change is acted on at once"


def hourly() -> Scene:
    """A stream that was just decided on, and is so once an hour."""
    scene = Scene(metrics={"prometheusUrl": "http://prometheus", "intervalSeconds": 3600})
    scene.run_until_running()
    scene.finish_batches()
    scene.run_pass()
    return scene


def is_decided(scene: Scene) -> bool:
    """Whether the next pass measures the stream."""
    scene.measured = "it was looked at"
    return conditions(scene.run_pass())["MetricsAvailable"][0] == "False"


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("metadata", {"name": POD, "namespace": "shop", "uid": "another"}),
        (
            "status",
            {
                "containerStatuses": [
                    {"name": "driver", "state": {"running": {"startedAt": "2026-11-28T10:00:00Z"}}}
                ]
            },
        ),
    ],
    ids=["another pod", "a container that was restarted"],
)
def test_a_driver_that_is_new_is_measured_at_once(part: str, value: dict[str, Any]) -> None:
    scene = hourly()
    scene.cluster.objects["Pod", POD][part] = value
    assert is_decided(scene)


@pytest.mark.parametrize(("shift_s", "decides"), [(0.0, False), (3600.0, True), (-7200.0, True)])
def test_it_is_decided_on_after_the_interval_and_when_the_clock_was_set_back(
    shift_s: float, decides: bool
) -> None:
    scene = hourly()
    scene.now_s += shift_s
    assert is_decided(scene) == decides


def test_an_interval_that_is_no_multiple_of_a_minute_is_kept() -> None:
    scene = Scene(metrics={"prometheusUrl": "http://prometheus", "intervalSeconds": 75})
    scene.run_until_running()
    scene.finish_batches()
    assert [scene.run_pass().interval_s for _ in range(3)] == [60.0, 45.0, 30.0]
    scene.now_s += 15.0
    assert is_decided(scene)


def test_a_query_that_hangs_keeps_its_phase_between_two_decisions() -> None:
    scene = hourly()
    scene.now_s += 3600.0
    assert isinstance(scene.measured, Measurement)
    scene.measured = replace(
        scene.measured, scraped_s=scene.now_s, batches=(), backlog_rows={"q": 50.0}
    )
    passes = [scene.run_pass() for _ in range(4)]
    assert [conditions(done)["Running"] for done in passes] == 4 * [("False", "NoProgress")]
    assert {done.status["phase"] for done in passes} == {"Running"}


def test_the_failure_of_a_pass_is_not_told_when_the_next_one_has_ended() -> None:
    scene = hourly()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scene.passes._reconciler, "_watch", None)
        assert "the last pass failed" in scene.run_pass().status["reason"]
    assert "failed" not in scene.run_pass().status["reason"]


def test_a_driver_is_not_judged_by_a_stateful_set_that_was_not_acted_on_yet() -> None:
    scene = Scene(metrics={"prometheusUrl": "http://prometheus", "intervalSeconds": 3600})
    scene.run_until_running()
    stateful_set = scene.cluster.objects["StatefulSet", "clicks-driver"]
    stateful_set["metadata"]["generation"] = 2
    stateful_set["status"] = {"observedGeneration": 1, "updateRevision": "old"}
    scene.cluster.objects["Pod", POD]["metadata"]["labels"]["controller-revision-hash"] = "old"
    scene.finish_batches()
    done = scene.run_pass()
    assert done.interval_s == 5.0, "it is looked at again at once"
    assert scene.cluster.deleted == []
    stateful_set["status"] = {"observedGeneration": 2, "updateRevision": "new"}
    assert conditions(scene.run_pass())["Running"] == ("False", "Replacing")
    assert scene.cluster.deleted == [POD]


def test_a_driver_on_a_lost_node_is_left_alone_and_the_command_is_named() -> None:
    scene = Scene()
    scene.run_pass()
    scene.start_driver()
    scene.cluster.objects["Pod", POD]["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z"
    assert conditions(scene.run_pass())["Running"] == ("False", "DriverLeaving"), "clocks differ"
    scene.now_s += 130.0
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "DriverStuck")
    assert "kubectl delete pod clicks-driver-0 --namespace shop --force" in done.status["reason"]
    assert scene.cluster.deleted == []


def test_what_the_api_server_refuses_is_a_condition() -> None:
    scene = Scene(driver={"podTemplate": {"spec": {"nodeSelektor": {}}}})
    scene.cluster.refuses = "StatefulSet"
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "Refused")
    assert "StatefulSet clicks-driver" in done.status["reason"]


def test_a_stream_of_which_an_object_is_refused_is_led_on() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.cluster.refuses = "PodDisruptionBudget"
    scene.resource["spec"]["driver"] = {"evictable": False}
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("True", "BatchesProgress")
    assert conditions(done)["Stalled"] == ("True", "Refused")
    assert conditions(done)["Ready"] == ("False", "Refused")
    assert [(e.reason, e.warning) for e in done.events if e.reason == "Refused"] == [
        ("Refused", True)
    ]
    assert "Refused" not in [e.reason for e in scene.run_pass().events], "it is told once"
    plan = scene.cluster.plan()
    assert plan is not None, "its load is balanced"
    assert scene.cluster.deleted == [], "and its driver stays"
    scene.cluster.objects.pop(("Pod", POD))
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "Refused")
    assert conditions(done)["Balanced"][0] == "Unknown"
    scene.cluster.refuses = ""
    scene.start_driver()
    scene.finish_batches()
    scene.now_s += 60.0
    assert conditions(scene.run_pass())["Ready"][0] == "True"


def test_a_spec_that_is_not_accepted_leaves_nothing_of_what_was_measured() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.resource["spec"]["partitions"] = -1
    done = scene.run_pass()
    assert conditions(done)["Accepted"][0] == "False"
    assert conditions(done)["Balanced"] == ("Unknown", "InvalidSpec")


def test_what_was_applied_of_a_change_before_a_refusal_is_undone_when_the_change_is() -> None:
    scene = Scene()
    scene.run_pass()
    binding, spec = ("RoleBinding", "clicks-driver"), dict(scene.resource["spec"])
    scene.resource["spec"] = {**spec, "driver": {"serviceAccount": {"name": "other"}}}
    scene.cluster.refuses = "StatefulSet"
    scene.run_pass()
    assert scene.cluster.objects[binding]["subjects"][0]["name"] == "other"
    scene.cluster.refuses = ""
    scene.resource["spec"] = spec
    scene.run_pass()
    assert scene.cluster.objects[binding]["subjects"][0]["name"] == "clicks-driver"


def test_objects_that_a_deletion_left_behind_go_on_under_a_stream_of_the_same_name() -> None:
    scene = Scene()
    scene.run_until_running()
    plan = scene.cluster.plan()
    for found in scene.cluster.objects.values():
        found["metadata"].pop("ownerReferences", None)
    del scene.resource["status"]
    scene.passes = scene.make_passes()
    scene.finish_batches()
    done = scene.run_pass()
    assert done.status["phase"] == "Running"
    assert scene.cluster.plan() == plan
    assert scene.cluster.deleted == []
    owned = scene.cluster.objects["StatefulSet", "clicks-driver"]["metadata"]
    assert owned["ownerReferences"][0]["uid"] == "uid-1"


def test_a_stream_that_was_deleted_unseen_gets_no_children_again() -> None:
    scene = Scene()
    scene.run_until_running()
    del scene.cluster.objects["BalancedStream", "clicks"]
    scene.cluster.applied.clear()
    scene.now_s += 3600.0
    with pytest.raises(StreamGoneError, match="shop/clicks was deleted"):
        scene.run_pass()
    assert not scene.cluster.applied


def test_a_plan_that_went_with_its_stream_is_not_restored() -> None:
    scene = Scene()
    scene.run_until_running()
    del scene.cluster.objects["BalancedStream", "clicks"]
    del scene.cluster.objects["ConfigMap", "clicks-plan"]
    with pytest.raises(StreamGoneError):
        scene.run_pass()
    assert ("ConfigMap", "clicks-plan") not in scene.cluster.objects


def test_a_stream_that_is_not_valid_is_forgotten_when_it_was_deleted_unseen() -> None:
    scene = Scene(balancing={"mode": "Sometimes"})
    assert scene.run_pass().status["phase"] == "Invalid"
    del scene.cluster.objects["BalancedStream", "clicks"]
    with pytest.raises(StreamGoneError):
        scene.run_pass()


def test_only_what_changed_is_written() -> None:
    scene = Scene()
    scene.run_pass()
    scene.cluster.written.clear()
    scene.run_pass()
    assert scene.cluster.written == []


def test_the_partitions_stay_as_they_were_chosen_when_the_limits_grow() -> None:
    scene = Scene()
    scene.run_pass()
    scene.resource["spec"]["executors"]["max"] = 100
    assert scene.run_pass().status["partitions"] == 48


# --- what goes wrong


class BrokenError(Exception):
    """What nobody thought of."""


def break_observation(scene: Scene) -> None:
    """Every look at Prometheus raises from now on."""

    def fail(*_: object) -> Measurement:
        message = "no such query\nand more"
        raise BrokenError(message)

    scene.observe = fail  # type: ignore[method-assign, assignment]


def test_a_pass_that_fails_is_in_the_status_with_its_error_and_the_next_one_goes_on() -> None:
    scene = Scene()
    running = scene.run_until_running()
    break_observation(scene)
    done = scene.run_pass()
    assert conditions(done)["PassFailed"] == ("True", "BrokenError")
    assert "BrokenError: no such query. The pods of the stream stay" in done.status["reason"]
    assert isinstance(done.failure, BrokenError)
    assert [e.reason for e in done.events if e.warning] == ["PassFailed"], "it is told once"
    assert done.status["phase"] == running.status["phase"] == "Running"
    del scene.observe
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["PassFailed"] == ("False", "Completed")
    assert done.failure is None


def test_a_failed_pass_does_not_claim_to_have_acted_on_a_new_spec() -> None:
    scene = Scene()
    scene.run_until_running()
    break_observation(scene)
    scene.resource["metadata"]["generation"] = 2
    assert scene.run_pass().status["observedGeneration"] == 1


def test_an_api_server_that_fails_for_long_is_in_the_status_and_a_short_outage_is_not() -> None:
    scene = Scene()
    scene.run_pass()
    scene.start_driver()
    works = scene.cluster.get

    def fail(version: str, kind: str, namespace: str, name: str) -> None:
        message = f"the API server did not return {kind} {name}: overloaded"
        raise UnreachableError(message)

    scene.cluster.get = fail  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(ClusterError):
            scene.run_pass()
    done = scene.run_pass()
    assert conditions(done)["PassFailed"] == ("True", "UnreachableError")
    assert "overloaded" in done.status["reason"]
    scene.cluster.get = works  # type: ignore[method-assign]
    assert conditions(scene.run_pass())["PassFailed"][0] == "False"


def test_an_error_of_ours_is_in_the_status_also_after_an_outage() -> None:
    scene = Scene()
    scene.run_until_running()
    works = scene.cluster.get

    def fail(version: str, kind: str, namespace: str, name: str) -> None:
        message = f"the API server did not return {kind} {name}: overloaded"
        raise UnreachableError(message)

    scene.cluster.get = fail  # type: ignore[method-assign]
    with pytest.raises(ClusterError):
        scene.run_pass()
    scene.cluster.get = works  # type: ignore[method-assign]
    break_observation(scene)
    assert conditions(scene.run_pass())["PassFailed"] == ("True", "BrokenError")


def test_what_the_api_server_forbids_is_in_the_status_at_once() -> None:
    scene = Scene()
    scene.run_pass()

    def forbid(version: str, kind: str, namespace: str, name: str) -> None:
        message = f"the API server did not return {kind} {name}: forbidden"
        raise RefusedError(message)

    scene.cluster.get = forbid  # type: ignore[method-assign]
    done = scene.run_pass()
    assert conditions(done)["PassFailed"] == ("True", "RefusedError")


def test_annotations_that_a_chart_left_empty_are_as_good_as_none() -> None:
    scene = Scene(driver={"podTemplate": {"metadata": {"annotations": None}}})
    scene.run_pass()
    template = scene.cluster.objects["StatefulSet", "clicks-driver"]["spec"]["template"]
    assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "true"


def test_a_spec_is_read_again_when_it_changes_and_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most: list[int] = []

    def read(given: Mapping[str, Any]) -> StreamSpec:
        most.append(given["executors"]["max"])
        return read_spec(given)

    monkeypatch.setattr("balancedstream_operator.reconcile.reconciler.read_spec", read)
    scene = Scene()
    scene.run_until_running()
    scene.run_pass()
    assert most == [4]
    scene.resource["spec"]["executors"]["max"] = 5
    scene.run_pass()
    assert most == [4, 5]
    scene.resource["spec"]["executors"]["max"] = 0
    for _ in range(2):
        assert conditions(scene.run_pass())["Accepted"] == ("False", "InvalidSpec")
    assert most == [4, 5, 0, 0], "each pass says what is wrong"


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), (True, 1), (1, 1.0)])
def test_values_that_python_takes_for_equal_are_changes_of_a_spec(
    monkeypatch: pytest.MonkeyPatch, before: object, after: object
) -> None:
    seen: list[str] = []

    def read(given: Mapping[str, Any]) -> StreamSpec:
        seen.append(repr(given["driver"]["podTemplate"]["spec"]["hostNetwork"]))
        return read_spec(given)

    monkeypatch.setattr("balancedstream_operator.reconcile.reconciler.read_spec", read)
    scene = Scene()
    for value in (before, after, after):
        # The scene takes them for equal, too; an API server does not.
        scene.resource["metadata"]["generation"] += 1
        scene.resource["spec"]["driver"] = {"podTemplate": {"spec": {"hostNetwork": value}}}
        scene.run_pass()
    assert seen == [repr(before), repr(after)]


def test_a_floor_that_ends_before_the_next_measurement_is_kept_all_the_same() -> None:
    floor = {"cron": "0 3 * * *", "durationSeconds": 2400, "minExecutors": 4}
    metrics = {"prometheusUrl": "http://prometheus", "intervalSeconds": 3600}
    scene = Scene(metrics=metrics, schedule={"floors": [floor]})
    scene.run_until_running()
    for at_s, wanted in ((10_700.0, 2), (10_830.0, 4), (13_000.0, 4)):
        scene.now_s = at_s
        scene.finish_batches()
        assert scene.run_pass().status["desiredExecutors"] == wanted


def test_a_stream_that_does_not_run_has_no_figures_of_when_it_did() -> None:
    scene = Scene()
    scene.run_until_running()
    refused = Answer(0, refused="plan.mood: unknown field").to_json()
    scene.cluster.objects["ConfigMap", "clicks-answer"]["data"] = {"answer.json": refused}
    assert conditions(scene.run_pass())["PlanRefused"] == ("True", "PlanRefused")
    scene.resource["spec"]["suspend"] = True
    scene.run_pass()
    del scene.cluster.objects["Pod", POD]
    done = scene.run_pass()
    assert conditions(done)["PlanRefused"] == ("Unknown", "Suspended")
    status = done.status
    assert (status["executors"], status["utilization"], status["backlogRows"]) == (0, None, None)


def test_whether_a_period_holds_is_unknown_while_the_spec_is_invalid() -> None:
    scene = Scene(schedule={"excluded": [{"cron": "0 0 * * *", "durationSeconds": 36_000}]})
    assert conditions(scene.run_until_running())["Excluded"][0] == "True"
    scene.resource["spec"]["executors"] = {"min": 5, "max": 4}
    scene.now_s += 86_400.0
    assert conditions(scene.run_pass())["Excluded"] == ("Unknown", "InvalidSpec")
