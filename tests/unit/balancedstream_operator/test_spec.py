"""Manifests are read with the same rules that the CRD shows to the API server."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from balancedstream.core.policy import Policy, knobs, to_mapping
from balancedstream.errors import InvalidInputError
from balancedstream_operator.crd import FILES, build, render
from balancedstream_operator.spec import policy_of, read_spec

ROOT = Path(__file__).parents[3]
SMALLEST: dict[str, Any] = {
    "image": "clicks:1",
    "application": {"file": "/app/clicks.py"},
    "executors": {"min": 1, "max": 4},
    "checkpoints": {"claim": "checkpoints"},
}


def changed(**fields: Any) -> dict[str, Any]:
    return {**deepcopy(SMALLEST), **fields}


def walk(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, inner in schema.get("properties", {}).items():
        found += walk(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found += walk(schema[key], f"{path}[]")
    return found


def schema() -> dict[str, Any]:
    version = build()["spec"]["versions"][0]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_committed_crd_is_the_one_that_the_classes_make(path: Path) -> None:
    assert (ROOT / path).read_text("utf-8") == render(), "run python -m balancedstream_operator.crd"


def test_every_string_list_and_map_is_bounded() -> None:
    spec = schema()["properties"]["spec"]
    for path, part in walk(spec):
        if part.get("type") == "string" and "enum" not in part:
            assert "maxLength" in part, path
        if part.get("type") == "array":
            assert "maxItems" in part, path
        if "additionalProperties" in part:
            assert "maxProperties" in part, path


def test_every_field_says_what_it_is() -> None:
    for path, part in walk(schema()["properties"]["spec"]):
        if not path.endswith("[]"):
            assert part.get("description"), path


def test_every_knob_of_the_policy_can_be_set_in_a_manifest() -> None:
    spec = schema()["properties"]["spec"]["properties"]
    shown = sum(
        len(part["properties"])
        for part in (
            spec["balancing"],
            spec["migration"],
            spec["scaling"],
            spec["metrics"]["properties"]["window"],
        )
    )
    assert shown + 2 == len(list(knobs())), "all but the two limits, which executors has"


def test_the_smallest_manifest_is_the_default_policy_within_its_limits() -> None:
    policy = to_mapping(policy_of(read_spec(SMALLEST)))
    defaults = to_mapping(Policy())
    defaults["scaling"] |= {"min_executors": 1, "max_executors": 4}
    assert policy == defaults


def test_knobs_are_read_under_the_names_that_kubernetes_would_give_them() -> None:
    spec = read_spec(
        changed(
            balancing={"mode": "Advise", "actAbove": 1.5},
            migration={"budgetSeconds": 2},
            scaling={"windowSeconds": 20, "mode": "Off"},
            metrics={"window": {"batches": 7}},
        )
    )
    policy = policy_of(spec)
    assert (policy.balance.mode, policy.balance.act_above) == ("advise", 1.5)
    assert policy.migration.budget_s == 2
    assert (policy.scaling.mode, policy.scaling.window_s) == ("off", 20)
    assert policy.window.batches == 7


def test_a_fixed_number_of_executors_is_had_whatever_the_mode_but_within_the_limits() -> None:
    for fixed, count in ((3, 3), (9, 4)):
        spec = read_spec(
            changed(executors={"min": 1, "max": 4, "fixed": fixed}, scaling={"mode": "Off"})
        )
        scaling = policy_of(spec).scaling
        assert (scaling.mode, scaling.min_executors, scaling.max_executors) == (
            "auto",
            count,
            count,
        )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"image": None}, "spec.image: missing"),
        ({"image": 7}, "spec.image: must be text"),
        ({"imagee": "x"}, "spec.imagee: unknown field"),
        ({"application": {}}, "exactly one of file and configMap"),
        ({"application": {"file": "/a.py", "configMap": {"name": "a", "key": "b"}}}, "exactly one"),
        ({"application": {"configMap": {"name": "a"}}}, "spec.application.configMap.key: missing"),
        ({"application": {"file": "/a.py", "arguments": "--x"}}, "arguments: must be a list"),
        ({"executors": {"min": 5, "max": 4}}, "spec.executors.min: must not exceed max"),
        ({"executors": {"min": 0, "max": 4}}, "spec.executors.min: must be an integer from 1"),
        ({"executors": {"max": "4"}}, "spec.executors.max: must be an integer"),
        ({"executors": {"max": True}}, "spec.executors.max: must be an integer"),
        ({"executors": {}}, "spec.executors.max: missing"),
        ({"checkpoints": {}}, "exactly one of claim and uri"),
        ({"sparkConf": {"spark.x": 1}}, "spec.sparkConf.spark.x: must be text"),
        ({"partitions": 0}, "spec.partitions: must be an integer from 1"),
        (
            {"balancing": {"mode": "auto-ish"}},
            "spec.balancing.mode: must be one of Auto, Advise, Off",
        ),
        ({"balancing": {"actAbov": 1}}, "spec.balancing.actAbov: unknown field"),
        ({"migration": {"strategy": "slow"}}, "spec.migration.strategy: must be one of"),
        ({"migration": {"budgetSeconds": 0}}, "spec.migration.budgetSeconds: must be a number"),
        ({"scaling": {"targetUtilization": 2}}, "spec.scaling.targetUtilization: must be a number"),
        ({"scaling": {"targetUtilization": 0.4}}, "target_utilization: must lie between"),
        ({"scaling": {"minExecutors": 2}}, "spec.scaling.minExecutors: unknown field"),
        ({"metrics": {"intervalSeconds": 0}}, "spec.metrics.intervalSeconds: must be a number"),
        ({"metrics": []}, "spec.metrics: must be an object"),
        ({"suspend": "yes"}, "spec.suspend: must be true or false"),
    ],
)
def test_what_is_wrong_is_refused_with_the_name_of_the_field(
    fields: dict[str, Any], says: str
) -> None:
    manifest = {name: value for name, value in changed(**fields).items() if value is not None}
    with pytest.raises(InvalidInputError, match=says.replace(".", r"\.").replace("[", r"\[")):
        read_spec(manifest)
