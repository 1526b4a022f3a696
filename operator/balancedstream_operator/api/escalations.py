"""Finds fields of a spec that give pods more rights than the operator's own templates: pure.

An installation may refuse such a spec (`docs/security.md`). Code in a pod may still do everything
that the driver's account may. This is no substitute for Pod Security admission.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.spec import StreamSpec

_Field = tuple[str, str]
"""A field of a pod: the name of its parent, and its own name."""

_ANY: Mapping[_Field, Callable[[Any], bool]] = {
    ("spec", "hostNetwork"): bool,
    ("spec", "hostPID"): bool,
    ("spec", "hostIPC"): bool,
    ("spec", "serviceAccountName"): bool,
    # The deprecated name of the same field.
    ("spec", "serviceAccount"): bool,
    ("volumes", "hostPath"): bool,
    ("volumes", "flexVolume"): bool,
    ("ports", "hostPort"): bool,
    ("securityContext", "privileged"): bool,
    ("securityContext", "allowPrivilegeEscalation"): bool,
    ("securityContext", "runAsUser"): lambda user: user == 0,
    ("securityContext", "runAsGroup"): lambda group: group == 0,
    ("securityContext", "fsGroup"): lambda group: group == 0,
    ("securityContext", "supplementalGroups"): lambda groups: 0 in (groups or ()),
    ("securityContext", "runAsNonRoot"): lambda holds: holds is False,
    ("securityContext", "procMount"): lambda mount: mount not in {None, "Default"},
    ("securityContext", "seLinuxOptions"): bool,
    ("securityContext", "sysctls"): bool,
    ("seccompProfile", "type"): lambda kind: kind == "Unconfined",
    ("appArmorProfile", "type"): lambda kind: kind == "Unconfined",
    ("windowsOptions", "hostProcess"): bool,
    ("capabilities", "add"): bool,
    # A user's list replaces ours, which drops all capabilities.
    ("capabilities", "drop"): lambda names: names is not None and "ALL" not in names,
}
"""Fields of driver and executor pods, and the values that give more rights."""

_OF_EXECUTORS: Mapping[_Field, Callable[[Any], bool]] = {
    **_ANY,
    ("spec", "automountServiceAccountToken"): bool,
    ("sources", "serviceAccountToken"): bool,
}
"""The same for executor pods, which also must not get a token."""

_CONF: tuple[tuple[str, Callable[[str], bool]], ...] = (
    (r"spark\.kubernetes\.executor\.volumes\.hostPath\..*", lambda _: True),
    (r"spark\.kubernetes\.authenticate\.executor\.serviceAccountName", bool),
    (
        r"spark\.kubernetes\.(executor\.)?securityContext\.allowPrivilegeEscalation",
        lambda value: value.strip().lower() == "true",
    ),
    # A class of the user, which may change anything in the pod.
    (r"spark\.kubernetes\.executor\.pod\.featureSteps", bool),
)
"""Patterns of Spark settings for executors, and the values that give more rights."""


def refuse_escalation(spec: StreamSpec, allowed_accounts: Collection[str] = ()) -> None:
    """Refuses a spec whose pods would have more rights than the operator's own templates give.

    Pods may run as `allowed_accounts` nevertheless.

    Raises:
        InvalidInputError: the spec gives more rights; the message names the fields.
    """
    found = list(_find_escalations(spec, allowed_accounts))
    if found:
        message = (
            f"{', '.join(found)}: gives pods more rights than the operator's own templates do, and "
            "this operator refuses that (streams.forbidEscalation of its chart). Leave it out, or "
            "ask whoever installed the operator"
        )
        raise InvalidInputError(message)


def _find_escalations(spec: StreamSpec, allowed_accounts: Collection[str]) -> Iterator[str]:
    accounts = {
        "spec.driver.serviceAccount.name": spec.driver.service_account.name,
        "spec.executors.serviceAccount.name": spec.executors.service_account.name,
    }
    yield from (path for path, name in accounts.items() if name and name not in allowed_accounts)
    for path, template, fields in (
        ("spec.driver.podTemplate", spec.driver.pod_template, _ANY),
        ("spec.executors.podTemplate", spec.executors.pod_template, _OF_EXECUTORS),
    ):
        for where, name, value in _walk(template, path, ""):
            is_account = name[1] in {"serviceAccountName", "serviceAccount"}
            allowed = is_account and isinstance(value, str) and value in allowed_accounts
            if name in fields and fields[name](value) and not allowed:
                yield where
    for key, value in spec.spark_conf.items():
        gives = any(re.fullmatch(pattern, key) and more(value) for pattern, more in _CONF)
        if gives and not (key.endswith("serviceAccountName") and value in allowed_accounts):
            yield f"spec.sparkConf.{key}"


def _walk(found: Any, path: str, within: str) -> Iterator[tuple[str, _Field, Any]]:
    """The path, the field and the value of each field below an object.

    A field in an entry of a list has the list as its parent.
    """
    if isinstance(found, Mapping):
        for name, value in found.items():
            yield f"{path}.{name}", (within, name), value
            yield from _walk(value, f"{path}.{name}", name)
    elif isinstance(found, list):
        for position, entry in enumerate(found):
            known = entry.get("name", position) if isinstance(entry, Mapping) else position
            yield from _walk(entry, f"{path}[{known}]", within)
