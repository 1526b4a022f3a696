"""The pods of a stream: what they run, may do and mount, and what a user may add to them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from manifests import STREAM, child, executor_pod, make_spec, template

from balancedstream.errors import InvalidInputError
from balancedstream_operator.children.configuration import build_spark_conf
from balancedstream_operator.children.conflicts import check_templates
from balancedstream_operator.children.manifests import build_children
from balancedstream_operator.children.merge import merge
from balancedstream_operator.children.pods import CONFIGURATION_ANNOTATION


def test_all_pods_keep_to_the_restricted_pod_security_standard() -> None:
    for pod in (template()["spec"], executor_pod()["spec"]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert all(
            {"emptyDir", "persistentVolumeClaim", "configMap", "secret"} & v.keys()
            for v in pod["volumes"]
        )


def test_only_the_driver_gets_a_token() -> None:
    assert template()["spec"]["automountServiceAccountToken"] is True
    assert executor_pod()["spec"]["automountServiceAccountToken"] is False
    assert child("ServiceAccount")["automountServiceAccountToken"] is False


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


@pytest.mark.parametrize(
    ("conf", "limit"),
    [
        ({}, "1536Mi"),
        ({"spark.driver.memory": "4g"}, "4608Mi"),
        ({"spark.driver.memory": "4G", "spark.driver.memoryOverhead": "1gb"}, "5120Mi"),
        ({"spark.driver.memoryOverhead": "2048"}, "3072Mi"),
        ({"spark.driver.memory": "much"}, "1536Mi"),
    ],
)
def test_the_drivers_limit_is_of_the_memory_that_spark_takes(
    conf: dict[str, str], limit: str
) -> None:
    resources = template(sparkConf=conf)["spec"]["containers"][0]["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"] == limit


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        pytest.param(
            {"volumeMounts": [{"name": "checkpoints", "mountPath": "/jars"}]},
            [("/etc", "configuration"), ("/checkpoints", "checkpoints"), ("/jars", "checkpoints")],
            id="one more mount of the same volume",
        ),
        pytest.param(
            {"volumeMounts": [{"name": "mine", "mountPath": "/checkpoints"}]},
            [("/etc", "configuration"), ("/checkpoints", "mine")],
            id="another volume at the same path",
        ),
    ],
)
def test_mounts_are_told_apart_by_their_path(
    over: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    base = {
        "volumeMounts": [
            {"name": "configuration", "mountPath": "/etc"},
            {"name": "checkpoints", "mountPath": "/checkpoints"},
        ]
    }
    merged = merge(base, over)["volumeMounts"]
    assert [(m["mountPath"], m["name"]) for m in merged] == expected


def test_lists_are_merged_by_the_keys_of_kubernetes() -> None:
    base = {
        "ports": [{"containerPort": 4040, "name": "ui"}],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "args": ["run"],
    }
    over = {
        "ports": [{"containerPort": 4040, "protocol": "UDP"}, {"containerPort": 4040, "name": "w"}],
        "volumes": [{"name": "tmp", "hostPath": {"path": "/tmp"}}, {"name": "jars"}],  # noqa: S108
        "args": ["sleep"],
    }
    assert merge(base, over) == {
        "ports": [{"containerPort": 4040, "name": "w"}, {"containerPort": 4040, "protocol": "UDP"}],
        "volumes": [{"name": "tmp", "hostPath": {"path": "/tmp"}}, {"name": "jars"}],  # noqa: S108
        "args": ["sleep"],
    }


def test_probes_ask_what_costs_nothing_and_only_a_driver_that_is_of_no_use_is_restarted() -> None:
    driver = template()["spec"]["containers"][0]
    ready, alive = driver["readinessProbe"], driver["livenessProbe"]
    assert ready["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert alive["httpGet"] == {"path": "/healthz", "port": "metrics"}
    # Spark may take minutes to start, and a node may be short of CPU for some.
    assert alive["periodSeconds"] * alive["failureThreshold"] >= 600


def test_a_probe_of_the_user_asks_in_one_way_only() -> None:
    mine = {"exec": {"command": ["true"]}, "periodSeconds": 7}
    over = {"spec": {"containers": [{"name": "driver", "livenessProbe": mine}]}}
    driver = template(driver={"podTemplate": over})["spec"]["containers"][0]
    assert driver["livenessProbe"] == {
        "exec": {"command": ["true"]},
        "periodSeconds": 7,
        "timeoutSeconds": 10,
        "failureThreshold": 10,
    }
    mine = {"httpGet": {"path": "/ready"}}
    over = {"spec": {"containers": [{"name": "driver", "readinessProbe": mine}]}}
    driver = template(driver={"podTemplate": over})["spec"]["containers"][0]
    assert driver["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "metrics"}


def test_a_list_without_its_key_reaches_the_api_server_as_it_is() -> None:
    for over in ({"env": ["A"]}, {"env": [{"value": "x"}]}):
        assert str(over["env"]).strip("[]") in str(merge({"env": [{"name": "B"}]}, over))


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"metadata": 5}, "metadata: must be an object, not 5"),
        ({"metadata": {"annotations": "a"}}, "metadata.annotations: must be an object, not 'a'"),
        ({"spec": {"containers": {}}}, "spec.containers: must be a list, not {}"),
        (
            {"spec": {"containers": [{"name": "driver", "env": "none"}]}},
            "spec.containers[driver].env: must be a list, not 'none'",
        ),
    ],
)
def test_what_cannot_be_merged_is_refused_with_the_name_of_the_field(
    over: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(f"spec.driver.podTemplate.{says}")):
        check_templates(STREAM, make_spec(driver={"podTemplate": over}))


def test_an_option_that_an_older_image_may_not_know_is_given_only_if_it_is_asked_for() -> None:
    assert "--hot-keys" not in template()["spec"]["containers"][0]["args"]
    asked = template(metrics={"hotKeys": "off"})["spec"]["containers"][0]["args"]
    assert asked[asked.index("--hot-keys") + 1] == "off"


def test_a_checkpoint_does_not_change_its_owner_at_each_start() -> None:
    for pod in (template()["spec"], executor_pod()["spec"]):
        assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def test_a_driver_can_be_kept_from_drains_and_autoscalers() -> None:
    budget = child("PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    labels = template()["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert child("PodDisruptionBudget", driver={"evictable": False})["spec"]["maxUnavailable"] == 0
    kept = template(driver={"evictable": False})["metadata"]["annotations"]
    assert kept["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert kept["karpenter.sh/do-not-disrupt"] == "true"
    for pod in (template(), executor_pod()):
        annotations = pod["metadata"]["annotations"]
        # It leaves a pod with a /tmp, or without a controller, alone unless it is told.
        assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "true"
        assert "karpenter.sh/do-not-disrupt" not in annotations


def test_a_driver_can_have_the_identity_of_a_cloud() -> None:
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/clicks"}
    given = {"serviceAccount": {"annotations": role}}
    assert child("ServiceAccount", driver=given)["metadata"]["annotations"] == role
    assert template(driver=given)["spec"]["serviceAccountName"] == "clicks-driver"


def test_a_driver_can_use_an_account_that_exists() -> None:
    given = {"serviceAccount": {"name": "ours"}}
    children = build_children(STREAM, make_spec(driver=given), 24)
    assert "ServiceAccount" not in {c["kind"] for c in children}
    assert template(driver=given)["spec"]["serviceAccountName"] == "ours"
    (subject,) = child("RoleBinding", driver=given)["subjects"]
    assert subject["name"] == "ours"
