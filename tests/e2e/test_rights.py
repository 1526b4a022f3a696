"""The operator's and the driver's accounts can do what they need, and not more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from installing import NAMESPACE, Operator
from kube import Kube
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

DRIVER_MAY = (
    ("create", "pods"),
    ("list", "pods"),
    ("watch", "pods"),
    ("delete", "pods"),
    ("get", "configmaps/a-plan"),
    ("watch", "configmaps/a-plan"),
    ("get", "configmaps/a-answer"),
    ("patch", "configmaps/a-answer"),
)
DRIVER_MAY_NOT = (
    ("patch", "configmaps/a-plan"),
    ("update", "configmaps/a-plan"),
    ("delete", "configmaps/a-plan"),
    ("create", "configmaps"),
    ("list", "configmaps"),
    ("get", "configmaps/b-plan"),
    ("patch", "configmaps/b-answer"),
    ("get", "secrets"),
    ("create", "pods --subresource=exec"),
    ("get", "balancedstreams.balancedstream.io"),
    ("patch", "statefulsets.apps"),
    ("create", "rolebindings.rbac.authorization.k8s.io"),
)
OPERATOR_MAY = (
    ("list", "balancedstreams.balancedstream.io"),
    ("patch", "balancedstreams.balancedstream.io"),
    ("patch", "balancedstreams.balancedstream.io --subresource=status"),
    ("patch", "statefulsets.apps"),
    ("patch", "configmaps"),
    ("patch", "poddisruptionbudgets.policy"),
    ("delete", "pods"),
    ("create", "secrets"),
    ("create", "events"),
)
OPERATOR_MAY_NOT = (
    ("delete", "balancedstreams.balancedstream.io"),
    ("get", "secrets"),
    ("list", "secrets"),
    ("patch", "secrets"),
    ("create", "pods --subresource=exec"),
    ("update", "leases.coordination.k8s.io"),
    ("delete", "persistentvolumeclaims"),
    ("delete", "namespaces"),
    ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
    ("patch", "deployments.apps"),
    ("get", "nodes"),
)


def test_accounts_can_do_what_they_need_and_not_more(
    kube: Kube, operator: Operator, open_stream: Callable[[str], Stream], subtests: pytest.Subtests
) -> None:
    stream, other = open_stream("a"), open_stream("b")
    for one in (stream, other):
        one.apply(one.describe("rate.py", suspend=True))
    wait_until(
        "the driver's role",
        lambda: kube.find(
            "rbac.authorization.k8s.io/v1", "RoleBinding", "a-driver", namespace=stream.namespace
        ),
        timeout_s=60,
    )
    operator_account = f"{NAMESPACE}:balancedstream"
    for account, allowed, asked in (
        (f"{stream.namespace}:a-driver", True, DRIVER_MAY),
        (f"{stream.namespace}:a-driver", False, DRIVER_MAY_NOT),
        (operator_account, True, OPERATOR_MAY),
        (operator_account, False, OPERATOR_MAY_NOT),
    ):
        for verb, resource in asked:
            with subtests.test(account=account, verb=verb, resource=resource):
                found = kube.may(account, verb, resource, namespace=stream.namespace)
                assert found is allowed
