"""Follows the BalancedStreams of one namespace, or of the whole cluster: it lists and watches them.

Nothing that the API server says ends it: where the BalancedStreams cannot be seen, because the
operator's rights or the definition are gone, or are not there yet, it says so and looks again. So
no namespace can stop the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

from balancedstream_operator.errors import ClusterError
from balancedstream_operator.kube import translate_errors
from balancedstream_operator.reading import bound_stream, read_json
from balancedstream_operator.resource import API_VERSION, KIND, PLURAL, Manifest

log = logging.getLogger(__name__)

WATCH_S = 300
"""All are listed again this often, and what a watch has lost is there again."""

LOOK_AGAIN_S = 2.0
MAX_LOOK_AGAIN_S = 30.0
"""Pause after the BalancedStreams could not be seen; it doubles each time, up to the limit."""

PAGE = 50
"""Objects of one answer: each may have more than a megabyte."""

MAX_LINE_BYTES = 8 * 1024 * 1024
"""Of an event of a watch; the API server stores no object that is larger than 3 MiB."""

_TIMEOUT_S = (10, 60)
_CHUNK_BYTES = 64 * 1024

_FORBIDDEN, _NOT_FOUND, _EXPIRED = 403, 404, 410


@dataclass(frozen=True, slots=True)
class Sight:
    """Whether the BalancedStreams of a namespace can be seen.

    Attributes:
        hidden: why not; empty if they can.
        reason: the same in one CamelCase word: Forbidden, NoDefinition or Unreachable.
    """

    hidden: str = ""
    reason: str = ""


class Audience(Protocol):
    """Who is told of BalancedStreams; every call comes from a follower's thread."""

    def update(self, resource: Manifest) -> None:
        """There is a new one, or one has changed, perhaps."""

    def remove(self, resource: Manifest) -> None:
        """One was deleted."""

    def keep(self, namespace: str, uids: set[str]) -> None:
        """All that a namespace has, "" for the cluster: any other one is gone."""

    def see(self, namespace: str, sight: Sight) -> None:
        """Those of a namespace can be seen, or not."""


class Follower:
    """Tells an audience of BalancedStreams, from a thread of its own.

    Args:
        client: of the API server.
        namespace: of the BalancedStreams; "" for the whole cluster.
        audience: that is told.
    """

    def __init__(self, client: DynamicClient, namespace: str, audience: Audience) -> None:
        self._client = client
        self._namespace = namespace
        self._audience = audience
        self._stopped = threading.Event()
        self._sight: Sight | None = None
        within = f"/namespaces/{namespace}" if namespace else ""
        self._path = f"/apis/{API_VERSION}{within}/{PLURAL}"
        self._where = f"of namespace {namespace}" if namespace else "of the cluster"

    def start(self) -> None:
        """Begins; the thread does not keep the process from ending."""
        threading.Thread(target=self.run, name=f"follow {self._namespace}", daemon=True).start()

    def stop(self) -> None:
        """Ends with the next answer of the API server."""
        self._stopped.set()

    def run(self) -> None:
        """Lists and watches until it is stopped."""
        pause_s = LOOK_AGAIN_S
        while not self._stopped.is_set():
            began_s = time.monotonic()
            try:
                version = self._list()
                self._see(Sight())
                self._watch(version)
            except Exception as error:
                if self._stopped.is_set():
                    return
                self._explain(error)
            # A server that ends each watch at once, or cannot list, is not asked all the time.
            lasted = time.monotonic() - began_s > 2.0 * pause_s
            pause_s = LOOK_AGAIN_S if lasted else min(2.0 * pause_s, MAX_LOOK_AGAIN_S)
            self._stopped.wait(pause_s)

    def _list(self) -> str:
        """Tells of all that there are; returns the version from which a watch goes on."""
        uids: set[str] = set()
        token: str | None = None
        while True:
            query = [("limit", PAGE)] + ([("continue", token)] if token else [])
            with translate_errors(f"list the {KIND}s {self._where}"):
                answer = self._get(query, _TIMEOUT_S)
                text = answer.data
            page = read_json(text)
            for item in page.get("items") or []:
                # A list says for all of its items what they are.
                resource = {"apiVersion": API_VERSION, "kind": KIND, **item}
                self._tell("MODIFIED", resource, len(text))
                uids.add(resource["metadata"]["uid"])
            metadata = page.get("metadata") or {}
            token = metadata.get("continue")
            if not token:
                break
        self._audience.keep(self._namespace, uids)
        return str(metadata.get("resourceVersion") or "")

    def _watch(self, version: str) -> None:
        """Tells of all changes since a version, until the watch ends."""
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", WATCH_S),
        ]
        with translate_errors(f"watch the {KIND}s {self._where}"):
            answer = self._get(query, (10, WATCH_S + 30))
        try:
            for line in read_lines(answer):
                if self._stopped.is_set():
                    return
                event = read_json(line)
                if event["type"] == "ERROR":
                    # Mostly that the version is too old; a list begins anew.
                    log.info("the watch %s ended: %s", self._where, event["object"])
                    return
                if event["type"] in {"ADDED", "MODIFIED", "DELETED"}:
                    self._tell(event["type"], event["object"], len(line))
        except HTTPError as error:
            log.debug("the watch %s broke: %s", self._where, error)
        finally:
            answer.close()

    def _get(self, query: list[tuple[str, Any]], timeout_s: tuple[float, float]) -> HTTPResponse:
        found: HTTPResponse = self._client.request(
            "GET", self._path, query_params=query, serialize=False, _request_timeout=timeout_s
        )
        return found

    def _tell(self, what: str, resource: Manifest, size_bytes: int) -> None:
        resource = bound_stream(resource, size_bytes)
        if what == "DELETED":
            self._audience.remove(resource)
        else:
            self._audience.update(resource)

    def _explain(self, error: Exception) -> None:
        cause = error.__cause__
        status = cause.status if isinstance(cause, ApiException) else None
        if status == _EXPIRED:
            return
        if status == _FORBIDDEN:
            said = f"{error}. They are left alone, and looked for again"
            self._see(Sight(said, "Forbidden"))
        elif status == _NOT_FOUND:
            said = (
                f"the definition of {KIND} (CRD) is not in the cluster, or is not the one of this "
                f"release, which has version {API_VERSION}: install it; no restart is needed"
            )
            self._see(Sight(said, "NoDefinition"))
        else:
            if not isinstance(error, ClusterError):
                log.exception("what the API server said of the %ss cannot be read", KIND)
            self._see(Sight(str(error) or type(error).__name__, "Unreachable"))

    def _see(self, sight: Sight) -> None:
        before = self._sight or Sight()
        if sight.reason != before.reason:
            if sight.hidden:
                log.warning("the %ss %s are not seen: %s", KIND, self._where, sight.hidden)
            else:
                log.info("the %ss %s are seen again", KIND, self._where)
        self._sight = sight
        self._audience.see(self._namespace, sight)


def read_lines(answer: HTTPResponse) -> Iterator[bytes]:
    """The lines of an answer as they come; one that is far too long is left out.

    Raises:
        HTTPError: the connection broke.
    """
    rest, skips = b"", False
    while chunk := answer.read1(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if not skips and line.strip():
                yield line
            skips = False
        if len(rest) > MAX_LINE_BYTES:
            log.warning("an event of more than %d bytes is left out", MAX_LINE_BYTES)
            rest, skips = b"", True
    if rest.strip() and not skips:
        yield rest


def start_followers(
    client: DynamicClient, namespaces: Iterable[str], audience: Audience
) -> list[Follower]:
    """Follows the BalancedStreams of each namespace, "" for the whole cluster."""
    followers = [Follower(client, namespace, audience) for namespace in namespaces]
    for follower in followers:
        follower.start()
    return followers
