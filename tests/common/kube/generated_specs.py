"""Specs of BalancedStreams that nobody wrote, drawn from the schema that the API server has.

A running stream's spec is changed in one field or in two, as Acto (Gu et al., SOSP 2023) does.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import yaml
from hypothesis import strategies as st

CRD = Path(__file__).parents[3] / "crds" / "balancedstreams.yaml"

Json = Any
Schema = dict[str, Any]
FieldPath = tuple[str, ...]

ABSENT = "(absent)"
"""As the value of a mutation: the field is taken away."""

RUNNING: dict[str, Json] = {
    "image": "clicks:1",
    "application": {"file": "/app/clicks.py", "arguments": ["--topic", "clicks"]},
    "executors": {"min": 1, "max": 4},
    "checkpoints": {"claim": "checkpoints"},
}
FOLLOWING: dict[str, Json] = {
    "targetRef": {"apiVersion": "sparkoperator.k8s.io/v1beta2", "name": "clicks"},
    "executors": {"min": 1, "max": 4},
}
"""A stream whose application another operator runs."""

FULL: dict[str, Json] = {
    **RUNNING,
    "image": "clicks:2",
    "application": {
        "configMap": {"name": "scripts", "key": "clicks.py"},
        "arguments": ["--topic", "clicks", "--from", "earliest"],
    },
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["registry"],
    "fsGroup": 2000,
    "labels": {"example.com/cost": "shop"},
    "annotations": {"example.com/owner": "the web team"},
    "executors": {
        "serviceAccount": {"name": "workers"},
        "min": 3,
        "max": 6,
        "cores": 2,
        "cpu": "2500m",
        "memory": "2g",
        "memoryOverhead": "700m",
        "podTemplate": {
            "metadata": {"labels": {"commit": "12e4567"}, "annotations": {"note": "theirs"}},
            "spec": {
                "automountServiceAccountToken": True,
                "nodeSelector": {"disk": "any"},
                "tolerations": [{"key": "spot", "operator": "Exists"}],
                "volumes": [{"name": "tmp", "hostPath": {"path": "/fast"}}],
                "containers": [{"name": "executor", "env": [{"name": "A", "value": "1"}]}],
            },
        },
    },
    "driver": {
        "cpu": "2",
        "memory": "3g",
        "memoryOverhead": "600m",
        "evictable": False,
        "serviceAccount": {"annotations": {"role": "reader"}},
        "podTemplate": {
            "metadata": {"labels": {"team": "shop"}, "annotations": {"note": "mine"}},
            "spec": {
                "terminationGracePeriodSeconds": 90,
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "drivers", "operator": "Exists"}],
                "volumes": [{"name": "tmp", "hostPath": {"path": "/large"}}],
                "containers": [
                    {"name": "driver", "env": [{"name": "B", "value": "2"}]},
                    {"name": "sidecar", "image": "sidecar:1"},
                ],
            },
        },
    },
    "metrics": {"hotKeys": "off"},
}
"""Says something of each field that pods are made from, and nowhere the default."""

# What comes as JSON from the API server has no surrogates.
_CHARACTERS = st.characters(exclude_categories=["Cs"])
_TEXT = st.text(_CHARACTERS, max_size=12)
# As YAML, which patches are read as, a longer key is none.
_LONG = st.builds(str.__mul__, _CHARACTERS, st.integers(1, 1_000))
_NAMES = (
    _TEXT
    | _LONG
    | st.from_regex(r"\A[a-z]{1,5}(\.[a-z]{1,5})?(/[a-z]{1,5})?\Z")
    | st.sampled_from(
        [
            "spark.executor.memory",
            "spark.driver.cores",
            "spark.executorEnv.SPARK_USER",
            "spark.kubernetes.container.image",
            "spark.kubernetes.executor.label.team",
            "spark.kubernetes.executor.secrets.a",
            "spark.kubernetes.executor.volumes.emptyDir.spark-local-dir-1.mount.path",
            "balancedstream.io/stream",
            "app.kubernetes.io/name",
            "spark-role",
        ]
    )
)
"""What the schema leaves open in a map; settings of Spark and labels of ours among it."""
_POD_WORDS = st.sampled_from(
    ["metadata", "labels", "annotations", "spec", "containers", "volumes", "env", "name", "ports"]
)
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT
)
ANYTHING: st.SearchStrategy[Json] = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_POD_WORDS | _TEXT, inner, max_size=3)
    ),
    max_leaves=6,
)
"""Any JSON; where a pod template is meant, some of its words."""


@dataclass(frozen=True)
class Mutation:
    """A change of one field of a spec.

    Attributes:
        path: of the field, below `spec`.
        value: that it gets; `ABSENT` takes it away.
    """

    path: FieldPath
    value: Json


@cache
def read_schema(part: str = "spec") -> Schema:
    """The schema of a part of a BalancedStream: `spec` or `status`."""
    crd = yaml.safe_load(CRD.read_text("utf-8"))
    schema: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]
    return schema


def draw_changes(*, wrong: bool = False) -> st.SearchStrategy[tuple[Mutation, ...]]:
    """One or two changes of a spec.

    Args:
        wrong: whether values may also be what the schema does not allow.
    """
    fields = [
        st.builds(Mutation, st.just(path), _draw_change(schema, required=required, wrong=wrong))
        for path, schema, required in _list_fields(read_schema())
    ]
    return st.lists(st.one_of(fields), min_size=1, max_size=2).map(tuple)


def draw_many(count: int, seed: int) -> list[tuple[Mutation, ...]]:
    """So many changes, one in eight of them wrong by the schema; the same ones for a seed."""
    drawn: list[tuple[Mutation, ...]] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.integers(0, 7), draw_changes(), draw_changes(wrong=True))
    def collect(number: int, right: tuple[Mutation, ...], wrong: tuple[Mutation, ...]) -> None:
        drawn.append(right if number else wrong)

    collect()
    return drawn


def mutate(base: Mapping[str, Json], mutations: tuple[Mutation, ...]) -> dict[str, Json]:
    """A spec with changed fields; objects that a field needs around it are made."""
    spec: dict[str, Json] = copy.deepcopy(dict(base))
    for mutation in mutations:
        place = spec
        for name in mutation.path[:-1]:
            if not isinstance(place.get(name), dict):
                place[name] = {}
            place = place[name]
        if mutation.value is ABSENT:
            place.pop(mutation.path[-1], None)
        else:
            place[mutation.path[-1]] = copy.deepcopy(mutation.value)
    return spec


def fill_in(schema: Schema, value: Json) -> Json:
    """A value with the defaults of its schema, as the API server fills them in."""
    if not isinstance(value, dict):
        return value
    known = schema.get("properties") or {}
    filled = {n: inner for n, inner in value.items() if inner is not None or n not in known}
    for name, inner in known.items():
        if name not in filled and "default" in inner:
            filled[name] = copy.deepcopy(inner["default"])
        if name in filled:
            filled[name] = fill_in(inner, filled[name])
    return filled


def find_misfits(schema: Schema, value: Json, path: str = "") -> Iterator[str]:
    """Where a value is not what a schema allows, by paths."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    kind = schema.get("type", "object")
    if not isinstance(value, kinds[kind]):
        yield f"{path}: {value!r} is no {kind}"
    elif isinstance(value, dict):
        for name, inner in value.items():
            within = (schema.get("properties") or {}).get(name)
            # None takes a field away.
            if within and inner is not None:
                yield from find_misfits(within, inner, f"{path}.{name}")
        yield from (f"{path}.{n}: missing" for n in schema.get("required", ()) if n not in value)
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{path}: {len(value)} items"
        for number, inner in enumerate(value):
            yield from find_misfits(schema["items"], inner, f"{path}[{number}]")
    elif isinstance(value, str):
        if len(value) > schema.get("maxLength", len(value)):
            yield f"{path}: {len(value)} characters"
        if value not in schema.get("enum", [value]):
            yield f"{path}: {value!r} is none of the words"


def _list_fields(schema: Schema, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Schema, bool]]:
    """Path and schema of each field, objects before what is in them; whether it is required."""
    for name, inner in schema.get("properties", {}).items():
        yield (*path, name), inner, name in schema.get("required", ())
        yield from _list_fields(inner, (*path, name))


def _draw_change(schema: Schema, *, required: bool, wrong: bool) -> st.SearchStrategy[Json]:
    values = draw_value(schema)
    if wrong:
        return values | ANYTHING | st.just(ABSENT)
    return values if required else values | st.just(ABSENT)


def draw_value(schema: Schema) -> st.SearchStrategy[Json]:
    """Values that a schema allows, the first and the last of them rather often."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return _draw_pod_template()
    match schema["type"]:
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "number" if "minimum" not in schema:
            return st.floats(allow_nan=False, allow_infinity=False) | st.integers()
        case "number":
            return st.floats(schema["minimum"], schema["maximum"]) | st.integers(
                -int(-schema["minimum"] // 1), int(schema["maximum"])
            )
        case "boolean":
            return st.booleans()
        case "string":
            return _draw_text(schema)
        case "array":
            return st.lists(draw_value(schema["items"]), max_size=3)
        case _:
            return _draw_object(schema)


def _draw_text(schema: Schema) -> st.SearchStrategy[str]:
    limit = schema["maxLength"]
    if "pattern" not in schema:
        long = st.builds(str.__mul__, _CHARACTERS, st.just(limit))
        return st.text(_CHARACTERS, max_size=min(limit, 12)) | long
    # The API server's `$` is the end of the text, and not a line's.
    pattern = re.compile(schema["pattern"].removesuffix("$") + r"\Z", re.ASCII)
    return st.from_regex(pattern).filter(lambda text: len(text) <= limit)


def _draw_object(schema: Schema) -> st.SearchStrategy[Json]:
    if "additionalProperties" in schema:
        values = draw_value(schema["additionalProperties"])
        return st.dictionaries(_NAMES, values, max_size=3)
    needed = {n: draw_value(schema["properties"][n]) for n in schema.get("required", ())}
    free = {n: draw_value(s) for n, s in schema["properties"].items() if n not in needed}
    return st.fixed_dictionaries(needed, optional=free)


@cache
def _draw_pod_template() -> st.SearchStrategy[Json]:
    """Objects of the shape of a pod, with anything in some places of it."""
    texts = st.dictionaries(_TEXT, _TEXT, max_size=2)
    names = ["app.kubernetes.io/name", "balancedstream.io/stream", "balancedstream.io/restart"]
    ours = st.dictionaries(st.sampled_from(names), _TEXT, max_size=2)
    container = st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from(["driver", "executor", "sidecar"]) | ANYTHING,
            "image": _TEXT,
            "env": st.lists(
                st.fixed_dictionaries(
                    {"name": st.sampled_from(["POD_IP", "SPARK_USER"]) | _TEXT, "value": _TEXT}
                )
                | ANYTHING,
                max_size=2,
            ),
            "ports": st.lists(
                st.fixed_dictionaries({"containerPort": st.just(9404) | ANYTHING}), max_size=2
            ),
            "volumeMounts": st.lists(
                st.fixed_dictionaries({"name": _TEXT, "mountPath": st.just("/tmp") | _TEXT}),  # noqa: S108
                max_size=2,
            ),
            "livenessProbe": st.fixed_dictionaries({"exec": ANYTHING}) | ANYTHING,
            "resources": ANYTHING,
        },
    )
    pod = st.fixed_dictionaries(
        {},
        optional={
            "containers": st.lists(container | ANYTHING, max_size=2) | ANYTHING,
            "volumes": st.lists(
                st.fixed_dictionaries(
                    {
                        "name": st.sampled_from(["tmp", "checkpoints", "configuration"]) | _TEXT,
                        "emptyDir": ANYTHING,
                    }
                )
                | ANYTHING,
                max_size=2,
            ),
            "nodeSelector": texts | ANYTHING,
            "securityContext": ANYTHING,
            "serviceAccountName": _TEXT,
            "serviceAccount": _TEXT,
            "hostname": _TEXT,
        },
    )
    metadata = st.fixed_dictionaries(
        {},
        optional={
            "name": _TEXT,
            "labels": texts | ours | ANYTHING,
            "annotations": texts | ours | ANYTHING,
        },
    )
    whole = st.fixed_dictionaries({}, optional={"metadata": metadata, "spec": pod})
    parts = st.fixed_dictionaries({}, optional={"metadata": ANYTHING, "spec": ANYTHING})
    others = st.dictionaries(_POD_WORDS | _TEXT, ANYTHING, max_size=3)
    return whole | parts | others
