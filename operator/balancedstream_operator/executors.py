"""Why executors do not start, from their pods: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

SHORT_AFTER_S = 60.0
"""Executors that are missing for longer than this are reported."""

MAX_WORDS = 600
"""Characters of what Kubernetes says."""


def explain_shortage(pods: Iterable[Mapping[str, Any]]) -> str:
    """What keeps executors from starting, in Kubernetes' own words; the most frequent come first.

    Args:
        pods: of a stream's executors.

    >>> explain_shortage([])
    "no pod of theirs waits: the namespace's quota may be used up, and the driver's log says so"
    """
    said = Counter(words for words in map(_describe, pods) if words)
    if not said:
        return (
            "no pod of theirs waits: the namespace's quota may be used up, and the driver's log "
            "says so"
        )
    return "; ".join(words for words, _ in said.most_common())[:MAX_WORDS]


def _describe(pod: Mapping[str, Any]) -> str:
    """What a pod waits for; empty if it does not wait."""
    status = pod.get("status") or {}
    if status.get("phase") != "Pending" or pod["metadata"].get("deletionTimestamp"):
        return ""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "no node fits")
    for container in status.get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            return f"{waiting['reason']}: {waiting.get('message') or 'see the pod'}"
    return f"pod {pod['metadata']['name']} is starting"
