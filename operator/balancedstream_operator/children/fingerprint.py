"""Fingerprints: what needs a new driver, and what has to be applied anew. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from balancedstream_operator.api.job import GROUP_ID, Executors
from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.api.spec import StreamSpec

_LIMITS = ("max", "min", "fixed", "max_cores", "max_memory", "min_query")
"""Of the executors: they say how many there are, and nothing of each."""


def fingerprint_spec(spec: StreamSpec, restart: str) -> str:
    """Changes with everything in a spec that needs a new driver, and with nothing of a release.

    Args:
        spec: of the stream.
        restart: value of the annotation that asks for a new driver; empty for none.
    """
    limits = Executors(max=1)
    executors = replace(spec.executors, **{name: getattr(limits, name) for name in _LIMITS})
    parts: list[Any] = [
        spec.image,
        spec.image_pull_policy,
        spec.application,
        executors,
        spec.checkpoints,
        spec.spark_conf,
        # Evictable or not takes effect without a new pod, by its budget.
        replace(spec.driver, evictable=True),
        spec.partitions,
        spec.metrics.hot_keys,
        restart,
    ]
    # Beside the others where there are any: what a release adds changes nothing by itself.
    named = {
        "imagePullSecrets": list(spec.image_pull_secrets),
        "labels": dict(spec.labels),
        "annotations": dict(spec.annotations),
        "fsGroup": 0 if spec.fs_group == GROUP_ID else spec.fs_group or -1,
    }
    given = {name: value for name, value in named.items() if value}
    parts += [given] if given else []
    return _hash(parts)[:16]


def fingerprint_conf(executor_pod: Manifest, conf: Mapping[str, str]) -> str:
    """Changes with everything outside the driver's pod template that needs a new driver.

    Args:
        executor_pod: template of the executors' pods.
        conf: the job's Spark settings.
    """
    restarts = {key: value for key, value in conf.items() if key != "spark.executor.instances"}
    return _hash([executor_pod, restarts])[:16]


def fingerprint_children(children: Sequence[Manifest]) -> str:
    """Changes with the objects of a stream, which then have to be applied."""
    return _hash(children)


def _hash(parts: Sequence[Any]) -> str:
    text = json.dumps(parts, sort_keys=True, default=_list_changes)
    return hashlib.sha256(text.encode()).hexdigest()


def _list_changes(part: Any) -> dict[str, Any]:
    """The fields that are not as by default: what a release adds does not count."""
    values = {entry.name: getattr(part, entry.name) for entry in fields(part)}
    defaults = {
        entry.name: entry.default_factory() if callable(entry.default_factory) else entry.default
        for entry in fields(part)
    }
    return {name: value for name, value in values.items() if value != defaults[name]}
