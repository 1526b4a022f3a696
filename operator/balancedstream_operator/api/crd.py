"""Generates the CustomResourceDefinition from the classes of spec and status.

`python -m balancedstream_operator.api.crd` writes `crds/balancedstreams.yaml` and the chart's copy
below the current folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from balancedstream_operator.api.resource import GROUP, KIND, MAX_NAME, PLURAL, VERSION
from balancedstream_operator.api.schema import Schema, describe, rule
from balancedstream_operator.api.spec import describe_spec
from balancedstream_operator.api.status import UNSEEN, Status

FILES = (
    Path("crds/balancedstreams.yaml"),
    Path("charts/balancedstream/files/balancedstreams.yaml"),
)

_COLUMNS = (
    ("Mode", "string", ".status.mode", 0),
    ("Executors", "integer", ".status.executors", 0),
    ("Desired", "integer", ".status.desiredExecutors", 0),
    ("Imbalance", "string", ".status.imbalanceText", 0),
    ("Backlog", "integer", ".status.backlogRows", 0),
    ("Phase", "string", ".status.phase", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Epoch", "integer", ".status.planEpoch", 1),
    ("Reason", "string", ".status.reason", 1),
)


def _describe_status() -> Schema:
    described = describe(Status)
    described["properties"]["conditions"] |= {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    return {
        **described,
        "description": "What the operator last observed and decided; only the operator writes it.",
        # A stream that no operator has looked at is behind, for who waits by the rules of kstatus.
        "default": {"observedGeneration": UNSEEN},
    }


def build() -> dict[str, Any]:
    """The CustomResourceDefinition as a mapping.

    >>> build()["metadata"]["name"]
    'balancedstreams.balancedstream.io'
    """
    columns = [
        {"name": name, "type": kind, "jsonPath": path, **({"priority": p} if p else {})}
        for name, kind, path, p in _COLUMNS
    ]
    spec = {"description": "What the stream is, and how it may be changed.", **describe_spec()}
    schema = {
        "type": "object",
        "description": "A PySpark streaming job that is kept balanced and right-sized.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _describe_status(),
        },
        "x-kubernetes-validations": [
            rule(
                f"size(self.metadata.name) <= {MAX_NAME} && "
                "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                f"the name must be at most {MAX_NAME} lower-case letters, digits and dashes, and "
                "begin with a letter: services and pods are named after it",
            )
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": "balancedstream",
                "shortNames": ["bst"],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": columns,
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.executors.fixed",
                            "statusReplicasPath": ".status.executors",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def render() -> str:
    """The CustomResourceDefinition as YAML."""
    head = "# Made from the classes of operator/balancedstream_operator/api by its crd.py.\n"
    return head + yaml.safe_dump(build(), sort_keys=False, width=100, allow_unicode=True)


def main() -> None:
    """Writes the files."""
    for path in FILES:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
