"""What a stream consists of, as manifests."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from balancedstream_operator.children import build_children, build_plan, build_spark_conf
from balancedstream_operator.pods import CONFIGURATION_ANNOTATION, merge
from balancedstream_operator.resource import Stream
from balancedstream_operator.spec import OWNED_CONF, StreamSpec, read_spec

STREAM = Stream("shop", "clicks", "uid-1")
SMALLEST: dict[str, Any] = {
    "image": "clicks:1",
    "application": {"file": "/app/clicks.py", "arguments": ["--topic", "clicks"]},
    "executors": {"min": 1, "max": 4},
    "checkpoints": {"claim": "checkpoints"},
}


def make_spec(**changes: Any) -> StreamSpec:
    return read_spec({**copy.deepcopy(SMALLEST), **changes})


def child(kind: str, name: str = "", **changes: Any) -> dict[str, Any]:
    found = [
        c
        for c in build_children(STREAM, make_spec(**changes), 24)
        if c["kind"] == kind and (not name or c["metadata"]["name"] == name)
    ]
    assert len(found) == 1
    return found[0]


def template(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = child("StatefulSet", **changes)["spec"]["template"]
    return found


def executor_pod(**changes: Any) -> dict[str, Any]:
    data = child("ConfigMap", "clicks-configuration", **changes)["data"]
    found: dict[str, Any] = yaml.safe_load(data["executor.yaml"])
    return found


def test_everything_is_owned_by_the_stream_and_nothing_by_a_finalizer() -> None:
    for manifest in [*build_children(STREAM, make_spec(), 24), build_plan(STREAM, "{}")]:
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
        {"migration": {"strategy": "fluid"}},
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


def test_all_pods_keep_to_the_restricted_pod_security_standard() -> None:
    for pod in (template()["spec"], executor_pod()["spec"]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert all(
            {"emptyDir", "persistentVolumeClaim", "configMap"} & v.keys() for v in pod["volumes"]
        )


def test_only_the_driver_gets_a_token() -> None:
    assert template()["spec"]["automountServiceAccountToken"] is True
    assert executor_pod()["spec"]["automountServiceAccountToken"] is False
    assert child("ServiceAccount")["automountServiceAccountToken"] is False


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


def test_driver_and_executors_share_the_claim_under_one_path() -> None:
    for pod in (template()["spec"], executor_pod()["spec"]):
        claims = [
            v["persistentVolumeClaim"] for v in pod["volumes"] if "persistentVolumeClaim" in v
        ]
        assert claims == [{"claimName": "checkpoints"}]
        mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
        assert mounts["checkpoints"] == "/checkpoints"
    conf = build_spark_conf(STREAM, make_spec(), 24)
    assert conf["spark.sql.streaming.checkpointLocation"] == "/checkpoints/clicks"


def test_an_object_store_needs_no_claim() -> None:
    store = {"uri": "s3a://bucket/clicks"}
    assert not [v for v in executor_pod(checkpoints=store)["spec"]["volumes"] if v["name"] != "tmp"]
    conf = build_spark_conf(STREAM, make_spec(checkpoints=store), 24)
    assert conf["spark.sql.streaming.checkpointLocation"] == "s3a://bucket/clicks"


def test_a_script_from_a_config_map_is_mounted_and_run() -> None:
    pod = template(application={"configMap": {"name": "scripts", "key": "a.py"}})["spec"]
    assert pod["containers"][0]["args"][-1] == "/etc/balancedstream-script/script.py"
    (volume,) = [v for v in pod["volumes"] if v["name"] == "script"]
    assert volume["configMap"] == {
        "name": "scripts",
        "items": [{"key": "a.py", "path": "script.py"}],
    }


def test_the_driver_runs_the_script_with_its_arguments_and_follows_its_plan() -> None:
    arguments = template()["spec"]["containers"][0]["args"]
    assert arguments[:4] == ["balancedstream", "run", "--stream", "shop/clicks"]
    assert arguments[-3:] == ["/app/clicks.py", "--topic", "clicks"]


def test_settings_of_the_user_win_over_defaults_and_never_over_what_the_pods_depend_on() -> None:
    conf = build_spark_conf(STREAM, make_spec(sparkConf={"spark.authenticate": "false"}), 24)
    assert conf["spark.authenticate"] == "false"
    forced = dict.fromkeys(OWNED_CONF, "mine")
    conf = build_spark_conf(STREAM, make_spec(sparkConf=forced), 24)
    set_here = conf.keys() & forced.keys()
    left_to_the_pod = {
        "spark.kubernetes.driver.pod.name",
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.submit.deployMode",
    }
    assert {key for key in set_here if conf[key] == "mine"} == left_to_the_pod


def test_a_pod_template_is_merged_by_name_and_takes_nothing_away() -> None:
    over = {
        "metadata": {"labels": {"team": "web"}},
        "spec": {
            "nodeSelector": {"disk": "fast"},
            "containers": [
                {"name": "driver", "env": [{"name": "REGION", "value": "eu"}]},
                {"name": "proxy", "image": "proxy:1"},
            ],
        },
    }
    pod = template(driver={"podTemplate": over})
    assert pod["metadata"]["labels"]["team"] == "web"
    assert pod["metadata"]["labels"]["balancedstream.io/stream"] == "clicks"
    assert [c["name"] for c in pod["spec"]["containers"]] == ["driver", "proxy"]
    names = [entry["name"] for entry in pod["spec"]["containers"][0]["env"]]
    assert "REGION" in names
    assert "POD_IP" in names
    assert CONFIGURATION_ANNOTATION in pod["metadata"]["annotations"]


def test_lists_that_have_no_names_are_replaced() -> None:
    assert merge({"drop": ["ALL"]}, {"drop": ["NET_RAW"]}) == {"drop": ["NET_RAW"]}
