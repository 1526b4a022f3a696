"""What a template or a setting says is carried out, or refused by its name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from generated_specs import FULL
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import STREAM, make_spec
from pod_templates import find_missing

from balancedstream.errors import InvalidInputError
from balancedstream_operator.children.configuration import build_running_conf
from balancedstream_operator.children.conflicts import check_templates
from balancedstream_operator.children.pods import build_driver_pod, build_executor_pod
from balancedstream_operator.children.spark_pods import make_executor_pod

CONFIGURATION = {"name": "mine", "mountPath": "/etc/balancedstream"}
OTHER_CLAIM = {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "other"}}


def refuse(**spec: Any) -> str:
    """What is refused of a spec; empty if nothing is."""
    try:
        check_templates(STREAM, make_spec(**spec))
    except InvalidInputError as error:
        return str(error).partition(": ")[0]
    return ""


def refuse_driver(template: dict[str, Any]) -> str:
    return refuse(driver={"podTemplate": template}).removeprefix("spec.driver.podTemplate.")


def refuse_executors(template: dict[str, Any], **conf: str) -> str:
    found = refuse(executors={"max": 2, "podTemplate": template}, sparkConf=conf)
    return found.removeprefix("spec.executors.podTemplate.")


def contain(name: str, **fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, **fields}]}}


@pytest.mark.parametrize(
    ("template", "path"),
    [
        (
            {"metadata": {"labels": {"app.kubernetes.io/name": "mine"}}},
            "metadata.labels.app.kubernetes.io/name",
        ),
        (
            {"metadata": {"labels": {"balancedstream.io/stream": "other"}}},
            "metadata.labels.balancedstream.io/stream",
        ),
        (
            {"metadata": {"annotations": {"balancedstream.io/restart": "1"}}},
            "metadata.annotations.balancedstream.io/restart",
        ),
        (
            {"metadata": {"annotations": {"balancedstream.io/spec": "1"}}},
            "metadata.annotations.balancedstream.io/spec",
        ),
        ({"metadata": {"name": "mine"}}, "metadata.name"),
        ({"spec": {"serviceAccountName": "No Name"}}, "spec.serviceAccountName"),
        ({"spec": {"serviceAccount": "No Name"}}, "spec.serviceAccountName"),
        ({"metadata": {"namespace": "other"}}, "metadata.namespace"),
        (
            contain("driver", env=[{"name": "POD_IP", "value": "10.0.0.1"}]),
            "spec.containers[driver].env[POD_IP].valueFrom",
        ),
        (
            contain("driver", env=[{"name": "PYSPARK_SUBMIT_ARGS", "value": "--conf a=b"}]),
            "spec.containers[driver].env[PYSPARK_SUBMIT_ARGS].value",
        ),
        (
            contain("driver", volumeMounts=[CONFIGURATION]),
            "spec.containers[driver].volumeMounts[/etc/balancedstream].name",
        ),
        (
            contain("driver", ports=[{"containerPort": 9404, "name": "web"}]),
            "spec.containers[driver].ports[9404].name",
        ),
        (
            contain("driver", ports=[{"containerPort": 9090, "name": "metrics"}]),
            "spec.containers[driver].ports[metrics]",
        ),
        (
            {"spec": {"volumes": [{"name": "configuration", "emptyDir": {}}]}},
            "spec.volumes[configuration].configMap",
        ),
        (
            {"spec": {"volumes": [OTHER_CLAIM]}},
            "spec.volumes[checkpoints].persistentVolumeClaim.claimName",
        ),
    ],
)
def test_what_a_driver_needs_is_not_taken_from_it(template: dict[str, Any], path: str) -> None:
    assert refuse_driver(template) == path


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": {"labels": {"app.kubernetes.io/name": "balancedstream-driver"}}},
        {"metadata": {"namespace": "shop"}},
        {"metadata": {"annotations": {"prometheus.io/scrape": "false"}}},
        {"spec": {"volumes": [{"name": "tmp", "hostPath": {"path": "/fast"}}]}},
        contain("driver", env=[{"name": "CHECKPOINT_DIR", "value": "/elsewhere"}]),
        contain(
            "driver",
            env=[{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        ),
        contain("driver", ports=[{"containerPort": 9404}, {"containerPort": 8125, "name": "udp"}]),
        contain("driver", image="own:1", resources={"limits": {"cpu": "2"}}),
    ],
)
def test_what_a_driver_does_not_depend_on_is_the_users_to_set(template: dict[str, Any]) -> None:
    assert refuse_driver(template) == ""


@pytest.mark.parametrize(
    ("template", "conf", "path"),
    [
        (contain("executor", image="mine:1"), {}, "spec.containers[executor].image"),
        (
            contain("executor", imagePullPolicy="Never"),
            {},
            "spec.containers[executor].imagePullPolicy",
        ),
        (
            contain("executor", resources={"requests": {"cpu": "3"}}),
            {},
            "spec.containers[executor].resources.requests.cpu",
        ),
        (
            contain("executor", resources={"limits": {"memory": "9Gi"}}),
            {},
            "spec.containers[executor].resources.limits.memory",
        ),
        (
            contain("executor", env=[{"name": "SPARK_EXECUTOR_ID", "value": "7"}]),
            {},
            "spec.containers[executor].env[SPARK_EXECUTOR_ID].value",
        ),
        (
            contain("executor", env=[{"name": "REGION", "value": "eu"}]),
            {"spark.executorEnv.REGION": "us"},
            "spec.containers[executor].env[REGION].value",
        ),
        (
            contain("executor", lifecycle={"preStop": {"exec": {"command": ["a"]}}}),
            {"spark.decommission.enabled": "true"},
            "spec.containers[executor].lifecycle.preStop.exec.command",
        ),
        ({"spec": {"restartPolicy": "Always"}}, {}, "spec.restartPolicy"),
        ({"spec": {"hostname": "mine"}}, {}, "spec.hostname"),
        (
            {"spec": {"nodeSelector": {"disk": "ssd"}}},
            {"spark.kubernetes.node.selector.disk": "any"},
            "spec.nodeSelector.disk",
        ),
        (
            {"spec": {"schedulerName": "volcano"}},
            {"spark.kubernetes.executor.scheduler.name": "yunikorn"},
            "spec.schedulerName",
        ),
        (
            {"metadata": {"labels": {"team": "shop"}}},
            {"spark.kubernetes.executor.label.team": "web"},
            "metadata.labels.team",
        ),
        ({"metadata": {"labels": {"spark-role": "driver"}}}, {}, "metadata.labels.spark-role"),
        (
            {"metadata": {"annotations": {"note": "a"}}},
            {"spark.kubernetes.executor.annotation.note": "b"},
            "metadata.annotations.note",
        ),
        (
            {"spec": {"volumes": [{"name": "spark-local-dir-1", "emptyDir": {}}]}},
            {},
            "spec.volumes[spark-local-dir-1]",
        ),
        (
            contain("executor", volumeMounts=[{"name": "tmp", "mountPath": "/s"}]),
            {"spark.kubernetes.executor.secrets.credentials": "/s"},
            "spec.containers[executor].volumeMounts[/s].name",
        ),
        (
            {"spec": {"serviceAccount": "mine"}},
            {"spark.kubernetes.authenticate.executor.serviceAccountName": "theirs"},
            "spec.serviceAccountName",
        ),
        (
            {"spec": {"terminationGracePeriodSeconds": 90}},
            {"spark.kubernetes.executor.terminationGracePeriodSeconds": "10s"},
            "spec.terminationGracePeriodSeconds",
        ),
    ],
)
def test_what_spark_would_write_over_a_template_is_refused_where_it_is_set(
    template: dict[str, Any], conf: dict[str, str], path: str
) -> None:
    assert refuse_executors(template, **conf) == path


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"terminationGracePeriodSeconds": 90}},
        contain("executor", securityContext={"allowPrivilegeEscalation": True}),
        contain("executor", resources={"requests": {"example.com/fpga": "1"}}),
        contain("executor", lifecycle={"preStop": {"exec": {"command": ["a"]}}}),
        contain("executor", volumeMounts=[{"name": "spark-local-dir-1", "mountPath": "/l"}])
        | {"metadata": {"labels": {"team": "shop"}}},
        {"spec": {"imagePullSecrets": [{"name": "registry"}], "nodeSelector": {"disk": "ssd"}}},
    ],
)
def test_what_spark_leaves_as_it_is_reaches_the_executors(template: dict[str, Any]) -> None:
    spec = make_spec(executors={"max": 2, "podTemplate": template})
    made = make_executor_pod(
        build_executor_pod(STREAM, spec), build_running_conf(STREAM, spec), name="clicks-exec-1"
    )
    assert list(find_missing(template, made, "")) == []
    check_templates(STREAM, spec)


@pytest.mark.parametrize(
    ("conf", "name"),
    [
        ({"spark.kubernetes.executor.volumes.cephfs.a.mount.path": "/a"}, "volumes.cephfs.a"),
        (
            {"spark.kubernetes.executor.volumes.hostPath.a.options.path": "/a"},
            "volumes.hostPath.a.mount.path",
        ),
        (
            {"spark.kubernetes.executor.volumes.nfs.a.mount.path": "/a"},
            "volumes.nfs.a.options.server",
        ),
        (
            {"spark.kubernetes.executor.volumes.persistentVolumeClaim.a.mount.path": "/a"},
            "volumes.persistentVolumeClaim.a.options.claimName",
        ),
        ({"spark.kubernetes.executor.secretKeyRef.TOKEN": "secret"}, "secretKeyRef.TOKEN"),
        ({"spark.kubernetes.executor.label.spark-role": "mine"}, "label.spark-role"),
    ],
)
def test_a_setting_with_which_spark_would_end_is_refused_by_its_name(
    conf: dict[str, str], name: str
) -> None:
    assert refuse(sparkConf=conf) == f"spec.sparkConf.spark.kubernetes.executor.{name}"


def test_two_accounts_for_one_pod_are_refused() -> None:
    template = {"spec": {"serviceAccountName": "theirs"}}
    account = "spec.driver.serviceAccount"
    assert refuse(driver={"serviceAccount": {"name": "a"}, "podTemplate": template}) == (
        f"{account}.name"
    )
    note = {"annotations": {"role": "reader"}}
    assert refuse(driver={"serviceAccount": note, "podTemplate": template}) == (
        f"{account}.annotations"
    )
    assert refuse(driver={"serviceAccount": {"name": "a", **note}}) == f"{account}.annotations"
    conf = {"spark.kubernetes.authenticate.executor.serviceAccountName": "theirs"}
    executors = {"max": 2, "serviceAccount": {"name": "ours"}}
    (setting,) = conf
    assert refuse(executors=executors, sparkConf=conf) == f"spec.sparkConf.{setting}"


_KEYS = st.sampled_from(["a", "team", "example.com/team", "app.kubernetes.io/instance"])
_MAPS = st.dictionaries(_KEYS, st.sampled_from(["x", "y"]), max_size=2)


@settings(max_examples=200)
@given(_MAPS, _MAPS, _MAPS, _MAPS, st.booleans())
def test_a_key_of_any_map_is_on_the_pods_or_is_refused(
    labels: dict[str, str],
    template: dict[str, str],
    conf: dict[str, str],
    variables: dict[str, str],
    of_executors: bool,
) -> None:
    """Labels, annotations, node selectors and variables, each given in all ways that there are."""
    pod = {
        "metadata": {"labels": template, "annotations": template},
        "spec": {
            "nodeSelector": template,
            "containers": [
                {
                    "name": "executor" if of_executors else "driver",
                    "env": [{"name": key, "value": value} for key, value in variables.items()],
                }
            ],
        },
    }
    given = copy.deepcopy(FULL)
    of_all = {k: v for k, v in labels.items() if not k.startswith("app.")}
    given |= {"labels": of_all, "annotations": of_all}
    given["sparkConf"] = {
        **{f"spark.kubernetes.executor.label.{k}": v for k, v in conf.items() if "/" not in k},
        **{f"spark.kubernetes.executor.annotation.{k}": v for k, v in conf.items()},
        **{f"spark.kubernetes.node.selector.{k}": v for k, v in conf.items()},
        **{f"spark.executorEnv.{k}": v for k, v in conf.items()},
    }
    given["executors" if of_executors else "driver"]["podTemplate"] = pod
    spec = make_spec(**given)
    try:
        check_templates(STREAM, spec)
    except InvalidInputError as error:
        assert str(error).startswith("spec."), str(error)  # noqa: PT017 - either is right
        return
    running = build_running_conf(STREAM, spec)
    driver = build_driver_pod(STREAM, spec, running)
    executor = make_executor_pod(build_executor_pod(STREAM, spec), running, name="clicks-exec-1")
    assert list(find_missing(pod, executor if of_executors else driver, "")) == []
    for field in ("labels", "annotations"):
        nearer = {*template} if of_executors else set()
        wanted = {k: v for k, v in of_all.items() if k not in nearer and k not in conf}
        assert wanted.items() <= executor["metadata"][field].items()
    assert conf.items() <= executor["metadata"]["annotations"].items()
    assert conf.items() <= executor["spec"]["nodeSelector"].items()
    (container,) = (c for c in executor["spec"]["containers"] if c["name"] == "executor")
    found = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert conf.items() <= found.items()
