"""What the chart allows the operator and the users of a cluster to do."""

from __future__ import annotations

import pytest
from charts import (
    FULL_NAME,
    NAMESPACE,
    SUBJECT,
    all_of,
    container,
    grants,
    of_kind,
    only,
    render,
    render_raw,
)

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

PER_NAMESPACE = {
    *all_of("balancedstream.io", "balancedstreams", "get list watch patch"),
    *all_of("balancedstream.io", "balancedstreams/status", "get patch"),
    *all_of("balancedstream.io", "balancedstreams/finalizers", "update"),
    *all_of("apps", "statefulsets", "get list watch create patch update"),
    *all_of("", "services", "get list watch create patch update"),
    *all_of("", "serviceaccounts", "get list watch create patch update"),
    *all_of("", "configmaps", "get list watch create patch update"),
    *all_of("rbac.authorization.k8s.io", "roles", "get list watch create patch update"),
    *all_of("rbac.authorization.k8s.io", "rolebindings", "get list watch create patch update"),
    *all_of("policy", "poddisruptionbudgets", "get list watch create patch update"),
    *all_of("batch", "jobs", "get create patch delete"),
    *all_of("", "pods", "get list watch create delete deletecollection"),
    *all_of("", "secrets", "create"),
    *all_of("", "persistentvolumeclaims", "create"),
    *all_of("authorization.k8s.io", "localsubjectaccessreviews", "create"),
    *all_of("", "events", "create patch"),
}
LEASE = f"{FULL_NAME}-lease"
CLUSTER_NAME = f"{FULL_NAME}:{NAMESPACE}"


def test_the_lease_is_the_only_one_that_the_operator_may_change(helm: str) -> None:
    manifests = render(helm, "watch.namespaces={shop}")
    role, binding = (
        next(m for m in of_kind(manifests, kind) if m["metadata"]["name"] == LEASE)
        for kind in ("Role", "RoleBinding")
    )
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == NAMESPACE
    assert grants(role) == all_of("coordination.k8s.io", "leases", "create get update")
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, [FULL_NAME]]
    assert (binding["roleRef"]["name"], binding["subjects"]) == (LEASE, [SUBJECT])


def test_cluster_wide(helm: str) -> None:
    manifests = render(helm, "prometheus.url=http://prometheus:9090")
    assert container(manifests)["args"] == [
        "--all-namespaces",
        f"--lease={FULL_NAME}",
        "--prometheus-url=http://prometheus:9090",
    ]
    role = next(
        m for m in of_kind(manifests, "ClusterRole") if m["metadata"]["name"] == CLUSTER_NAME
    )
    assert grants(role) == PER_NAMESPACE
    binding = only(manifests, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == CLUSTER_NAME
    assert binding["subjects"] == [SUBJECT]
    assert [role["metadata"]["name"] for role in of_kind(manifests, "Role")] == [LEASE]


def test_namespaced(helm: str) -> None:
    manifests = render(helm, "watch.namespaces={shop,bank}", "rbac.aggregate=false")
    assert container(manifests)["args"] == [
        "--namespace=shop",
        "--namespace=bank",
        f"--lease={FULL_NAME}",
    ]
    roles, bindings = (
        [m for m in of_kind(manifests, kind) if m["metadata"]["name"] != LEASE]
        for kind in ("Role", "RoleBinding")
    )
    assert [role["metadata"]["namespace"] for role in roles] == ["shop", "bank"]
    assert [binding["metadata"]["namespace"] for binding in bindings] == ["shop", "bank"]
    assert all(grants(role) == PER_NAMESPACE for role in roles)
    assert all(binding["subjects"] == [SUBJECT] for binding in bindings)
    # Nothing that reaches over the whole cluster.
    assert not of_kind(manifests, "ClusterRole")
    assert not of_kind(manifests, "ClusterRoleBinding")


def test_no_rule_has_a_wildcard_or_reads_or_changes_secrets(helm: str) -> None:
    for role in of_kind(render(helm), "ClusterRole"):
        for group, resource, verb in grants(role):
            assert "*" not in {group, resource, verb}
            assert resource not in {"pods/exec", "nodes", "serviceaccounts/token"}
            assert resource != "secrets" or verb == "create"
            assert verb not in {"escalate", "bind", "impersonate"}


def test_secrets_of_streams_can_be_read_only_if_that_is_asked_for(helm: str) -> None:
    manifests = render(helm, "prometheus.streamSecrets=true", "watch.namespaces={shop}")
    role = next(m for m in of_kind(manifests, "Role") if m["metadata"]["name"] == FULL_NAME)
    assert grants(role) == {*PER_NAMESPACE, *all_of("", "secrets", "get")}


def test_users_with_the_clusters_own_roles_may_read_and_change_streams(helm: str) -> None:
    roles = {role["metadata"]["name"]: role for role in of_kind(render(helm), "ClusterRole")}
    view, edit = roles[f"{CLUSTER_NAME}:view"], roles[f"{CLUSTER_NAME}:edit"]
    assert "rbac.authorization.k8s.io/aggregate-to-view" in view["metadata"]["labels"]
    assert {verb for _, _, verb in grants(view)} == {"get", "list", "watch"}
    assert "rbac.authorization.k8s.io/aggregate-to-edit" in edit["metadata"]["labels"]
    assert {group for group, _, _ in grants(edit)} == {"balancedstream.io"}
    # Conditions are the operator's word.
    assert not any(resource == "balancedstreams/status" for _, resource, _ in grants(edit))


def test_an_account_that_exists_is_used(helm: str) -> None:
    settings = ("serviceAccount.create=false", "rbac.create=false")
    manifests = render(helm, *settings, "serviceAccount.name=ours")
    assert not of_kind(manifests, "ServiceAccount")
    assert not of_kind(manifests, "ClusterRoleBinding")
    pod = only(manifests, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "ours"
    assert "serviceAccount.name" in render_raw(helm, *settings).stderr
