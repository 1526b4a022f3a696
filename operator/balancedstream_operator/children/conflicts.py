"""Finds where a user's pod templates and settings contradict the operator's or Spark's: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from balancedstream_operator.api.resource import GROUP, NAME, Manifest, Stream, refuse
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.children.configuration import build_running_conf
from balancedstream_operator.children.merge import find_lost, find_repeated, name_account
from balancedstream_operator.children.pods import (
    DRIVER_TEMPLATE,
    EXECUTORS_TEMPLATE,
    build_driver_pod,
    build_executor_pod,
    stream_labels,
)
from balancedstream_operator.children.spark_pods import CONTAINER, make_executor_pod

_REPLACEABLE = {"tmp", "CHECKPOINT_DIR"}
"""Names of our volumes and variables that a user's template may replace."""

_EXECUTOR_ACCOUNT = "spark.kubernetes.authenticate.executor.serviceAccountName"

_INSTEAD = {
    "image": "set spec.image",
    "imagePullPolicy": "set spec.imagePullPolicy",
    "cpu": "set spec.executors.cpu",
    "memory": "set spec.executors.memory and memoryOverhead",
    "lifecycle": "leave it out, or set spark.decommission.enabled to false in spec.sparkConf",
}
"""Advice for each field of an executor's container that Spark overwrites."""


def check_templates(stream: Stream, spec: StreamSpec) -> None:
    """Refuses templates and settings that would have no effect, or would break the pods.

    Raises:
        InvalidInputError: a template or a setting is refused; the message names the field.
    """
    _check_accounts(stream, spec)
    _check_driver(stream, spec)
    _check_executors(stream, spec)


def _check_accounts(stream: Stream, spec: StreamSpec) -> None:
    driver, executors = spec.driver.service_account, spec.executors.service_account
    path = "spec.driver.serviceAccount"
    made = build_driver_pod(stream, spec, {})["spec"]["serviceAccountName"]
    of_executors = build_executor_pod(stream, spec)["spec"]["serviceAccountName"]
    for template, account in ((DRIVER_TEMPLATE, made), (EXECUTORS_TEMPLATE, of_executors)):
        if not re.fullmatch(NAME, str(account)):
            refuse(f"{template}.spec.serviceAccountName", f"{account!r} is no name of an account")
    if driver.name and driver.name != made:
        refuse(f"{path}.name", f"the driver's pod template names another account, {made}")
    if driver.annotations and made != f"{stream.name}-driver":
        refuse(f"{path}.annotations", f"account {made} is not the operator's: annotate it there")
    own = spec.spark_conf.get(_EXECUTOR_ACCOUNT)
    if own and executors.name and own != executors.name:
        problem = f"spec.executors.serviceAccount.name names another account, {executors.name}"
        refuse(f"spec.sparkConf.{_EXECUTOR_ACCOUNT}", problem)


def _check_driver(stream: Stream, spec: StreamSpec) -> None:
    given = name_account(spec.driver.pod_template)
    made = build_driver_pod(stream, spec, {})
    _check_metadata(given, stream, DRIVER_TEMPLATE)
    for path, value in find_lost(given, made, DRIVER_TEMPLATE):
        refuse(path, f"the operator sets it to {value!r}")
    plain = replace(spec, driver=replace(spec.driver, pod_template={}))
    ours = _pick_needed(stream, build_driver_pod(stream, plain, {}), "driver")
    _refuse_missing(ours, made, DRIVER_TEMPLATE)
    for path in find_repeated(made, DRIVER_TEMPLATE):
        refuse(path, "the operator adds an entry of this name, too")


def _check_executors(stream: Stream, spec: StreamSpec) -> None:
    given = name_account(spec.executors.pod_template)
    _check_metadata(given, stream, EXECUTORS_TEMPLATE)
    template = build_executor_pod(stream, spec)
    made = make_executor_pod(template, build_running_conf(stream, spec), name=stream.name)
    for path, value in find_lost(given, made, EXECUTORS_TEMPLATE):
        field = path.rpartition(".")[2]
        refuse(path, f"Spark sets it to {value!r}: {_INSTEAD.get(field, 'leave it out')}")
    plain = replace(spec, executors=replace(spec.executors, pod_template={}))
    ours = _pick_needed(stream, build_executor_pod(stream, plain), CONTAINER)
    _refuse_missing(ours, made, EXECUTORS_TEMPLATE)
    for path in find_repeated(made, EXECUTORS_TEMPLATE):
        refuse(path, "the operator, Spark or spec.sparkConf adds an entry of this name, too")


def _check_metadata(template: Mapping[str, Any], stream: Stream, path: str) -> None:
    metadata = template.get("metadata")
    given = metadata if isinstance(metadata, Mapping) else {}
    for field in ("name", "generateName"):
        if given.get(field):
            refuse(f"{path}.metadata.{field}", "the pods have names already")
    if given.get("namespace") not in {None, stream.namespace}:
        refuse(f"{path}.metadata.namespace", f"the pods are in {stream.namespace}")
    annotations = given.get("annotations")
    for key in annotations if isinstance(annotations, Mapping) else ():
        if key.startswith(f"{GROUP}/"):
            refuse(f"{path}.metadata.annotations.{key}", "the operator sets it")


def _pick_needed(stream: Stream, pod: Manifest, name: str) -> Manifest:
    """The part of our pod that a user's template must not change."""
    spec = pod["spec"]
    (container,) = spec["containers"]
    lists = {field: container.get(field, []) for field in ("env", "ports", "volumeMounts")}
    needed = {field: _leave_out(entries) for field, entries in lists.items()}
    return {
        "metadata": {"labels": stream_labels(stream, name)},
        "spec": {
            "containers": [{"name": name, **needed}],
            "volumes": _leave_out(spec["volumes"]),
        },
    }


def _leave_out(entries: list[Manifest]) -> list[Manifest]:
    return [entry for entry in entries if entry.get("name") not in _REPLACEABLE]


def _refuse_missing(ours: Manifest, made: Manifest, path: str) -> None:
    for where, value in find_lost(ours, made, path):
        refuse(where, f"the pod needs it as the operator sets it, and not {value!r}")
