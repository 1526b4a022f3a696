"""Applies the objects of a stream, its children, so that they match its spec."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NoReturn

from balancedstream.core.wire.objects import STREAM_LABEL, plan_name
from balancedstream_operator.api.resource import Manifest, Stream, belongs_to
from balancedstream_operator.children.authentication import fill_secret
from balancedstream_operator.children.checkpoints import find_conflict
from balancedstream_operator.children.fingerprint import fingerprint
from balancedstream_operator.children.pods import JOB_PODS
from balancedstream_operator.errors import ConflictError, RefusedError, UnreachableError
from balancedstream_operator.kube.clocks import choose_retry_s, has_passed
from balancedstream_operator.kube.cluster import Cluster
from balancedstream_operator.kube.stream_reader import StreamReader

log = logging.getLogger(__name__)

REPAIR_S = 300.0
"""Children are applied when the spec changes, and at this interval to undo changes by others."""

DRIVERS = "app.kubernetes.io/name=balancedstream-driver"
"""Label selector of all driver pods."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An error of the API server about children, and when it came first and last."""

    of: str
    error: RefusedError | ConflictError
    first_at_s: float
    last_at_s: float

    def holds(self, of: str, now_s: float) -> bool:
        """Whether it is too soon to apply these children again; a clock may be set back."""
        pause_s = choose_retry_s(self.last_at_s - self.first_at_s)
        return of == self.of and 0.0 <= now_s - self.last_at_s < pause_s


class Applier:
    """Applies the children of one stream."""

    def __init__(
        self,
        stream: Stream,
        cluster: Cluster,
        reader: StreamReader,
        find_streams: Callable[[], Iterable[Mapping[str, Any]]],
        namespaces: Sequence[str],
    ) -> None:
        self._stream = stream
        self._cluster = cluster
        self._reader = reader
        self._find_streams = find_streams
        self._namespaces = namespaces
        # Uids of the existing children, as last seen, by kind and name.
        self._own: dict[tuple[str, str], str] = {}
        self._applied = ""
        self._applied_at_s = 0.0
        self._refusal: _Refusal | None = None

    def is_due(self, children: Sequence[Manifest], now_s: float) -> bool:
        """Whether children have changed, or were not applied for `REPAIR_S`.

        Raises:
            RefusedError: the API server refused them a short time ago.
            ConflictError: a rule of the operator forbade them a short time ago.
        """
        wanted = fingerprint(children)
        if self._refusal and self._refusal.holds(wanted, now_s):
            raise self._refusal.error
        return wanted != self._applied or has_passed(REPAIR_S, self._applied_at_s, now_s)

    def check(self, children: Sequence[Manifest]) -> bool:
        """Checks that the stream exists, and that its checkpoint and children are its own.

        Returns:
            Whether the stream has children besides the plan's ConfigMap.

        Raises:
            StreamGoneError: the stream was deleted.
            StreamLeavingError: the stream is being deleted.
            ConflictError: another stream has its checkpoint, or an object of another owner has the
                name of a child.
            ClusterError: the API server cannot be reached.
        """
        self._refuse_shared_checkpoint(self._reader.require())
        return self._has_children(children) or bool(self._applied)

    def apply(self, children: Sequence[Manifest], now_s: float) -> None:
        """Applies all children, in their order; an existing Secret stays as it is.

        Raises:
            ConflictError: an object of another owner has the name of a child.
            ClusterError: the API server refuses a child, or cannot be reached.
        """
        # A refusal in the middle leaves some children changed, so all must be applied again.
        self._applied_at_s = -inf
        try:
            for child in children:
                self._apply(child)
        except (RefusedError, ConflictError) as error:
            self._note_refusal(fingerprint(children), error, now_s)
            raise
        self._refusal = None
        self._applied, self._applied_at_s = fingerprint(children), now_s

    def _apply(self, child: Manifest) -> None:
        if child["kind"] == "Secret":
            content = fill_secret(secrets.token_bytes(32))
            self._cluster.create_secret(child | {"stringData": content})
            return
        key = child["kind"], child["metadata"]["name"]
        # Forget the uid first: after a failure, the next pass looks for the child.
        uid = self._cluster.apply(child, self._own.pop(key, ""))
        if not uid:
            # The child was deleted, and another object may have its name by now.
            self._find_own(child)
            uid = self._cluster.apply(child, self._own.pop(key, ""))
        if not uid:
            message = f"{key[0]} {key[1]} was created anew while the operator applied it"
            raise UnreachableError(message)
        self._own[key] = uid

    def _note_refusal(self, of: str, error: RefusedError | ConflictError, now_s: float) -> None:
        before = self._refusal
        first_at_s = before.first_at_s if before and before.of == of else now_s
        self._refusal = _Refusal(of, error, first_at_s, now_s)

    def _refuse_shared_checkpoint(self, resource: Mapping[str, Any]) -> None:
        pods = self._cluster.list_pods(self._stream.namespace, DRIVERS)
        labels = [pod["metadata"].get("labels") or {} for pod in pods]
        pods += self._cluster.list_pods(self._stream.namespace, JOB_PODS)
        is_driven = any(found.get(STREAM_LABEL) == self._stream.name for found in labels)
        # A claim belongs to one namespace, but a URI is the same folder in all namespaces. Once a
        # stream has its driver, a pod elsewhere must not take the checkpoint from it.
        if (resource["spec"].get("checkpoints") or {}).get("uri") and not is_driven:
            for namespace in self._namespaces:
                pods += self._list_drivers(namespace)
        conflict = find_conflict(self._stream, self._find_streams(), pods)
        if conflict:
            message = (
                f"{conflict.message}, and two drivers on one checkpoint would lose data: delete "
                "the other one, or give this stream a checkpoint of its own"
            )
            raise ConflictError(message, passes=conflict.passes)

    def _list_drivers(self, namespace: str) -> list[Manifest]:
        try:
            return self._cluster.list_pods(namespace, DRIVERS)
        except RefusedError as error:
            # The operator's rights vanish with a deleted namespace; other streams must go on.
            log.warning("%s: %s", self._stream, error)
            return []

    def _has_children(self, children: Sequence[Manifest]) -> bool:
        """Whether there are children besides the plan's ConfigMap."""
        # The operator may not read Secrets. A Secret's name contains the stream's uid, so no other
        # owner has it.
        there = [c for c in children if c["kind"] != "Secret" and self._find_own(c)]
        return any(c["metadata"]["name"] != plan_name(self._stream.name) for c in there)

    def _find_own(self, child: Manifest) -> bool:
        """Looks for a child in the cluster unless its uid is known, and notes its uid."""
        kind, metadata = child["kind"], child["metadata"]
        key = kind, metadata["name"]
        if key in self._own:
            return True
        found = self._cluster.get(
            child["apiVersion"], kind, metadata["namespace"], metadata["name"]
        )
        if found is None:
            return False
        there = found["metadata"]
        if not belongs_to(there, self._stream):
            refuse_stranger(kind, metadata["name"])
        self._own[key] = there["uid"]
        return True


def refuse_stranger(kind: str, name: str) -> NoReturn:
    """Refuses to go on while an object of another owner has the name of a child.

    Raises:
        ConflictError: always.
    """
    message = (
        f"{kind} {name} exists and does not belong to this stream; delete it, or give the stream "
        "another name"
    )
    raise ConflictError(message)
