"""Fingerprints that tell when a driver must restart, and when objects must be applied. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.api.schema import camel, list_restarting
from balancedstream_operator.api.spec import StreamSpec


def fingerprint_spec(spec: StreamSpec, restart: str, partitions: int | None = None) -> str:
    """A fingerprint that changes with every field of a spec that needs a new driver.

    It does not change with the operator's release.

    Args:
        spec: of the stream.
        restart: value of the annotation that asks for a new driver.
        partitions: that the spec asked for when an older release, in which they could not change,
            made the driver; None otherwise.
    """
    changes = list_restarting(spec)
    metrics = changes.pop("metrics", {})
    # Running drivers carry fingerprints of this form, and another form would restart them all.
    # These fields have a place each. Every other field has its name, if it is not the default.
    parts: list[Any] = [
        changes.pop("image", ""),
        changes.pop("image_pull_policy", spec.image_pull_policy),
        changes.pop("application", {}),
        {"max": 1, **changes.pop("executors", {})},
        changes.pop("checkpoints", {}),
        changes.pop("spark_conf", {}),
        changes.pop("driver", {}),
        partitions,
        metrics.pop("hot_keys", spec.metrics.hot_keys),
        restart,
    ]
    if metrics:
        changes["metrics"] = metrics
    if changes.get("fs_group") == 0:
        changes["fs_group"] = -1  # The first release with this field wrote 0 as -1.
    if changes:
        parts.append({camel(name): value for name, value in changes.items()})
    return fingerprint(parts)[:16]


def fingerprint_conf(executor_pod: Manifest, conf: Mapping[str, str]) -> str:
    """A fingerprint of everything outside the driver's pod template that needs a new driver.

    The number of executors in `conf` does not count.
    """
    restarts = {key: value for key, value in conf.items() if key != "spark.executor.instances"}
    return fingerprint([executor_pod, restarts])[:16]


def fingerprint(parts: Sequence[Any]) -> str:
    """A fingerprint of anything that JSON can say."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
