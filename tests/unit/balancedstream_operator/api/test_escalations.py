"""What gives pods more rights than our templates do is refused where that is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from manifests import make_spec
from supervised import SETTINGS, STREAM, Scene, conditions

from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.escalations import refuse_escalation
from balancedstream_operator.process.passes import Passes


def find(allowed: tuple[str, ...] = (), **spec: Any) -> str:
    """What is refused of a spec; empty if nothing is."""
    try:
        refuse_escalation(make_spec(**spec), allowed)
    except InvalidInputError as error:
        return str(error).partition(": ")[0]
    return ""


def in_container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "side", **fields}]}}


def secure(**fields: Any) -> dict[str, Any]:
    return in_container(securityContext=fields)


TOKEN = {"serviceAccountToken": {"path": "token"}}
SIDE = "spec.containers[side].securityContext"
ESCALATES = [
    ({"spec": {"hostNetwork": True}}, "spec.hostNetwork"),
    ({"spec": {"hostPID": True}}, "spec.hostPID"),
    ({"spec": {"hostIPC": True}}, "spec.hostIPC"),
    ({"spec": {"serviceAccountName": "admin"}}, "spec.serviceAccountName"),
    ({"spec": {"serviceAccount": "admin"}}, "spec.serviceAccount"),
    (
        {"spec": {"volumes": [{"name": "disk", "hostPath": {"path": "/"}}]}},
        "spec.volumes[disk].hostPath",
    ),
    (
        in_container(ports=[{"containerPort": 1, "hostPort": 1}]),
        "spec.containers[side].ports[0].hostPort",
    ),
    (secure(privileged=True), f"{SIDE}.privileged"),
    (secure(allowPrivilegeEscalation=True), f"{SIDE}.allowPrivilegeEscalation"),
    (secure(runAsUser=0), f"{SIDE}.runAsUser"),
    (secure(runAsNonRoot=False), f"{SIDE}.runAsNonRoot"),
    (secure(runAsGroup=0), f"{SIDE}.runAsGroup"),
    (secure(procMount="Unmasked"), f"{SIDE}.procMount"),
    (secure(seLinuxOptions={"type": "spc_t"}), f"{SIDE}.seLinuxOptions"),
    (secure(seccompProfile={"type": "Unconfined"}), f"{SIDE}.seccompProfile.type"),
    (secure(appArmorProfile={"type": "Unconfined"}), f"{SIDE}.appArmorProfile.type"),
    (secure(windowsOptions={"hostProcess": True}), f"{SIDE}.windowsOptions.hostProcess"),
    ({"spec": {"securityContext": {"fsGroup": 0}}}, "spec.securityContext.fsGroup"),
    (
        {"spec": {"securityContext": {"supplementalGroups": [4, 0]}}},
        "spec.securityContext.supplementalGroups",
    ),
    (
        {"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}},
        "spec.securityContext.sysctls",
    ),
    (
        {"spec": {"volumes": [{"name": "disk", "flexVolume": {"driver": "x"}}]}},
        "spec.volumes[disk].flexVolume",
    ),
    (secure(capabilities={"add": ["SYS_ADMIN"]}), f"{SIDE}.capabilities.add"),
    (secure(capabilities={"drop": []}), f"{SIDE}.capabilities.drop"),
    ({"spec": {"securityContext": {"runAsUser": 0}}}, "spec.securityContext.runAsUser"),
    (
        {"spec": {"initContainers": [{"name": "a", "securityContext": {"privileged": True}}]}},
        "spec.initContainers[a].securityContext.privileged",
    ),
]


@pytest.mark.parametrize(("template", "path"), ESCALATES)
def test_a_template_that_gives_more_rights_is_refused_by_the_path_of_the_field(
    template: dict[str, Any], path: str
) -> None:
    assert find(driver={"podTemplate": template}) == f"spec.driver.podTemplate.{path}"
    executors = {"max": 2, "podTemplate": template}
    assert find(executors=executors) == f"spec.executors.podTemplate.{path}"


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"hostNetwork": False, "hostPID": None}},
        {"metadata": {"annotations": {"hostNetwork": "true"}}},
        {"spec": {"nodeSelector": {"privileged": "true", "hostPath": "ssd"}}},
        {"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}},
        {"spec": {"securityContext": {"runAsUser": 10001, "runAsNonRoot": True}}},
        in_container(ports=[{"containerPort": 1}], image="proxy:1"),
        secure(privileged=False, allowPrivilegeEscalation=False, capabilities={"drop": ["ALL"]}),
        secure(capabilities={"add": [], "drop": None}),
        secure(seccompProfile={"type": "RuntimeDefault"}, runAsGroup=10001, procMount="Default"),
        {"spec": {"securityContext": {"fsGroup": 2000, "supplementalGroups": [3000]}}},
    ],
)
def test_what_a_template_may_say_without_giving_more_rights_is_not_refused(
    template: dict[str, Any],
) -> None:
    assert find(driver={"podTemplate": template}) == ""
    assert find(executors={"max": 2, "podTemplate": template}) == ""


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"spec": {"automountServiceAccountToken": True}}, "spec.automountServiceAccountToken"),
        (
            {"spec": {"volumes": [{"name": "t", "projected": {"sources": [TOKEN]}}]}},
            "spec.volumes[t].projected.sources[0].serviceAccountToken",
        ),
    ],
)
def test_a_token_is_refused_to_executors_and_a_driver_has_one_anyway(
    template: dict[str, Any], path: str
) -> None:
    executors = {"max": 2, "podTemplate": template}
    assert find(executors=executors) == f"spec.executors.podTemplate.{path}"
    assert find(driver={"podTemplate": template}) == ""


def test_an_account_that_the_operator_did_not_make_is_refused_and_annotations_are_not() -> None:
    assert find(driver={"serviceAccount": {"name": "admin"}}) == "spec.driver.serviceAccount.name"
    assert find(driver={"serviceAccount": {"annotations": {"role": "r"}}}) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.kubernetes.executor.volumes.hostPath.disk.mount.path", "/disk"),
        ("spark.kubernetes.authenticate.executor.serviceAccountName", "admin"),
        ("spark.kubernetes.executor.securityContext.allowPrivilegeEscalation", "true"),
        ("spark.kubernetes.securityContext.allowPrivilegeEscalation", " TRUE"),
        ("spark.kubernetes.executor.pod.featureSteps", "my.Step"),
    ],
)
def test_spark_settings_that_say_the_same_are_refused_too(name: str, value: str) -> None:
    conf = {name: value, "spark.sql.ansi.enabled": "true"}
    assert find(sparkConf=conf) == f"spec.sparkConf.{name}"
    claim = "spark.kubernetes.executor.volumes.persistentVolumeClaim.disk.mount.path"
    assert find(sparkConf={claim: "/disk"}) == ""


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"driver": {"serviceAccount": {"name": "reader"}}}, "spec.driver.serviceAccount.name"),
        (
            {"executors": {"max": 2, "serviceAccount": {"name": "reader"}}},
            "spec.executors.serviceAccount.name",
        ),
        (
            {"driver": {"podTemplate": {"spec": {"serviceAccountName": "reader"}}}},
            "spec.driver.podTemplate.spec.serviceAccountName",
        ),
        (
            {"sparkConf": {"spark.kubernetes.authenticate.executor.serviceAccountName": "reader"}},
            "spec.sparkConf.spark.kubernetes.authenticate.executor.serviceAccountName",
        ),
    ],
)
def test_whoever_installed_the_operator_may_allow_accounts_by_name(
    spec: dict[str, Any], path: str
) -> None:
    assert find(**spec) == path
    assert find(allowed=("reader",), **spec) == ""
    assert find(allowed=("writer",), **spec) == path


def test_all_that_is_refused_is_named_at_once_with_what_to_do() -> None:
    given = {"serviceAccount": {"name": "admin"}, "podTemplate": {"spec": {"hostPID": True}}}
    with pytest.raises(InvalidInputError) as raised:
        refuse_escalation(make_spec(driver=given))
    said = str(raised.value)
    assert said.startswith("spec.driver.serviceAccount.name, spec.driver.podTemplate.spec.hostPID:")
    assert "streams.forbidEscalation" in said


class StrictScene(Scene):
    """A stream under an operator that was started with --forbid-escalation."""

    def make_passes(self) -> Passes:
        strict = replace(SETTINGS, forbids_escalation=True)
        return Passes(STREAM, self.cluster, lambda _: self, strict, self.find_streams)


def test_an_operator_that_forbids_escalation_makes_no_pod_of_such_a_spec() -> None:
    account = {"serviceAccount": {"name": "admin"}}
    done = StrictScene(driver=account).run_pass()
    assert conditions(done)["Accepted"] == ("False", "InvalidSpec")
    assert "spec.driver.serviceAccount.name" in done.status["reason"]
    assert conditions(StrictScene().run_pass())["Accepted"] == ("True", "Accepted")
    assert conditions(Scene(driver=account).run_pass())["Accepted"] == ("True", "Accepted")


def test_pods_that_run_stay_as_they_were_when_escalation_is_forbidden_later() -> None:
    scene = StrictScene()
    scene.run_until_running()
    applied = list(scene.cluster.applied)
    scene.resource["spec"]["driver"] = {"podTemplate": {"spec": {"hostNetwork": True}}}
    done = scene.run_pass()
    assert done.status["phase"] == "Invalid"
    assert (scene.cluster.applied, scene.cluster.deleted) == (applied, [])
