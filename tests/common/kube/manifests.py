"""The manifests of a small stream, for tests that look at one of them."""

from __future__ import annotations

import copy
import json
from typing import Any

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.spec import StreamSpec, read_spec
from balancedstream_operator.children.manifests import build_children

STREAM = Stream("shop", "clicks", "uid-1")
SMALLEST: dict[str, Any] = {
    "image": "clicks:1",
    "application": {"file": "/app/clicks.py", "arguments": ["--topic", "clicks"]},
    "executors": {"min": 1, "max": 4},
    "checkpoints": {"claim": "checkpoints"},
}


def make_spec(**changes: Any) -> StreamSpec:
    """The smallest spec, with some of its fields changed."""
    return read_spec({**copy.deepcopy(SMALLEST), **changes})


def make_resource(
    name: str = "clicks", namespace: str = "shop", *, generation: int = 1, **spec: Any
) -> dict[str, Any]:
    """A BalancedStream as the API server has it, with some fields of its spec changed."""
    return {
        "apiVersion": "balancedstream.io/v1alpha1",
        "kind": "BalancedStream",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-of-{namespace}-{name}",
            "generation": generation,
            "resourceVersion": str(generation),
        },
        "spec": {**copy.deepcopy(SMALLEST), "executors": {"min": 1, "max": 2}, **spec},
    }


def child(kind: str, name: str = "", **changes: Any) -> dict[str, Any]:
    """The only child of a kind, or of a kind and name."""
    found = [
        c
        for c in build_children(STREAM, make_spec(**changes), 24)
        if c["kind"] == kind and (not name or c["metadata"]["name"] == name)
    ]
    assert len(found) == 1
    return found[0]


def template(**changes: Any) -> dict[str, Any]:
    """The template of the driver's pod."""
    found: dict[str, Any] = child("StatefulSet", **changes)["spec"]["template"]
    return found


def executor_pod(**changes: Any) -> dict[str, Any]:
    """The template of executor pods, as Spark reads it."""
    data = child("ConfigMap", "clicks-configuration", **changes)["data"]
    found: dict[str, Any] = json.loads(data["executor.yaml"])
    return found
