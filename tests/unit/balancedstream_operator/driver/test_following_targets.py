"""A stream may balance an application that another operator runs, and leaves all else to it."""

from __future__ import annotations

import pytest
from supervised import SKEWED, TARGET, Shown, TargetScene, conditions

from balancedstream.core.wire.plan import Answer

PLAN = ("ConfigMap", "clicks-plan")
ANSWER = ("ConfigMap", "clicks-answer")
ROLE = ("Role", "clicks-driver")


def message_of(done: Shown, kind: str) -> str:
    found: str = next(c["message"] for c in done.status["conditions"] if c["type"] == kind)
    return found


def test_nothing_is_created_but_the_two_config_maps() -> None:
    scene = TargetScene()
    scene.run_until_running()
    assert set(scene.cluster.applied) == {"ConfigMap/clicks-plan", "ConfigMap/clicks-answer"}
    assert scene.cluster.deleted == []


def test_an_application_is_balanced_and_reported_as_any_other_stream_is() -> None:
    scene = TargetScene()
    done = scene.run_until_running()
    assert conditions(done)["Balanced"] == ("False", "Skewed")
    assert conditions(done)["Running"] == ("True", "BatchesProgress")
    assert done.status["decisions"][0]["kind"] == "move"
    assert done.status["planEpoch"] == 1
    assert (done.status["executors"], done.status["desiredExecutors"]) == (2, 2)
    assert done.status["selector"] == "spark-role=executor,spark-app-selector=spark-1"
    assert done.status["partitions"] is None, "their number is the application's"
    assert scene.data(PLAN)["application"] == "spark-1"
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["Balanced"] == ("True", "Even")
    assert conditions(done)["Ready"][0] == "True"
    assert "5 batches later" in done.status["decisions"][0]["effect"]


def test_only_series_of_the_drivers_own_pod_count() -> None:
    scene = TargetScene()
    scene.run_until_running()
    assert (scene.subject.stream, scene.subject.pod) == ("shop/clicks", TARGET)
    assert scene.subject.ips == ("10.0.0.7",)


def test_a_new_application_begins_a_new_history_of_epochs() -> None:
    scene = TargetScene()
    scene.run_until_running()
    scene.finish_batches()
    assert scene.run_pass().status["appliedEpoch"] == 1
    scene.start_driver("spark-2")
    done = scene.run_pass()
    assert not scene.data(PLAN)["plan.json"], "which the new driver would have followed"
    assert scene.data(PLAN)["application"] == "spark-2"
    assert (done.status["planEpoch"], done.status["appliedEpoch"]) == (0, 0)
    assert [e.message for e in done.events if e.reason == "NewApplication"] == [
        "pod clicks-driver is the driver of a new application, spark-2: a new history of plans "
        "begins, from epoch 1"
    ]
    scene.placement = dict.fromkeys(range(4), "1")
    scene.finish_batches(SKEWED)
    done = scene.run_pass()
    assert done.status["planEpoch"] == scene.needed_plan().epoch == 1
    scene.finish_batches(SKEWED)
    assert scene.run_pass().status["appliedEpoch"] == 1


def test_a_new_application_is_not_ready_by_the_batches_of_the_one_before() -> None:
    scene = TargetScene()
    scene.run_until_running()
    scene.measured = "Prometheus cannot be queried"
    scene.start_driver("spark-2")
    for _ in range(2):
        done = scene.run_pass()
        assert conditions(done)["Running"] == ("Unknown", "NotMeasured")
        assert done.status["phase"] == "Starting"
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["Ready"][0] == "True"
    assert done.status["phase"] == "Running"


def test_a_new_application_in_a_pod_without_sparks_labels_begins_one_as_soon_as_it_answers() -> (
    None
):
    scene = TargetScene()
    scene.start_driver()
    del scene.pod()["metadata"]["labels"]["spark-app-selector"]
    scene.run_pass()
    scene.finish_batches()
    done = scene.run_pass()
    assert done.status["planEpoch"] == 1
    assert scene.data(PLAN)["application"] == "spark-1"
    assert done.status["selector"] == "spark-role=executor,spark-app-selector=spark-1"

    scene.start_driver("spark-2")
    del scene.pod()["metadata"]["labels"]["spark-app-selector"]
    scene.run_pass()
    assert scene.data(PLAN)["application"] == "spark-1", "which the new driver does not follow"
    scene.answer(Answer(0), "spark-2")
    done = scene.run_pass()
    assert scene.data(PLAN)["application"] == "spark-2"
    assert "NewApplication" in {event.reason for event in done.events}
    scene.placement = dict.fromkeys(range(4), "1")
    scene.finish_batches(SKEWED)
    assert scene.run_pass().status["planEpoch"] == scene.needed_plan().epoch == 1


def test_the_last_words_of_an_application_that_is_gone_are_no_answer() -> None:
    scene = TargetScene()
    scene.run_until_running()
    scene.answer(Answer(41, refused="plan.epoch: 1 is older than 41"), "spark-1")
    scene.start_driver("spark-2")
    done = scene.run_pass()
    assert conditions(done)["PlanRefused"] == ("False", "PlanAccepted")
    scene.finish_batches(SKEWED)
    scene.answer(Answer(41), "spark-1")
    scene.run_pass()
    assert scene.cluster.plan() is None, "the new one has not answered yet"
    scene.answer(Answer(0), "spark-2")
    scene.run_pass()
    assert scene.needed_plan().epoch == 1


def test_the_same_application_keeps_its_history_when_the_operator_restarts() -> None:
    scene = TargetScene()
    scene.run_until_running()
    scene.finish_batches()
    scene.run_pass()
    scene.passes = scene.make_passes()
    scene.placement = dict.fromkeys(range(4), "1")
    scene.finish_batches(SKEWED, count=1)
    scene.placement = dict.fromkeys(range(4), "1")
    scene.resource["status"] = {}
    done = scene.run_pass()
    assert "NewApplication" not in {e.reason for e in done.events}
    assert scene.needed_plan().epoch == done.status["planEpoch"] >= 1


# --- executors


def test_the_number_of_executors_is_the_applications_until_the_operator_scales_it() -> None:
    scene = TargetScene(scaling={"mode": "Off"}, executors={"min": 1, "max": 1})
    done = scene.run_until_running()
    assert done.status["desiredExecutors"] == 2, "limits are for what the operator does"
    plan = scene.needed_plan()
    assert (plan.executors, plan.sizes) == (("1", "2"), False)
    scene.executors["3"] = 1
    scene.finish_batches()
    done = scene.run_pass()
    assert done.status["desiredExecutors"] == 3
    assert conditions(done)["ScalingLimited"][0] == "False"


def test_an_application_is_scaled_by_a_plan_that_says_how_many_executors_it_wants() -> None:
    scene = TargetScene(executors={"min": 2, "max": 4, "fixed": 3})
    done = scene.run_until_running()
    plan = scene.needed_plan()
    assert (len(plan.executors), plan.sizes) == (3, True)
    assert done.status["desiredExecutors"] == 3
    scene.finish_batches()
    done = scene.run_pass()
    assert done.status["desiredExecutors"] == 3, "a missing one is missing from now on"
    for _ in range(6):
        scene.finish_batches()
        done = scene.run_pass()
    assert conditions(done)["ScalingLimited"] == ("True", "ExecutorsPending")
    assert "--selector spark-role=executor,spark-app-selector=spark-1" in message_of(
        done, "ScalingLimited"
    )


def test_where_spark_allocates_executors_itself_the_operator_places_and_says_so() -> None:
    scene = TargetScene(executors={"min": 3, "max": 4})
    scene.scales = False
    done = scene.run_until_running()
    assert conditions(done)["ScalingLimited"] == ("True", "DynamicAllocation")
    plan = scene.needed_plan()
    assert (plan.executors, plan.sizes) == (("1", "2"), False)
    assert plan.owners("q", 0)[0] != plan.owners("q", 0)[1]
    scene.resource["spec"]["scaling"] = {"mode": "Off"}
    scene.finish_batches()
    assert conditions(scene.run_pass())["ScalingLimited"][0] == "False", "as it is wanted"


# --- rights


def test_a_driver_whose_account_lacks_rights_gets_a_role_for_the_two_config_maps_only() -> None:
    scene = TargetScene()
    scene.cluster.trusted.clear()
    scene.run_until_running()
    role, binding = scene.cluster.objects[ROLE], scene.cluster.objects["RoleBinding", TARGET]
    assert {r for rule in role["rules"] for r in rule["resources"]} == {"configmaps"}
    assert {n for rule in role["rules"] for n in rule["resourceNames"]} == {
        "clicks-plan",
        "clicks-answer",
    }
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "spark", "namespace": "shop"}]
    for made in (role, binding):
        assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-1"


def test_an_account_is_asked_about_once_and_a_role_that_is_there_stays() -> None:
    scene = TargetScene()
    scene.run_until_running()
    assert sorted(scene.cluster.asked_rights) == [
        "spark: get clicks-answer",
        "spark: get clicks-plan",
        "spark: list clicks-plan",
        "spark: patch clicks-answer",
        "spark: watch clicks-plan",
    ]
    scene.run_pass()
    assert len(scene.cluster.asked_rights) == 5
    scene.cluster.trusted.clear()
    scene.now_s += 600.0
    scene.run_pass()
    assert ROLE in scene.cluster.objects, "rights were taken away"
    scene.cluster.trusted.add("spark")
    scene.now_s += 600.0
    scene.cluster.applied.clear()
    scene.run_pass()
    assert "Role/clicks-driver" in scene.cluster.applied, "or who has them because of it would not"


THEIRS = {"metadata": {"name": "clicks-driver", "namespace": "shop"}, "rules": ["theirs"]}


def test_somebody_elses_role_of_that_name_is_left_alone_where_none_is_needed() -> None:
    scene = TargetScene()
    scene.cluster.objects[ROLE] = THEIRS
    scene.run_until_running()
    assert scene.cluster.objects[ROLE] == THEIRS
    assert scene.cluster.deleted == []


def test_somebody_elses_role_of_that_name_is_never_taken_over() -> None:
    scene = TargetScene()
    scene.cluster.trusted.clear()
    scene.cluster.objects[ROLE] = THEIRS
    scene.run_pass()
    scene.start_driver()
    done = scene.run_pass()
    assert conditions(done)["Stalled"] == ("True", "Refused")
    (said,) = [c["message"] for c in done.status["conditions"] if c["type"] == "Stalled"]
    assert "Role clicks-driver exists and does not belong to this stream" in said
    assert scene.cluster.objects[ROLE] == THEIRS


def test_an_operator_that_may_not_ask_grants_the_role() -> None:
    scene = TargetScene()
    scene.cluster.hides_rights = True
    scene.run_until_running()
    assert ROLE in scene.cluster.objects


# --- the driver


def test_an_application_without_a_driver_is_waited_for() -> None:
    scene = TargetScene()
    done = scene.run_pass()
    assert done.status["phase"] == "Pending"
    assert conditions(done)["Running"] == ("False", "TargetMissing")
    assert "sparkoperator.k8s.io/app-name=clicks: SparkApplication clicks has" in message_of(
        done, "Running"
    )
    assert done.status["selector"] is None


def test_a_driver_that_ended_or_leaves_is_no_driver_and_one_that_failed_needs_a_person() -> None:
    scene = TargetScene()
    scene.run_until_running()
    scene.pod()["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z"
    assert conditions(scene.run_pass())["Running"] == ("False", "TargetEnded")
    del scene.pod()["metadata"]["deletionTimestamp"]
    scene.pod()["status"] = {"phase": "Succeeded"}
    assert conditions(scene.run_pass())["Running"] == ("False", "TargetEnded")
    ended = {"terminated": {"exitCode": 1, "message": "no such topic"}}
    scene.pod()["status"] = {
        "phase": "Failed",
        "containerStatuses": [{"name": "spark-kubernetes-driver", "state": ended}],
    }
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "TargetFailed")
    assert "exit code 1: no such topic" in message_of(done, "Running")
    assert conditions(done)["Stalled"][0] == "True"
    assert scene.cluster.deleted == []


def test_of_old_drivers_and_a_new_one_the_new_one_counts() -> None:
    scene = TargetScene()
    scene.start_driver("spark-1", "clicks-1-driver")
    scene.pod("clicks-1-driver")["status"]["phase"] = "Failed"
    scene.start_driver("spark-2", "clicks-2-driver")
    scene.run_pass()
    scene.finish_batches()
    scene.run_pass()
    assert scene.subject.pod == "clicks-2-driver"


def test_labels_of_two_drivers_are_refused_and_both_are_named() -> None:
    scene = TargetScene()
    scene.start_driver("spark-1", "b")
    scene.start_driver("spark-2", "a")
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "SeveralDrivers")
    assert "pods a and b all have the labels" in message_of(done, "Running")


def test_an_image_that_cannot_be_pulled_is_the_applications_to_correct() -> None:
    scene = TargetScene()
    scene.start_driver()
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    scene.pod()["status"] = {
        "phase": "Pending",
        "containerStatuses": [{"name": "spark-kubernetes-driver", "state": waiting}],
    }
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "TargetFailed")
    assert "(no such image): correct it in the application" in message_of(done, "Running")
    scene.resource["spec"]["balancing"] = {"mode": "Sometimes"}
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("False", "TargetFailed"), "nobody saw it run since"


@pytest.mark.parametrize("labels", [{}, {"spark-app-selector": "spark-7"}])
def test_any_driver_can_be_named_by_labels_even_one_that_tells_no_application(
    labels: dict[str, str],
) -> None:
    scene = TargetScene(targetRef={"selector": {"app": "clicks"}})
    scene.run_pass()
    scene.start_driver(labels.get("spark-app-selector", ""))
    scene.pod()["metadata"]["labels"] = {"app": "clicks", **labels}
    scene.pod()["spec"]["containers"] = [{"name": "notebook"}]
    scene.pod()["status"]["containerStatuses"] = [{"name": "notebook", "state": {"running": {}}}]
    scene.finish_batches()
    done = scene.run_pass()
    assert done.status["planEpoch"] == 1
    assert scene.data(PLAN).get("application", "") == labels.get("spark-app-selector", "")
    assert (done.status["selector"] is None) is (not labels)


def test_a_driver_without_the_plugin_is_told_what_it_lacks() -> None:
    scene = TargetScene()
    scene.run_pass()
    scene.start_driver()
    scene.measured = "Prometheus has no metrics of this stream"
    done = scene.run_pass()
    assert conditions(done)["MetricsAvailable"] == ("False", "Missing")
    assert "with spark.balancedstream.stream=shop/clicks" in message_of(done, "MetricsAvailable")
    scene.answer(Answer(0), "spark-1")
    done = scene.run_pass()
    assert "spark.balancedstream.stream" not in message_of(done, "MetricsAvailable")


def test_a_driver_that_has_not_answered_yet_gets_no_plan_because_it_may_not_scale() -> None:
    scene = TargetScene()
    scene.run_pass()
    scene.start_driver()
    scene.finish_batches()
    scene.cluster.objects[ANSWER]["data"] = {}
    done = scene.run_pass()
    assert scene.cluster.plan() is None
    assert conditions(done)["Balanced"] == ("False", "Skewed"), "it is measured"
    assert conditions(done)["Fallback"] == ("False", "InControl"), "it has time"
    for _ in range(5):
        done = scene.run_pass()
    assert conditions(done)["Fallback"] == ("True", "DriverSilent")
    assert "has not said that it follows plans, for 75 s" in message_of(done, "Fallback")
    scene.finish_batches()
    assert scene.run_pass().status["planEpoch"] == 1


def test_a_stream_that_advises_proposes_and_leaves_the_application_alone() -> None:
    scene = TargetScene(balancing={"mode": "Advise"}, scaling={"mode": "Advise"})
    done = scene.run_until_running()
    assert done.status["proposal"]["reason"].startswith("would move: ")
    assert scene.cluster.plan() is None
    assert done.status["mode"] == "Advise"
