"""Posts Kubernetes events of one stream, each at most once in `AGAIN_S`."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from balancedstream_operator.api.resource import API_VERSION, KIND, MAX_MESSAGE, Manifest
from balancedstream_operator.api.status import StreamEvent
from balancedstream_operator.errors import ClusterError
from balancedstream_operator.kube.cluster import EventSink

log = logging.getLogger(__name__)

AGAIN_S = 1800.0
"""Pause before the operator posts the same event again."""

COMPONENT = "balancedstream"


class EventPoster:
    """Posts the events of one stream; logs an event that the API server refuses."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        # Message of the last event of each reason, and when it was posted.
        self._posted: dict[str, tuple[str, float]] = {}

    def post(self, resource: Mapping[str, Any], events: Iterable[StreamEvent]) -> None:
        """Posts the new ones among events of a BalancedStream; it blocks."""
        for event in events:
            now_s = time.monotonic()
            message, posted_s = self._posted.get(event.reason, ("", -AGAIN_S))
            if message == event.message and now_s < posted_s + AGAIN_S:
                continue
            self._posted[event.reason] = event.message, now_s
            try:
                self._sink.create_event(build_event(resource["metadata"], event, time.time()))
            except ClusterError as error:
                log.warning("event %s (%s) is not posted: %s", event.reason, event.message, error)


def build_event(metadata: Mapping[str, Any], event: StreamEvent, now_s: float) -> Manifest:
    """An event as Kubernetes keeps it.

    >>> metadata = {"name": "clicks", "namespace": "shop", "uid": "1"}
    >>> build_event(metadata, StreamEvent("Moving", "2 moves"), 0.0)["firstTimestamp"]
    '1970-01-01T00:00:00Z'
    """
    now = datetime.fromtimestamp(now_s, UTC)
    seconds = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    namespace, name = metadata["namespace"], metadata["name"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": f"{name}.{uuid.uuid4().hex[:16]}"},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": namespace,
            "name": name,
            "uid": metadata["uid"],
        },
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "message": event.message[:MAX_MESSAGE],
        "action": event.reason,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
