"""Whether a pod has what a template asks for, by Kubernetes' rules and not by the operator's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

Json = Any

_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
    "hostAliases": ("ip",),
}
"""The API reference's patch merge keys of these lists; any other list is replaced as a whole."""

_UNITS: Mapping[str, Fraction] = {
    **{unit: Fraction(1, 1000**n) for n, unit in enumerate(["m", "u", "n"], 1)},
    **{unit: Fraction(1000) ** n for n, unit in enumerate(["", "k", "M", "G", "T", "P", "E"])},
    **{
        unit: Fraction(1024) ** n for n, unit in enumerate(["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
    },
}


def find_missing(asked: Json, found: Json, path: str) -> Iterator[str]:
    """What a template asks for and a pod has not, by paths.

    Null is not asked for. The API server leaves out what is empty.

    Args:
        asked: the template, or a part of it.
        found: the same part of the pod; None if there is none.
        path: of that part.
    """
    name = path.rpartition(".")[2]
    if asked is None or (found is None and not asked):
        return
    if isinstance(asked, Mapping) and isinstance(found, Mapping | None):
        for key, value in asked.items():
            yield from find_missing(value, (found or {}).get(key), f"{path}.{key}")
    elif isinstance(asked, Sequence) and isinstance(found, Sequence) and name in _KEYS:
        yield from _find_missing_entries(asked, found, path)
    elif asked != found and not (".resources." in path and same_quantity(asked, found)):
        yield f"{path}: {asked!r} is asked for, and {found!r} is there"


def _find_missing_entries(asked: Sequence[Json], found: Sequence[Json], path: str) -> Iterator[str]:
    keys = _KEYS[path.rpartition(".")[2]]
    there = {_identify(entry, keys): entry for entry in found}
    # Of several with one key the last one counts.
    for identity, entry in {_identify(entry, keys): entry for entry in asked}.items():
        place = f"{path}[{identity[0]}]"
        if entry and identity not in there:
            yield f"{place}: is not there"
            continue
        yield from find_missing(entry, there.get(identity), place)
        if path.endswith(".volumes") and isinstance(entry, Mapping):
            yield from _find_other_sources(entry, there.get(identity) or {}, place)


def _find_other_sources(
    asked: Mapping[str, Json], found: Mapping[str, Json], path: str
) -> Iterator[str]:
    """Sources of a volume that were not asked for; one without any is an emptyDir."""
    others = found.keys() - asked.keys()
    if asked.keys() - {"name"} and others:
        yield f"{path}: {sorted(others)} are not asked for"


def _identify(entry: Json, keys: Sequence[str]) -> tuple[str, ...]:
    given = entry if isinstance(entry, Mapping) else {}
    return tuple(str(given.get(key, "TCP" if key == "protocol" else "")) for key in keys)


def read_entries(
    entries: Sequence[Json] | None, value: str, key: str = "name"
) -> list[Mapping[str, Json]]:
    """Entries with this value; a template may repeat one, and hold others than objects."""
    return [e for e in entries or () if isinstance(e, Mapping) and e.get(key) == value]


def same_quantity(one: Json, other: Json) -> bool:
    """Whether two texts are one quantity of Kubernetes, whose server writes it in its own way.

    >>> same_quantity("1024Mi", "1Gi"), same_quantity("1", "1m"), same_quantity("x", "x")
    (True, False, False)
    """
    sizes = _read_quantity(one), _read_quantity(other)
    return sizes[0] is not None and sizes[0] == sizes[1]


def _read_quantity(text: Json) -> Fraction | None:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)", str(text), re.ASCII)
    unit = _UNITS.get(found[2]) if found else None
    return Fraction(found[1]) * unit if found and unit is not None else None
