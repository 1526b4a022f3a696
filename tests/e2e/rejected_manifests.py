"""Manifests that are wrong, and what the API server has to say to each."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Wrong:
    """A change that makes the smallest manifest wrong, and words that the refusal must hold."""

    name: str
    spec: dict[str, Any]
    says: str


SMALLEST: dict[str, Any] = {
    "image": "clicks:1",
    "application": {"file": "/app/clicks.py"},
    "executors": {"min": 1, "max": 4},
    "checkpoints": {"claim": "checkpoints"},
}


def _without(*path: str) -> dict[str, Any]:
    spec = copy.deepcopy(SMALLEST)
    inner = spec
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return spec


def _with(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(SMALLEST), **changes}


SPARK_APPLICATION = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "name": "clicks"}


def _target(**changes: Any) -> dict[str, Any]:
    return {"targetRef": SPARK_APPLICATION, "executors": {"min": 1, "max": 4}, **changes}


REJECTED = (
    Wrong("no image", _without("image"), "image and application and checkpoints are required"),
    Wrong("no application", _without("application"), "are required, except with targetRef"),
    Wrong("no executors", _without("executors"), "spec.executors: Required"),
    Wrong("no greatest number", _without("executors", "max"), "spec.executors.max: Required"),
    Wrong("no checkpoints", _without("checkpoints"), "are required, except with targetRef"),
    Wrong("missing claim", _with(checkpoints={}), "exactly one of claim"),
    Wrong("claim and uri", _with(checkpoints={"claim": "a", "uri": "s3a://b/c"}), "exactly one of"),
    Wrong("claim of no name", _with(checkpoints={"claim": "A claim"}), "spec.checkpoints.claim"),
    Wrong(
        "path that leaves the claim",
        _with(checkpoints={"claim": "a", "path": "../other"}),
        "path must not contain ..",
    ),
    Wrong("image of a wrong type", _with(image=7), "spec.image"),
    Wrong(
        "script without a path", _with(application={"file": "clicks.py"}), "spec.application.file"
    ),
    Wrong("no script", _with(application={}), "exactly one of file"),
    Wrong(
        "two scripts",
        _with(application={"file": "/a.py", "configMap": {"name": "a", "key": "b"}}),
        "exactly one of file",
    ),
    Wrong(
        "arguments as text",
        _with(application={"file": "/a.py", "arguments": "--x 1"}),
        "spec.application.arguments",
    ),
    Wrong("min above max", _with(executors={"min": 5, "max": 4}), "executors.min must not exceed"),
    Wrong("no executor at all", _with(executors={"min": 0, "max": 4}), "spec.executors.min"),
    Wrong("a number as text", _with(executors={"max": "4"}), "spec.executors.max"),
    Wrong("half an executor", _with(executors={"max": 1.5}), "spec.executors.max"),
    Wrong("memory of no unit", _with(driver={"memory": "1024"}), "spec.driver.memory"),
    Wrong("no partition", _with(partitions=0), "spec.partitions"),
    Wrong("unknown mode", _with(balancing={"mode": "auto"}), "spec.balancing.mode"),
    Wrong("no budget", _with(migration={"budgetSeconds": 0}), "spec.migration.budgetSeconds"),
    Wrong(
        "no window",
        _with(scaling={"windowSeconds": 0}),
        "spec.scaling.windowSeconds",
    ),
    Wrong("no interval", _with(metrics={"intervalSeconds": 0}), "spec.metrics.intervalSeconds"),
    Wrong(
        "no address of Prometheus",
        _with(metrics={"prometheusUrl": "prometheus:9090"}),
        "prometheusUrl",
    ),
    Wrong(
        "dynamic allocation",
        _with(sparkConf={"spark.dynamicAllocation.enabled": "True"}),
        "would both set the number of executors",
    ),
    Wrong(
        "state in memory",
        _with(
            sparkConf={
                "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution."
                "streaming.state.HDFSBackedStateStoreProvider"
            }
        ),
        "the in-memory store",
    ),
    Wrong("a setting of ours", _with(sparkConf={"spark.master": "local"}), "spark.master"),
    Wrong("a setting of no text", _with(sparkConf={"spark.x": 1}), "spec.sparkConf.spark.x"),
    Wrong("suspend as text", _with(suspend="yes"), "spec.suspend"),
    Wrong("image of a target", _target(image="clicks:1"), "image is the application's own"),
    Wrong("heap of a target", _target(driver={"memory": "2g"}), "driver.memory is the application"),
    Wrong("cores of a target", _target(executors={"max": 2, "cores": 2}), "executors.cores is the"),
    Wrong("stop of a target", _target(suspend=True), "suspend is the application's own"),
    Wrong("no target", _target(targetRef={}), "exactly one of name (a SparkApplication) and sel"),
    Wrong(
        "two targets",
        _target(targetRef=SPARK_APPLICATION | {"selector": {"app": "clicks"}}),
        "exactly one of name (a SparkApplication) and sel",
    ),
    Wrong("a target of no operator", _target(targetRef={"name": "clicks"}), "belong together"),
    Wrong(
        "a target of an unknown operator",
        _target(targetRef=SPARK_APPLICATION | {"apiVersion": "apps/v1"}),
        "spec.targetRef.apiVersion",
    ),
)
