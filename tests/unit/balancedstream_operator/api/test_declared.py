"""The reading that generated specs are checked by notices each field that does not arrive."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from declared import find_broken_limits, find_differences
from generated_specs import FULL, fill_in, read_schema
from pod_templates import find_missing
from supervised import Scene

Objects = dict[tuple[str, str], Any]

SPEC: dict[str, Any] = fill_in(read_schema(), FULL)


def read_objects(spec: dict[str, Any]) -> Objects:
    scene = Scene()
    scene.resource["spec"] = copy.deepcopy(spec)
    scene.run_pass()
    return scene.cluster.objects


def compare(objects: Objects, spec: dict[str, Any] = SPEC) -> list[str]:
    return list(find_differences(spec, "clicks", 96, objects))


def pod(objects: Objects) -> Any:
    return objects["StatefulSet", "clicks-driver"]["spec"]["template"]


def container(objects: Objects) -> Any:
    return pod(objects)["spec"]["containers"][0]


def budget(objects: Objects) -> Any:
    return objects["PodDisruptionBudget", "clicks-driver"]["spec"]


def set_conf(name: str, value: str) -> Callable[[Objects], None]:
    def change(objects: Objects) -> None:
        data = objects["ConfigMap", "clicks-configuration"]["data"]
        lines = data["spark-defaults.conf"].splitlines()
        kept = [line for line in lines if not line.startswith(f"{name}=")]
        assert len(kept) == len(lines) - 1
        data["spark-defaults.conf"] = "\n".join([*kept, f"{name}={value}"])

    return change


def change_executor(change: Callable[[Any], Any]) -> Callable[[Objects], None]:
    def change_text(objects: Objects) -> None:
        data = objects["ConfigMap", "clicks-configuration"]["data"]
        template = json.loads(data["executor.yaml"])
        change(template)
        data["executor.yaml"] = json.dumps(template)

    return change_text


def test_nothing_differs_where_all_is_as_it_is_declared() -> None:
    assert compare(read_objects(SPEC)) == []


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("executors.min", set_conf("spark.executor.instances", "6")),
        ("executors.cores", set_conf("spark.executor.cores", "1")),
        ("executors.cpu", set_conf("spark.kubernetes.executor.request.cores", "3")),
        ("executors.memory", set_conf("spark.executor.memory", "700m")),
        ("executors.memoryOverhead", set_conf("spark.executor.memoryOverhead", "2g")),
        ("driver.memory", set_conf("spark.driver.memory", "600m")),
        ("imagePullPolicy", set_conf("spark.kubernetes.container.image.pullPolicy", "Never")),
        ("image", set_conf("spark.kubernetes.container.image", "clicks:3")),
        ("partitions", set_conf("spark.sql.shuffle.partitions", "24")),
        (
            "executors.podTemplate",
            set_conf("spark.kubernetes.executor.podTemplateContainerName", "driver"),
        ),
        ("image", lambda o: container(o).update(image="clicks:3")),
        ("imagePullPolicy", lambda o: container(o).update(imagePullPolicy="Never")),
        ("driver.cpu", lambda o: container(o)["resources"]["requests"].update(cpu="2500m")),
        ("driver.memory", lambda o: container(o)["resources"]["requests"].update(memory="3Gi")),
        (
            "driver.memoryOverhead",
            lambda o: container(o)["resources"]["limits"].update(memory="3Gi"),
        ),
        ("application", lambda o: container(o)["args"].__setitem__(-1, "latest")),
        ("application", lambda o: container(o)["args"].append(container(o)["args"].pop(-2))),
        ("metrics.hotKeys", lambda o: container(o)["args"].remove("off")),
        (
            "application.configMap",
            lambda o: pod(o)["spec"]["volumes"][-1]["configMap"].update(name="others"),
        ),
        (
            "sparkConf",
            lambda o: pod(o)["spec"]["volumes"][0]["configMap"].update(name="others"),
        ),
        ("driver.evictable", lambda o: budget(o).update(maxUnavailable=1)),
        ("driver.evictable", lambda o: budget(o)["selector"].clear()),
        (
            "driver.evictable",
            lambda o: pod(o)["metadata"]["annotations"].pop("karpenter.sh/do-not-disrupt"),
        ),
        (
            "driver.serviceAccount.name",
            lambda o: pod(o)["spec"].update(serviceAccountName="default"),
        ),
        (
            "driver.serviceAccount.name",
            lambda o: o["RoleBinding", "clicks-driver"]["subjects"][0].update(name="default"),
        ),
        (
            "driver.serviceAccount.annotations",
            lambda o: o["ServiceAccount", "clicks-driver"]["metadata"]["annotations"].pop("role"),
        ),
        ("driver.podTemplate", lambda o: pod(o)["metadata"]["labels"].pop("team")),
        ("driver.podTemplate", lambda o: pod(o)["metadata"]["annotations"].pop("note")),
        ("driver.podTemplate", lambda o: pod(o)["spec"]["nodeSelector"].clear()),
        ("driver.podTemplate", lambda o: pod(o)["spec"]["containers"].pop()),
        ("driver.podTemplate", lambda o: container(o)["env"].pop()),
        (
            "executors.podTemplate",
            change_executor(lambda t: t["metadata"]["labels"].update(commit="Infinity")),
        ),
        ("executors.podTemplate", change_executor(lambda t: t["spec"].pop("tolerations"))),
        (
            "executors.podTemplate",
            change_executor(lambda t: t["spec"]["volumes"][0].update(emptyDir={})),
        ),
        (
            "executors.podTemplate",
            change_executor(lambda t: t["spec"]["containers"][0].pop("env")),
        ),
    ],
)
def test_what_runs_in_another_way_is_named_by_its_field(
    field: str, change: Callable[[Objects], Any]
) -> None:
    objects = copy.deepcopy(read_objects(SPEC))
    change(objects)
    (said,) = compare(objects)
    assert said.startswith(field)


def test_an_account_that_exists_gets_the_drivers_role() -> None:
    driver = {**SPEC["driver"], "serviceAccount": {"name": "mine", "annotations": {}}}
    objects = read_objects({**SPEC, "driver": driver})
    assert compare(objects, {**SPEC, "driver": driver}) == []
    found = [said.split(":")[0] for said in compare(objects)]
    assert found == [
        "driver.serviceAccount.name",
        "driver.serviceAccount.name (its Role)",
        "driver.serviceAccount.annotations",
    ]


def test_a_pod_template_has_the_last_word_on_its_container() -> None:
    own = {"name": "driver", "image": "other:1", "resources": {"requests": {"memory": "8Gi"}}}
    template = {"spec": {"containers": [own], "serviceAccountName": "mine"}}
    driver = {**SPEC["driver"], "podTemplate": template, "serviceAccount": {"annotations": {}}}
    spec = {**SPEC, "driver": driver}
    objects = read_objects(spec)
    assert compare(objects, spec) == []
    container(objects)["resources"]["requests"]["memory"] = "8192Mi"
    assert compare(objects, spec) == [], "as the API server may write it"


@pytest.mark.parametrize(("desired", "fixed"), [(1, 0), (7, 0), (3, 5)])
def test_a_decision_beyond_the_limits_is_noticed(desired: int, fixed: int) -> None:
    spec = {"executors": {"min": 2, "max": 6, "fixed": fixed}}
    assert list(find_broken_limits(spec, {"desiredExecutors": fixed or 4})) == []
    assert len(list(find_broken_limits(spec, {"desiredExecutors": desired}))) == 1


def test_a_list_without_a_key_is_there_as_a_whole() -> None:
    asked = {"tolerations": [{"key": "a"}]}
    assert list(find_missing(asked, {"tolerations": [{"key": "a"}]}, "spec")) == []
    assert (
        len(list(find_missing(asked, {"tolerations": [{"key": "b"}, {"key": "a"}]}, "spec"))) == 1
    )
