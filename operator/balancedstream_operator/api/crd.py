"""Generates the CustomResourceDefinition from the spec classes.

`python -m balancedstream_operator.api.crd` writes `crds/balancedstreams.yaml` and the chart's copy
below the current folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from balancedstream_operator.api.resource import (
    GROUP,
    KIND,
    MAX_DECISIONS,
    MAX_HOTTEST,
    MAX_KEY,
    MAX_NAME,
    PLURAL,
    VERSION,
)
from balancedstream_operator.api.schema import Schema, rule
from balancedstream_operator.api.spec import describe_spec

FILES = (
    Path("crds/balancedstreams.yaml"),
    Path("charts/balancedstream/files/balancedstreams.yaml"),
)

MAX_CONDITIONS = 32
"""More than there are, so that a newer operator can report to an older definition."""

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


def _text(sentence: str, max_length: int = 1024) -> Schema:
    return {"type": "string", "maxLength": max_length, "description": sentence}


def _whole(sentence: str) -> Schema:
    return {"type": "integer", "format": "int64", "description": sentence}


def _number(sentence: str) -> Schema:
    return {"type": "number", "description": sentence}


def _list(sentence: str, max_items: int, properties: Schema) -> Schema:
    return {
        "type": "array",
        "maxItems": max_items,
        "description": sentence,
        "items": {"type": "object", "properties": properties},
    }


def _object(sentence: str, properties: Schema) -> Schema:
    return {"type": "object", "description": sentence, "properties": properties}


def _status() -> Schema:
    conditions = _list(
        "The current state of the stream, by Kubernetes' conventions.",
        MAX_CONDITIONS,
        {
            "type": _text("Name of the condition.", 64),
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": _text("The cause, in one CamelCase word.", 128),
            "message": _text("The cause and what to do, for people.", 4096),
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": _whole("Generation of the spec that the condition was set for."),
        },
    )
    conditions["items"]["required"] = ["type", "status", "reason", "lastTransitionTime"]
    conditions |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return {
        "type": "object",
        "description": "What the operator last observed and decided; only the operator writes it.",
        # A stream that no operator has looked at is behind, for who waits by the rules of kstatus.
        "default": {"observedGeneration": -1},
        "properties": {
            "phase": _text(
                "Pending, Starting, Running, Suspended, Failing, Invalid or Deleting.", 64
            ),
            "reason": _text("Why something changes, or why nothing does.", 4096),
            "mode": _text("Modes of balancing and scaling, or Paused.", 64),
            "observedGeneration": _whole("Generation of the spec that the operator last acted on."),
            "selector": _text("Label selector of the executor pods, for the scale subresource."),
            "partitions": _whole("State partitions, chosen when the stream was created."),
            "executors": _whole("Executors that run tasks."),
            "desiredExecutors": _whole("Executors that the stream should have."),
            "imbalance": _number("Busy time of the hottest executor divided by the mean of all."),
            "imbalanceBound": _number("The lowest imbalance that any placement can reach."),
            "imbalanceText": _text("Imbalance and bound, for the column of kubectl get.", 64),
            "backlogRows": _whole("Rows that wait at the sources."),
            "inputRowsPerSecond": _number("Rows read per second."),
            "trueProcessingRate": _number("Rows per second that all executors can process."),
            "utilization": _number("Fraction of the time that executors are busy."),
            "planEpoch": _whole("Epoch of the newest plan."),
            "appliedEpoch": _whole("Epoch of the plan that the driver applied."),
            "lastScaleTime": {"type": "string", "format": "date-time"},
            "hottestPartitions": _list(
                "The state partitions with the highest load.",
                MAX_HOTTEST,
                {
                    "query": _text("Name of the query."),
                    "operator": _whole("Spark's operator id."),
                    "partition": _whole("Number of the partition."),
                    "executor": _text("Id of the executor that runs it.", 64),
                    "busySeconds": _number("Mean busy seconds per batch."),
                    "stateBytes": _whole("Size of its state in bytes."),
                },
            ),
            "hottestKeys": _list(
                "The keys with the highest load, of operators that balanced(...) created.",
                MAX_HOTTEST,
                {
                    "query": _text("Name of the query."),
                    "operator": _whole("Spark's operator id."),
                    "key": _text("The key as JSON, or hashed.", MAX_KEY),
                    "partition": _whole("State partition that holds it."),
                    "busySeconds": _number("Mean busy seconds per batch."),
                },
            ),
            "preparations": _object(
                "State that executors loaded ahead of moves since the driver started, by its end.",
                {
                    outcome: _object(
                        sentence,
                        {
                            "moves": _whole("How many."),
                            "stateBytes": _whole("Size of their state."),
                            "seconds": _number("Time that executors loaded it, beside batches."),
                        },
                    )
                    for outcome, sentence in (
                        ("used", "Moves whose task found the state."),
                        ("wasted", "Partitions that did not move, or moved before it was there."),
                        ("failed", "Moves whose target did not get it; their task loaded it."),
                    )
                },
            ),
            "decisions": _list(
                "The last decisions that changed something, newest first.",
                MAX_DECISIONS,
                {
                    "time": {"type": "string", "format": "date-time"},
                    "kind": _text("move, scale, advise, or refuse (an approval).", 64),
                    "epoch": _whole("Epoch of the plan that carries it out."),
                    "reason": _text("Why it was made.", 2048),
                    "effect": _text("What was measured after it.", 1024),
                },
            ),
            "proposal": _object(
                "What would be done in mode Auto; absent where nothing is, or it is done anyway.",
                {
                    "id": _text("The value of the annotation that approves it.", 64),
                    "time": {"type": "string", "format": "date-time"},
                    "reason": _text("What would be done, and why.", 2048),
                },
            ),
            "approval": _object(
                "What became of the last approval.",
                {
                    "id": _text("The proposal that somebody approved.", 64),
                    "time": {"type": "string", "format": "date-time"},
                    "result": _text("CarriedOut or Refused.", 64),
                    "message": _text("Which plan carries it out, or why none does.", 2048),
                },
            ),
            "conditions": conditions,
        },
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
            "status": _status(),
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
