"""Who driver and executors are: to Kubernetes, to a cloud, to registries, and by their labels."""

from __future__ import annotations

from typing import Any

import pytest
from manifests import STREAM, child, executor_pod, make_spec, template

from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.spec import read_spec
from balancedstream_operator.children.manifests import build_children, build_target_children


def account(pod: dict[str, Any]) -> str:
    found: str = pod["spec"]["serviceAccountName"]
    return found


def test_executors_run_as_the_driver_with_its_identity_in_the_cloud_and_no_token() -> None:
    assert account(executor_pod()) == account(template()) == "clicks-driver"
    assert executor_pod()["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "driver",
    [
        {"serviceAccount": {"name": "reader"}},
        {"podTemplate": {"spec": {"serviceAccountName": "reader"}}},
        {"podTemplate": {"spec": {"serviceAccount": "reader"}}},
    ],
)
def test_the_account_that_a_driver_is_given_in_any_way_gets_its_role_and_is_the_executors(
    driver: dict[str, Any],
) -> None:
    assert account(template(driver=driver)) == "reader"
    assert account(executor_pod(driver=driver)) == "reader"
    (subject,) = child("RoleBinding", driver=driver)["subjects"]
    assert subject["name"] == "reader"
    kinds = {c["kind"] for c in build_children(STREAM, make_spec(driver=driver), 24)}
    assert "ServiceAccount" not in kinds


def test_executors_may_have_an_account_of_their_own() -> None:
    executors = {"max": 2, "serviceAccount": {"name": "workers"}}
    assert account(executor_pod(executors=executors)) == "workers"
    assert account(template(executors=executors)) == "clicks-driver"
    executors["podTemplate"] = {"spec": {"serviceAccountName": "special"}}
    assert account(executor_pod(executors=executors)) == "special"


def test_all_pods_pull_their_images_with_the_secrets_of_the_stream() -> None:
    pods = template(imagePullSecrets=["a"]), executor_pod(imagePullSecrets=["a"])
    assert [pod["spec"]["imagePullSecrets"] for pod in pods] == [[{"name": "a"}]] * 2
    conf = {"spark.kubernetes.container.image.pullSecrets": "a, c"}
    both = template(imagePullSecrets=["a"], sparkConf=conf)["spec"]["imagePullSecrets"]
    assert both == [{"name": "a"}, {"name": "c"}], "executors get them from Spark"
    own = {"podTemplate": {"spec": {"imagePullSecrets": [{"name": "b"}]}}}
    merged = template(imagePullSecrets=["a"], driver=own)["spec"]["imagePullSecrets"]
    assert merged == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize("names", [["a", "a"], [""], ["A"], ["a", "not one"]])
def test_a_pull_secret_that_is_none_or_there_twice_is_refused(names: list[str]) -> None:
    with pytest.raises(InvalidInputError, match=r"^spec\.imagePullSecrets"):
        make_spec(imagePullSecrets=names)


def test_labels_and_annotations_are_on_all_objects_and_pods_and_nearer_ones_win() -> None:
    metadata: dict[str, Any] = {"labels": {"team": "shop"}, "annotations": {"owner": "web"}}
    spec = make_spec(**metadata)
    for made in (
        *build_children(STREAM, spec, 24),
        template(**metadata),
        executor_pod(**metadata),
        *build_target_children(STREAM, "theirs", spec),
    ):
        for field, given in metadata.items():
            assert given.items() <= made["metadata"][field].items(), made
    own = {"podTemplate": {"metadata": {"labels": {"team": "data"}}}}
    assert template(**metadata, driver=own)["metadata"]["labels"]["team"] == "data"
    assert child("StatefulSet", **metadata, driver=own)["metadata"]["labels"]["team"] == "shop"
    cloud = {"serviceAccount": {"annotations": {"owner": "cloud"}}}
    found = child("ServiceAccount", **metadata, driver=cloud)["metadata"]["annotations"]
    assert found == {"owner": "cloud"}


def test_without_any_the_objects_are_as_ever() -> None:
    assert "annotations" not in child("Service")["metadata"]


def test_a_stream_that_follows_an_application_may_have_labels_too() -> None:
    target = {"selector": {"app": "clicks"}}
    spec = read_spec({"targetRef": target, "executors": {"max": 2}, "labels": {"team": "shop"}})
    for made in build_target_children(STREAM, "theirs", spec):
        assert made["metadata"]["labels"]["team"] == "shop"


@pytest.mark.parametrize(
    ("field", "key", "value"),
    [
        ("labels", "balancedstream.io/stream", "other"),
        ("labels", "app.kubernetes.io/name", "mine"),
        ("labels", "app.kubernetes.io/managed-by", "helm"),
        ("labels", "spark-role", "driver"),
        ("annotations", "balancedstream.io/restart", "1"),
        ("annotations", "balancedstream.io/woken", "1"),
        ("labels", "team", "not a label"),
        ("labels", "team", "a" * 64),
        ("labels", "a/b/c", "d"),
        ("labels", "-team", "d"),
        ("labels", "a" * 64, "d"),
        ("labels", "a" * 254 + "/team", "d"),
        ("annotations", "no key", "d"),
        ("annotations", "", "d"),
    ],
)
def test_a_label_or_annotation_of_ours_or_that_is_none_is_refused(
    field: str, key: str, value: str
) -> None:
    with pytest.raises(InvalidInputError, match=rf"^spec\.{field}"):
        make_spec(**{field: {key: value}})


def test_executors_with_claims_of_their_own_need_a_right_and_no_others_do() -> None:
    prefix = "spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1"
    conf = {f"{prefix}.mount.path": "/local", f"{prefix}.options.claimName": "OnDemand"}

    def find(**changes: Any) -> list[list[str]]:
        rules = child("Role", **changes)["rules"]
        return [rule["verbs"] for rule in rules if "persistentvolumeclaims" in rule["resources"]]

    assert find(sparkConf=conf) == [["create"]]
    assert find(sparkConf=conf | {f"{prefix}.options.claimName": "shared"}) == []
    assert find() == []


STORE = {"uri": "s3a://bucket/clicks"}
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
LOCAL = "spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1"


def test_only_pods_with_a_claim_have_a_group_that_its_files_belong_to() -> None:
    for pod in (template(), executor_pod()):
        assert pod["spec"]["securityContext"]["fsGroup"] == 10001
    for pod in (template(checkpoints=STORE), executor_pod(checkpoints=STORE)):
        assert "fsGroup" not in pod["spec"]["securityContext"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_a_claim_of_the_users_own_counts_too() -> None:
    own = {"podTemplate": {"spec": {"volumes": [CLAIM]}}}
    assert template(checkpoints=STORE, driver=own)["spec"]["securityContext"]["fsGroup"] == 10001
    conf = {f"{LOCAL}.mount.path": "/local", f"{LOCAL}.options.claimName": "OnDemand"}
    pod = executor_pod(checkpoints=STORE, sparkConf=conf)
    assert pod["spec"]["securityContext"]["fsGroup"] == 10001


def test_a_stream_may_name_the_group_or_leave_it_to_the_platform() -> None:
    for pod in (template(fsGroup=2000), executor_pod(fsGroup=2000)):
        assert pod["spec"]["securityContext"]["fsGroup"] == 2000
    for pod in (template(fsGroup=0), executor_pod(fsGroup=0)):
        assert pod["spec"]["securityContext"].keys().isdisjoint({"fsGroup", "fsGroupChangePolicy"})


def test_null_leaves_an_id_to_the_platform() -> None:
    own = {"podTemplate": {"spec": {"securityContext": {"fsGroup": None, "runAsUser": None}}}}
    for pod in (template(driver=own), executor_pod(executors={"max": 2, **own})):
        assert pod["spec"]["securityContext"].keys().isdisjoint({"fsGroup", "runAsUser"})
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
