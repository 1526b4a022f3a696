"""A user's pod template over the operator's own: how they are merged, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from balancedstream.errors import InvalidInputError

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
"""Fields by which Kubernetes itself tells the entries of these lists apart (`patchMergeKey`)."""

_ONE_SOURCE = {"volumes", "env"}
"""An entry of these has one source, so the user's takes the place of ours."""

_UNIQUE: dict[str, tuple[str, ...]] = {
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "resizePolicy": ("resourceName",),
    "ports": ("name",),
}
"""Fields of which the API server takes each value once in a list."""

_PROBE_ASKS = {"exec", "grpc", "httpGet", "tcpSocket"}
"""A probe asks in one of these ways, so a user's other way takes the place of ours."""


def merge(base: Any, over: Any, path: str = "") -> Any:
    """Merges a user's pod template over ours: maps by key, lists as Kubernetes merges them.

    Null is what an empty value of a Helm chart renders to, and counts as not given; in a
    securityContext it leaves a field that we set to the platform.

    Args:
        base: ours.
        over: the user's.
        path: of the field that both are.

    Raises:
        InvalidInputError: ours is an object or a list that is merged, and the user's is not; the
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
            message = f"{path}: must be an object, not {over!r}"
            raise InvalidInputError(message)
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
        message = f"{path}: must be a list, not {over!r}"
        raise InvalidInputError(message)
    entries = {_identify(entry, keys): entry for entry in base}
    for entry in over:
        identity = _identify(entry, keys)
        known = entries.get(identity)
        if name in _ONE_SOURCE and isinstance(entry, Mapping) and len(entry) > 1:
            known = None
        entries[identity] = merge(known, entry, f"{path}[{identity[0]}]")
    return list(entries.values())


def name_account(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """A template with its ServiceAccount under its name of today.

    The API server takes the older field only where the newer one is empty, as ours never is.

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
    """What a user's template asks for and the pod has not, by its path, with what is there.

    Args:
        asked: the template, or a part of it; null is not asked for.
        made: the same part of the pod.
        path: of that part.

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
        # Of several with one key the last one counts.
        there = {_identify(entry, keys): entry for entry in made}
        for identity, entry in {_identify(entry, keys): entry for entry in asked}.items():
            yield from find_lost(entry, there.get(identity), f"{path}[{identity[0]}]")
        return
    # Spark adds its own to these.
    extended = name in {"args", "resizePolicy"} and isinstance(asked, list)
    if extended and isinstance(made, list) and made[: len(asked)] == asked:
        return
    yield path, made


def find_repeated(made: Any, path: str) -> Iterator[str]:
    """Paths of entries of a pod of which the API server takes one alone, by what is the same.

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
    """What tells an entry of a list from the others; the API server refuses what has none of it."""
    given = entry if isinstance(entry, Mapping) else {}
    return tuple(str(given.get(key, "TCP" if key == "protocol" else "")) for key in keys)
