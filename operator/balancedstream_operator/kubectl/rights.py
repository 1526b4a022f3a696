"""The rights that people and the operator need: pure."""

from __future__ import annotations

from dataclasses import dataclass

from balancedstream_operator.api.resource import GROUP, PLURAL


@dataclass(frozen=True, slots=True)
class Right:
    """To do something with objects of a kind.

    Such as `patch` of `pods` or `pods/status`; the core has an empty `group`.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""

    def __str__(self) -> str:
        within = f"/{self.subresource}" if self.subresource else ""
        return f"{self.verb} {self.resource}{within}"


def _each(group: str, resources: str, verbs: str) -> tuple[Right, ...]:
    found = []
    for resource in resources.split():
        name, _, subresource = resource.partition("/")
        found += [Right(verb, group, name, subresource) for verb in verbs.split()]
    return tuple(found)


READING = _each(GROUP, PLURAL, "get list")
"""`status` and `explain`."""

ASKING = _each(GROUP, PLURAL, "patch")
"""`approve`, `pause` and `resume`."""

FOLLOWING = _each(GROUP, PLURAL, "list watch")
"""Without these the operator leaves a namespace out."""

OPERATOR = (
    *_each(GROUP, PLURAL, "get list watch patch"),
    *_each(GROUP, f"{PLURAL}/status", "get patch"),
    *_each(GROUP, f"{PLURAL}/finalizers", "update"),
    *_each("apps", "statefulsets", "get list watch create patch update"),
    *_each("", "services serviceaccounts configmaps", "get list watch create patch update"),
    *_each("rbac.authorization.k8s.io", "roles rolebindings", "get list watch create patch update"),
    *_each("policy", "poddisruptionbudgets", "get list watch create patch update"),
    *_each("batch", "jobs", "get create patch delete"),
    *_each("", "pods", "get list watch create delete deletecollection"),
    *_each("", "secrets persistentvolumeclaims", "create"),
    *_each("authorization.k8s.io", "localsubjectaccessreviews", "create"),
    *_each("", "events", "create patch"),
)
"""What the operator needs where it watches, as the chart grants it."""
