"""Why a driver of ours does not start, if no container of its pod tells it: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from balancedstream_operator.api.resource import GROUP, Stream, driver_name
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.errors import ClusterError, RefusedError

HINDERED_AFTER_S = 60.0
"""The operator looks for the cause once a driver has waited for longer than this."""

WOKEN_ANNOTATION = f"{GROUP}/woken"
"""On a driver's StatefulSet: a new value wakes its controller, which otherwise pauses for up to 17
minutes after refusals."""

WAKES_EACH_S = 60.0
"""The controller is woken once in this time at most."""

_QUOTA_IS_USED_UP = "exceeded quota"
"""How the API server says that a pod fits as soon as others end."""


def explain_absence(driver: DriverState, error: ClusterError) -> DriverState:
    """The state of a driver whose StatefulSet makes no pod, because the API server refuses the pod.

    >>> refused = RefusedError("exceeded quota: few")
    >>> explain_absence(DriverState("Pending", "NoDriver", ""), refused).reason
    'DriverRefused'
    """
    message = f"{driver.message}: {error}"
    if not isinstance(error, RefusedError):
        # Nobody refused the pod: a webhook may be down.
        return replace(driver, message=message)
    phase = driver.phase if _QUOTA_IS_USED_UP in str(error) else "Failing"
    return replace(driver, phase=phase, reason="DriverRefused", message=message)


def explain_pause(stream: Stream, driver: DriverState, error: ClusterError | None) -> DriverState:
    """The state of a driver whose StatefulSet makes no pod that the API server would take.

    `error` tells why the operator could not wake its controller; None if it could.
    """
    woken = f"tries again after a pause of up to 17 minutes ({error})" if error else "was woken"
    message = (
        f"{driver.message}. The API server would take it now, and the StatefulSet's controller "
        f"{woken}; kubectl describe statefulset {driver_name(stream)} --namespace "
        f"{stream.namespace} says more"
    )
    return replace(driver, message=message)


def list_config_maps(pod: Mapping[str, Any]) -> Iterator[tuple[str, frozenset[str]]]:
    """The ConfigMaps of a pod's volumes without which it does not start, and their keys.

    >>> source = {"name": "script", "items": [{"key": "run.py", "path": "script.py"}]}
    >>> list(list_config_maps({"spec": {"volumes": [{"name": "a", "configMap": source}]}}))
    [('script', frozenset({'run.py'}))]
    """
    for volume in (pod.get("spec") or {}).get("volumes") or []:
        parts = (volume.get("projected") or {}).get("sources") or []
        for source in (part.get("configMap") for part in [volume, *parts]):
            if not source or source.get("optional"):
                continue
            keys = frozenset(item["key"] for item in source.get("items") or [])
            yield source["name"], keys


def explain_config_map(
    driver: DriverState, name: str, keys: frozenset[str], found: Mapping[str, Any] | None
) -> DriverState | None:
    """The state of a driver whose pod waits for a ConfigMap; None if it does not."""
    there = {**((found or {}).get("data") or {}), **((found or {}).get("binaryData") or {})}
    missing = ", ".join(sorted(keys - there.keys()))
    if found is not None and not missing:
        return None
    lacks = f"has no key {missing}" if found is not None else "does not exist"
    message = (
        f"the driver's pod waits for ConfigMap {name}, which {lacks}: add it, and the pod starts "
        "by itself, or correct the spec"
    )
    return replace(driver, phase="Failing", reason="ConfigMapMissing", message=message)
