"""Merges a user's pod template over the operator's own, and finds what got lost or repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from balancedstream_operator.api.resource import refuse

_MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "schedulingGates": ("name",),
    "resourceClaims": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
}
"""Lists by name, and the fields that identify an entry in Kubernetes (`patchMergeKey`)."""

_ONE_SOURCE = {"volumes", "env"}
"""Each entry of these lists has one source, so the user's entry replaces ours."""

_UNIQUE: dict[str, tuple[str, ...]] = {
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "resizePolicy": ("resourceName",),
    "ports": ("name",),
}
"""Lists by name, and the fields whose values the API server accepts only once in a list."""

_PROBE_ASKS = {"exec", "grpc", "httpGet", "tcpSocket"}
"""A probe asks in only one of these ways, so the user's way replaces ours."""


def merge(base: Any, over: Any, path: str = "") -> Any:
    """Merges a user's pod template over ours: maps by key, lists as Kubernetes merges them.

    Null counts as not given, because an empty value of a Helm chart renders to null. In a
    securityContext, null removes our field, so that the platform decides.

    `path` names the part of the templates in messages.

    Raises:
        InvalidInputError: our part is an object or a merged list, and the user's is not; the
            message names the field.

    >>> merge({"env": [{"name": "x", "v": 1}]}, {"env": [{"name": "y"}]})
    {'env': [{'name': 'x', 'v': 1}, {'name': 'y'}]}
    >>> merge({"securityContext": {"fsGroup": 10001}}, {"securityContext": {"fsGroup": None}})
    {'securityContext': {}}
    """
    if over is None:
        return base
    name = path.rpartition(".")[2]
    if isinstance(base, Mapping):
        if not isinstance(over, Mapping):
            refuse(path, f"must be an object, not {over!r}")
        merged = dict(base)
        if name.endswith("Probe") and _PROBE_ASKS & over.keys():
            others = _PROBE_ASKS - over.keys()
            merged = {key: value for key, value in base.items() if key not in others}
        for key, value in over.items():
            if value is None and name == "securityContext":
                merged.pop(key, None)
                continue
            merged[key] = merge(base.get(key), value, f"{path}.{key}")
        return merged
    keys = _MERGE_KEYS.get(name)
    if keys is None or not isinstance(base, list):
        return over
    if not isinstance(over, list):
        refuse(path, f"must be a list, not {over!r}")
    entries = {_identify(entry, keys): entry for entry in base}
    for entry in over:
        identity = _identify(entry, keys)
        known = entries.get(identity)
        if name in _ONE_SOURCE and isinstance(entry, Mapping) and len(entry) > 1:
            known = None
        entries[identity] = merge(known, entry, f"{path}[{identity[0]}]")
    return list(entries.values())


def name_account(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """A template with its ServiceAccount in the current field instead of the deprecated one.

    The API server reads the deprecated field only if the current one is empty, which ours never is.

    >>> name_account({"spec": {"serviceAccount": "mine"}})
    {'spec': {'serviceAccountName': 'mine'}}
    """
    spec = template.get("spec")
    if not isinstance(spec, Mapping) or not spec.get("serviceAccount"):
        return template
    named = {key: value for key, value in spec.items() if key != "serviceAccount"}
    if not named.get("serviceAccountName"):
        named["serviceAccountName"] = spec["serviceAccount"]
    return {**template, "spec": named}


def find_lost(asked: Any, made: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Fields of a user's template that the pod does not have.

    Yields:
        The path of each such field, and the pod's value there.

    >>> list(find_lost({"labels": {"a": "1", "b": "2"}}, {"labels": {"a": "1", "b": "3"}}, "x"))
    [('x.labels.b', '3')]
    """
    if asked is None or asked == made or (not asked and made is None):
        return
    if isinstance(asked, Mapping) and isinstance(made, Mapping):
        for key, value in asked.items():
            yield from find_lost(value, made.get(key), f"{path}.{key}")
        return
    name = path.rpartition(".")[2]
    keys = _MERGE_KEYS.get(name)
    if keys and isinstance(asked, list) and isinstance(made, list):
        # The last of several entries with the same key counts.
        there = {_identify(entry, keys): entry for entry in made}
        for identity, entry in {_identify(entry, keys): entry for entry in asked}.items():
            yield from find_lost(entry, there.get(identity), f"{path}[{identity[0]}]")
        return
    # Spark appends its own entries to these lists.
    extended = name in {"args", "resizePolicy"} and isinstance(asked, list)
    if extended and isinstance(made, list) and made[: len(asked)] == asked:
        return
    yield path, made


def find_repeated(made: Any, path: str) -> Iterator[str]:
    """Paths of entries that repeat a value that the API server accepts only once in a list.

    >>> list(find_repeated({"volumes": [{"name": "a"}, {"name": "a"}]}, "spec"))
    ['spec.volumes[a]']
    """
    if isinstance(made, Mapping):
        for key, value in made.items():
            yield from find_repeated(value, f"{path}.{key}")
    elif isinstance(made, list):
        keys = _UNIQUE.get(path.rpartition(".")[2], ())
        entries = [entry for entry in made if isinstance(entry, Mapping)]
        for key in keys:
            values = Counter(str(entry[key]) for entry in entries if entry.get(key) is not None)
            yield from (f"{path}[{value}]" for value, count in values.items() if count > 1)
        for position, entry in enumerate(made):
            known = entry.get("name", position) if isinstance(entry, Mapping) else position
            yield from find_repeated(entry, f"{path}[{known}]")


def _identify(entry: Any, keys: tuple[str, ...]) -> tuple[str, ...]:
    """The fields that identify an entry of a list; the API server refuses an entry without them."""
    given = entry if isinstance(entry, Mapping) else {}
    return tuple(str(given.get(key, "TCP" if key == "protocol" else "")) for key in keys)
