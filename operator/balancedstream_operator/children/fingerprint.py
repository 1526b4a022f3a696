"""When a driver must be replaced by a new one: pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from typing import Any

from balancedstream_operator.api.job import GROUP_ID, Executors
from balancedstream_operator.api.spec import StreamSpec

_LIMITS = ("max", "min", "fixed", "max_cores", "max_memory", "min_query")
"""Of the executors: they say how many there are, and nothing of each."""


def fingerprint(spec: StreamSpec, restart: str) -> str:
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
    text = json.dumps(parts, sort_keys=True, default=_list_changes)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _list_changes(part: Any) -> dict[str, Any]:
    """The fields that are not as by default: what a release adds does not count."""
    values = {entry.name: getattr(part, entry.name) for entry in fields(part)}
    defaults = {
        entry.name: entry.default_factory() if callable(entry.default_factory) else entry.default
        for entry in fields(part)
    }
    return {name: value for name, value in values.items() if value != defaults[name]}
