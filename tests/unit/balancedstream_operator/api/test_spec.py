"""Manifests are read with the same rules that the CRD gives to the API server."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from generated_specs import find_misfits
from page_commands import find_unknown as find_fields_unknown_to

from balancedstream.core.policy import Policy, to_mapping
from balancedstream.core.removed import REMOVED
from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.schema import camel, describe
from balancedstream_operator.api.spec import (
    StreamSpec,
    find_removed,
    find_unknown,
    read_spec,
)

SCHEMA = describe(StreamSpec)

SMALLEST: dict[str, Any] = {
    "image": "clicks:1",
    "application": {"file": "/app/clicks.py"},
    "executors": {"min": 1, "max": 4},
    "checkpoints": {"claim": "checkpoints"},
}


def changed(**fields: Any) -> dict[str, Any]:
    return {**deepcopy(SMALLEST), **fields}


def test_the_smallest_manifest_is_the_default_policy_within_its_limits() -> None:
    policy = to_mapping(read_spec(SMALLEST).policy)
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
    policy = spec.policy
    assert (policy.balance.mode, policy.balance.act_above) == ("advise", 1.5)
    assert policy.migration.budget_s == 2
    assert (policy.scaling.mode, policy.scaling.window_s) == ("off", 20)
    assert policy.window.batches == 7


def test_a_fixed_number_of_executors_holds_in_every_mode_but_within_the_limits() -> None:
    for fixed, count in ((3, 3), (9, 4)):
        spec = read_spec(
            changed(executors={"min": 1, "max": 4, "fixed": fixed}, scaling={"mode": "Off"})
        )
        scaling = spec.policy.scaling
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
        ({"migration": {"budgetSeconds": 0}}, "spec.migration.budgetSeconds: must be a number"),
        ({"scaling": {"windowSeconds": 0}}, "spec.scaling.windowSeconds: must be a number"),
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


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        ({}, []),
        ({"imagee": "x"}, ["spec.imagee"]),
        ({"balancing": {"actAbov": 1, "actAbove": 2}}, ["spec.balancing.actAbov"]),
        ({"scaling": {"minExecutors": 2}}, ["spec.scaling.minExecutors"]),
        ({"metrics": {"mood": {}, "window": {"mood": 1}}}, ["spec.metrics.mood"]),
    ],
)
def test_fields_of_a_newer_release_are_ignored_and_named(
    change: dict[str, Any], paths: list[str]
) -> None:
    spec = read_spec(changed(**change))
    assert find_unknown(changed(**change))[: len(paths)] == paths
    assert spec.image == "clicks:1"


def test_removed_knobs_are_taken_and_named_with_the_reason() -> None:
    older = changed(
        balancing={"stopAt": 1.3, "minGain": 0.02, "actAbove": 1.5},
        scaling={"latencyObjectiveSeconds": 40, "lowUtilization": 0.3, "scaleInStep": 0.3},
        migration={"strategy": "slow"},
        metrics={"window": {"windowSeconds": 20}},
    )
    assert find_unknown(older) == []
    assert find_removed(older) == [
        "spec.balancing.stopAt (moves always continue to within 2 % of the bound)",
        "spec.metrics.window.windowSeconds (scaling.windowSeconds holds for loads, too)",
        "spec.migration.strategy (moves are always spread by budgetSeconds)",
        "spec.scaling.lowUtilization (it follows latencyObjectiveSeconds)",
    ]
    policy = read_spec(older).policy
    assert (policy.balance.act_above, policy.scaling.latency_objective_s) == (1.5, 40)
    assert policy.removed == ()


@pytest.mark.parametrize("manifest", [None, [], {}, {"scaling": None}, {"metrics": {"window": 3}}])
def test_a_manifest_without_removed_knobs_has_none(manifest: object) -> None:
    assert find_removed(manifest) == []


def test_the_definition_has_a_field_for_each_removed_knob() -> None:
    for knob in REMOVED:
        for default in knob.defaults:
            section, _, name = knob.path.partition(".")
            given = {camel(name): default}
            spec: dict[str, Any] = {section: given}
            if section == "balance":
                spec = {"balancing": given}
            if section == "window":
                spec = {"metrics": {"window": given}}
            manifest = changed(**spec)
            assert not [*find_fields_unknown_to(SCHEMA, manifest, "spec")]
            assert not [*find_misfits(SCHEMA, manifest, "spec")]
            assert find_removed(manifest) == []
            assert read_spec(manifest) == read_spec(SMALLEST)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"maxCores": 7, "cores": 2}, 3),
        ({"maxMemory": "5g"}, 3),
        ({"maxMemory": "9g", "maxCores": 2}, 2),
        ({"maxMemory": "99g", "maxCores": 64}, 4),
        ({"maxMemory": "3072m", "fixed": 4}, 2),
    ],
)
def test_cores_and_memory_limit_executors_beside_their_maximum(
    limits: dict[str, Any], most: int
) -> None:
    spec = read_spec(changed(executors={"min": 1, "max": 4, **limits}))
    scaling = spec.policy.scaling
    assert scaling.max_executors == most
    assert scaling.min_executors == (most if spec.executors.fixed else 1)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (
            {"maxCores": 7, "cores": 4},
            r"executors\.maxCores: must have room .* is 2; .* for 1$",
        ),
        ({"maxMemory": "2g"}, r"executors\.maxMemory: must have room for executors\.min"),
        ({"maxMemory": "2"}, r"executors\.maxMemory: must be text"),
        ({"maxCores": 0}, r"executors\.maxCores: must be an integer from 1"),
    ],
)
def test_a_limit_without_room_for_the_minimum_is_refused_by_name(
    limits: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read_spec(changed(executors={"min": 2, "max": 4, **limits}))
