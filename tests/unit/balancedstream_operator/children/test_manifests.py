"""What a stream consists of, as manifests."""

from __future__ import annotations

import json
from dataclasses import replace

from manifests import STREAM, child, make_spec, template

from balancedstream_operator.api.spark_settings import OWNED_CONF
from balancedstream_operator.children.configuration import build_spark_conf
from balancedstream_operator.children.manifests import build_children, build_plan


def test_everything_is_owned_by_the_stream_and_nothing_by_a_finalizer() -> None:
    for manifest in [
        *build_children(STREAM, make_spec(), 24),
        build_plan(STREAM, {"plan.json": "{}"}, {}),
    ]:
        (owner,) = manifest["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("BalancedStream", "clicks", "uid-1")
        assert "finalizers" not in manifest["metadata"]
        assert manifest["metadata"]["namespace"] == "shop"


def test_there_is_at_most_one_driver_and_suspending_stops_it() -> None:
    assert child("StatefulSet")["spec"]["replicas"] == 1
    assert child("StatefulSet", suspend=True)["spec"]["replicas"] == 0
    assert child("StatefulSet")["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_fields_of_scaling_and_balancing_restart_nothing() -> None:
    before = template()
    for change in (
        {"executors": {"min": 2, "max": 8, "fixed": 3}},
        {"balancing": {"mode": "Off"}},
        {"migration": {"budgetSeconds": 3}},
        {"admission": {"mode": "Auto"}},
        {"scaling": {"mode": "Advise"}},
        {"metrics": {"intervalSeconds": 3}},
    ):
        assert template(**change) == before, change


def test_what_the_job_is_made_of_restarts_it() -> None:
    before = template()
    for change in (
        {"image": "clicks:2"},
        {"application": {"file": "/app/other.py"}},
        {"sparkConf": {"spark.sql.ansi.enabled": "false"}},
        {"executors": {"min": 1, "max": 4, "memory": "2g"}},
        {"executors": {"min": 1, "max": 4, "podTemplate": {"spec": {"priority": 1}}}},
        {"driver": {"memory": "2g"}},
    ):
        assert template(**change) != before, change


def test_a_driver_can_read_its_own_plan_and_write_its_own_answer_only() -> None:
    rules = {
        tuple(rule.get("resourceNames", ())): set(rule["verbs"]) for rule in child("Role")["rules"]
    }
    assert rules["clicks-plan",] == {"get", "list", "watch"}
    assert rules["clicks-answer",] == {"get", "patch"}
    assert {r for rule in child("Role")["rules"] for r in rule["resources"]} == {
        "pods",
        "configmaps",
    }


def test_no_number_of_lost_or_refused_executors_ends_a_driver_unless_the_user_says_so() -> None:
    conf = build_spark_conf(STREAM, make_spec(), 24)
    assert conf["spark.executor.maxNumFailures"] == "2147483647"
    own = {"spark.executor.maxNumFailures": "9"}
    conf = build_spark_conf(STREAM, make_spec(sparkConf=own), 24)
    assert conf["spark.executor.maxNumFailures"] == "9"


def test_settings_of_the_user_win_over_defaults_and_never_over_what_the_pods_depend_on() -> None:
    conf = build_spark_conf(STREAM, make_spec(sparkConf={"spark.authenticate": "false"}), 24)
    assert conf["spark.authenticate"] == "false"
    forced = dict.fromkeys(OWNED_CONF, "mine")
    conf = build_spark_conf(STREAM, replace(make_spec(), spark_conf=forced), 24)
    set_here = conf.keys() & forced.keys()
    left_to_the_pod = {
        "spark.kubernetes.driver.pod.name",
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.submit.deployMode",
    }
    assert {key for key in set_here if conf[key] == "mine"} == left_to_the_pod


def test_spark_reads_the_executors_template_as_json_which_takes_no_text_for_a_number() -> None:
    given = {"min": 1, "max": 4, "podTemplate": {"metadata": {"labels": {"commit": "12e4567"}}}}
    data = child("ConfigMap", "clicks-configuration", executors=given)["data"]
    assert data["executor.yaml"].startswith("{")
    assert json.loads(data["executor.yaml"])["metadata"]["labels"]["commit"] == "12e4567"
