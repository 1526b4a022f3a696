"""Reads a BalancedStream where lists and watches may be behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from balancedstream_operator.api.annotations import read_goal
from balancedstream_operator.api.resource import API_VERSION, KIND, Stream
from balancedstream_operator.errors import StreamGoneError, StreamLeavingError
from balancedstream_operator.kube.cluster import Cluster


class StreamReader:
    """Reads one BalancedStream, as seldom as it can."""

    def __init__(self, stream: Stream, cluster: Cluster) -> None:
        self._stream = stream
        self._cluster = cluster
        self._current: Mapping[str, Any] | None = None
        # What this pass read.
        self._read: Mapping[str, Any] | None = None
        self._hint: str | None = None

    def find_current(self, resource: Mapping[str, Any]) -> Mapping[str, Any]:
        """The stream as a pass begins: read at the first call, and at a hint of a change.

        A server that is behind lists old streams, to an operator that starts and to one whose watch
        broke. Nothing in them tells their age: a resourceVersion may only be compared for equality,
        and an annotation does not change the generation. So a listed or watched stream that
        wants other things than the known one is a hint to read it; each hint is followed once.

        Raises:
            StreamGoneError: the stream was deleted.
            StreamLeavingError: it is being deleted.
            ClusterError: the API server cannot be reached.
        """
        version, goal = resource["metadata"].get("resourceVersion"), read_goal(resource)
        current, self._read = self._current, None
        if current is None or (version != self._hint and goal != read_goal(current)):
            current = self._current = self.require()
        self._hint = version
        return current

    def require(self) -> Mapping[str, Any]:
        """The stream as this pass has read it: a broken watch may have missed its deletion.

        Raises:
            StreamGoneError: the stream was deleted.
            StreamLeavingError: it is being deleted.
            ClusterError: the API server cannot be reached.
        """
        if self._read is None:
            self._read = self._get()
        return self._read

    def forget_read(self) -> None:
        """Has the next `require` of this pass read the stream anew."""
        self._read = None

    def forget(self) -> None:
        """Has the next pass read the stream, which may be deleted or made anew by then."""
        self._current = None

    def _get(self) -> Mapping[str, Any]:
        found = self._cluster.get(API_VERSION, KIND, self._stream.namespace, self._stream.name)
        if found is None or found["metadata"]["uid"] != self._stream.uid:
            message = f"{self._stream} was deleted; its pods stop, and its checkpoint stays"
            raise StreamGoneError(message)
        if found["metadata"].get("deletionTimestamp"):
            # It may have been deleted by the next pass.
            self.forget()
            raise StreamLeavingError(_describe_deletion(found["metadata"]))
        return found


def _describe_deletion(metadata: Mapping[str, Any]) -> str:
    """What a stream that is being deleted still waits for, for people."""
    finalizers = ", ".join(metadata.get("finalizers") or []) or "none"
    return (
        f"the stream is being deleted since {metadata['deletionTimestamp']}: it gets no plan, no "
        f"pod and no repair any more. Its finalizers are: {finalizers}; it goes when they are "
        "taken away. Its checkpoint stays"
    )
