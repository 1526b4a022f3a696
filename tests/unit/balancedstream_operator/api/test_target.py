"""A BalancedStream may name an application of another operator's instead of a job of its own."""

from __future__ import annotations

import re
from typing import Any

import pytest

from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.crd import build
from balancedstream_operator.api.spec import read_spec
from balancedstream_operator.api.target import driver_selector

KUBEFLOW = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "name": "a"}
APACHE = {"apiVersion": "spark.apache.org/v1", "kind": "SparkApplication", "name": "a"}
SELECTOR = {"selector": {"team": "shop", "app.kubernetes.io/name": "clicks"}}


def manifest(target: dict[str, Any] = KUBEFLOW, **fields: Any) -> dict[str, Any]:
    return {"targetRef": target, "executors": {"max": 4}, **fields}


def schema() -> dict[str, Any]:
    version = build()["spec"]["versions"][0]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


@pytest.mark.parametrize(
    ("target", "selector"),
    [
        (KUBEFLOW, "spark-role=driver,sparkoperator.k8s.io/app-name=a"),
        (APACHE, "spark-role=driver,spark.operator/spark-app-name=a"),
        (SELECTOR, "app.kubernetes.io/name=clicks,team=shop"),
    ],
)
def test_a_drivers_pod_is_found_by_the_labels_that_its_operator_gives_it(
    target: dict[str, Any], selector: str
) -> None:
    found = read_spec(manifest(target)).target_ref
    assert found is not None
    assert driver_selector(found) == selector


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({}, "exactly one of name and selector"),
        (KUBEFLOW | SELECTOR, "exactly one of name and selector"),
        ({"name": "a"}, "apiVersion and name belong together"),
        (SELECTOR | {"apiVersion": "spark.apache.org/v1"}, "apiVersion and name belong together"),
        (KUBEFLOW | {"apiVersion": "apps/v1"}, "spec.targetRef.apiVersion: must be of"),
        (KUBEFLOW | {"kind": "ScheduledSparkApplication"}, "spec.targetRef.kind: must be one of"),
        ({"selector": {"app": "a,b=c"}}, "app=a,b=c is no label"),
        ({"selector": {"!app": "a"}}, "!app=a is no label"),
        ({"selector": {"app": "clicks-"}}, "app=clicks- is no label"),
    ],
)
def test_a_reference_to_nothing_or_to_two_things_is_refused(
    target: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        read_spec(manifest(target))


def test_what_the_api_server_fills_in_is_no_field_that_somebody_set() -> None:
    def fill_in(part: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        filled = dict(given)
        for name, inner in part.get("properties", {}).items():
            if name not in filled and "default" in inner:
                filled[name] = inner["default"]
            if isinstance(filled.get(name), dict):
                filled[name] = fill_in(inner, filled[name])
        return filled

    filled = fill_in(schema(), manifest())
    assert filled["driver"]["cpu"] == "500m", "it fills in"
    assert "application" not in filled, "but nothing that only a job of our own has"
    assert read_spec(filled).policy == read_spec(manifest()).policy


def test_a_target_needs_no_image_no_script_and_no_checkpoint_and_a_job_of_our_own_does() -> None:
    assert read_spec(manifest()).image == ""
    for name in ("image", "application", "checkpoints"):
        assert name not in schema()["required"], "the rule requires it"
        own = {
            "image": "clicks:1",
            "application": {"file": "/a.py"},
            "checkpoints": {"claim": "c"},
            "executors": {"max": 4},
        }
        del own[name]
        with pytest.raises(InvalidInputError, match=rf"^spec\.{name}: missing"):
            read_spec(own)
