"""A manifest that is wrong is refused by the API server, which names the field."""

from __future__ import annotations

import json

import pytest
from installing import CHART
from kube import Kube
from rejected_manifests import REJECTED, SMALLEST, Wrong
from storage import Storage
from streams import API_VERSION, KIND

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]


@pytest.fixture(scope="module")
def crd(kube: Kube) -> None:
    kube.kubectl(
        "apply", "--server-side", "--force-conflicts",
        "-f", str(CHART / "files" / "balancedstreams.yaml"),
    )  # fmt: skip
    kube.kubectl("wait", "--for=condition=Established", "crd/balancedstreams.balancedstream.io")


def manifest(spec: dict[str, object], name: str = "clicks") -> str:
    return json.dumps(
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    )


@pytest.mark.usefixtures("crd")
def test_wrong_manifests_are_refused_with_the_name_of_the_field(
    kube: Kube, infrastructure: str, subtests: pytest.Subtests
) -> None:
    for wrong in REJECTED:
        with subtests.test(wrong.name):
            _assert_refused(kube, infrastructure, wrong)


def _assert_refused(kube: Kube, namespace: str, wrong: Wrong) -> None:
    said = kube.kubectl(
        "create", "--dry-run=server", "-f", "-",
        namespace=namespace, stdin=manifest(wrong.spec), check=False,
    )  # fmt: skip
    assert "created" not in said
    assert wrong.says in said


@pytest.mark.usefixtures("crd")
@pytest.mark.parametrize("name", ["9lives", "a" * 41, "a.b"])
def test_a_name_that_pods_and_services_cannot_bear_is_refused(
    kube: Kube, infrastructure: str, name: str
) -> None:
    said = kube.kubectl(
        "create", "--dry-run=server", "-f", "-",
        namespace=infrastructure, stdin=manifest(SMALLEST, name), check=False,
    )  # fmt: skip
    assert "begin with a letter" in said


@pytest.mark.usefixtures("crd")
def test_what_is_fixed_in_the_checkpoint_cannot_be_changed_set_or_removed(
    kube: Kube, storage: Storage, subtests: pytest.Subtests
) -> None:
    namespace = storage.namespace
    kube.kubectl("apply", "-f", "-", namespace=namespace, stdin=manifest(SMALLEST, "without"))
    with_partitions = manifest({**SMALLEST, "partitions": 24}, "with")
    kube.kubectl("apply", "-f", "-", namespace=namespace, stdin=with_partitions)
    for name, change, says in (
        ("with", '{"spec": {"checkpoints": {"path": "x"}}}', "checkpoints cannot change"),
        ("with", '{"spec": {"checkpoints": {"claim": "x"}}}', "checkpoints cannot change"),
    ):
        with subtests.test(change):
            said = kube.kubectl(
                "patch", "bst", name, "--type=merge", "-p", change, namespace=namespace, check=False
            )
            assert says in said


@pytest.mark.usefixtures("crd")
def test_the_scale_subresource_answers_on_a_fresh_object(kube: Kube, storage: Storage) -> None:
    namespace = storage.namespace
    kube.kubectl("apply", "-f", "-", namespace=namespace, stdin=manifest(SMALLEST))
    path = f"/apis/{API_VERSION}/namespaces/{namespace}/balancedstreams/clicks/scale"
    assert '"spec":{}' in kube.kubectl("get", "--raw", path).replace(" ", "")
    kube.kubectl("scale", "bst", "clicks", "--replicas=3", namespace=namespace)
    fixed = kube.kubectl(
        "get", "bst", "clicks", "-o", "jsonpath={.spec.executors.fixed}", namespace=namespace
    )
    assert fixed == "3"
